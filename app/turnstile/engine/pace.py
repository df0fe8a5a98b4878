"""How much work is done at a stretch, work on long lists at that pace, and usage that is only tried.

A cycle is a generator that stops often, so that its caller can let other tasks run. Inside a search for victims the
stops are counted by work (candidates looked at, pairs counted), never by time, so that what is decided does not depend
on them. Must never read a clock, and never know what the work is for.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar

T = TypeVar("T")

STRETCH: Final = 160.0
"""Work between two stops, one to two microseconds each: a quarter of the millisecond the event loop may be held."""

HASHING: Final = 8.0
"""Work to find out the scheduling hash of a workload."""

AT_ONCE: Final = 256
"""So many are sorted, or freed, without a stop."""

Sliced = Generator[None, None, T]
"""Work that stops now and then; its value is the result."""


class Pace:
    """Counts work down. The code that works takes from `left` and stops (yields) when nothing is left, and then
    calls `renew`. Endless unless it is told how long a stretch is."""

    __slots__ = ("left", "stretch")

    def __init__(self, stretch: float = math.inf) -> None:
        self.stretch = stretch
        self.left = stretch

    def renew(self) -> None:
        """A new stretch begins."""
        self.left = self.stretch


def finish(work: Sliced[T]) -> T:
    """Do sliced work at one stretch."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def arrange(items: list[T], key: Callable[[T], Any], pace: Pace) -> Sliced[None]:
    """Sort in place, stopping now and then: many are first dealt out into about equal ranges."""
    if len(items) <= AT_ONCE:
        pace.left -= len(items) // 2
        items.sort(key=key)
        return
    ranges = math.isqrt(len(items))
    sample = sorted(map(key, items[:: max(1, len(items) // (4 * ranges))]))
    bounds = sample[:: max(1, len(sample) // ranges)]
    dealt: list[list[T]] = [[] for _ in range(len(bounds) + 1)]
    for item in items:
        pace.left -= 1
        if pace.left <= 0:
            yield
            pace.renew()
        dealt[bisect_left(bounds, key(item))].append(item)
    items.clear()
    for part in dealt:
        pace.left -= len(part)
        if pace.left <= 0:
            yield
            pace.renew()
        part.sort(key=key)
        items.extend(part)


def discard(items: list[Any] | dict[Any, Any], pace: Pace) -> Sliced[None]:
    """Let go of many: to free them takes time as well."""
    while len(items) > AT_ONCE:
        if isinstance(items, list):
            del items[-AT_ONCE:]
        else:
            for _ in range(AT_ONCE):
                items.popitem()
        pace.left -= AT_ONCE // 3
        if pace.left <= 0:
            yield
            pace.renew()
    items.clear()
