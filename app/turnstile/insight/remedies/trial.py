"""A trial asks the engine whether a Workload is admitted with a change, while everything else stays as it is.

No Workload finishes, and victims of preemption go. Must never guess.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import RequeueState, Workload
from turnstile.engine import Options
from turnstile.engine.instants import Instant
from turnstile.insight import changes
from turnstile.insight.near import Near
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.whatif import Fate, WhatIf
from turnstile.wording import remedies as words

STEPS: Final = 1024
"""An amount is searched in so many steps at most."""


class Remedy(msgspec.Struct, frozen=True):
    """One change, or several together, after which the Workload is admitted."""

    by: str
    """`owner` of the Workload, `administrator`, or `time` where it has to be waited for."""
    does: str
    """The change, as an imperative sentence."""
    flavors: tuple[dict[str, str], ...] = ()
    """The flavor of each resource that it would get, by pod set."""
    preempts: tuple[str, ...] = ()
    """Workloads that it would preempt."""
    ends: tuple[str, ...] = ()
    """Workloads that would have to end."""
    takers: tuple[str, ...] = ()
    """Others that are admitted too, where quota is raised by more than the Workload lacks."""
    put: tuple[Kind, ...] = ()
    """The objects as they would be, the Workload among them if it would be changed."""


class Supposed(NamedTuple):
    """Objects that are supposed to exist as given, and those that are supposed to be gone."""

    workload: Workload
    put: tuple[Kind, ...] = ()
    drop: tuple[tuple[type[Kind], str], ...] = ()
    does: tuple[str, ...] = ()

    def and_(self, does: str, *put: Kind, drop: tuple[tuple[type[Kind], str], ...] = ()) -> "Supposed":
        """With more of them."""
        return Supposed(self.workload, (*self.put, *put), (*self.drop, *drop), (*self.does, does))

    def pods(self, pod_set: str) -> int:
        """How many pods a pod set has."""
        return next(each.count for each in self.workload.spec.pod_sets if each.name == pod_set)

    def of(self, workload: Workload, does: str) -> "Supposed":
        """With the Workload changed."""
        return Supposed(workload, self.put, self.drop, (*self.does, does))


class Outcome(NamedTuple):
    """The Workload is admitted."""

    flavors: tuple[dict[str, str], ...]
    preempts: tuple[str, ...]
    others: tuple[str, ...]
    """Workloads that are admitted too, in the order of their admission."""


@dataclass(slots=True)
class Trial:
    """The trials about one Workload that is not admitted, on ledgers of what can decide about it."""

    near: Near
    options: Options
    now: Instant
    workload: Workload
    snapshot: Snapshot = field(init=False)
    """The objects that can decide about the Workload in its present queue."""

    def __post_init__(self) -> None:
        self.snapshot = self.near.of(self.workload)

    def admits(self, supposed: Supposed) -> Outcome | None:
        """How the Workload is admitted with what is supposed; None if it is not."""
        key = supposed.workload.metadata.key
        stays = supposed.workload.spec.queue_name == self.workload.spec.queue_name
        snapshot = self.snapshot if stays else self.near.of(supposed.workload)
        state, _ = snapshot.state(self.options, self.now)
        question = WhatIf(now=self.now, put=(*supposed.put, supposed.workload), drop=supposed.drop)
        last: dict[str, Fate] = {}
        preempts: list[str] = []
        for part in question.answer(state):
            if isinstance(part, Fate):
                last[part.key] = part
                if part.preemptor == key:
                    preempts.append(part.key)
        admitted = {each: fate for each, fate in last.items() if fate.outcome in ("admitted", "reserved")}
        own = admitted.pop(key, None)
        return Outcome(own.flavors, tuple(sorted(preempts)), tuple(admitted)) if own is not None else None

    def unstopped(self) -> Supposed:
        """The Workload and its queues, as they are when nothing but quota holds the Workload back."""
        given, workload = Supposed(self.workload), self.workload
        if not workload.spec.active:
            given = given.of(changes.activated(workload), words.activate())
        state = given.workload.status.requeue_state
        if state is not None and state.requeue_at is not None:
            waited = replace(given.workload.status, requeue_state=RequeueState(count=state.count))
            given = Supposed(replace(given.workload, status=waited), given.put, given.drop, given.does)
            given = Supposed(
                given.workload,
                given.put,
                given.drop,
                (*given.does, words.wait_for_back_off(state.requeue_at)),
            )
        local = self.local_queue(workload)
        if local is None:
            return given
        if local.spec.stop_policy not in (None, "None"):
            open_ = replace(local, spec=replace(local.spec, stop_policy="None"))
            given = given.and_(words.resume("LocalQueue", local.metadata.name), open_)
        queue = self.cluster_queue(local)
        if queue is None:
            return given
        if queue.spec.stop_policy not in (None, "None"):
            resumed = replace(queue, spec=replace(queue.spec, stop_policy="None"))
            given = given.and_(words.resume("ClusterQueue", queue.metadata.name), resumed)
        for name in self._missing_flavors(queue):
            flavor = ResourceFlavor()
            flavor.metadata.name = name
            given = given.and_(words.create_flavor(name), flavor)
        return given

    def _missing_flavors(self, queue: ClusterQueue) -> list[str]:
        named = {flavor.name for group in queue.spec.resource_groups for flavor in group.flavors}
        return sorted(name for name in named if self.snapshot.get(ResourceFlavor, name) is None)

    def local_queue(self, workload: Workload) -> LocalQueue | None:
        """The LocalQueue of a Workload, if there is one."""
        return self.snapshot.get(LocalQueue, f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}")

    def cluster_queue(self, local: LocalQueue | None) -> ClusterQueue | None:
        """The ClusterQueue of a LocalQueue, if there is one."""
        name = local.spec.cluster_queue if local is not None else None
        return self.snapshot.get(ClusterQueue, name) if name else None


def most(limit: int, admits: Callable[[int], Outcome | None], *, guess: int = 0) -> tuple[int, Outcome | None]:
    """The largest number from 1 to `limit` with which the Workload is admitted, if it is with all below, and how;
    0 and None if there is none. A good guess spares trials."""
    low, high, found = 0, limit, None
    guesses = iter((guess, guess + 1))
    while low < high:
        middle = next((each for each in guesses if low < each <= high), (low + high + 1) // 2)
        if outcome := admits(middle):
            low, found = middle, outcome
        else:
            high = middle - 1
    return low, found


def remedy(by: str, supposed: Supposed, found: Outcome, *, takers: tuple[str, ...] = ()) -> Remedy:
    """A change after which the Workload was admitted."""
    ends = tuple(key for kind, key in supposed.drop if kind is Workload)
    put = (*supposed.put, supposed.workload)
    return Remedy(by, "; ".join(supposed.does), found.flavors, found.preempts, ends, takers, put)
