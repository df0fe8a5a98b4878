"""Holds once what many objects have in common, so that a hundred thousand pending Workloads fit into memory.

The pod specs of Workloads from one program differ seldom, and so do the names of their queues and the reasons why they
wait. Equal values are replaced by the first of them. The number of values remembered is bounded; what was forgotten is
only held twice. Only values that are never modified may be shared.
"""

from typing import Any, Final, TypeVar

T = TypeVar("T")
S = TypeVar("S", str, bytes)

LIMIT: Final = 4096
"""Values remembered at a time."""
LONGEST: Final = 2048
"""Longest key of a value that is remembered: what is longer is seldom equal, and may stay long after its object."""


class Shared:
    """The first of each set of equal values, by a text or bytes that say all of the value."""

    __slots__ = ("_firsts", "_limit")

    def __init__(self, limit: int = LIMIT) -> None:
        self._firsts: dict[str | bytes, Any] = {}
        self._limit = limit

    def __len__(self) -> int:
        return len(self._firsts)

    def same(self, value: S) -> S:
        """The first text, or bytes, equal to this one."""
        return self.first(value, value)

    def first(self, key: str | bytes, value: T) -> T:
        """The first value that came with an equal key."""
        if len(key) > LONGEST:
            return value
        firsts = self._firsts
        found: T = firsts.setdefault(key, value)
        if found is value and len(firsts) > self._limit:
            firsts.clear()
        return found
