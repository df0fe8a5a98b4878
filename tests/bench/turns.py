"""How long the event loop is held, and by whom: every callback of a standard loop is timed while this lasts.

Time is CPU time of the loop's own thread, so that other processes on the machine do not count. Must never be used with
uvloop, whose callbacks cannot be seen.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.bench.figures import percentile


@dataclass
class Turns:
    """Milliseconds of CPU that each callback held the loop, by what it was."""

    held: dict[str, list[float]] = field(default_factory=dict)

    @property
    def all(self) -> list[float]:
        """Every one of them."""
        return [each for times in self.held.values() for each in times]

    @property
    def longest(self) -> float:
        """The longest of all."""
        return max(self.all, default=0.0)

    def at(self, percent: float) -> float:
        """What so many percent of them do not exceed."""
        return percentile(self.all, percent)

    def worst(self, count: int) -> list[tuple[str, float, int]]:
        """Who held it longest: name, the longest, and how many took above a millisecond."""
        found = [(name, max(times), sum(each > 1.0 for each in times)) for name, times in self.held.items()]
        return sorted(found, key=lambda each: -each[1])[:count]


@contextmanager
def timed() -> Iterator[Turns]:
    """Time every callback of the loop that runs in this thread."""
    turns = Turns()
    handle: Any = asyncio.events.Handle
    run = handle._run

    def timed_run(self: Any) -> None:
        name = _name(self._callback)  # it may be gone afterwards
        began = time.thread_time()
        run(self)
        turns.held.setdefault(name, []).append((time.thread_time() - began) * 1e3)

    handle._run = timed_run
    try:
        yield turns
    finally:
        handle._run = run


def _name(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine = owner.get_coro()
        return str(getattr(coroutine, "__qualname__", coroutine))
    return str(getattr(callback, "__qualname__", type(callback).__name__))
