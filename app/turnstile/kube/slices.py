"""Limits how long a task blocks the event loop, by cutting long work into slices.

Webhook reviews, watches and the renewal of the Lease share the loop, so no task may block it for more than about a
millisecond. Must never decide what is done, only when other tasks run.
"""

import asyncio
import heapq
import time
from collections.abc import Generator, Iterator
from typing import Any, Protocol, TypeVar

SLICE_SECONDS = 0.0005
"""Seconds after which a slice ends at its next step. The current step and a pass of the garbage collector may take
nearly as long again; together they must stay below a millisecond."""

RUN = 512
"""Values sorted in one step."""


class _Comparable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


C = TypeVar("C", bound=_Comparable)
R = TypeVar("R")


class Slice:
    """The time slice of a running task. Create it, or call `begin`, when the task starts to run."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def begin(self) -> None:
        """Start the slice now, because the task has just been resumed."""
        self._began = time.perf_counter()

    @property
    def over(self) -> bool:
        """Whether the task must let other tasks run."""
        return time.perf_counter() - self._began > SLICE_SECONDS

    async def rest(self) -> None:
        """Let other tasks run, then begin a new slice."""
        await asyncio.sleep(0)
        self._began = time.perf_counter()


async def in_slices(steps: Generator[None, None, R]) -> R:
    """Run all steps, letting other tasks run in between; return the generator's result. Always closes the generator."""
    turn = Slice()
    try:
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: R = end.value
                return result
            if turn.over:
                await turn.rest()
    finally:
        steps.close()


def ordered(values: list[C]) -> Generator[None, None, Iterator[C]]:
    """The values in the order of `sorted`: sorted in runs, one per step, and merged while they are read.

    Sorting a hundred thousand keys at once would block the loop for too long.
    """
    runs = []
    for start in range(0, len(values), RUN):
        runs.append(sorted(values[start : start + RUN]))
        yield
    return heapq.merge(*runs) if len(runs) > 1 else iter(runs[0] if runs else ())
