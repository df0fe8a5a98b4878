"""The page of a Workload."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from turnstile.api import workload as wl
from turnstile.api.conditions import instant, later, timestamp
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Condition, OwnerReference, find_condition
from turnstile.api.workload import Workload
from turnstile.engine.quota.amounts import text
from turnstile.engine.quota.info import Info
from turnstile.insight.explain import Explanation
from turnstile.insight.running import Running, running
from turnstile.web import commands, queues
from turnstile.web.explanations import Kept
from turnstile.web.listing import state_of
from turnstile.web.queues import Entry
from turnstile.web.sight import EVERYTHING, Sight
from turnstile.web.world import World
from turnstile.wording.causes import waiting

_PAST: Final = {
    wl.QUOTA_RESERVED: ("Quota reserved", "Waits"),
    wl.ADMITTED: ("Admitted", "Not admitted"),
    wl.PODS_READY: ("Pods ready", "Pods not ready"),
    wl.PODS_SCHEDULED: ("Pods scheduled", "Pods not scheduled"),
    wl.FINISHED: ("Finished", ""),
    wl.EVICTED: ("Evicted", "No longer evicted"),
    wl.PREEMPTED: ("Preempted", "No longer preempted"),
    wl.REQUEUED: ("Requeued", "Waits to be requeued"),
    wl.DEACTIVATION_TARGET: ("To be deactivated", ""),
}
"""The sentence of a condition if it is true, and if it is false; conditions of other types are shown as they are."""


_TELLING: Final = {wl.QUOTA_RESERVED, wl.EVICTED, wl.PREEMPTED, wl.REQUEUED, wl.DEACTIVATION_TARGET}
_TONES: Final = {
    "Quota reserved": "good", "Admitted": "good", "Pods ready": "good", "Waits": "warm", "Pods not ready": "warm",
    "Pods not scheduled": "warm", "Evicted": "bad", "Preempted": "bad", "To be deactivated": "bad", "Finished": "over",
}  # fmt: skip


class Moment(NamedTuple):
    """Something that happened to a Workload."""

    at: str
    what: str
    reason: str
    message: str

    @property
    def tone(self) -> str:
        """The kind of news, as those of `history.Event`."""
        return _TONES.get(self.what, "")


@dataclass(frozen=True, slots=True)
class Pods:
    """One pod set: what its pods ask for together, and the flavors that they were given."""

    name: str
    count: int
    requests: tuple[tuple[str, str, str], ...]
    """Resource, amount of all its pods, flavor (empty if none was given)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Everything about a Workload."""

    entry: Entry
    uid: str
    cluster_queue: str
    created: str
    active: bool
    priority_class: str
    owners: tuple[OwnerReference, ...]
    pods: tuple[Pods, ...]
    moments: tuple[Moment, ...]
    explained: Kept[Explanation]
    message: str
    """The message of its condition, or of its queues, if it waits."""
    run: Running | None
    """The run that goes on, or the last one; None if there was none."""
    placed: str
    """The flavor on whose nodes its pods have places; empty if topology placed none."""
    elsewhere: str
    """The worker cluster that runs its pods; empty if none does."""
    commands: tuple[tuple[str, str], ...]
    until: str
    """When the pods of an evicted Workload that keeps its quota are ended; empty if they are not, or of another."""


def workload(world: World, key: str, explained: Kept[Explanation], sight: Sight = EVERYTHING) -> Page | None:
    """A Workload by its key; None if there is none that the reader may see."""
    info = world.state.workloads.get(key)
    if info is None or not sight.sees(info.workload.metadata.namespace):
        return None
    given = info.workload
    admission = given.status.admission
    local = world.of(LocalQueue).get(info.local_queue)
    named = (local.spec.cluster_queue or "") if local is not None else ""
    ref = given.spec.priority_class_ref
    entry = queues.entry(world, info, sight=sight)
    return Page(
        entry=entry,
        uid=given.metadata.uid,
        cluster_queue=admission.cluster_queue if admission is not None else named,
        created=given.metadata.creation_timestamp or "",
        active=given.spec.active,
        priority_class=ref.name if ref is not None else "",
        owners=tuple(given.metadata.owner_references),
        pods=tuple(_pods(info)),
        moments=tuple(moments(given)),
        explained=explained,
        message=queues.message_about(world, info, sight) if entry.state in ("pending", "inactive") else "",
        run=running(given, world.now.timestamp()),
        placed=_placed(world, info),
        elsewhere=given.status.cluster_name or "",
        commands=tuple(commands.of_workload(entry)),
        until=_until(world, info),
    )


def _until(world: World, info: Info) -> str:
    patience = world.state.options.victim_patience
    evicted = find_condition(info.workload.status.conditions, wl.EVICTED)
    since = instant(evicted.last_transition_time) if evicted is not None else None
    if patience is None or since is None or state_of(info.workload) != "leaving":
        return ""
    return timestamp(later(since, patience))


def _placed(world: World, info: Info) -> str:
    trees = world.state.surroundings.nodes.trees
    flavors = (set((item.flavors or {}).values()) & trees.keys() for item in info.totals if item.topology is not None)
    return min((flavor for found in flavors for flavor in found), default="")


def _pods(info: Info) -> Iterator[Pods]:
    for item in info.totals:
        flavors = item.flavors or {}
        asked = ((name, text(name, amount), flavors.get(name, "")) for name, amount in item.requests.items())
        yield Pods(item.name, item.count, tuple(asked))


def _in_words(condition: Condition) -> str:
    """The message of a condition; in words if it tells why the Workload waits or gives its quota back."""
    if condition.type in _TELLING and (condition.type != wl.QUOTA_RESERVED or condition.status != "True"):
        return waiting(condition.message.removeprefix("Previously: "))
    return condition.message


def moments(workload: Workload) -> Iterator[Moment]:
    """The events that the conditions and checks of a Workload show, the latest first."""
    found = [Moment(workload.metadata.creation_timestamp or "", "Created", "", "")]
    for each in workload.status.conditions:
        true, false = _PAST.get(each.type, (each.type, f"{each.type}: {each.status}"))
        if what := true if each.status == "True" else false:
            found.append(Moment(each.last_transition_time, what, each.reason, _in_words(each)))
    found += [
        Moment(check.last_transition_time, f"Admission check {check.name}: {check.state}", "", check.message)
        for check in workload.status.admission_checks
    ]
    order = [*_PAST]
    rank = {what: number for number, kind in enumerate(order) for what in _PAST[kind]}
    yield from sorted(found, key=lambda each: (each.at, each.what != "Created", rank.get(each.what, 0)), reverse=True)
