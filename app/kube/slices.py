"""How long a task holds the event loop: everything that may be long is cut into slices.

Webhook reviews, watches and the renewal of the Lease share the loop, so nobody may hold it for more than about a
millisecond. Must never decide what is done, only when others get their turn.
"""

import asyncio
import heapq
import time
from collections.abc import Generator, Iterator
from typing import Any, Protocol, TypeVar

SLICE_SECONDS = 0.0005
"""When a slice ends at its next stop: the step that is under way then, and a look of the garbage collector, may take
nearly as long again, and all together is to be less than a millisecond."""

RUN = 512
"""So many values are sorted at once."""


class _Comparable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


C = TypeVar("C", bound=_Comparable)
R = TypeVar("R")


class Slice:
    """The slice of the event loop that a task is in. To be made, or begun anew, when the task gets its turn."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def begin(self) -> None:
        """The task has just got its turn."""
        self._began = time.perf_counter()

    @property
    def over(self) -> bool:
        """Whether it is time to let others run."""
        return time.perf_counter() - self._began > SLICE_SECONDS

    async def rest(self) -> None:
        """Let others run, and begin a new slice."""
        await asyncio.sleep(0)
        self._began = time.perf_counter()


async def in_slices(steps: Generator[None, None, R]) -> R:
    """Go through all steps and let others run in between; what the last one returned. Left early, it closes them."""
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
    """The values in ascending order, as `sorted` gives them: sorted a run at a time, and merged as they are asked for.

    To sort a hundred thousand keys takes longer than anybody may hold the loop.
    """
    runs = []
    for start in range(0, len(values), RUN):
        runs.append(sorted(values[start : start + RUN]))
        yield
    return heapq.merge(*runs) if len(runs) > 1 else iter(runs[0] if runs else ())
