"""The order of heads under fair sharing: the lowest share first, computed again after each.

Sources: KEP-1714, Kueue's fair sharing iterator. Counts the usage of a head on the tree and always takes it off again.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from turnstile.engine.quota.shares import Share, share
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.usage import Usage

if TYPE_CHECKING:
    from turnstile.engine.cycle.entries import Entry

Rank = tuple[bool, bool, Share, int, float, bool, int, str, str]


class Tournament:
    """Hands out entries, the one with the lowest share first, recomputed after each.

    Holds at most one entry for each ClusterQueue. Add all entries before taking the first. Taking an entry adds usage
    on its way to the root only, so only the cohorts there are judged anew. `usage_of` is the usage of an entry.
    """

    __slots__ = ("_best", "_children", "_direct", "_flags", "_loners", "_roots", "_usage_of")

    def __init__(
        self,
        usage_of: "Callable[[Entry], Usage]",
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
        usage.add_to(leaf)
        value = share(node)
        borrows = usage.borrows(node)
        usage.remove_from(leaf)
        return self.rank(entry, value, borrows=borrows, direct=direct)

    def rank(self, entry: "Entry", value: Share, *, borrows: bool, direct: bool) -> Rank:
        """Rank of an entry with which its side would have this share, and borrow what is asked for, or not."""
        preemptors_first, non_borrowing_first, priority_first = self._flags
        priority, timestamp, born, uid, key = entry.info.order
        return (
            preemptors_first and not entry.preemptor,
            non_borrowing_first and borrows,
            value,
            priority if priority_first else 0,
            timestamp,
            direct,
            born,
            uid,
            key,
        )
