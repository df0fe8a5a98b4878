"""What a bench prints: figures beside a target, and how busy the machine was with other things meanwhile.

A figure is judged by its target only; the peer's figure and the floor stand beside it so that the reader can judge the
machine. Must never hide a bad run: what other processes took is printed with every bench.
"""

import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value, in `unit`, that should be at most `target` (at least, if `more_is_better`)."""

    name: str
    value: float
    unit: str
    target: float | None = None
    peer: float | None = None
    """Kueue's figure on a machine of this size."""
    floor: float | None = None
    """The least it can be, measured in the same run."""
    more_is_better: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.more_is_better else self.value <= self.target

    def __str__(self) -> str:
        verdict = {None: "", True: "ok", False: "MISSED"}[self.met]
        ratio = f"{self.value / self.floor:.2f}x" if self.floor else ""
        beside = "".join(f"{_optional(value):>9}" for value in (self.target, self.peer, self.floor))
        measured = f"{self.name:<58}{_number(self.value):>9} {self.unit:<7}"
        return f"  {measured}{beside}{ratio:>8}  {verdict:<7}{self.note}".rstrip()


HEADER = f"  {'':<75}{'target':>9}{'Kueue':>9}{'floor':>9}{'/floor':>8}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _optional(value: float | None) -> str:
    return "" if value is None else _number(value)


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that so many percent of all values do not exceed; nan without any."""
    ordered = sorted(values)
    if not ordered:
        return float("nan")
    rank = max(0, -(-len(ordered) * percent // 100) - 1)
    return ordered[int(min(rank, len(ordered) - 1))]


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / _TICK


def peak_memory_mib(pid: int) -> float:
    """The most memory that a process ever held (VmHWM), in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"pid: process {pid} tells no VmHWM")


def _machine_seconds() -> float:
    """Time that all cores together were not idle."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICK


class Gauge:
    """CPU of some processes by name, of ourselves, and of everything else on the machine, since it was made."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = {**pids, "bench": os.getpid()}
        self._began = time.monotonic()
        self._machine = _machine_seconds()
        self._before = {name: cpu_seconds(pid) for name, pid in self._pids.items()}

    def seconds(self) -> dict[str, float]:
        """CPU seconds by name; `others` is what none of them used."""
        used = {name: _still(pid, self._before[name]) - self._before[name] for name, pid in self._pids.items()}
        machine = _machine_seconds() - self._machine
        return {**used, "others": max(0.0, machine - sum(used.values()))}

    def wall(self) -> float:
        """Seconds since it was made."""
        return time.monotonic() - self._began

    def sentence(self) -> str:
        """Cores used, by name, the busiest first."""
        wall = self.wall()
        shares = sorted(((spent / wall, name) for name, spent in self.seconds().items()), reverse=True)
        return "cores used: " + ", ".join(f"{name} {share:.2f}" for share, name in shares if share >= 0.005)


def _still(pid: int, otherwise: float) -> float:
    try:
        return cpu_seconds(pid)
    except FileNotFoundError:
        return otherwise


def wait_quiet(pids: dict[str, int], *, at_most: float, below: float = 0.15) -> bool:
    """Wait until other processes use less than `below` cores for three seconds; False if that never came."""
    deadline = time.monotonic() + at_most
    while time.monotonic() < deadline:
        gauge = Gauge(pids)
        time.sleep(3)
        if gauge.seconds()["others"] / gauge.wall() < below:
            return True
    return False
