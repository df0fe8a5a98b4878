"""Whom to preempt so that a workload fits: candidates, their order, the smallest set.

Classical preemption walks one ordered list of candidates; fair sharing picks queues by their shares. Both take victims
until the workload fits and then give back whom it does not need. Sources: Kueue's preemptor, KEP-83, KEP-79, KEP-1714.
Simulates on the ledger and always puts it back; what is really evicted is not its business.
"""

from collections.abc import Iterator
from functools import cmp_to_key
from typing import TYPE_CHECKING

from app.engine import tree
from app.engine.amounts import Amounts, FlavorResource
from app.engine.fairness import FairPreemption
from app.engine.instants import Instant
from app.engine.reasons import (
    IN_CLUSTER_QUEUE,
    IN_COHORT_RECLAIM_WHILE_BORROWING,
    IN_COHORT_RECLAMATION,
    Possibility,
)
from app.engine.tree import Node

if TYPE_CHECKING:
    from app.engine.assignment import Assignment
    from app.engine.info import Info
    from app.engine.queues import ClusterQueue
    from app.engine.state import State


class Target:
    """A workload to preempt, the queue it holds quota in, and why."""

    __slots__ = ("info", "queue", "reason")

    def __init__(self, info: "Info", queue: "ClusterQueue", reason: str) -> None:
        self.info = info
        self.queue = queue
        self.reason = reason


WITHIN_QUEUE, HIERARCHICAL, WITHOUT_BORROWING, WHILE_BORROWING = range(4)

_REASONS = (IN_CLUSTER_QUEUE, IN_COHORT_RECLAMATION, IN_COHORT_RECLAMATION, IN_COHORT_RECLAIM_WHILE_BORROWING)

Rank = tuple[bool, bool, int, float, str, str]


class Candidate:
    """A workload that policy allows to preempt. `lca` is the cohort it was found below, `rank` its place in order."""

    __slots__ = ("info", "lca", "queue", "rank", "variant")

    def __init__(self, info: "Info", queue: "ClusterQueue", rank: Rank, variant: int, lca: Node | None) -> None:
        self.info = info
        self.queue = queue
        self.rank = rank
        self.variant = variant
        self.lca = lca


def satisfies(policy: str, preemptor: "Info", candidate: "Info") -> bool:
    """Whether a preemption policy allows one workload to preempt another (Kueue: SatisfiesPreemptionPolicy)."""
    match policy:
        case "Any":
            return True
        case "LowerPriority":
            return preemptor.priority > candidate.priority
        case "LowerOrNewerEqualPriority":
            if preemptor.priority != candidate.priority:
                return preemptor.priority > candidate.priority
            return preemptor.timestamp < candidate.timestamp
        case _:
            return False


class Preemptor:
    """Finds targets for heads of one cycle."""

    __slots__ = ("_fair", "_memo", "_state", "now")

    def __init__(self, state: "State", now: Instant) -> None:
        self._state = state
        self._fair = state.options.fair_sharing
        self._memo: dict[tuple[str, frozenset[tuple[FlavorResource, int]]], list[Target]] = {}
        self.now = now

    def start(self) -> None:
        """Usage may have changed since the last question: forget the answers."""
        self._memo.clear()

    def targets(self, queue: "ClusterQueue", info: "Info", assignment: "Assignment") -> list[Target]:
        """Workloads to preempt for an assignment in mode Preempt, none if that would not help."""
        pairs = assignment.needing_preemption(self._state.surroundings.catalog.pair)
        requests = {pair: amount for pair, amount in assignment.usage.items() if amount}
        return self.find(queue, info, requests, pairs)

    def oracle(self, queue: "ClusterQueue", info: "Info", pair: FlavorResource, amount: int) -> tuple[Possibility, int]:
        """Whether room can be made for so much of one resource in one flavor, and the borrowing level then."""
        targets = self.find(queue, info, {pair: amount}, {pair})
        if not targets:
            return Possibility.NO_CANDIDATES, tree.level(queue.node, pair, amount)[0]
        for target in targets:
            tree.remove_all(target.queue.node, target.info.usage)
        level, _ = tree.level(queue.node, pair, amount)
        for target in targets:
            tree.add_all(target.queue.node, target.info.usage)
        own = any(target.queue is queue for target in targets)
        return Possibility.PREEMPT if own else Possibility.RECLAIM, level

    def find(self, queue: "ClusterQueue", info: "Info", requests: Amounts, pairs: set[FlavorResource]) -> list[Target]:
        """The smallest set of victims found that makes `requests` fit; `pairs` are those without room."""
        if pairs != requests.keys():
            return self._search(queue, info, requests, pairs)
        question = info.key, frozenset(requests.items())  # what the oracle asked, and then the workload itself
        found = self._memo.get(question)
        if found is None:
            found = self._memo[question] = self._search(queue, info, requests, pairs)
        return list(found)

    def _search(
        self, queue: "ClusterQueue", info: "Info", requests: Amounts, pairs: set[FlavorResource]
    ) -> list[Target]:
        if self._fair is not None:
            return self._find_fair(queue, info, requests, pairs)
        return _Classical(self, queue, info, requests, pairs).run()

    # Candidates

    def rank(self, candidate: "Info", queue: "ClusterQueue", own: "ClusterQueue") -> Rank:
        """Who is preempted first: evicted already, of another queue, of low priority, admitted last."""
        reserved_at = candidate.reserved_at
        return (
            not (candidate.evicted or candidate.key in self._state.evicting),
            queue is own,
            candidate.priority,
            -(self.now if reserved_at is None else reserved_at),
            candidate.uid,
            candidate.key,
        )

    def candidates(
        self,
        queue: "ClusterQueue",
        own: "ClusterQueue",
        preemptor: "Info",
        policy: str,
        pairs: set[FlavorResource],
        variant: int = WITHIN_QUEUE,
        lca: Node | None = None,
    ) -> Iterator[Candidate]:
        """Workloads of one queue that use a pair without room and that the policy allows."""
        if policy == "Never":
            return
        for other in queue.workloads.values():
            if not pairs.isdisjoint(other.usage) and satisfies(policy, preemptor, other):
                yield Candidate(other, queue, self.rank(other, queue, own), variant, lca)

    def sort(self, candidates: list[Candidate]) -> list[Candidate]:
        """In the order they are to be preempted."""
        if self._state.options.admission_fair_sharing is not None and self._state.options.gates.admission_fair_sharing:
            candidates.sort(key=cmp_to_key(self._compare_with_usage))
        else:
            candidates.sort(key=_by_rank)
        return candidates

    def _compare_with_usage(self, left: Candidate, right: Candidate) -> int:
        """As by rank, but within a queue that shares by usage, those of the LocalQueue with more usage go first."""
        a, b = left.rank, right.rank
        if a[:2] != b[:2]:
            return -1 if a[:2] < b[:2] else 1
        if left.queue is right.queue and left.info.local_queue != right.info.local_queue:
            first = self._state.line_usage(left.queue, left.info.local_queue)
            second = self._state.line_usage(right.queue, right.info.local_queue)
            if first is not None and second is not None and first != second:
                return -1 if first > second else 1
        return -1 if a < b else int(a > b)

    # Fair sharing

    def _find_fair(
        self, queue: "ClusterQueue", info: "Info", requests: Amounts, pairs: set[FlavorResource]
    ) -> list[Target]:
        assert self._fair is not None
        policy = queue.preemption
        found = list(self.candidates(queue, queue, info, policy.within_cluster_queue, pairs))
        if queue.node.parent is not None and policy.reclaim_within_cohort != "Never":
            for node in queue.node.root.walk_queues():
                other = self._state.cluster_queues[node.name]
                if other is queue or not other.active:
                    continue
                if not any(node.usage.get(pair, 0) > node.nominal.get(pair, 0) for pair in pairs):
                    continue
                found.extend(self.candidates(other, queue, info, policy.reclaim_within_cohort, pairs))
        if not found or not self._helps(queue, requests, found):
            return []
        self.sort(found)
        search = FairPreemption(
            queue,
            requests,
            pairs,
            self._state.cluster_queues,
            within_nominal_gate=self._state.options.gates.fair_sharing_preempt_within_nominal,
        )
        done = search.run(found, self._fair.strategies)
        targets = [Target(candidate.info, candidate.queue, reason) for candidate, reason in search.targets]
        if not done:
            _put_back(targets)
            return []
        return fill_back(queue, requests, targets, borrow=True)

    @staticmethod
    def _helps(queue: "ClusterQueue", requests: Amounts, candidates: list[Candidate]) -> bool:
        """Whether there would be room with all candidates gone; if not, no search is needed."""
        for candidate in candidates:
            tree.remove_all(candidate.queue.node, candidate.info.usage)
        good = fits(queue.node, requests, borrow=True)
        for candidate in candidates:
            tree.add_all(candidate.queue.node, candidate.info.usage)
        return good


def _by_rank(candidate: Candidate) -> Rank:
    return candidate.rank


def fits(node: Node, requests: Amounts, *, borrow: bool) -> bool:
    """Whether the requests fit a ClusterQueue now, by borrowing or without."""
    for pair, amount in requests.items():
        if not borrow and tree.borrowing_with(node, pair, amount):
            return False
        if amount > tree.queue_available(node, pair):
            return False
    return True


def _put_back(targets: list[Target]) -> None:
    for target in targets:
        tree.add_all(target.queue.node, target.info.usage)


def fill_back(queue: "ClusterQueue", requests: Amounts, targets: list[Target], *, borrow: bool) -> list[Target]:
    """Give back victims that are not needed, the latest first; then put all back. The last one is always needed. The
    order of what is left follows Kueue: the last takes the place of one that is given back."""
    for index in range(len(targets) - 2, -1, -1):
        target = targets[index]
        tree.add_all(target.queue.node, target.info.usage)
        if fits(queue.node, requests, borrow=borrow):
            targets[index] = targets[-1]
            targets.pop()
        else:
            tree.remove_all(target.queue.node, target.info.usage)
    _put_back(targets)
    return targets


class _Classical:
    """One classical search."""

    __slots__ = ("info", "pairs", "preemptor", "queue", "requests")

    def __init__(
        self, preemptor: Preemptor, queue: "ClusterQueue", info: "Info", requests: Amounts, pairs: set[FlavorResource]
    ) -> None:
        self.preemptor = preemptor
        self.queue = queue
        self.info = info
        self.requests = requests
        self.pairs = pairs

    def run(self) -> list[Target]:
        """Victims, in the order Kueue reports them."""
        queue, sort = self.queue, self.preemptor.sort
        policy = queue.preemption
        same = sort(list(self.preemptor.candidates(queue, queue, self.info, policy.within_cluster_queue, self.pairs)))
        hierarchical: list[Candidate] = []
        by_priority: list[Candidate] = []
        if queue.node.parent is not None and policy.reclaim_within_cohort != "Never":
            self._cohort_candidates(hierarchical, by_priority)
        lists = (sort(hierarchical), sort(by_priority), same)
        ordered = [item for each in lists for item in each if not item.rank[0]]
        ordered += [item for each in lists for item in each if item.rank[0]]
        if not ordered:
            return []
        for borrow in self._attempts(hierarchical, by_priority):
            targets: list[Target] = []
            for candidate in ordered:
                if not self._valid(candidate, borrow=borrow):
                    continue
                tree.remove_all(candidate.queue.node, candidate.info.usage)
                targets.append(Target(candidate.info, candidate.queue, _REASONS[candidate.variant]))
                if fits(queue.node, self.requests, borrow=borrow):
                    return fill_back(queue, self.requests, targets, borrow=borrow)
            _put_back(targets)
        return []

    def _forbidden(self) -> bool:
        """Whether borrowing with preemption in the cohort is forbidden."""
        within = self.queue.preemption.borrow_within_cohort
        return within is None or within.policy == "Never"

    def _attempts(self, hierarchical: list[Candidate], by_priority: list[Candidate]) -> tuple[bool, ...]:
        """Whether to borrow, in the order to try."""
        if not hierarchical and not by_priority:
            return (True,)
        if self._forbidden():
            node = self.queue.node
            if not all(node.nominal.get(pair, 0) > node.usage.get(pair, 0) for pair in self.pairs):
                return (True,)
            if not hierarchical:
                return (False, True)
        return (True, False)

    def _cohort_candidates(self, hierarchical: list[Candidate], by_priority: list[Candidate]) -> None:
        """Candidates of other queues: of the smallest subtree first, and from the first on that could hold the
        workload in its own quota, by right of that quota."""
        advantage, rest = tree.fits_in_quota(self.queue.node, self.requests)
        previous: Node | None = None
        for root in self.queue.node.ancestors():
            into = hierarchical if advantage else by_priority
            self._collect(root, root, previous, into, advantage=advantage)
            good, rest = tree.fits_in_quota(root, rest)
            advantage = advantage or good
            previous = root

    def _collect(self, cohort: Node, lca: Node, skip: Node | None, into: list[Candidate], *, advantage: bool) -> None:
        queues = self.preemptor._state.cluster_queues
        for name in sorted(cohort.cohorts):
            child = cohort.cohorts[name]
            if child is not skip and not tree.within_nominal(child, self.pairs):
                self._collect(child, lca, skip, into, advantage=advantage)
        policy = self.queue.preemption.reclaim_within_cohort
        for name in sorted(cohort.queues):
            node = cohort.queues[name]
            other = queues[name]
            if other is self.queue or not other.active or tree.within_nominal(node, self.pairs):
                continue
            for candidate in self.preemptor.candidates(
                other, self.queue, self.info, policy, self.pairs, HIERARCHICAL, lca
            ):
                if not advantage:
                    candidate.variant = self._variant(candidate.info)
                into.append(candidate)

    def _variant(self, candidate: "Info") -> int:
        if self._forbidden():
            return WITHOUT_BORROWING
        within = self.queue.preemption.borrow_within_cohort
        assert within is not None
        threshold = within.max_priority_threshold
        if candidate.priority >= self.info.priority or (threshold is not None and candidate.priority > threshold):
            return WITHOUT_BORROWING
        return WHILE_BORROWING

    def _valid(self, candidate: Candidate, *, borrow: bool) -> bool:
        """Whether taking the candidate is still right, with those before it gone."""
        if candidate.variant == WITHIN_QUEUE:
            return True
        if borrow and candidate.variant == WITHOUT_BORROWING:
            return False
        node = candidate.queue.node
        if tree.within_nominal(node, self.pairs):
            return False
        above = node.parent
        while above is not None and above is not candidate.lca:
            if tree.within_nominal(above, self.pairs):
                return False
            above = above.parent
        return True
