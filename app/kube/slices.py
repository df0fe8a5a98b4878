"""How long a task holds the event loop: everything that may be long is cut into slices.

Webhook reviews, watches and the renewal of the Lease share the loop, so nobody may hold it for more than about a
millisecond. Must never decide what is done, only when others get their turn.
"""

import asyncio
import time

SLICE_SECONDS = 0.0007
"""When a slice ends at its next stop; with the step that is under way then it lasts about a millisecond."""


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
