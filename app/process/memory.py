"""When the garbage collector may hold the event loop: for short always, for long only when nobody waits.

What Turnstile keeps are trees of plain values by the hundred thousand, which are freed as soon as nobody refers to
them. Cycles are rare (an exception that its own traceback refers to, a connection), and nearly all of them end young.
So only young objects are looked at as they come, a few thousand at a time. Old ones are left alone until memory has
grown by a share: then garbage may be among those that came since, and they are looked at once in a quiet moment. Only
when it has doubled, everything is. So memory is bounded, and a process that leaks nothing and grows no more is never
held for long.

Must never be asked for by anything that is under way: it knows nothing of what the process does but its CPU time.
"""

import asyncio
import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

YOUNG: Final = 700
"""Objects made, and not freed again, between two looks at those made since the last one."""
OLDER: Final = 2 if sys.version_info < (3, 14) else 1_000
"""So many such looks, then one at what survived them: thousands of objects, less than a millisecond. Where the
collector works in increments (3.14) this says instead how small a share of the old ones each look takes along."""
NEVER: Final = 2**31 - 1
SHARE: Final = 0.25
"""Memory may grow by this share, and by `SLACK`, before what came since is looked at in the next quiet moment."""
DOUBLED: Final = 2
"""With so many times the memory of the last look at everything, everything is looked at again."""
SLACK: Final = 32 * 2**20
WAIT: Final = 4
"""With so many times that growth it is done also where no moment is quiet."""
LOOK_SECONDS: Final = 5.0
QUIET: Final = 0.05
"""A moment is quiet if the process used no more of one core than this since the last look."""

log = structlog.get_logger(__name__)


def resident() -> int:
    """Bytes of memory that the process has; the most it ever had where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


class Collector:
    """The process's garbage collector. `begin` once before the first lists, `settle` once after them, then `run`."""

    def __init__(
        self,
        *,
        resident: Callable[[], int] = resident,
        cpu: Callable[[], float] = time.process_time,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        self._resident = resident
        self._cpu = cpu
        self._look_seconds = look_seconds
        self._settled = 0
        self._whole = 0
        self.passes = 0
        """How often old objects were looked at since `settle`."""
        self.whole_passes = 0
        """How often all of them were."""
        self.longest = 0.0
        """Seconds that the longest of these held the event loop."""

    @property
    def settled(self) -> bool:
        """Whether the first lists are done with."""
        return self._settled > 0

    def begin(self) -> None:
        """Look at nothing from now on: first lists make objects by the million and no garbage."""
        gc.collect()
        gc.freeze()
        gc.disable()

    def settle(self) -> None:
        """From now on look at young objects only, and at nothing that is there."""
        gc.freeze()
        gc.set_threshold(YOUNG, OLDER, NEVER)
        gc.enable()
        self._settled = self._whole = self._resident()

    async def run(self) -> None:
        """Look at old objects when memory has grown and the moment is quiet, until cancelled."""
        while True:
            spent = self._cpu()
            await asyncio.sleep(self._look_seconds)
            quiet = self._cpu() - spent <= QUIET * self._look_seconds
            held = self._resident()
            enough = SHARE * self._settled + SLACK
            if held - self._settled > (enough if quiet else WAIT * enough):
                self.collect(everything=held > DOUBLED * self._whole + SLACK)

    def collect(self, *, everything: bool) -> int:
        """Look at what came since the last look, or at everything, and hold the event loop meanwhile: a tenth of a
        second for each half million objects. Returns how many were garbage.
        """
        began, before = time.perf_counter(), self._resident()
        if everything:
            gc.unfreeze()
        found = gc.collect()
        gc.freeze()
        held = time.perf_counter() - began
        self._settled = self._resident()
        self.passes += 1
        if everything:
            self._whole = self._settled
            self.whole_passes += 1
        self.longest = max(self.longest, held)
        log.info(
            "memory.collected",
            everything=everything,
            garbage=found,
            seconds=round(held, 3),
            before=before,
            after=self._settled,
        )
        return found
