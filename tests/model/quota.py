"""The arithmetic of quota in a tree of cohorts, worked out anew: how much a queue may take, how far up it borrows.

One flavor, one resource, whole numbers; `rules` has a tree for each pair. Histories on a cluster, histories without one
and the tests of the engine are all held against this. Nothing is shared with the engine, so that a fault there cannot
hide here.
Sources: KEP-79 (hierarchical cohorts), KEP-1714 (fair sharing).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Limits:
    """Quota of one ClusterQueue or Cohort; a borrowing or lending limit of None is no limit."""

    nominal: int
    borrowing: int | None = None
    lending: int | None = None
    parent: str | None = None
    queue: bool = True
    weight: Fraction = Fraction(1)


Usage = Mapping[str, int]
"""What ClusterQueues use, by name; absent is 0."""
Share = tuple[bool, Fraction]
"""A dominant resource share: past every other one (a weight of 0 that borrows), and how much."""


class Tree:
    """ClusterQueues and Cohorts as they are declared at one moment. A parent without an object has no quota."""

    def __init__(self, limits: Mapping[str, Limits]) -> None:
        self._limits = dict(limits)
        self._children: dict[str, list[str]] = {}
        for name, own in limits.items():
            if own.parent is not None:
                self._limits.setdefault(own.parent, Limits(0, queue=False))
                self._children.setdefault(own.parent, []).append(name)

    def __contains__(self, name: str) -> bool:
        return name in self._limits

    def above(self, name: str) -> Iterator[str]:
        """Cohorts above a node, nearest first."""
        parent = self._limits[name].parent
        while parent is not None:
            yield parent
            parent = self._limits[parent].parent

    def path(self, name: str) -> str:
        """`/topmost/.../name`."""
        return "/" + "/".join(reversed([name, *self.above(name)]))

    def root(self, name: str) -> str:
        """The topmost node above, or the node itself."""
        return [name, *self.above(name)][-1]

    def held(self, name: str) -> int:
        """A node's own quota and what its children lend it."""
        return self._limits[name].nominal + sum(self.held(c) - self.kept(c) for c in self._children.get(name, ()))

    def kept(self, name: str) -> int:
        """The part that a node never lends."""
        lending = self._limits[name].lending
        return 0 if lending is None else max(0, self.held(name) - lending)

    def used(self, name: str, usage: Usage) -> int:
        """What a ClusterQueue uses, or what the members of a Cohort use past what they keep."""
        if self._limits[name].queue:
            return usage.get(name, 0)
        return sum(max(0, self.used(child, usage) - self.kept(child)) for child in self._children.get(name, ()))

    def spare(self, name: str, usage: Usage) -> int:
        """The part that a node never lends and does not use."""
        return max(0, self.kept(name) - self.used(name, usage))

    def room(self, name: str, usage: Usage) -> int:
        """What a node may still take; negative where quota was cut below what is in use."""
        own, used = self._limits[name], self.used(name, usage)
        if own.parent is None:
            return self.held(name) - used
        kept, above = self.kept(name), self.room(own.parent, usage)
        if own.borrowing is not None:
            above = min(above, self.held(name) - kept - max(0, used - kept) + own.borrowing)
        return self.spare(name, usage) + above

    def fits(self, name: str, amount: int, usage: Usage, *, borrow: bool = True) -> bool:
        """Whether a ClusterQueue may take so much more; with `borrow` false also within its own quota."""
        if not borrow and self.borrows(name, usage, more=amount):
            return False
        return amount <= max(0, self.room(name, usage))

    def borrows(self, name: str, usage: Usage, *, more: int = 0) -> bool:
        """Whether a node uses more than it holds, with so much more."""
        return self.used(name, usage) + more > self.held(name)

    def level(self, name: str, amount: int, usage: Usage) -> tuple[int, bool]:
        """Height of the smallest subtree that holds so much more, and whether it is smaller than the tree; 0 is the
        ClusterQueue itself."""
        if self._limits[name].parent is None or not self.borrows(name, usage, more=amount):
            return 0, self._limits[name].parent is not None
        rest, height = amount - self.spare(name, usage), 0
        for cohort in self.above(name):
            height = self._height(cohort)
            if not self.borrows(cohort, usage, more=rest):
                return height, self._limits[cohort].parent is not None
            rest -= self.spare(cohort, usage)
        return height, False

    def _height(self, cohort: str) -> int:
        below = [0 if self._limits[child].queue else self._height(child) for child in self._children.get(cohort, ())]
        return 1 + max(below) if below else 0

    def share(self, name: str, usage: Usage) -> Share:
        """Dominant resource share of a node among its siblings."""
        own = self._limits[name]
        over = self.used(name, usage) - self.held(name)
        if own.parent is None or over <= 0:
            return False, Fraction(0)
        most = self.most(own.parent)
        ratio = Fraction(over * 1000, most) if most > 0 else Fraction(0)
        return (True, ratio) if own.weight == 0 and ratio else (False, ratio / own.weight if ratio else ratio)

    def most(self, name: str) -> int:
        """How much a node could take were nothing in use."""
        own = self._limits[name]
        if own.parent is None:
            return self.held(name)
        most = self.kept(name) + self.most(own.parent)
        return most if own.borrowing is None else min(self.held(name) + own.borrowing, most)

    def below(self, name: str, other: str) -> tuple[str, str]:
        """Of two ClusterQueues of one tree, the two nodes right below the lowest cohort that holds both."""
        mine, theirs = [name, *self.above(name)], [other, *self.above(other)]
        meeting = next(node for node in mine if node in theirs)
        return mine[mine.index(meeting) - 1], theirs[theirs.index(meeting) - 1]
