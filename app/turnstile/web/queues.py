"""The page of a ClusterQueue: quota, policies, LocalQueues, who waits in it and who holds quota."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue, ClusterQueueSpec
from turnstile.api.effectivequota import set_by
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload
from turnstile.engine.quota.amounts import FlavorResource, text
from turnstile.engine.quota.info import Info
from turnstile.web import overview, quotas
from turnstile.web.listing import state_of
from turnstile.web.overview import Held, Loan, Row
from turnstile.web.sight import EVERYTHING, Sight
from turnstile.web.world import World
from turnstile.wording.amounts import amount, rank
from turnstile.wording.causes import waiting
from turnstile.wording.evictions import evicted
from turnstile.wording.grammar import sentence
from turnstile.wording.standing import PREEMPTORS
from turnstile.wording.standing import preempted as preempted_by
from turnstile.wording.workloads import job_of

PAGE: Final = 50
"""Workloads on one page."""
LONGEST: Final = 2000
"""Characters of a message that are turned into words."""
KEPT: Final = 1024
"""Messages whose words are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A Workload in a list."""

    namespace: str
    name: str
    local_queue: str
    kind: str
    job: str
    """The kind and the name of its job; of itself if it has none."""
    priority: int
    asks: str
    """The amounts that it asks for, or holds."""
    created: str
    since: str
    """When it was admitted, or when it finished; empty for one that waits."""
    state: str
    position: int | None = None
    """Workloads before it in its ClusterQueue."""
    why: str = ""
    """Why it waits, or what it waits for."""

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """Its page."""
        return f"/workloads/{self.key}"


@dataclass(frozen=True, slots=True)
class LocalQueueCounts:
    """A LocalQueue with its counts."""

    namespace: str
    name: str
    pending: int
    admitted: int
    reserving: int
    stopped: str
    usage: str


@dataclass(frozen=True, slots=True)
class Listed:
    """One page of a list of Workloads."""

    entries: tuple[Entry, ...]
    count: int
    page: int
    hidden: int = 0
    """Workloads of this page that the reader may not see."""

    @property
    def pages(self) -> int:
        """How many there are."""
        return max(1, -(-self.count // PAGE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Everything about a ClusterQueue."""

    row: Row
    cohorts: tuple[str, ...]
    """Cohorts above it, the topmost first."""
    spec: ClusterQueueSpec
    """With the quota that holds."""
    set_by: str
    """The object whose controller has written that quota; empty if it is the one of the spec."""
    loans: Mapping[FlavorResource, Loan]
    """The loans among the members of its Cohort."""
    local_queues: tuple[LocalQueueCounts, ...]
    hidden_local_queues: int
    """LocalQueues that the reader may not see."""
    waiting: Listed
    holding: Listed


def queue(world: World, name: str, *, page: int, held: int, sight: Sight = EVERYTHING) -> Queue | None:
    """A ClusterQueue with pages of those who wait and of those who hold quota; None if there is none of that name that
    the reader may see."""
    state = world.state
    found = state.cluster_queues.get(name)
    if found is None or not sight.tree:
        return None
    state.ledger.settle()
    loans = quotas.loans(world, found.node)
    parent = found.node.parent
    local_queues = _local_queues(world, name)
    seen = [each for each in local_queues if sight.sees(each.namespace)]
    return Queue(
        row=overview.row(world, name, 0, loans, Held(world, sight)),
        cohorts=tuple(reversed(state.questions.cohorts_above(name))),
        spec=found.api.spec,
        set_by=set_by(found.api) if state.options.gates.dynamic_quota_orchestration else "",
        loans=overview.written_loans(parent, loans) if parent is not None else {},
        local_queues=tuple(sorted(seen, key=lambda each: (-each.pending, each.namespace, each.name))),
        hidden_local_queues=len(local_queues) - len(seen),
        waiting=_waiting(world, name, page, sight),
        holding=_holding(world, found.workloads, held, sight),
    )


def _local_queues(world: World, name: str) -> list[LocalQueueCounts]:
    state = world.state
    found = []
    for key, local in state.queues.local_queues.items():
        if local.api is None or local.cluster_queue != name:
            continue
        counts = state.questions.local_queue_counts(key)
        usage = [
            text(each.resource, each.total) + f" {each.resource}"
            for each in state.questions.local_queue_usage(key)
            if each.total
        ]
        meta, stop = local.api.metadata, local.api.spec.stop_policy
        stopped = stop if stop != "None" else ""
        reserving = counts.reserving - counts.admitted
        found.append(
            LocalQueueCounts(
                meta.namespace, meta.name, counts.pending, counts.admitted, reserving, stopped, ", ".join(usage)
            )
        )
    return found


def _waiting(world: World, name: str, page: int, sight: Sight) -> Listed:
    count = world.state.questions.queue_counts(name).pending
    page = _within(page, count)
    places = world.waiting(name, offset=(page - 1) * PAGE, limit=PAGE)
    entries = [
        entry(world, world.state.workloads[place.workload], position=place.in_cluster_queue)
        for place in places
        if place.workload in world.state.workloads and sight.shows(place.workload)
    ]
    return Listed(tuple(entries), count, page, len(places) - len(entries) if sight.namespaces is not None else 0)


def _holding(world: World, holders: dict[str, Info], page: int, sight: Sight) -> Listed:
    page = _within(page, len(holders))
    keys: Sequence[str] = sorted(holders)[(page - 1) * PAGE : page * PAGE]
    seen = [key for key in keys if sight.shows(key)]
    return Listed(tuple(entry(world, holders[key]) for key in seen), len(holders), page, len(keys) - len(seen))


def _within(page: int, count: int) -> int:
    return max(1, min(page, -(-count // PAGE)))


def entry(world: World, info: Info, *, position: int | None = None, sight: Sight = EVERYTHING) -> Entry:
    """A Workload as lists show it."""
    workload = info.workload
    meta = workload.metadata
    kind, job = job_of(workload)
    now = state_of(workload)
    condition = {"admitted": wl.ADMITTED, "finished": wl.FINISHED}.get(now)
    since = find_condition(workload.status.conditions, condition) if condition is not None else None
    return Entry(
        namespace=meta.namespace,
        name=meta.name,
        local_queue=workload.spec.queue_name or "",
        kind=kind,
        job=job,
        priority=workload.spec.priority or 0,
        asks=asked(info),
        created=meta.creation_timestamp or "",
        since=since.last_transition_time if since is not None else "",
        state=now,
        position=position,
        why=why(world, info, sight),
    )


def asked(info: Info) -> str:
    """The amounts that a Workload asks for, or holds, in total."""
    total: dict[str, int] = {}
    for item in info.totals:
        for resource, asks in item.requests.items():
            total[resource] = total.get(resource, 0) + asks
    return ", ".join(amount(each, total[each]) for each in sorted(total, key=rank) if total[each])


def why(world: World, info: Info, sight: Sight = EVERYTHING) -> str:
    """Why a Workload waits, as a sentence; empty if it does not."""
    workload, now = info.workload, state_of(info.workload)
    if now == "leaving":
        return _evicted(workload)
    if now == "reserved":
        checks = (each for each in workload.status.admission_checks if each.state != "Ready")
        return sentence("; ".join(f"admission check {each.name} is {each.state}" for each in checks))
    if now in ("admitted", "finished"):
        return ""
    if message := message_about(world, info, sight):
        return in_words(message[:LONGEST])
    return "The leader has not looked at it yet." if now == "pending" else "It is not active."


@lru_cache(KEPT)
def in_words(message: str) -> str:
    """The sentence for a message; many Workloads of a list have the same."""
    return waiting(message)


def message_about(world: World, info: Info, sight: Sight = EVERYTHING) -> str:
    """The message about a Workload that has no quota: what its queues say, or else as the leader wrote it."""
    waits = world.state.questions.waits(info.key)
    if waits is not None and sight.tree and ClusterQueue not in world.source.unread():
        return waits.message
    reserved = find_condition(info.workload.status.conditions, wl.QUOTA_RESERVED)
    return reserved.message if reserved is not None and reserved.status != "True" else ""


def _evicted(workload: Workload) -> str:
    condition, preempted = (find_condition(workload.status.conditions, each) for each in (wl.EVICTED, wl.PREEMPTED))
    if preempted is not None and preempted.status == "True" and preempted.reason in PREEMPTORS:
        return sentence(f"{preempted_by('another Workload', preempted.reason)}; its pods are ending")
    return evicted(condition.message[:LONGEST]) if condition is not None else ""
