"""A ClusterQueue as quota knows it: its node in the tree, its policies, and the Workloads that hold quota in it.

Must never know which Workloads wait.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from turnstile.api.clusterqueue import ClusterQueue as ApiClusterQueue
from turnstile.api.clusterqueue import FlavorFungibility, Preemption
from turnstile.api.timeannotations import KEEP_QUOTA_AFTER, MINIMUM_RUN_TIME, NAMES, annotated
from turnstile.api.waitforroom import WAIT_FOR_ROOM
from turnstile.engine.quota.amounts import Amounts
from turnstile.engine.quota.commonclaims import CommonClaims
from turnstile.engine.quota.tree import Node

if TYPE_CHECKING:
    from turnstile.engine.quota.info import Info

_DEFAULT_FUNGIBILITY: Final = FlavorFungibility()
_DEFAULT_PREEMPTION: Final = Preemption()


class Group(NamedTuple):
    """Resources that get their flavor together."""

    covered: frozenset[str]
    flavors: tuple[str, ...]


class Held:
    """Usage of one LocalQueue's workloads in a ClusterQueue: sums, which cost nothing to read however many workloads
    there are."""

    __slots__ = ("_reserving", "admitted", "count", "usage")

    def __init__(self) -> None:
        self.count = 0
        self.usage: Amounts = {}
        self.admitted = 0
        self._reserving: Amounts = {}
        """Usage of Workloads that are not admitted yet: mostly of none."""

    @property
    def admitted_usage(self) -> Amounts:
        """Usage of Workloads that are admitted."""
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
        usage = info.usage.quota
        self.count += times
        _add(self.usage, usage, times)
        if info.admitted:
            self.admitted += times
        else:
            _add(self._reserving, usage, times)


def _add(total: Amounts, amounts: Amounts, times: int) -> None:
    """Sums hold no zeros."""
    for pair, amount in amounts.items():
        new = total.get(pair, 0) + times * amount
        if new:
            total[pair] = new
        else:
            total.pop(pair, None)


class Judge(Protocol):
    """Finds out why a ClusterQueue admits nothing."""

    due: bool
    """Whether any ClusterQueue may have to be judged anew."""

    def is_marked(self, name: str) -> bool:
        """Whether a ClusterQueue is to be judged anew."""

    def judge(self, queue: Any) -> None:
        """Judge a ClusterQueue, and take it off the marked ones."""


class ClusterQueue:
    """A ClusterQueue as the engine holds it: its node in the tree, its policies, who waits and who holds quota."""

    __slots__ = (
        "_problems",
        "_selects_all",
        "api",
        "best_effort",
        "checks",
        "commons",
        "covers_pods",
        "fungibility",
        "generation",
        "group_of",
        "groups",
        "holders",
        "judged_by",
        "keep_quota_after",
        "minimum_run_time",
        "name",
        "node",
        "preemption",
        "selector",
        "terminating",
        "usage_based",
        "workloads",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node = Node(name, is_queue=True)
        self.workloads: dict[str, Info] = {}
        """Who holds quota, by key."""
        self.holders: dict[str, Held] = {}
        """The same by LocalQueue."""
        self.commons = CommonClaims()
        self.generation = 0
        self._problems: list[tuple[str, str]] = []
        self.judged_by: Judge | None = None
        self.update(ApiClusterQueue())

    def update(self, api: ApiClusterQueue) -> None:
        """Take over the spec, but for quotas, which belong to the tree."""
        spec = api.spec
        self.api = api
        self.minimum_run_time = annotated(api.metadata, MINIMUM_RUN_TIME)
        self.keep_quota_after = annotated(api.metadata, KEEP_QUOTA_AFTER)
        self.terminating = api.metadata.deletion_timestamp is not None
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

    def says_the_same(self, api: ApiClusterQueue) -> bool:
        """Whether another version of the object has nothing new that is read here."""
        old, new = self.api.metadata.annotations, api.metadata.annotations
        same = self.api.spec == api.spec and self.terminating == (api.metadata.deletion_timestamp is not None)
        return same and all(old.get(name) == new.get(name) for name in (*NAMES, WAIT_FOR_ROOM))

    def hold(self, info: "Info") -> None:
        """Note who holds quota, or a newer version of it."""
        old = self.workloads.get(info.key)
        if old is not None:
            self._drop(old)
        self.workloads[info.key] = info
        held = self.holders.get(info.local_queue)
        if held is None:
            held = self.holders[info.local_queue] = Held()
        held.put(info)
        if info.commons or self.commons.carriers:
            self.commons.put(info)

    def release(self, key: str) -> "Info":
        """Note that it holds none any more."""
        info = self.workloads.pop(key)
        self._drop(info)
        if info.commons:
            self.commons.drop(key)
        return info

    def _drop(self, info: "Info") -> None:
        held = self.holders[info.local_queue]
        held.drop(info)
        if not held.count:
            del self.holders[info.local_queue]

    def held(self, *, admitted_only: bool = False) -> Amounts:
        """Usage of all Workloads that hold quota, together."""
        total: Amounts = {}
        for each in self.holders.values():
            _add(total, each.admitted_usage if admitted_only else each.usage, 1)
        return total

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether its namespace selector matches; an absent one matches nothing."""
        return self._selects_all or (self.selector is not None and self.selector.matches(labels))

    @property
    def problems(self) -> list[tuple[str, str]]:
        """Reasons why it admits nothing, with their words. Judged now, if an event left that for later."""
        judge = self.judged_by
        if judge is not None and judge.due and judge.is_marked(self.name):
            judge.judge(self)
        return self._problems

    @problems.setter
    def problems(self, found: list[tuple[str, str]]) -> None:
        self._problems = found

    @property
    def active(self) -> bool:
        """Whether it admits."""
        judge = self.judged_by
        found = self.problems if judge is not None and judge.due else self._problems
        return not found and not self.terminating

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
