"""Fair sharing between ClusterQueues and Cohorts: dominant resource shares, the tournament, whom to preempt for it.

The share of a node is how much it borrows, relative to what its parent could lend, of the resource where that is most,
divided by its weight. Sources: KEP-1714, Kueue's fair sharing. Simulates on the ledger and always puts it back.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from app.api.quantity import MAX_INT64
from app.engine import tree
from app.engine.amounts import Amounts, FlavorResource, bounded
from app.engine.options import FairSharingStrategy
from app.engine.pace import Pace, Sliced, Trial
from app.engine.reasons import IN_CLUSTER_QUEUE, IN_COHORT_FAIR_SHARING, IN_COHORT_RECLAMATION
from app.engine.tree import Node

if TYPE_CHECKING:
    from app.engine.candidates import Candidate
    from app.engine.entries import Entry
    from app.engine.queues import ClusterQueue


class Share(NamedTuple):
    """A dominant resource share; compares as fair sharing does. Borrowing with weight 0 is past every other share and
    then counts by its ratio."""

    infinite: bool
    value: float

    @property
    def status(self) -> int:
        """As `status.fairSharing.weightedShare` has it: rounded up, within int64, and its largest if infinite."""
        return MAX_INT64 if self.infinite else min(MAX_INT64, -int(-self.value // 1))


ZERO = Share(False, 0.0)


def lendable(cohort: Node) -> dict[str, int]:
    """By resource, what the children of a cohort could be given if nothing were in use."""
    if not cohort.lendable:
        found: dict[str, int] = {}
        for pair in cohort.root.subtree:
            found[pair.resource] = bounded(found.get(pair.resource, 0) + tree.potential(cohort, pair))
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
            borrowed[pair.resource] = bounded(borrowed.get(pair.resource, 0) + over)
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
    return weighted(ratio, node.weight)


def weighted(ratio: float, weight: float) -> Share:
    """The share of a node of this weight that borrows in this ratio."""
    if ratio == 0.0:
        return ZERO
    return Share(True, ratio) if weight == 0 else Share(False, ratio / weight)


# The tournament

Rank = tuple[bool, bool, Share, int, float, bool, str, str]


class Tournament:
    """Hands out entries, the one with the lowest share first, recomputed after each.

    One entry a ClusterQueue; all are added first. Taking an entry adds usage on its way to the root only, so only the
    cohorts there are judged anew. `usage_of` is what an entry would use.
    """

    __slots__ = ("_best", "_children", "_direct", "_flags", "_loners", "_roots", "_usage_of")

    def __init__(
        self,
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

    def add(self, entry: "Entry") -> None:
        """One more that takes part."""
        node = entry.queue.node
        if node.parent is None:
            self._loners.append(entry)
            return
        self._direct.setdefault(id(node.parent), []).append((self._rank(entry, node, direct=True), entry))
        for cohort in node.ancestors():
            if cohort.parent is None:
                self._roots[cohort.name] = cohort
                return
            siblings = self._children.setdefault(id(cohort.parent), {})
            if cohort.name in siblings:
                return  # and so are those above
            siblings[cohort.name] = cohort

    def __iter__(self) -> "Iterator[Entry]":
        for ranked in self._direct.values():
            ranked.sort(key=lambda item: item[0], reverse=True)
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
        usage = self._usage_of(entry)
        leaf = entry.queue.node
        tree.add_all(leaf, usage)
        value = share(node)
        borrows = any(
            amount > 0 and node.usage.get(pair, 0) > node.subtree.get(pair, 0) for pair, amount in usage.items()
        )
        tree.remove_all(leaf, usage)
        return self.rank(entry, value, borrows=borrows, direct=direct)

    def rank(self, entry: "Entry", value: Share, *, borrows: bool, direct: bool) -> Rank:
        """Rank of an entry with which its side would have this share, and borrow what is asked for, or not."""
        preemptors_first, non_borrowing_first, priority_first = self._flags
        priority, timestamp, uid, key = entry.info.order
        return (
            preemptors_first and not entry.preemptor,
            non_borrowing_first and borrows,
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

    `candidates` by ClusterQueue are consumed by the caller from the front. Shares are remembered until `taken` says
    that usage changed below.
    """

    __slots__ = ("_candidates", "_members", "_own", "_pace", "_path", "_pruned", "_queues", "_shares")

    def __init__(
        self,
        own: "ClusterQueue",
        candidates: "Mapping[str, Sequence[Candidate]]",
        queues: "dict[str, ClusterQueue]",
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
        requests: Amounts,
        pairs: set[FlavorResource],
        queues: "dict[str, ClusterQueue]",
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
        self._cost = 4 + 4 * len(requests)
        self.within_nominal_gate = within_nominal_gate
        self.targets: list[tuple[Candidate, str]] = []

    def _fitting(self) -> bool:
        node = self._own.node
        tree.remove_all(node, self._requests)
        good = tree.fits(node, self._requests)
        tree.add_all(node, self._requests)
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
