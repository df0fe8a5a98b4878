"""Batches the updates of queues' figures: soon after a change while the API server is idle, seldom in a burst.

Figures change with every Workload, and writing them takes API server time from admissions. So keys whose figures
changed are collected, and added to their work queues together, each key once. Must never know what the figures are.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, Protocol

from turnstile.kube.slices import Slice
from turnstile.kube.workqueue import WorkQueue

SETTLED_SECONDS: Final = 0.3
"""Seconds without admissions, starts and stops after which a burst is over."""
AT_EASE_SECONDS: Final = 0.6
"""Minimum seconds between two batches."""
BUSY_SECONDS: Final = 3.0
"""Maximum seconds from a change to its batch, in a burst that does not end."""


class Quiet(Protocol):
    """Waits for the API server; `turnstile.kube.gate.Gate.quiet` implements it."""

    async def __call__(self, *, at_most: float, still: float) -> None:
        """Return after `still` seconds without admissions, starts and stops and a server at ease, or `at_most`."""
        ...


Keys = Iterator[tuple[WorkQueue, str]]


class ChangedFigures:
    """Collects keys of work queues. `await run()` passes each key to `hand_on`, which adds the key to its queue."""

    def __init__(self, quiet: Quiet, hand_on: Callable[[WorkQueue, str], None] = WorkQueue.add) -> None:
        self._quiet = quiet
        self._hand_on = hand_on
        self._changed: dict[tuple[WorkQueue, str], None] = {}
        self._many: dict[Callable[[], Keys], None] = {}
        self._wake = asyncio.Event()

    def changed(self, queue: WorkQueue, key: str) -> None:
        """Report that the figures of a key changed."""
        self._changed[queue, key] = None
        self._wake.set()

    def many_changed(self, keys: Callable[[], Keys]) -> None:
        """Report that the figures of all these keys changed; `keys` is called only when the batch is due."""
        self._many[keys] = None
        self._wake.set()

    async def run(self) -> None:
        """Pass batches of keys to `hand_on` until cancelled."""
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
