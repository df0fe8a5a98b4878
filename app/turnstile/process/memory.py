"""Schedules Python's garbage collector: short passes at any time, long passes while the process is idle. Has the C
library give large blocks back.

Turnstile holds hundreds of thousands of trees of plain values, which reference counting frees. Reference cycles are
rare (an exception that its own traceback refers to, a connection), and nearly all of them become garbage young. So the
automatic passes scan young objects only, a few thousand at a time. Older objects are scanned once memory has grown by a
share, in an idle moment, and then only those allocated since the last long pass. All objects are scanned only when
memory has doubled. So memory is bounded, and a process that neither leaks nor grows never blocks for long.

Work in progress must never trigger a long pass: the only thing this module knows of the process's work is its CPU time.
"""

import asyncio
import contextlib
import ctypes
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
"""Net new objects (allocated minus freed) after which the collector scans the youngest generation."""
OLDER: Final = 2 if sys.version_info < (3, 14) else 1_000
"""Youngest-generation scans per scan of their survivors: thousands of objects, less than a millisecond. With the
incremental collector (Python 3.14) this sets instead how small a share of the old objects each scan includes."""
NEVER: Final = 2**31 - 1
SHARE: Final = 0.25
"""Memory may grow by this share plus `SLACK` bytes before the new objects are scanned in the next idle moment."""
DOUBLED: Final = 2
"""All objects are scanned again when memory exceeds this many times the memory after the last full scan."""
SLACK: Final = 32 * 2**20
WAIT: Final = 4
"""At this many times that growth old objects are scanned even if the process is never idle."""
UNLIMITED: Final = 2**60
"""A limit of the container that is none."""
CHECK_SECONDS: Final = 5.0
QUIET: Final = 0.05
"""The process is idle if it used at most this share of one core since the last check."""

LARGE: Final = 128 * 2**10
"""Bytes from which on a block of memory is mapped by itself: glibc's own figure, as long as it does not raise it."""
M_MMAP_THRESHOLD: Final = -3
"""mallopt(3)."""

log = structlog.get_logger(__name__)


def map_large_blocks() -> None:
    """Have glibc map each block of `LARGE` bytes or more by itself, and give it back to the kernel when it is freed.

    When such a block is freed, glibc otherwise raises that figure to the size of the block, and takes the next blocks
    from the heap. The 256 KiB buffer of each TLS connection, of which little is ever used, then costs all of its size,
    and the heap does not shrink when connections end. Another C library is left as it is.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE)


def resident() -> int:
    """Resident memory of the process in bytes; its peak where the system does not report the present value."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def spare(cgroup: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes until the limit of the container, caches of files not counted; None without a limit."""
    for folder, limit, used, cached in (
        (cgroup, "memory.max", "memory.current", "inactive_file"),
        (cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            most = int((folder / limit).read_text())  # or the word max
            present = int((folder / used).read_text())
            lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
            files = int(dict(lines).get(cached, "0"))
        except (OSError, ValueError):
            continue
        return most - present + files if most < UNLIMITED else None
    return None


class Collector:
    """The process's garbage collector. `begin` once before the first lists, `settle` once after them, then `run`."""

    def __init__(
        self,
        *,
        resident: Callable[[], int] = resident,
        cpu: Callable[[], float] = time.process_time,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self._resident = resident
        self._cpu = cpu
        self._check_seconds = check_seconds
        self._settled = 0
        self._whole = 0
        self.passes = 0
        """Scans of old objects since `settle`."""
        self.whole_passes = 0
        """Scans of all objects since `settle`."""
        self.longest = 0.0
        """Seconds for which the longest of these scans blocked the event loop."""

    @property
    def settled(self) -> bool:
        """Whether `settle` was called, after the first lists."""
        return self._settled > 0

    def begin(self) -> None:
        """Disable the collector: the first lists allocate millions of objects and no garbage."""
        gc.collect()
        gc.freeze()
        gc.disable()

    def settle(self) -> None:
        """Enable the collector for young objects only, and exempt every object that exists now."""
        gc.freeze()
        gc.set_threshold(YOUNG, OLDER, NEVER)
        gc.enable()
        self._settled = self._whole = self._resident()

    async def run(self) -> None:
        """Scan old objects when memory has grown and the process is idle, until cancelled."""
        while True:
            spent = self._cpu()
            await asyncio.sleep(self._check_seconds)
            quiet = self._cpu() - spent <= QUIET * self._check_seconds
            held = self._resident()
            enough = SHARE * self._settled + SLACK
            if held - self._settled > (enough if quiet else WAIT * enough):
                self.collect(everything=held > DOUBLED * self._whole + SLACK)

    def collect(self, *, everything: bool) -> int:
        """Scan the objects added since the last call, or all objects, and return how many were garbage.

        Blocks the event loop meanwhile: a tenth of a second per half million objects.
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
