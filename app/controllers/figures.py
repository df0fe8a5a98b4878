"""When the figures of queues are worked out: soon after a change while the API server is at ease, seldom in a burst.

Figures change with every Workload, and each write of them keeps the API server from admissions. So keys whose figures
changed are gathered, and all handed to their reconcilers together, which decide about each of them once. Must never
know what the figures are.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, Protocol

from app.kube.slices import Slice
from app.kube.workqueue import WorkQueue

SETTLED_SECONDS: Final = 0.3
"""A burst is over when nothing urgent was written for so long."""
AT_EASE_SECONDS: Final = 0.6
"""So often figures are worked out at most."""
BUSY_SECONDS: Final = 3.0
"""So late they are worked out at most, in a burst that does not end."""


class Quiet(Protocol):
    """Waits for the API server; `Executor.quiet` is one."""

    async def __call__(self, *, at_most: float, still: float) -> None:
        """Return once nothing urgent was written for `still` seconds and the server is at ease, or after `at_most`."""
        ...


Keys = Iterator[tuple[WorkQueue, str]]


class ChangedFigures:
    """Gathers keys of work queues. `await run()` passes each to `hand_on`, which has it decided about."""

    def __init__(self, quiet: Quiet, hand_on: Callable[[WorkQueue, str], None] = WorkQueue.add) -> None:
        self._quiet = quiet
        self._hand_on = hand_on
        self._changed: dict[tuple[WorkQueue, str], None] = {}
        self._many: dict[Callable[[], Keys], None] = {}
        self._wake = asyncio.Event()

    def changed(self, queue: WorkQueue, key: str) -> None:
        """Figures of this key changed."""
        self._changed[queue, key] = None
        self._wake.set()

    def many_changed(self, keys: Callable[[], Keys]) -> None:
        """Figures of all these keys changed, which are not listed before they are due."""
        self._many[keys] = None
        self._wake.set()

    async def run(self) -> None:
        """Hand keys on until cancelled."""
        loop = asyncio.get_running_loop()
        last = float("-inf")
        while True:
            await self._wake.wait()
            first = loop.time()
            await asyncio.sleep(max(0.0, last + AT_EASE_SECONDS - first))
            await self._quiet(at_most=first + BUSY_SECONDS - loop.time(), still=SETTLED_SECONDS)
            self._wake.clear()
            changed, self._changed = self._changed, {}
            many, self._many = self._many, {}
            last = loop.time()
            turn = Slice()
            for queue, key in chain(changed, *(keys() for keys in many)):
                self._hand_on(queue, key)
                if turn.over:
                    await turn.rest()
