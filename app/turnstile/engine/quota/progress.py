"""How far the scan of the flavors for a Workload came, so that the next cycle goes on there.

Source: Kueue's AssignmentClusterQueueState. Must never look at flavors.
"""

from typing import Final

Mark = tuple[tuple[tuple[str, int], ...], ...]
"""How far a scan came, as a value: by pod set, resource and index."""
_NOWHERE: Final[frozenset[Mark]] = frozenset()


class LastAssignment:
    """How far the last scan came: by pod set, the index of the last flavor tried a resource; -1 is the end.

    `since` is the pop of its queue that the scan began with, before the first if what it found in its earlier flavors
    may not have been so for long.
    """

    __slots__ = ("_circled", "_visited", "cycle", "generation", "hash", "since", "tried")

    def __init__(self, tried: list[dict[str, int]], generation: int, cycle: int, hash_: str) -> None:
        self.tried = tried
        self.generation = generation
        self.cycle = cycle
        self.hash = hash_
        self.since = -1
        self._visited = _NOWHERE
        self._circled = False

    @property
    def mark(self) -> Mark:
        """How far it came."""
        return tuple(tuple(tried.items()) for tried in self.tried)

    @property
    def pending(self) -> bool:
        """Whether some flavors were not tried yet."""
        return not self._circled and any(index != -1 for tried in self.tried for index in tried.values())

    def follow(self, before: "LastAssignment") -> None:
        """The scan went on from there. Pod sets that end theirs begin again while others go on, so it may come round
        in a circle: then it has ended. In Kueue it never does, and who stands behind is never looked at."""
        self._visited = before._visited | {before.mark}
        self._circled = self.mark in self._visited
