"""ClusterQueues, who holds quota in them, and how a workload comes into their line.

A waiting workload is in exactly one place of its queue: active (in line), inadmissible (parked until something changes)
or inflight (the head that a cycle works on). Sources: Kueue's queue cache. Must never look at quota.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from app.api.clusterqueue import ClusterQueue as ApiClusterQueue
from app.api.clusterqueue import FlavorFungibility, Preemption
from app.api.meta import Condition
from app.api.workload import EVICTED, REQUEUED
from app.engine.amounts import Amounts
from app.engine.info import same_requests
from app.engine.pending import Pending
from app.engine.reasons import PENDING_EVALUATION
from app.engine.standing import PRIORITY_BOOST, preemption_gated
from app.engine.tree import Node

if TYPE_CHECKING:
    from app.engine.info import Info
    from app.engine.journal import Journal

_DEFAULT_FUNGIBILITY: Final = FlavorFungibility()
_DEFAULT_PREEMPTION: Final = Preemption()

IMMEDIATE_FOR_BEST_EFFORT: Final = frozenset(
    ("FailedAfterNomination", "PendingPreemption", "PendingMigration", "PreemptionFailed")
)


class Group(NamedTuple):
    """Resources that get their flavor together."""

    covered: frozenset[str]
    flavors: tuple[str, ...]


class Held:
    """What the workloads of one LocalQueue hold in a ClusterQueue together: sums, which cost nothing to ask for however
    many they are."""

    __slots__ = ("_reserving", "admitted", "count", "usage")

    def __init__(self) -> None:
        self.count = 0
        self.usage: Amounts = {}
        self.admitted = 0
        self._reserving: Amounts = {}
        """Usage of those that are not admitted yet: mostly nobody."""

    @property
    def admitted_usage(self) -> Amounts:
        """Of those that are admitted."""
        if not self._reserving:
            return self.usage
        admitted = self.usage.copy()
        _add(admitted, self._reserving, -1)
        return admitted

    def put(self, info: "Info") -> None:
        """One more."""
        self._count(info, 1)

    def drop(self, info: "Info") -> None:
        """One less."""
        self._count(info, -1)

    def _count(self, info: "Info", times: int) -> None:
        usage = info.usage
        self.count += times
        _add(self.usage, usage, times)
        if info.admitted:
            self.admitted += times
        else:
            _add(self._reserving, usage, times)

    def keep(self, journal: "Journal") -> None:
        """Let a fork remember everything that may change here."""
        journal.keep_slots(self)
        journal.keep(self.usage)
        journal.keep(self._reserving)


def _add(total: Amounts, amounts: Amounts, times: int) -> None:
    """Sums hold no zeros."""
    for pair, amount in amounts.items():
        new = total.get(pair, 0) + times * amount
        if new:
            total[pair] = new
        else:
            total.pop(pair, None)


class ClusterQueue:
    """A ClusterQueue as the engine holds it: its node in the tree, its policies, who waits and who holds quota."""

    __slots__ = (
        "_selects_all",
        "api",
        "best_effort",
        "checks",
        "covers_pods",
        "fungibility",
        "generation",
        "group_of",
        "groups",
        "holders",
        "name",
        "node",
        "pending",
        "preemption",
        "problems",
        "selector",
        "terminating",
        "usage_based",
        "workloads",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node = Node(name, is_queue=True)
        self.pending = Pending()
        self.workloads: dict[str, Info] = {}
        """Who holds quota, by key."""
        self.holders: dict[str, Held] = {}
        """The same by LocalQueue."""
        self.generation = 0
        self.problems: list[tuple[str, str]] = []
        self.terminating = False
        self.update(ApiClusterQueue())

    def update(self, api: ApiClusterQueue) -> None:
        """Take over the spec, but for quotas, which belong to the tree."""
        spec = api.spec
        self.api = api
        self.groups = [
            Group(frozenset(group.covered_resources), tuple(flavor.name for flavor in group.flavors))
            for group in spec.resource_groups
        ]
        self.group_of = {resource: group for group in reversed(self.groups) for resource in group.covered}
        self.covers_pods = "pods" in self.group_of
        self.best_effort = spec.queueing_strategy == "BestEffortFIFO"
        self.fungibility = spec.flavor_fungibility or _DEFAULT_FUNGIBILITY
        self.preemption = spec.preemption or _DEFAULT_PREEMPTION
        self.selector = spec.namespace_selector
        self._selects_all = self.selector is not None and not (
            self.selector.match_labels or self.selector.match_expressions
        )
        scope = spec.admission_scope
        self.usage_based = scope is not None and scope.admission_mode == "UsageBasedAdmissionFairSharing"
        self.checks = spec.admission_checks_strategy.admission_checks if spec.admission_checks_strategy else []

    def hold(self, info: "Info") -> None:
        """Note who holds quota, or a newer version of it."""
        old = self.workloads.get(info.key)
        if old is not None:
            self._drop(old)
        self.workloads[info.key] = info
        line = self.holders.get(info.local_queue)
        if line is None:
            line = self.holders[info.local_queue] = Held()
        line.put(info)

    def release(self, key: str) -> "Info":
        """Note that it holds none any more."""
        info = self.workloads.pop(key)
        self._drop(info)
        return info

    def _drop(self, info: "Info") -> None:
        line = self.holders[info.local_queue]
        line.drop(info)
        if not line.count:
            del self.holders[info.local_queue]

    def held(self, *, admitted_only: bool = False) -> Amounts:
        """What all that hold quota use together."""
        total: Amounts = {}
        for line in self.holders.values():
            _add(total, line.admitted_usage if admitted_only else line.usage, 1)
        return total

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether its namespace selector matches; an absent one matches nothing."""
        return self._selects_all or (self.selector is not None and self.selector.matches(labels))

    @property
    def active(self) -> bool:
        """Whether it admits."""
        return not self.problems and not self.terminating

    def may_preempt_while_borrowing(self, fair_sharing: bool) -> bool:
        """Whether a workload past nominal quota may still preempt others."""
        policy = self.preemption
        if fair_sharing and policy.reclaim_within_cohort != "Never":
            return True
        within = policy.borrow_within_cohort
        return within is not None and within.policy != "Never"

    def flavors(self) -> Iterator[str]:
        """Names of its flavors, each once, in order."""
        yield from dict.fromkeys(flavor for group in self.groups for flavor in group.flavors)


def requeue(
    queue: ClusterQueue, info: "Info", reason: str, quota_reason: str, *, backoff_over: bool, unproven: bool = False
) -> bool:
    """Put a head back after a cycle (Kueue: RequeueIfNotPresent): in line again if the reason or a change since calls
    for it, or if it is `unproven` that no flavor has room, else parked, and in a BestEffortFIFO queue all that ask for
    the same with it. True if it is in line."""
    pending = queue.pending
    key = info.key
    if reason in {"PendingPreemption", "PendingMigration"}:
        pending.preemptor = key
        pending.preemptor_generation = pending.last_generation.get(key, 0)
        pending.sticky = queue.best_effort
    pending.put_down(key)
    immediate = reason in IMMEDIATE_FOR_BEST_EFFORT if queue.best_effort else reason != "NamespaceMismatch"
    last = info.last_assignment
    again = immediate or unproven or pending.retry_cycle >= pending.pop_cycle or (last is not None and last.pending)
    if backoff_over and again:
        parked = pending.inadmissible.pop(key, None)
        if parked is not None:
            info = parked
        if key in pending.active:
            return False
        pending.push(info)
        return True
    if key in pending.inadmissible or key in pending.active:
        return False
    together = bool(info.hash) and reason in {"NoFit", "PreemptionNoCandidates"}
    _park(pending, info, quota_reason, together=together, backoff_over=backoff_over)
    return False


def pass_over(queue: ClusterQueue, info: "Info", quota_reason: str, *, backoff_over: bool) -> None:
    """Park a Workload that has no room beside the claim of a preemptor, and all that ask for the same."""
    queue.pending.put_down(info.key)
    _park(queue.pending, info, quota_reason, together=bool(info.hash), backoff_over=backoff_over)


def _park(pending: Pending, info: "Info", quota_reason: str, *, together: bool, backoff_over: bool) -> None:
    together = together and pending.in_classes
    if together:
        pending.park_class(info.hash, quota_reason or PENDING_EVALUATION)
    if together and backoff_over:
        pending.push(info)
    else:
        pending.inadmissible[info.key] = info


def is_preemptor(queue: ClusterQueue, key: str, generation: int) -> bool:
    """Whether a workload, in this generation, is the one that last had others preempted for it."""
    return queue.pending.preemptor == key and queue.pending.preemptor_generation == generation


def push_or_update(queue: ClusterQueue, info: "Info", *, backoff_over: bool) -> None:
    """Take in a workload that may wait (Kueue: PushOrUpdate): into line, but parked if it is parked and nothing about
    it changed that could help, if its back-off is not over, or if an equal one was just refused."""
    pending = queue.pending
    key = info.key
    if pending.inflight is not None and any(info.key == key for info in pending.under_way):
        return
    parked = pending.inadmissible.get(key)
    if parked is not None:
        seen = pending.last_generation.get(key)
        if (seen is None or seen == info.generation) and not could_help(parked, info):
            pending.inadmissible[key] = info
            return
        del pending.inadmissible[key]
    if not backoff_over and not pending.in_line(key):
        pending.take_out(key)
        pending.inadmissible[key] = info
        return
    pending.push(info)


def could_help(old: "Info", new: "Info") -> bool:
    """Whether anything changed that could make a parked workload admissible."""
    before, after = old.workload, new.workload
    boost = new.surroundings.options.gates.priority_boost
    return (
        before.spec != after.spec
        or (boost and before.metadata.annotations.get(PRIORITY_BOOST) != after.metadata.annotations.get(PRIORITY_BOOST))
        or list(before.status.reclaimable_pods) != list(after.status.reclaimable_pods)
        or _state_of(old.condition(EVICTED)) != _state_of(new.condition(EVICTED))
        or _state_of(old.condition(REQUEUED)) != _state_of(new.condition(REQUEUED))
        or preemption_gated(before) != preemption_gated(after)
        or (old.failed_checks and not new.failed_checks)
        or not same_requests(old.totals, new.totals)
    )


def _state_of(condition: Condition | None) -> tuple[str, str, str, str] | None:
    if condition is None:
        return None
    return condition.status, condition.reason, condition.message, condition.last_transition_time
