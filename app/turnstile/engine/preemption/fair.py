"""Fair sharing between ClusterQueues and Cohorts: dominant resource shares, the tournament, whom to preempt for it.

The share of a node is how much it borrows, relative to what its parent could lend, of the resource where that is most,
divided by its weight. Sources: KEP-1714, Kueue's fair sharing. Simulates on the ledger and always puts it back.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from turnstile.engine.options import FairSharingStrategy
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.shares import ZERO, Share, share
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.trial import Trial
from turnstile.engine.quota.usage import Usage
from turnstile.engine.reasons import IN_CLUSTER_QUEUE, IN_COHORT_FAIR_SHARING, IN_COHORT_RECLAMATION

if TYPE_CHECKING:
    from turnstile.engine.preemption.candidates import Candidate
    from turnstile.engine.quota.clusterqueue import ClusterQueue


# Preemption

STRATEGIES: dict[FairSharingStrategy, Callable[[Share, Share, Share], bool]] = {
    "LessThanOrEqualToFinalShare": lambda preemptor_new, _target_old, target_new: preemptor_new <= target_new,
    "LessThanInitialShare": lambda preemptor_new, target_old, _target_new: preemptor_new < target_old,
}
"""Whether a victim may be taken: of the preemptor's share with the workload, the target's as it is and without it."""


class TargetOrdering:
    """Which ClusterQueue to take the next victim from: down the tree, always into the highest share.

    `candidates` by ClusterQueue are consumed by the caller from the front. Shares are remembered until `taken` says
    that usage changed below.
    """

    __slots__ = ("_candidates", "_members", "_own", "_pace", "_path", "_pruned", "_queues", "_shares")

    def __init__(
        self,
        own: "ClusterQueue",
        candidates: "Mapping[str, Sequence[Candidate]]",
        queues: "Mapping[str, ClusterQueue]",
        pace: Pace | None = None,
    ) -> None:
        self._own = own
        self._candidates = candidates
        self._queues = queues
        self._pace = pace or Pace()
        self._path = {id(node) for node in own.node.ancestors()}
        self._pruned: set[int] = set()
        self._shares: dict[int, Share | None] = {}
        self._members: dict[int, tuple[list[Node], list[Node]]] = {}

    def look(self) -> Sliced[None]:
        """Work out all shares beforehand, stopping now and then: the first descent is the longest."""
        for name in self._candidates:
            node: Node | None = self._queues[name].node
            while node is not None and id(node) not in self._shares:
                self._pace.left -= 2
                if self._pace.left <= 0:
                    yield
                self._share(node)
                node = node.parent

    def drop(self, queue: "ClusterQueue") -> None:
        """Take nothing more from a ClusterQueue."""
        self._pruned.add(id(queue.node))

    def taken(self, queue: "ClusterQueue") -> None:
        """The usage of a ClusterQueue changed, and of the cohorts above it."""
        node: Node | None = queue.node
        while node is not None:
            self._shares.pop(id(node), None)
            node = node.parent

    def __iter__(self) -> "Iterator[ClusterQueue]":
        if self._own.node.parent is None:
            while self._candidates.get(self._own.name) and id(self._own.node) not in self._pruned:
                yield self._own
            return
        root = self._own.node.root
        while id(root) not in self._pruned:
            found = self._descend(root)
            if found is not None:
                yield found

    def _share(self, node: Node) -> Share | None:
        """The share of a node; None if nothing may be taken below it, because it does not borrow."""
        try:
            return self._shares[id(node)]
        except KeyError:
            on_path = node is self._own.node or id(node) in self._path
            value = share(node) if on_path or tree.is_borrowing(node) else None
            self._shares[id(node)] = value
            return value

    def _left(self, cohort: Node) -> tuple[list[Node], list[Node]]:
        """Queues and cohorts in it that are still looked at, by name."""
        members = self._members.get(id(cohort))
        if members is None:
            members = self._members[id(cohort)] = (
                [cohort.queues[name] for name in sorted(cohort.queues)],
                [cohort.cohorts[name] for name in sorted(cohort.cohorts)],
            )
        return members

    def _descend(self, cohort: Node) -> "ClusterQueue | None":
        pruned, candidates = self._pruned, self._candidates
        queues, cohorts = self._left(cohort)
        self._pace.left -= (len(queues) + len(cohorts)) / 4
        before = len(pruned)
        best: Node | None = None
        best_share = ZERO
        for node in queues:
            if id(node) in pruned:
                continue
            value = self._share(node) if candidates.get(node.name) else None
            if value is None:
                pruned.add(id(node))
                continue
            if (
                best is None
                or value > best_share
                or (value == best_share and candidates[node.name][0].rank < candidates[best.name][0].rank)
            ):
                best, best_share = node, value
        best_cohort: Node | None = None
        best_cohort_share = ZERO
        for node in cohorts:
            if id(node) in pruned:
                continue
            value = self._share(node)
            if value is None:
                pruned.add(id(node))
                continue
            if best_cohort is None or value >= best_cohort_share:
                best_cohort, best_cohort_share = node, value
        if len(pruned) != before:
            queues[:] = [node for node in queues if id(node) not in pruned]
            cohorts[:] = [node for node in cohorts if id(node) not in pruned]
        if best_cohort is not None and (best is None or best_cohort_share >= best_share):
            return self._descend(best_cohort)
        if best is None:
            pruned.add(id(cohort))
            return None
        return self._queues[best.name]


def below_common_ancestor(own: Node, other: Node) -> tuple[Node, Node]:
    """The two children of the lowest common ancestor that contain one node each."""
    path = [own, *own.ancestors()]
    position = {id(node): index for index, node in enumerate(path)}
    below = other
    above = other.parent
    while above is not None and id(above) not in position:
        below, above = above, above.parent
    assert above is not None
    return path[position[id(above)] - 1], below


class FairPreemption:
    """One search for victims under fair sharing, on a trial that its caller opened and ends."""

    __slots__ = (
        "_cost",
        "_own",
        "_pace",
        "_pairs",
        "_queues",
        "_requests",
        "_trial",
        "targets",
        "within_nominal_gate",
    )

    def __init__(
        self,
        own: "ClusterQueue",
        requests: Usage,
        pairs: set[FlavorResource],
        queues: "Mapping[str, ClusterQueue]",
        *,
        within_nominal_gate: bool,
        trial: Trial,
        pace: Pace,
    ) -> None:
        self._own = own
        self._requests = requests
        self._pairs = pairs
        self._queues = queues
        self._trial = trial
        self._pace = pace
        self._cost = 4 + 4 * len(requests.quota)
        self.within_nominal_gate = within_nominal_gate
        self.targets: list[tuple[Candidate, str]] = []

    def _fitting(self) -> bool:
        node, requests = self._own.node, self._requests
        requests.remove_from(node)
        good = requests.fits(node)
        requests.add_to(node)
        return good

    def _take(self, ordering: TargetOrdering, candidate: "Candidate", reason: str) -> bool:
        """One more victim; whether the workload fits now."""
        self._pace.left -= self._cost
        self._trial.remove(candidate.queue.node, candidate.info.usage)
        ordering.taken(candidate.queue)
        self.targets.append((candidate, reason))
        return self._fitting()

    def run(self, candidates: "list[Candidate]", strategies: tuple[FairSharingStrategy, ...]) -> Sliced[bool]:
        """Take victims until the workload fits: whether it does. Leaves the victims removed, and the workload not
        counted."""
        node = self._own.node
        self._trial.add(node, self._requests)
        retry: list[Candidate] = []
        done = yield from self._first(candidates, STRATEGIES[strategies[0]], retry)
        if not done and len(strategies) > 1:
            done = yield from self._second(retry, STRATEGIES[strategies[1]])
        self._trial.remove(node, self._requests)
        return done

    def _first(
        self, candidates: "list[Candidate]", strategy: Callable[[Share, Share, Share], bool], retry: "list[Candidate]"
    ) -> Sliced[bool]:
        own, pace, trial = self._own, self._pace, self._trial
        within_nominal = self.within_nominal_gate and tree.within_nominal(own.node, self._pairs)
        waiting = yield from by_queue(candidates, pace)
        ordering = TargetOrdering(own, waiting, self._queues, pace)
        yield from ordering.look()
        for queue in ordering:
            if pace.left <= 0:
                yield
            line = waiting[queue.name]
            if queue is own or within_nominal:
                reason = IN_CLUSTER_QUEUE if queue is own else IN_COHORT_RECLAMATION
                if self._take(ordering, line.popleft(), reason):
                    return True
                continue
            mine, theirs = below_common_ancestor(own.node, queue.node)
            preemptor_new, target_old = share(mine), share(theirs)
            if preemptor_new.infinite and not target_old.infinite:
                retry.extend(line)
                line.clear()
                continue
            while line:
                pace.left -= self._cost
                if pace.left <= 0:
                    yield
                candidate = line.popleft()
                trial.remove(queue.node, candidate.info.usage)
                target_new = share(theirs)
                trial.add(queue.node, candidate.info.usage)
                if strategy(preemptor_new, target_old, target_new):
                    if self._take(ordering, candidate, IN_COHORT_FAIR_SHARING):
                        return True
                    break
                retry.append(candidate)
        return False

    def _second(self, candidates: "list[Candidate]", strategy: Callable[[Share, Share, Share], bool]) -> Sliced[bool]:
        own, pace = self._own, self._pace
        waiting = yield from by_queue(candidates, pace)
        ordering = TargetOrdering(own, waiting, self._queues, pace)
        yield from ordering.look()
        for queue in ordering:
            pace.left -= self._cost
            if pace.left <= 0:
                yield
            mine, theirs = below_common_ancestor(own.node, queue.node)
            candidate = waiting[queue.name].popleft()
            if strategy(share(mine), share(theirs), ZERO) and self._take(ordering, candidate, IN_COHORT_FAIR_SHARING):
                return True
            ordering.drop(queue)
        return False


def by_queue(candidates: "list[Candidate]", pace: Pace) -> "Sliced[dict[str, deque[Candidate]]]":
    """Candidates by ClusterQueue, in order."""
    found: dict[str, deque[Candidate]] = {}
    for candidate in candidates:
        pace.left -= 0.25
        if pace.left <= 0:
            yield
        found.setdefault(candidate.queue.name, deque()).append(candidate)
    return found
