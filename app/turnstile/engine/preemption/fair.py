"""Fair sharing between ClusterQueues and Cohorts: whom to preempt for it, the highest share first.

The share of a node is how much it borrows, relative to what its parent could lend, of the resource where that is most,
divided by its weight. Sources: KEP-1714, Kueue's fair sharing. Simulates on the ledger and always puts it back.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING

from turnstile.engine.options import FairSharingStrategy
from turnstile.engine.pace import Pace, Sliced, discard
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.shares import ZERO, Share, share
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.trial import PLACE, Trial
from turnstile.engine.quota.usage import Usage
from turnstile.engine.reasons import IN_CLUSTER_QUEUE, IN_COHORT_FAIR_SHARING, IN_COHORT_RECLAMATION

if TYPE_CHECKING:
    from turnstile.engine.preemption.candidates import Candidate, Rank
    from turnstile.engine.quota.clusterqueue import ClusterQueue


# Preemption

STRATEGIES: dict[FairSharingStrategy, Callable[[Share, Share, Share], bool]] = {
    "LessThanOrEqualToFinalShare": lambda preemptor_new, _target_old, target_new: preemptor_new <= target_new,
    "LessThanInitialShare": lambda preemptor_new, target_old, _target_new: preemptor_new < target_old,
}
"""Whether a victim may be taken: of the preemptor's share with the workload, the target's as it is and without it."""


class _Last(str):
    """A name: of two the later one in the alphabet comes first."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)


_Order = tuple[bool, float]
"""Sorts shares, the highest first."""


def _order(value: Share) -> _Order:
    return not value.infinite, -value.value


class TargetOrdering:
    """Which ClusterQueue to take the next victim from: down the tree, always into the highest share.

    `candidates` by ClusterQueue are consumed by the caller from the front. Each Cohort has its members in two heaps,
    the highest share first. Between two steps usage changes only in the ClusterQueue that was handed out and in the
    Cohorts above it, and each of these is the first of its heap: so a step costs one way through the tree, however
    many members there are. `prepare` comes before the first step.
    """

    __slots__ = ("_candidates", "_cluster_queues", "_cohorts", "_dropped", "_own", "_pace", "_path", "_queues")

    def __init__(
        self,
        own: "ClusterQueue",
        candidates: "dict[str, deque[Candidate]]",
        queues: "Mapping[str, ClusterQueue]",
        pace: Pace | None = None,
    ) -> None:
        self._own = own
        self._candidates = candidates
        self._queues = queues
        self._pace = pace or Pace()
        self._path = {own.node, *own.node.ancestors()}
        self._dropped: set[Node] = set()
        self._cluster_queues: dict[Node, list[tuple[_Order, Rank, Node]]] = {}
        """By Cohort: ClusterQueues of which something may be taken; of the same share, by their first candidate."""
        self._cohorts: dict[Node, list[tuple[_Order, _Last, Node]]] = {}
        """By Cohort: Cohorts below which something may be taken; of the same share the last by name."""

    def prepare(self) -> Sliced[None]:
        """Work out all shares, and put all members into their heaps."""
        known: set[Node] = set()
        for name in self._candidates:
            node = self._queues[name].node
            while node.parent is not None and node not in known:
                self._pace.left -= 4
                if self._pace.left <= 0:
                    yield
                    self._pace.renew()
                known.add(node)
                if not self._put(node, node.parent):
                    break
                node = node.parent

    def discard(self) -> Sliced[None]:
        """Let go of the heaps, and of the candidates that were not consumed."""
        for heaps in (self._cluster_queues, self._cohorts):
            for heap in heaps.values():
                yield from discard(heap, self._pace)
        yield from discard(self._candidates, self._pace)

    def drop(self, queue: "ClusterQueue") -> None:
        """Take nothing more from a ClusterQueue, which was handed out just now."""
        self._dropped.add(queue.node)

    def __iter__(self) -> "Iterator[ClusterQueue]":
        own = self._own
        if own.node.parent is None:
            while self._candidates.get(own.name) and own.node not in self._dropped:
                yield own
            return
        root = own.node.root
        while (node := self._highest(root)) is not None:
            yield self._queues[node.name]
            self._renew(node)

    def _highest(self, cohort: Node) -> Node | None:
        """The ClusterQueue below a Cohort that is next. A Cohort comes before a ClusterQueue of the same share."""
        while True:
            queues, cohorts = self._cluster_queues.get(cohort), self._cohorts.get(cohort)
            if not cohorts or (queues and queues[0][0] < cohorts[0][0]):
                return queues[0][-1] if queues else None
            cohort = cohorts[0][-1]

    def _renew(self, node: Node) -> None:
        """Take a ClusterQueue and the Cohorts above it out of their heaps, and put them where they belong now."""
        while node.parent is not None:
            self._pace.left -= 2
            if node.is_queue:
                heappop(self._cluster_queues[node.parent])
            else:
                heappop(self._cohorts[node.parent])
            self._put(node, node.parent)
            node = node.parent

    def _put(self, node: Node, cohort: Node) -> bool:
        """Put a member into its heap, unless nothing may be taken there (any more): whether it is in it."""
        if node.is_queue:
            candidates = self._candidates[node.name]
            if not candidates or node in self._dropped or (value := self._share(node)) is None:
                return False
            heappush(self._cluster_queues.setdefault(cohort, []), (_order(value), candidates[0].rank, node))
            return True
        if not (self._cluster_queues.get(node) or self._cohorts.get(node)) or (value := self._share(node)) is None:
            return False
        heappush(self._cohorts.setdefault(cohort, []), (_order(value), _Last(node.name), node))
        return True

    def _share(self, node: Node) -> Share | None:
        """The share of a node; None if nothing may be taken below it, because it does not borrow."""
        return share(node) if node in self._path or tree.is_borrowing(node) else None


class FairPreemption:
    """One search for victims under fair sharing, on a trial that its caller opened and ends."""

    __slots__ = (
        "_below",
        "_cost",
        "_ordering",
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
        self._cost = 4 + 4 * requests.size
        path = [own.node, *own.node.ancestors()]
        self._below = dict(pairwise(reversed(path)))
        """The member of each Cohort above the preemptor that has the preemptor in it."""
        self.within_nominal_gate = within_nominal_gate
        self.targets: list[tuple[Candidate, str]] = []

    def _sides(self, other: Node) -> tuple[Node, Node]:
        """The two members of the lowest common Cohort of the preemptor and another node that contain one each."""
        below, above = other, other.parent
        while above is not None and above not in self._below:
            below, above = above, above.parent
        assert above is not None
        return self._below[above], below

    def _fitting(self) -> bool:
        node, requests = self._own.node, self._requests
        requests.remove_from(node)
        good = requests.fits(node)
        requests.add_to(node)
        return good

    def _take(self, candidate: "Candidate", reason: str) -> bool:
        """One more victim; whether the workload fits now."""
        usage = candidate.info.usage
        self._pace.left -= self._cost if usage.places is None else self._cost + PLACE * len(usage.places)
        self._trial.remove(candidate.queue.node, usage)
        self.targets.append((candidate, reason))
        return self._fitting()

    def run(self, candidates: "list[Candidate]", strategies: tuple[FairSharingStrategy, ...]) -> Sliced[bool]:
        """Take victims until the workload fits: whether it does. Leaves the victims removed, and the workload not
        counted."""
        node = self._own.node
        self._trial.add(node, self._requests)
        retry: list[Candidate] = []
        done = yield from self._first(candidates, STRATEGIES[strategies[0]], retry)
        yield from self._ordering.discard()
        if not done and len(strategies) > 1:
            done = yield from self._second(retry, STRATEGIES[strategies[1]])
            yield from self._ordering.discard()
        self._trial.remove(node, self._requests)
        return done

    def _first(
        self, candidates: "list[Candidate]", strategy: Callable[[Share, Share, Share], bool], retry: "list[Candidate]"
    ) -> Sliced[bool]:
        own, pace, trial = self._own, self._pace, self._trial
        within_nominal = self.within_nominal_gate and tree.within_nominal(own.node, self._pairs)
        waiting = yield from by_queue(candidates, pace)
        ordering = self._ordering = TargetOrdering(own, waiting, self._queues, pace)
        yield from ordering.prepare()
        for queue in ordering:
            if pace.left <= 0:
                yield
                pace.renew()
            of_queue = waiting[queue.name]
            if queue is own or within_nominal:
                reason = IN_CLUSTER_QUEUE if queue is own else IN_COHORT_RECLAMATION
                if self._take(of_queue.popleft(), reason):
                    return True
                continue
            mine, theirs = self._sides(queue.node)
            preemptor_new, target_old = share(mine), share(theirs)
            if preemptor_new.infinite and not target_old.infinite:
                retry.extend(of_queue)
                of_queue.clear()
                continue
            while of_queue:
                pace.left -= self._cost
                if pace.left <= 0:
                    yield
                    pace.renew()
                candidate = of_queue.popleft()
                usage = candidate.info.usage
                if usage.places is not None:
                    pace.left -= 2 * PLACE * len(usage.places)
                trial.remove(queue.node, usage)
                target_new = share(theirs)
                trial.add(queue.node, usage)
                if strategy(preemptor_new, target_old, target_new):
                    if self._take(candidate, IN_COHORT_FAIR_SHARING):
                        return True
                    break
                retry.append(candidate)
        return False

    def _second(self, candidates: "list[Candidate]", strategy: Callable[[Share, Share, Share], bool]) -> Sliced[bool]:
        pace = self._pace
        waiting = yield from by_queue(candidates, pace)
        ordering = self._ordering = TargetOrdering(self._own, waiting, self._queues, pace)
        yield from ordering.prepare()
        for queue in ordering:
            pace.left -= self._cost
            if pace.left <= 0:
                yield
                pace.renew()
            mine, theirs = self._sides(queue.node)
            candidate = waiting[queue.name].popleft()
            if strategy(share(mine), share(theirs), ZERO) and self._take(candidate, IN_COHORT_FAIR_SHARING):
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
            pace.renew()
        found.setdefault(candidate.queue.name, deque()).append(candidate)
    return found
