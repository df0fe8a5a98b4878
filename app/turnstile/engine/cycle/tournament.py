"""The order of heads under fair sharing: the lowest share first, computed again after each.

Sources: KEP-1714, Kueue's fair sharing iterator. Counts the usage of a head on the tree and always takes it off again.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, heapreplace
from operator import itemgetter
from typing import TYPE_CHECKING

from turnstile.engine.pace import Pace, Sliced, arrange
from turnstile.engine.quota.shares import Share, share
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.usage import Usage

if TYPE_CHECKING:
    from turnstile.engine.cycle.entries import Entry

Rank = tuple[bool, bool, Share, int, float, bool, int, str, str]


class Tournament:
    """Hands out entries, the one with the lowest share first, recomputed after each.

    Holds at most one entry for each ClusterQueue. Add all entries before taking the first. Taking an entry adds usage
    on its way to the root only, so only the cohorts there are judged anew: each cohort has a heap of its child Cohorts,
    by the rank of the best entry below each. `usage_of` is the usage of an entry.
    """

    __slots__ = ("_children", "_direct", "_flags", "_heaps", "_loners", "_pace", "_roots", "_usage_of")

    def __init__(
        self,
        usage_of: "Callable[[Entry], Usage]",
        pace: Pace,
        *,
        non_borrowing_first: bool,
        priority_first: bool,
        preemptors_first: bool,
    ) -> None:
        self._usage_of = usage_of
        self._pace = pace
        self._flags = (preemptors_first, non_borrowing_first, priority_first)
        self._loners: list[Entry] = []
        self._direct: dict[Node, list[tuple[Rank, Entry]]] = {}
        """Entries of the ClusterQueues of each cohort, the best last."""
        self._children: dict[Node, dict[str, Node]] = {}
        self._heaps: dict[Node, list[tuple[Rank, Entry, Node]]] = {}
        self._roots: dict[str, Node] = {}

    def add(self, entry: "Entry") -> None:
        """One more that takes part."""
        node = entry.queue.node
        if node.parent is None:
            self._loners.append(entry)
            return
        self._direct.setdefault(node.parent, []).append((self._rank(entry, node, direct=True), entry))
        for cohort in node.ancestors():
            if cohort.parent is None:
                self._roots[cohort.name] = cohort
                return
            siblings = self._children.setdefault(cohort.parent, {})
            if cohort.name in siblings:
                return  # and so are those above
            siblings[cohort.name] = cohort

    def __iter__(self) -> "Iterator[Entry | None]":
        """The entries; None where the pace calls for a stop."""
        for ranked in self._direct.values():
            yield from arrange(ranked, itemgetter(0), self._pace)
            ranked.reverse()
        yield from sorted(self._loners, key=lambda entry: entry.queue.name)
        for name in sorted(self._roots):
            root = self._roots[name]
            yield from self._seed(root)
            while (best := self._best(root)) is not None:
                assert best.queue.node.parent is not None
                self._direct[best.queue.node.parent].pop()  # it was the best there
                yield best

    def _seed(self, cohort: Node) -> Sliced[None]:
        """Put the child Cohorts of a cohort into its heap."""
        heap = self._heaps[cohort] = []
        for child in self._children.get(cohort, {}).values():
            yield from self._seed(child)
            self._pace.left -= 4
            if self._pace.left <= 0:
                yield
                self._pace.renew()
            entry = self._best(child)
            if entry is not None:
                heappush(heap, (self._rank(entry, child, direct=False), entry, child))

    def _best(self, cohort: Node) -> "Entry | None":
        """The best entry below a cohort. Only the first child Cohort of the heap is judged anew, until one stays first:
        usage grows while entries are processed, so that the others are no better than they were."""
        direct, heap = self._direct.get(cohort), self._heaps[cohort]
        while heap:
            before, _, child = heap[0]
            entry = self._best(child)
            if entry is None:
                heappop(heap)
                continue
            rank = self._rank(entry, child, direct=False)
            if rank == before:
                break
            heapreplace(heap, (rank, entry, child))
        if direct and (not heap or direct[-1][0] < heap[0][0]):
            return direct[-1][1]
        return heap[0][1] if heap else None

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
