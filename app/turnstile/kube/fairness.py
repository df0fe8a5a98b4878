"""A queue that serves its flows in turn, so that the many items of one flow do not delay the few of another.

A flow is the namespace that an item belongs to. The flows take turns, one item each. Within a flow items of a lower
rank go first, and items of one rank keep their order. Must never know what the items are.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)
Order = tuple[int, ...]
_FIRST: Final = (0,)


class FairQueue(Generic[T]):
    """Items by flow and rank. Every method takes constant time however many items there are: `pop` for each barred flow
    and each rank of a flow, which have to be few."""

    __slots__ = ("_flows", "_length")

    def __init__(self) -> None:
        # The next flow comes first. Dicts keep the order of insertion; the innermost are sets that keep it too.
        self._flows: dict[str, dict[Order, dict[T, None]]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        """All items, flow by flow."""
        for ranks in self._flows.values():
            for items in ranks.values():
                yield from items

    def add(self, item: T, flow: str, rank: Order = _FIRST) -> None:
        """Add an item behind the others of its rank in its flow; nothing if it is there. A new flow is served last."""
        items = self._flows.setdefault(flow, {}).setdefault(rank, {})
        if item not in items:
            items[item] = None
            self._length += 1

    def pop(self, *, barred: Callable[[str], bool] = lambda _: False) -> T:
        """Remove and return the next item of the first flow in turn that is not `barred`.

        Barred flows keep their turns. Raises KeyError if there is no such item; takes time for each barred flow.
        """
        flow = next((flow for flow in self._flows if not barred(flow)), None)
        if flow is None:
            raise KeyError("no flow has an item that may be served")
        ranks = self._flows[flow]
        rank = min(ranks)
        item = next(iter(ranks[rank]))
        self.remove(item, flow, rank)
        if flow in self._flows:
            self._flows[flow] = self._flows.pop(flow)  # behind the others
        return item

    def remove(self, item: T, flow: str, rank: Order = _FIRST) -> None:
        """Remove an item; nothing if it is not there."""
        ranks = self._flows.get(flow, {})
        items = ranks.get(rank, {})
        if item not in items:
            return
        del items[item]
        self._length -= 1
        if not items:
            del ranks[rank]
        if not ranks:
            del self._flows[flow]
