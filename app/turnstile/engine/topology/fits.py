"""How many pods of one kind fit on each node beside those that are expected there, kept from one question to the next.

Pods of one shape are counted once, however many Workloads ask, and then only where something changed. Must never know
whose pods are expected.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from heapq import merge
from typing import Final

from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.topology.capacity import Free, Frees
from turnstile.engine.topology.counting import Counts, Kind, counts_of
from turnstile.engine.topology.failure import listed
from turnstile.engine.topology.tree import Capacity, Leaf, Tree

Labels = frozenset[tuple[str, str]]
Overlay = Mapping[Capacity, Mapping[str, int]]
"""Amounts that are in use besides, by place; below zero where they will not be in use."""

_NODE: Final = 0.6
"""Work to look at a node."""
_AT_ONCE: Final = 128
"""Nodes that are looked at between two stops."""
MOST_FITS: Final = 1 << 18
"""Figures that are kept for later questions."""
_NOTHING: Final[Mapping[str, int]] = {}
"""Not to be changed."""


class Roster:
    """The nodes of a tree of one level, for as long as none comes or goes. A node is known by its place in it."""

    __slots__ = ("_labelled", "nodes", "order", "revision")

    def __init__(self, tree: Tree) -> None:
        self.revision = tree.revision
        self.nodes = [leaf for leaf in tree.domains(0) if isinstance(leaf, Leaf)]
        self.order = {leaf.at: node for node, leaf in enumerate(self.nodes)}
        """By `Leaf.at`."""
        self._labelled: dict[Labels, AbstractSet[int]] = {}

    def labelled(self, labels: Labels) -> AbstractSet[int]:
        """Nodes with these labels."""
        found = self._labelled.get(labels)
        if found is None:
            found = self._labelled[labels] = {
                node for node, leaf in enumerate(self.nodes) if labels <= leaf.node.labels.items()
            }
        return found


class Fits:
    """Pods that fit on the nodes of a roster."""

    __slots__ = ("_by_pods", "counts", "moved", "pods", "position", "refusals", "roster", "total")

    def __init__(self, counts: Counts, roster: Roster) -> None:
        self.counts = counts
        """Pods that would fit if none were expected."""
        self.roster = roster
        self.pods: list[int] = []
        self.total = 0
        self._by_pods: dict[int, list[int]] = {}
        """Nodes by the pods that fit there, in order."""
        self.position = self.moved = -1
        """How far the changes of nodes, and of the pods that are expected there, are counted."""
        self.refusals: dict[Labels, tuple[int, str]] = {}
        """By labels of nodes: how many nodes have these, and why pods have no room there."""

    def extend(self, pods: Iterable[int]) -> None:
        """So many pods fit on the next nodes."""
        for node, each in enumerate(pods, len(self.pods)):
            self.pods.append(each)
            self.total += each
            same = self._by_pods.get(each)
            if same is None:
                self._by_pods[each] = [node]
            else:
                same.append(node)

    def put(self, node: int, pods: int) -> None:
        """So many pods fit on a node now."""
        before = self.pods[node]
        if before == pods:
            return
        same = self._by_pods[before]
        del same[bisect_left(same, node)]
        if not same:
            del self._by_pods[before]
        insort(self._by_pods.setdefault(pods, []), node)
        self.pods[node] = pods
        self.total += pods - before

    @property
    def full(self) -> Iterable[int]:
        """Nodes on which none fits."""
        return self._by_pods.get(0, ())

    def total_with(self, changed: Mapping[int, int]) -> int:
        """Pods that fit on all nodes, with other counts for some."""
        return self.total + sum([pods - self.pods[node] for node, pods in changed.items()])

    def smallest_first(self, changed: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        """Pods that fit, and the node, for each node with room: those first that have room for the fewest; with other
        counts for some nodes."""
        others = sorted((pods, node) for node, pods in changed.items() if pods > 0)
        return merge(self._unchanged(changed), others) if others else self._unchanged(changed)

    def _unchanged(self, changed: Mapping[int, int]) -> Iterator[tuple[int, int]]:
        for pods in sorted(self._by_pods):
            for node in self._by_pods[pods] if pods > 0 else ():
                if node not in changed:
                    yield pods, node


class Outlook:
    """Room on the nodes of a tree of one level beside pods that are expected there, and those of preemptors."""

    __slots__ = ("_beside", "_frees", "_known", "_moved", "_moved_start", "_reserved", "_roster", "_tree", "expected")

    def __init__(self, tree: Tree, frees: Frees) -> None:
        self._tree = tree
        self._frees = frees
        self.expected: dict[Capacity, dict[str, int]] = {}
        """Requests of the pods that are expected, by place. Not to be changed."""
        self._reserved: dict[Capacity, dict[str, int]] = {}
        """Requests of the pods of preemptors, which get room until the cycle ends."""
        self._moved: list[Capacity] = []
        """Places where more or fewer pods need room than before."""
        self._moved_start = 0
        """Number of these changes before the list."""
        self._beside: dict[Capacity, tuple[Free, Free]] = {}
        """Amounts that are free in a place, and the rest of them beside the pods that need room there."""
        self._roster: Roster | None = None
        self._known: dict[Kind, Fits] = {}
        """Pods that fit on each node, by kind; the last that was asked for comes last."""

    def expect(self, place: Capacity, amounts: Mapping[str, int], pods: int) -> None:
        """So many more pods with these requests are expected in a place; fewer if below zero."""
        put(self.expected, place, amounts, pods)
        if not self.expected[place]:
            del self.expected[place]
        self._note(place)

    def reserve(self, place: Capacity, amounts: Mapping[str, int], pods: int) -> None:
        """A place is kept for so many pods with these requests until the cycle ends."""
        put(self._reserved, place, amounts, pods)
        self._note(place)

    def release(self) -> None:
        """No places are kept any more."""
        reserved, self._reserved = self._reserved, {}
        for place in reserved:
            self._note(place)

    def _note(self, place: Capacity) -> None:
        """More or fewer pods need room in a place."""
        self._beside.pop(place, None)
        self._moved.append(place)
        if len(self._moved) > 2 * self._tree.size + 1024:
            self._moved_start += len(self._moved)
            self._moved.clear()

    def fits(self, kind: Kind, pace: Pace) -> Sliced[Fits]:
        """Pods of a kind that fit on each node beside all that are expected."""
        tree, known = self._tree, self._known
        counts = yield from counts_of(tree, kind, self._frees, pace)
        fits = known.pop(kind, None)
        roster = self._roster
        if roster is None or roster.revision != tree.revision:
            roster = self._roster = Roster(tree)
        if (
            fits is None
            or fits.counts is not counts
            or fits.roster is not roster
            or fits.position < tree.start
            or fits.moved < self._moved_start
        ):
            fits = yield from self._count_all(counts, roster, pace)
        else:
            changed = [*tree.log[fits.position - tree.start :]]
            for place in self._moved[fits.moved - self._moved_start :]:
                changed += place.leaves
            for leaf in dict.fromkeys(changed):
                pace.left -= _NODE
                if pace.left <= 0:
                    yield
                    pace.renew()
                if isinstance(leaf, Leaf) and leaf.tree is tree:
                    fits.put(roster.order[leaf.at], self._pods(counts, leaf))
            if changed:
                fits.refusals.clear()
        fits.position, fits.moved = tree.start + len(tree.log), self._moved_start + len(self._moved)
        while known and (len(known) + 1) * tree.size > MOST_FITS:
            del known[next(iter(known))]
        known[kind] = fits
        return fits

    def _count_all(self, counts: Counts, roster: Roster, pace: Pace) -> Sliced[Fits]:
        fits = Fits(counts, roster)
        for start in range(0, len(roster.nodes), _AT_ONCE):
            part = roster.nodes[start : start + _AT_ONCE]
            pace.left -= _NODE * len(part)
            if pace.left <= 0:
                yield
                pace.renew()
            fits.extend([self._pods(counts, leaf) for leaf in part])
        return fits

    def _pods(self, counts: Counts, leaf: Leaf) -> int:
        """Pods that fit on a node beside what is expected."""
        place = leaf.capacity
        if (place not in self.expected and place not in self._reserved) or leaf.at in counts.excluded:
            return counts.pods[leaf.at]
        return counts.kind.ask.fits[self._left(place)]

    def _left(self, place: Capacity) -> Free:
        """Amounts that are free in a place beside what is expected there."""
        if place not in self.expected and place not in self._reserved:
            return place.free
        known = self._beside.get(place)
        if known is None or known[0] is not place.free:
            free = _beside(place.free, (self.expected.get(place, _NOTHING), self._reserved.get(place, _NOTHING)))
            known = self._beside[place] = place.free, self._frees.of(free)
        return known[1]

    def changed(self, fits: Fits, more: Overlay, pace: Pace) -> Sliced[dict[int, int]]:
        """Nodes where so many pods fit beside `more`."""
        found: dict[int, int] = {}
        counts = fits.counts
        for place, amounts in more.items():
            pace.left -= 2 * _NODE
            if pace.left <= 0:
                yield
                pace.renew()
            for leaf in place.leaves:
                if leaf.tree is self._tree and leaf.at not in counts.excluded:
                    found[fits.roster.order[leaf.at]] = counts.kind.ask.into(_beside(self._left(place), (amounts,)))
        return found

    def refusals(self, fits: Fits, labels: Labels, more: Overlay, pace: Pace) -> Sliced[tuple[int, str]]:
        """How many nodes have these labels, and why pods have no room there."""
        changed = yield from self.changed(fits, more, pace)
        excluded, ask = fits.counts.excluded, fits.counts.kind.ask
        nodes = fits.roster.labelled(labels)
        pace.left -= _NODE / 2 * len(nodes)
        reasons: Counter[str] = Counter()
        left: Counter[Free] = Counter()
        for node in fits.full:
            pace.left -= _NODE
            if pace.left <= 0:
                yield
                pace.renew()
            if node in nodes and node not in changed:
                leaf = fits.roster.nodes[node]
                if (reason := excluded.get(leaf.at)) is not None:
                    reasons[reason] += 1
                else:
                    left[self._left(leaf.capacity)] += 1
        for node in [node for node, pods in changed.items() if not pods and node in nodes]:
            place = fits.roster.nodes[node].capacity
            left[self._frees.of(_beside(self._left(place), (more[place],)))] += 1
        for free, count in left.items():
            reasons[f'resource "{ask.limiting(free.amounts)}"'] += count
        return len(nodes), listed(list(reasons.elements()), len(nodes))


def _beside(free: Free, used: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """Amounts that are free beside others."""
    left = dict(free.amounts)
    for amounts in used:
        for resource, amount in amounts.items():
            left[resource] = left.get(resource, 0) - amount
    return left


def put(total: dict[Capacity, dict[str, int]], place: Capacity, amounts: Mapping[str, int], times: int) -> None:
    """Add amounts in a place, so many times."""
    mine = total.setdefault(place, {})
    for resource, amount in amounts.items():
        left = mine.get(resource, 0) + times * amount
        if left:
            mine[resource] = left
        else:
            mine.pop(resource, None)
