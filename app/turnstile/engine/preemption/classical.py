"""Classical preemption: one ordered list of candidates, taken until the workload fits, then thinned out.

Sources: Kueue's preemptor, KEP-83, KEP-79. Simulates on a trial and always puts it back.
"""

from functools import partial

from turnstile.engine.pace import Sliced, discard
from turnstile.engine.preemption.candidates import (
    HIERARCHICAL,
    WHILE_BORROWING,
    WITHIN_QUEUE,
    WITHOUT_BORROWING,
    Candidate,
    Found,
)
from turnstile.engine.preemption.collector import Collector
from turnstile.engine.preemption.domains import OneDomain
from turnstile.engine.preemption.targets import Target, fill_back
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.trial import PLACE, Trial
from turnstile.engine.quota.usage import Usage
from turnstile.engine.reasons import IN_CLUSTER_QUEUE, IN_COHORT_RECLAIM_WHILE_BORROWING, IN_COHORT_RECLAMATION

_REASONS = (IN_CLUSTER_QUEUE, IN_COHORT_RECLAMATION, IN_COHORT_RECLAMATION, IN_COHORT_RECLAIM_WHILE_BORROWING)


class Classical:
    """One classical search."""

    __slots__ = ("collector", "info", "pairs", "queue", "requests")

    def __init__(
        self,
        collector: Collector,
        queue: ClusterQueue,
        info: Info,
        requests: Usage,
        pairs: set[FlavorResource],
    ) -> None:
        self.collector = collector
        self.queue = queue
        self.info = info
        self.requests = requests
        self.pairs = pairs

    def run(self) -> Sliced[list[Target]]:
        """Victims, in the order Kueue reports them."""
        queue, collector = self.queue, self.collector
        policy = queue.preemption
        hierarchical: Found = [], []
        by_priority: Found = [], []
        same: Found = [], []
        yield from collector.collect(same, queue, queue, self.info, policy.within_cluster_queue, self.pairs)
        if queue.node.parent is not None and policy.reclaim_within_cohort != "Never":
            yield from self._cohort_candidates(hierarchical, by_priority)
        ordered: list[Candidate] = []
        for staying in (False, True):
            for each in (hierarchical, by_priority, same):
                if each[staying]:
                    yield from collector.sort(each[staying])
                    ordered += each[staying]
        if not ordered:
            return []
        attempts = self._attempts(hierarchical=any(hierarchical), by_priority=any(by_priority))
        del hierarchical, by_priority, same, each
        targets: list[Target] = []
        for borrow in attempts:
            targets = yield from self._take(ordered, borrow=borrow)
            if targets:
                if self.requests.sought is not None:
                    take = partial(self._take, borrow=borrow)
                    freeing = OneDomain(queue, self.requests, ordered, take, collector.pace, fair=False)
                    targets = yield from freeing.instead_of(targets)
                break
        yield from discard(ordered, self.collector.pace)
        return targets

    def take_over(self, candidates: list[Candidate]) -> Sliced[list[Target]]:
        """Victims among these only, in their order of preemption."""
        yield from self.collector.sort(candidates)
        return (yield from self._take(candidates, borrow=True))

    def _take(self, ordered: list[Candidate], *, borrow: bool) -> Sliced[list[Target]]:
        """Take candidates until the workload fits, and give back whom it does not need; none if it never fits."""
        node, requests, pace = self.queue.node, self.requests, self.collector.pace
        cost = 2 + 2 * requests.size
        targets: list[Target] = []
        with Trial() as trial:
            for candidate in ordered:
                pace.left -= 1
                if pace.left <= 0:
                    yield
                    pace.renew()
                if not self._valid(candidate, borrow=borrow):
                    continue
                usage = candidate.info.usage
                pace.left -= cost if usage.places is None else cost + PLACE * len(usage.places)
                trial.remove(candidate.queue.node, usage)
                targets.append(Target(candidate.info, candidate.queue, _REASONS[candidate.variant]))
                if requests.fits(node, borrow=borrow):
                    yield from fill_back(self.queue, requests, targets, trial, pace, borrow=borrow)
                    break
            else:
                targets = []
            yield from trial.undo(pace)
        return targets

    def _forbidden(self) -> bool:
        """Whether borrowing with preemption in the cohort is forbidden."""
        within = self.queue.preemption.borrow_within_cohort
        return within is None or within.policy == "Never"

    def _attempts(self, *, hierarchical: bool, by_priority: bool) -> tuple[bool, ...]:
        """Whether to borrow, in the order to try; told whether there are such candidates."""
        if not hierarchical and not by_priority:
            return (True,)
        if self._forbidden():
            if not tree.has_unused(self.queue.node, self.pairs):
                return (True,)
            if not hierarchical:
                return (False, True)
        return (True, False)

    def _cohort_candidates(self, hierarchical: Found, by_priority: Found) -> Sliced[None]:
        """Candidates of other queues: of the smallest subtree first, and from the first on that could hold the
        workload in its own quota, by right of that quota."""
        advantage, rest = self.requests.fits_own(self.queue.node)
        previous: Node | None = None
        for root in self.queue.node.ancestors():
            into = hierarchical if advantage else by_priority
            yield from self._collect(root, root, previous, into, advantage=advantage)
            good, rest = rest.fits_own(root)
            advantage = advantage or good
            previous = root

    def _collect(self, cohort: Node, lca: Node, skip: Node | None, into: Found, *, advantage: bool) -> Sliced[None]:
        collector, pace = self.collector, self.collector.pace
        borrowers = yield from collector.borrowers(cohort, self.pairs)
        for child in borrowers.cohorts:
            if child is not skip:
                yield from self._collect(child, lca, skip, into, advantage=advantage)
        policy = self.queue.preemption.reclaim_within_cohort
        for other in borrowers.cluster_queues:
            pace.left -= 1
            if pace.left <= 0:
                yield
                pace.renew()
            if other is self.queue:
                continue
            variant = HIERARCHICAL if advantage else self._variant
            yield from collector.collect(
                into, other, self.queue, self.info, policy, self.pairs, variant=variant, lca=lca
            )

    def _variant(self, candidate: Info) -> int:
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
