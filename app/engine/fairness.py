"""Fair sharing between ClusterQueues and Cohorts: dominant resource shares, the tournament, whom to preempt for it.

The share of a node is how much it borrows, relative to what its parent could lend, of the resource where that is most,
divided by its weight. Sources: KEP-1714, Kueue's fair sharing. Simulates on the ledger and always puts it back.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from app.api.quantity import MAX_INT64
from app.engine import tree
from app.engine.amounts import Amounts, FlavorResource
from app.engine.options import FairSharingStrategy
from app.engine.reasons import IN_CLUSTER_QUEUE, IN_COHORT_FAIR_SHARING, IN_COHORT_RECLAMATION
from app.engine.tree import Node

if TYPE_CHECKING:
    from app.engine.entries import Entry
    from app.engine.preemption import Candidate
    from app.engine.queues import ClusterQueue


class Share(NamedTuple):
    """A dominant resource share; compares as fair sharing does. Borrowing with weight 0 is past every other share and
    then counts by its ratio."""

    infinite: bool
    value: float

    @property
    def status(self) -> int:
        """As `status.fairSharing.weightedShare` has it: rounded up, the largest int64 if infinite."""
        return MAX_INT64 if self.infinite else -int(-self.value // 1)


ZERO = Share(False, 0.0)


def lendable(cohort: Node) -> dict[str, int]:
    """By resource, what the children of a cohort could be given if nothing were in use."""
    if not cohort.lendable:
        found: dict[str, int] = {}
        for pair in cohort.root.subtree:
            found[pair.resource] = found.get(pair.resource, 0) + tree.potential(cohort, pair)
        cohort.lendable = found
    return cohort.lendable


def dominant(node: Node) -> tuple[float, str]:
    """Ratio in thousandths and name of the resource the node borrows most of; 0 and empty if it borrows none."""
    if node.parent is None:
        return 0.0, ""
    borrowed: dict[str, int] = {}
    usage = node.usage
    for pair, quota in node.subtree.items():
        over = usage.get(pair, 0) - quota
        if over > 0:
            borrowed[pair.resource] = borrowed.get(pair.resource, 0) + over
    if not borrowed:
        return 0.0, ""
    base = lendable(node.parent)
    best, name = 0.0, ""
    for resource in sorted(borrowed):
        available = base.get(resource, 0)
        if available > 0:
            ratio = borrowed[resource] * 1000.0 / available
            if ratio > best:
                best, name = ratio, resource
    return best, name


def share(node: Node) -> Share:
    """Weighted dominant resource share of a node as things are."""
    ratio, _ = dominant(node)
    if ratio == 0.0:
        return ZERO
    return Share(True, ratio) if node.weight == 0 else Share(False, ratio / node.weight)


# The tournament

Rank = tuple[bool, bool, Share, int, float, bool, str, str]


class Tournament:
    """Hands out entries, the one with the lowest share first, recomputed after each.

    One entry a ClusterQueue. Taking an entry adds usage on its way to the root only, so only the cohorts there are
    judged anew. `usage_of` is what an entry would use.
    """

    __slots__ = ("_best", "_children", "_direct", "_flags", "_loners", "_roots", "_usage_of")

    def __init__(
        self,
        entries: "list[Entry]",
        usage_of: "Callable[[Entry], Amounts]",
        *,
        non_borrowing_first: bool,
        priority_first: bool,
        preemptors_first: bool,
    ) -> None:
        self._usage_of = usage_of
        self._flags = (preemptors_first, non_borrowing_first, priority_first)
        self._loners: list[Entry] = []
        self._direct: dict[int, list[tuple[Rank, Entry]]] = {}
        self._children: dict[int, dict[str, Node]] = {}
        self._best: dict[int, Entry | None] = {}
        self._roots: dict[str, Node] = {}
        for entry in {entry.queue.name: entry for entry in entries}.values():
            node = entry.queue.node
            if node.parent is None:
                self._loners.append(entry)
                continue
            self._direct.setdefault(id(node.parent), []).append((self._rank(entry, node, direct=True), entry))
            for cohort in node.ancestors():
                if cohort.parent is not None:
                    self._children.setdefault(id(cohort.parent), {})[cohort.name] = cohort
                else:
                    self._roots[cohort.name] = cohort
        for ranked in self._direct.values():
            ranked.sort(key=lambda item: item[0], reverse=True)

    def __iter__(self) -> "Iterator[Entry]":
        yield from sorted(self._loners, key=lambda entry: entry.queue.name)
        for name in sorted(self._roots):
            root = self._roots[name]
            while (winner := self._winner(root)) is not None:
                node = winner.queue.node
                assert node.parent is not None
                direct = self._direct[id(node.parent)]
                if direct[-1][1] is winner:
                    direct.pop()
                for cohort in node.ancestors():
                    self._best.pop(id(cohort), None)
                yield winner

    def _winner(self, cohort: Node) -> "Entry | None":
        if id(cohort) in self._best:
            return self._best[id(cohort)]
        best: tuple[Rank, Entry] | None = None
        for name in sorted(self._children.get(id(cohort), {})):
            child = self._children[id(cohort)][name]
            entry = self._winner(child)
            if entry is not None:
                ranked = (self._rank(entry, child, direct=False), entry)
                if best is None or ranked[0] < best[0]:
                    best = ranked
        direct = self._direct.get(id(cohort))
        if direct and (best is None or direct[-1][0] < best[0]):
            best = direct[-1]
        winner = best[1] if best is not None else None
        self._best[id(cohort)] = winner
        return winner

    def _rank(self, entry: "Entry", node: Node, *, direct: bool) -> Rank:
        """Rank of an entry among the children of a cohort; `node` is the child it is in."""
        preemptors_first, non_borrowing_first, priority_first = self._flags
        usage = self._usage_of(entry)
        leaf = entry.queue.node
        tree.add_all(leaf, usage)
        value = share(node)
        borrows = non_borrowing_first and any(
            amount > 0 and node.usage.get(pair, 0) > node.subtree.get(pair, 0) for pair, amount in usage.items()
        )
        tree.remove_all(leaf, usage)
        priority, timestamp, uid, key = entry.info.order
        return (
            preemptors_first and not entry.preemptor,
            borrows,
            value,
            priority if priority_first else 0,
            timestamp,
            direct,
            uid,
            key,
        )


# Preemption

STRATEGIES: dict[FairSharingStrategy, Callable[[Share, Share, Share], bool]] = {
    "LessThanOrEqualToFinalShare": lambda preemptor_new, _target_old, target_new: preemptor_new <= target_new,
    "LessThanInitialShare": lambda preemptor_new, target_old, _target_new: preemptor_new < target_old,
}
"""Whether a victim may be taken: of the preemptor's share with the workload, the target's as it is and without it."""


class TargetOrdering:
    """Which ClusterQueue to take the next victim from: down the tree, always into the highest share.

    `candidates` by ClusterQueue are consumed by the caller from the front.
    """

    __slots__ = ("_candidates", "_own", "_path", "_pruned", "_queues")

    def __init__(
        self, own: "ClusterQueue", candidates: "dict[str, list[Candidate]]", queues: "dict[str, ClusterQueue]"
    ) -> None:
        self._own = own
        self._candidates = candidates
        self._queues = queues
        self._path = {id(node) for node in own.node.ancestors()}
        self._pruned: set[int] = set()

    def drop(self, queue: "ClusterQueue") -> None:
        """Take nothing more from a ClusterQueue."""
        self._pruned.add(id(queue.node))

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

    def _descend(self, cohort: Node) -> "ClusterQueue | None":
        best: tuple[Share, Node] | None = None
        for name in sorted(cohort.queues):
            node = cohort.queues[name]
            if id(node) in self._pruned:
                continue
            if not self._candidates.get(name) or not (node is self._own.node or tree.is_borrowing(node)):
                self._pruned.add(id(node))
                continue
            value = share(node)
            if (
                best is None
                or value > best[0]
                or (value == best[0] and self._candidates[name][0].rank < self._candidates[best[1].name][0].rank)
            ):
                best = value, node
        best_cohort: tuple[Share, Node] | None = None
        for name in sorted(cohort.cohorts):
            node = cohort.cohorts[name]
            if id(node) in self._pruned:
                continue
            if id(node) not in self._path and not tree.is_borrowing(node):
                self._pruned.add(id(node))
                continue
            value = share(node)
            if best_cohort is None or value >= best_cohort[0]:
                best_cohort = value, node
        if best is None and best_cohort is None:
            self._pruned.add(id(cohort))
            return None
        if best_cohort is not None and (best is None or best_cohort[0] >= best[0]):
            return self._descend(best_cohort[1])
        assert best is not None
        return self._queues[best[1].name]


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
    """One search for victims under fair sharing."""

    __slots__ = ("_fits", "_own", "_pairs", "_queues", "_requests", "targets", "within_nominal_gate")

    def __init__(
        self,
        own: "ClusterQueue",
        requests: Amounts,
        pairs: set[FlavorResource],
        queues: "dict[str, ClusterQueue]",
        *,
        within_nominal_gate: bool,
    ) -> None:
        self._own = own
        self._requests = requests
        self._pairs = pairs
        self._queues = queues
        self.within_nominal_gate = within_nominal_gate
        self.targets: list[tuple[Candidate, str]] = []

    def _fitting(self) -> bool:
        node = self._own.node
        tree.remove_all(node, self._requests)
        good = tree.fits(node, self._requests)
        tree.add_all(node, self._requests)
        return good

    def _take(self, candidate: "Candidate", reason: str) -> bool:
        """One more victim; whether the workload fits now."""
        tree.remove_all(candidate.queue.node, candidate.info.usage)
        self.targets.append((candidate, reason))
        return self._fitting()

    def run(self, candidates: "list[Candidate]", strategies: tuple[FairSharingStrategy, ...]) -> bool:
        """Take victims until the workload fits. Leaves the ledger with the victims removed and without the workload;
        the caller puts it back."""
        node = self._own.node
        tree.add_all(node, self._requests)
        retry: list[Candidate] = []
        done = self._first(candidates, STRATEGIES[strategies[0]], retry)
        if not done and len(strategies) > 1:
            done = self._second(retry, STRATEGIES[strategies[1]])
        tree.remove_all(node, self._requests)
        return done

    def _first(
        self, candidates: "list[Candidate]", strategy: Callable[[Share, Share, Share], bool], retry: "list[Candidate]"
    ) -> bool:
        own = self._own
        within_nominal = self.within_nominal_gate and tree.within_nominal(own.node, self._pairs)
        waiting = by_queue(candidates)
        for queue in TargetOrdering(own, waiting, self._queues):
            line = waiting[queue.name]
            if queue is own or within_nominal:
                reason = IN_CLUSTER_QUEUE if queue is own else IN_COHORT_RECLAMATION
                if self._take(line.pop(0), reason):
                    return True
                continue
            mine, theirs = below_common_ancestor(own.node, queue.node)
            preemptor_new, target_old = share(mine), share(theirs)
            if preemptor_new.infinite and not target_old.infinite:
                retry.extend(line)
                line.clear()
                continue
            while line:
                candidate = line.pop(0)
                tree.remove_all(queue.node, candidate.info.usage)
                target_new = share(theirs)
                tree.add_all(queue.node, candidate.info.usage)
                if strategy(preemptor_new, target_old, target_new):
                    if self._take(candidate, IN_COHORT_FAIR_SHARING):
                        return True
                    break
                retry.append(candidate)
        return False

    def _second(self, candidates: "list[Candidate]", strategy: Callable[[Share, Share, Share], bool]) -> bool:
        own = self._own
        waiting = by_queue(candidates)
        ordering = TargetOrdering(own, waiting, self._queues)
        for queue in ordering:
            mine, theirs = below_common_ancestor(own.node, queue.node)
            candidate = waiting[queue.name].pop(0)
            if strategy(share(mine), share(theirs), ZERO) and self._take(candidate, IN_COHORT_FAIR_SHARING):
                return True
            ordering.drop(queue)
        return False


def by_queue(candidates: "list[Candidate]") -> "dict[str, list[Candidate]]":
    """Candidates by ClusterQueue, in order."""
    found: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        found.setdefault(candidate.queue.name, []).append(candidate)
    return found
