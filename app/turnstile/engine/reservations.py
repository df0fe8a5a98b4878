"""The Workloads that hold quota: as the API shows them, as a cycle decided, and victims that are to release theirs.

An admission that was decided is *assumed* until it is seen, an eviction is *expected*. Must never decide either.

A slice of an elastic job takes the place of the slice before it: while both hold a reservation, the quota of both
together is the larger of the two, so at no moment both are charged, or neither.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from turnstile.api.workload import EVICTED, Admission
from turnstile.engine.decisions import preemptor_uid
from turnstile.engine.instants import Instant, instant
from turnstile.engine.options import Options
from turnstile.engine.queue.admissible import pods_ready
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.nominations import Nominations
from turnstile.engine.queue.retries import Retries
from turnstile.engine.quota.commonclaims import Common
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.ledger import Ledger
from turnstile.engine.topology.places import Places


class Assumed(NamedTuple):
    """An admission that was decided and is not yet seen in the API; `waiting` is the workload as it waited, or as it
    held quota without the places that were decided."""

    info: Info
    waiting: Info
    cluster_queue: str


class Overdue(NamedTuple):
    """A victim that did not go in time: the UID of its preemptor, if its conditions name one, and since when it should
    have gone, as the API has it."""

    preemptor: str
    evicted_at: str


class OnNodes(Protocol):
    """The nodes on which the pods of Workloads with quota are, or will be."""

    def free(self, places: Places) -> None:
        """A Workload has given up places, which others may have."""

    def expect(self, info: Info, *, decided: bool = False) -> None:
        """A Workload holds quota, or holds it for other pods than before; `decided` if a cycle gave it that."""

    def forget(self, info: Info) -> None:
        """A Workload holds no quota any more."""


class Reservations:
    """Workloads that hold quota in the ledger, and what is expected of them."""

    __slots__ = (
        "_blocks",
        "_ledger",
        "_nodes",
        "_nominations",
        "_patience",
        "_retries",
        "_successors",
        "assumed",
        "evicting",
        "leaving",
        "not_ready",
        "overdue",
    )

    def __init__(
        self,
        ledger: Ledger[ClusterQueue],
        nominations: Nominations,
        retries: Retries,
        options: Options,
        nodes: OnNodes,
    ) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._nominations = nominations
        self._retries = retries
        self._blocks = options.wait_for_pods_ready.block_admission
        self._patience = options.victim_patience
        self._successors: dict[str, str] = {}
        """Slices of elastic jobs that another slice takes the place of: the key of that one, which holds quota."""
        self.assumed: dict[str, Assumed] = {}
        self.evicting: dict[str, str] = {}
        """Victims: the reason, until the eviction is seen."""
        self.leaving: dict[str, Instant] = {}
        """Workloads that were evicted and still hold quota: the time of the eviction."""
        self.overdue: dict[str, Overdue] = {}
        """Those of them that no preemptor waits for any more."""
        self.not_ready: dict[str, None] = {}
        """Workloads whose pods are not ready, if admission waits for them."""

    def queue_of(self, key: str) -> ClusterQueue | None:
        """The ClusterQueue that a Workload holds quota in."""
        return self._ledger.cluster_queues.get(self._ledger.holders.get(key, ""))

    def hold(self, info: Info, admission: Admission) -> None:
        """Count a reservation that is seen in the API; an assumption of it is fulfilled."""
        key, ledger = info.key, self._ledger
        old = ledger.holder(key)
        where = ledger.holders.get(key)
        self.assumed.pop(key, None)
        self._nominations.end(key)
        self._track_readiness(info)
        self._track_leaving(info)
        queue = ledger.cluster_queues.get(admission.cluster_queue)
        self._leave_to_successor(info, admission.cluster_queue)
        if queue is not None and info.commons:
            queue.commons.relieve(info)
        self._nodes.expect(info)
        if old is not None and queue is not None and where == queue.name and old.usage == info.usage:
            queue.hold(info)
            if old.priority != info.priority:
                self._retries.mark(where)
            if info.commons:
                self._carry(queue, info.commons)
            return
        if old is not None:
            shrunk = info.usage.below(old.usage)
            ledger.release(key)
            if where is not None and (shrunk or queue is None or where != queue.name):
                self._retries.mark(where)
        if queue is None:
            ledger.hold_for_missing(admission.cluster_queue, info)
        else:
            ledger.hold(queue, info)
        self._take_over(info)
        if commons := info.commons + old.commons if old is not None else info.commons:
            for each in dict.fromkeys((queue, ledger.cluster_queues.get(where or ""))):
                if each is not None:
                    self._carry(each, commons)
        if old is not None and old.usage.places is not None:
            self._nodes.free(old.usage.places)

    def assume(self, info: Info, waiting: Info, queue: ClusterQueue, *, counted: bool) -> None:
        """Hold quota for an admission that was decided, which may be counted already."""
        self.assumed[info.key] = Assumed(info, waiting, queue.name)
        self._track_readiness(info)
        self._ledger.hold(queue, info, counted=counted)
        self._nodes.expect(info, decided=True)
        self._take_over(info)
        if info.commons:
            self._carry(queue, info.commons)

    def assume_places(self, info: Info, before: Info, queue: ClusterQueue) -> None:
        """Expect places that were decided for a Workload that holds quota, and count in the ledger already."""
        self.assumed[info.key] = Assumed(info, before, queue.name)

    def awaits_places(self, info: Info) -> bool:
        """Whether this version of a Workload was seen before the places were written that were decided for it. Places
        that were decided for another version are not expected any more."""
        assumed = self.assumed.get(info.key)
        if assumed is None or not assumed.waiting.reserved:
            return False
        before, status = assumed.waiting.workload, info.workload.status
        if (
            info.reserved
            and not (info.evicted or info.finished)
            and info.uid == before.metadata.uid
            and status.admission == before.status.admission
            and status.unhealthy_nodes == before.status.unhealthy_nodes
        ):
            return True
        del self.assumed[info.key]
        return False

    def release(self, key: str) -> None:
        """Quota comes back: inadmissible Workloads of the tree are tried again."""
        for table in (self.assumed, self.evicting, self.not_ready, self.leaving, self.overdue):
            table.pop(key, None)
        gone = self._ledger.holder(key)
        queue = self._ledger.release(key)
        if gone is not None and gone.replaces is not None and self._successors.get(gone.replaces) == key:
            self._successors.pop(gone.replaces)
            self._recount(gone.replaces)
        if queue is not None:
            self._retries.mark(queue.name)
            if gone is not None and gone.commons:
                self._carry(queue, gone.commons)
        if gone is not None:
            self._nodes.forget(gone)
            if gone.usage.places is not None:
                self._nodes.free(gone.usage.places)

    # Slices of elastic jobs

    def _take_over(self, info: Info) -> None:
        """Leave to the slice that this one replaces only the quota that it holds beyond this one."""
        if info.replaces is not None and info.key in self._ledger.holders:
            self._successors[info.replaces] = info.key
            self._recount(info.replaces)

    def _recount(self, key: str) -> None:
        """Count a Workload anew: a slice whose successor holds another amount now, or none; the holder of a claim that
        another one carried, or carries now."""
        ledger, old = self._ledger, self._ledger.holder(key)
        queue = ledger.cluster_queues.get(ledger.holders.get(key, ""))
        if old is None or queue is None:
            return
        ledger.release(key)
        old.take_usage(None)
        self._leave_to_successor(old, queue.name)
        queue.commons.relieve(old)
        ledger.hold(queue, old)

    def _leave_to_successor(self, info: Info, queue: str) -> None:
        """Reduce the usage of a slice to what is left of it beside the slice that took its place, if one did."""
        successor = self._ledger.holder(self._successors.get(info.key, ""))
        if successor is not None and self._ledger.holders[successor.key] == queue and successor.succeeds(info):
            info.take_usage(info.usage.beyond(successor.usage))

    # Claims that several Workloads name

    def _carry(self, queue: ClusterQueue, commons: Iterable[Common]) -> None:
        """Charge the devices of each claim to the first that holds quota for it, now that others hold it than did."""
        carriers = queue.commons.carriers
        for common in dict.fromkeys(commons):
            first, before = queue.commons.first(common), carriers.get(common)
            if first == before:
                continue
            if first is None:
                del carriers[common]
                continue
            carriers[common] = first
            if before is None:
                self._retries.mark(queue.name)  # who waits for these devices may have them now beside it
                continue
            for key in (before, first):
                if key in queue.workloads:
                    self._recount(key)

    def carry_all(self, queue: ClusterQueue) -> None:
        """The same of a ClusterQueue that is new, in which Workloads hold quota that were seen before it."""
        sharing = [info for info in queue.workloads.values() if info.commons]
        for info in sharing:
            for common in info.commons:
                queue.commons.carriers[common] = queue.commons.first(common) or info.key
        for info in sharing:
            self._recount(info.key)

    def _track_readiness(self, info: Info) -> None:
        if self._blocks:
            if pods_ready(info.workload):
                self.not_ready.pop(info.key, None)
            else:
                self.not_ready[info.key] = None

    # Evictions

    def is_evicted(self, info: Info) -> bool:
        """Whether a Workload is evicted, or was chosen as a victim and the eviction is not seen yet."""
        return info.evicted or info.key in self.evicting

    def expect_eviction(self, key: str, reason: str) -> None:
        """A victim was chosen; it holds its quota until it is seen without."""
        self.evicting[key] = reason

    def forget_eviction(self, key: str) -> None:
        """No eviction of that Workload is expected: it was seen, or its write failed."""
        queue = self.queue_of(key) if self.evicting.pop(key, None) is not None else None
        if queue is not None and queue.workloads[key].commons:
            self._retries.mark(queue.name)

    def _track_leaving(self, info: Info) -> None:
        evicted = info.condition(EVICTED) if info.evicted else None
        if evicted is not None and evicted.last_transition_time:
            self.leaving[info.key] = instant(evicted.last_transition_time)
        elif info.key in self.leaving:
            for table in (self.leaving, self.overdue):
                table.pop(info.key, None)

    def note_overdue(self, workloads: Mapping[str, Info], now: Instant) -> bool:
        """Victims that were evicted `Options.victim_patience` ago and still hold quota are overdue: no preemptor waits
        for them any more. Whether there are new ones among these Workloads."""
        patience = self._patience
        if patience is None:
            return False
        late = [key for key, since in self.leaving.items() if key not in self.overdue and since + patience <= now]
        for key in late:
            evicted = workloads[key].condition(EVICTED)
            assert evicted is not None
            self.overdue[key] = Overdue(preemptor_uid(evicted.message) or "", evicted.last_transition_time)
            self._retries.mark(self._ledger.holders[key])
        return bool(late)

    def next_overdue(self) -> Instant | None:
        """When `note_overdue` will find the next victim; None if no victim is leaving, or the wait has no end."""
        patience = self._patience
        if patience is None or len(self.leaving) == len(self.overdue):
            return None
        return min(since for key, since in self.leaving.items() if key not in self.overdue) + patience
