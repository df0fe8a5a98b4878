"""A head on its way through a cycle: what was found for it, in which order it comes, what it may reserve, and what it
holds in the end.

Must never decide; see `turnstile.engine.cycle.cycle`.
"""

from collections.abc import Mapping
from typing import Final

from turnstile.engine.causes import Cause
from turnstile.engine.decisions import Status
from turnstile.engine.flavors.assignment import Assignment
from turnstile.engine.instants import Instant
from turnstile.engine.options import Gates
from turnstile.engine.preemption.targets import NO_TARGETS, Target
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.podsets import PodSetTotals
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.quota.usage import NO_USAGE, Usage
from turnstile.engine.reasons import PENDING_EVALUATION, RequeueReason

NOTHING_CARRIED: Final[Mapping[int, PodSetTotals]] = {}


class Entry:
    """A head under way through a cycle."""

    __slots__ = (
        "assignment",
        "before",
        "beside",
        "blocked",
        "carried",
        "claims",
        "crowded",
        "held",
        "info",
        "message",
        "nomination",
        "queue",
        "quota_reason",
        "rank",
        "recomputed",
        "replaced",
        "requeue_reason",
        "settled",
        "status",
        "targets",
    )

    def __init__(self, info: Info, queue: ClusterQueue) -> None:
        self.info = info
        self.queue = queue
        self.before = info.last_assignment
        """How far its scan had come when the cycle began, should that be left early."""
        self.beside: Entry | None = None
        """The preemptor beside whose claim it is tried; None for a head."""
        self.assignment: Assignment | None = None
        self.targets = NO_TARGETS
        self.replaced: Target | None = None
        self.carried = NOTHING_CARRIED
        """Devices of its claims for which other Workloads are charged, by index of the pod set."""
        self.held: Info | None = None
        """The workload as it will hold quota, once it is admitted."""
        self.status: Status = ""
        self.message = ""
        self.requeue_reason: RequeueReason = ""
        self.quota_reason = ""
        self.blocked = False
        """Not looked at in this cycle, because admission waits for pods."""
        self.rank: tuple[bool, bool, int, int, float, int, str, str] | None = None
        """Place in classical order, once it is nominated."""
        self.claims = False
        """Whether it keeps places from the entries after it without being admitted."""
        self.crowded = False
        """Whether its places were taken by claims of this cycle, and it is tried again without them."""
        self.recomputed = False
        """Whether flavors and victims were looked for again, because an earlier entry took some of its victims."""
        self.settled = False
        """Active again, inadmissible, or assumed."""
        self.nomination: Nomination | None = queue.pending.nominated(info.key, info.generation)
        """The promise of an earlier cycle, in which others were preempted for it."""

    @property
    def preemptor(self) -> bool:
        """Whether it is the Workload of its queue that last had others preempted (Kueue: IsPreemptor)."""
        return self.nomination is not None

    def set_aside(self, error: Exception) -> None:
        """It could not be looked at, by a fault of Turnstile: it is inadmissible."""
        self.info.last_assignment = self.before
        self.assignment, self.targets, self.replaced = None, NO_TARGETS, None
        self.message = Cause.FAULT.says(fault=type(error).__name__)
        self.quota_reason = PENDING_EVALUATION


def outdated(last: LastAssignment, *, cycle: int, generation: int, hash_: str, preserve_progress: bool) -> bool:
    """Whether a scan must start over: another request, or another quota and the scan is not of the cycle before."""
    if preserve_progress:
        if last.hash and hash_ and last.hash != hash_:
            return True
        if cycle - last.cycle <= 1:
            return False
    return generation > last.generation


def entry_rank(entry: Entry, gates: Gates) -> tuple[bool, bool, int, int, float, int, str, str]:
    """Classical order: who borrows least, then priority, then age; ties by birth, UID and name."""
    assert entry.assignment is not None
    info = entry.info
    negative_priority, timestamp, born, uid, key = info.order
    return (
        not info.reserved,
        not (gates.prioritize_preemptor_workloads and entry.preemptor),
        entry.assignment.borrowing,
        negative_priority if gates.priority_sorting_within_cohort else 0,
        timestamp,
        born,
        uid,
        key,
    )


def usage_of(entry: Entry) -> Usage:
    """The usage that an admission of the entry would take; nothing if its Workload holds its reservation already."""
    assert entry.assignment is not None
    return NO_USAGE if entry.info.reserved else entry.assignment.usage


def waits_for_victims(entry: Entry) -> bool:
    """Whether Workloads were preempted for it in an earlier cycle."""
    return entry.nomination is not None and bool(entry.nomination.victims)


def to_reserve(queue: ClusterQueue, assignment: Assignment) -> Usage:
    """Capacity that a workload without candidates keeps from those after it (Kueue: resourcesToReserve)."""
    return assignment.usage.reservable(queue.node, borrow=assignment.borrowing > 0)


def holding(entry: Entry, now: Instant) -> Info:
    """The workload as it will hold quota."""
    assignment = entry.assignment
    assert assignment is not None
    totals = [
        PodSetTotals(
            name=given.name,
            count=given.count,
            requests=given.requests
            if given.flavors.keys() == given.requests.keys()
            else {name: given.requests[name] for name in given.flavors if name in given.requests},
            flavors=given.flavor_names,
            shape=waiting.shape,
            pod_set=waiting.pod_set,
            min_count=waiting.min_count,
            once=waiting.once,
            topology=given.topology,
            delayed=given.delayed,
        )
        for given, waiting in zip(assignment.pod_sets, entry.info.totals, strict=True)
    ]
    waits = checks_left(entry) or any(given.delayed == "Pending" for given in assignment.pod_sets)
    info = entry.info.assumed(totals, entry.queue.name, now, admitted=not waits)
    if info.commons:
        entry.queue.commons.relieve(info)
    elif entry.replaced is None:
        info.take_usage(assignment.usage)
    return info


def checks_left(entry: Entry) -> bool:
    """Whether an admission check is left that is not Ready: one that is listed, whatever flavor it is for (its
    controller drops it, if it is for none of these), or one that is not listed yet."""
    listed = entry.info.checks
    if listed and any(check.state != "Ready" for check in listed):
        return True
    if not entry.queue.checks:
        return False
    assert entry.assignment is not None
    flavors = {choice.flavor for given in entry.assignment.pod_sets for choice in given.flavors.values()}
    names = {check.name for check in listed}
    return any(
        check.name not in names
        for check in entry.queue.checks
        if not check.on_flavors or flavors.intersection(check.on_flavors)
    )
