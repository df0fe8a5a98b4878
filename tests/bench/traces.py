"""Traces of jobs: read from a file in the Standard Workload Format, or made up in the shape of public ones.

Made-up traces have what the public traces of batch and machine learning clusters have in common: run times with heavy
tails that differ from user to user and are alike within a job that is submitted again and again, more work by day than
by night and less at weekends, and bursts of equal jobs. Pure; chance comes in as a seed.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from turnstile.api.errors import InvalidValue

DAY: Final = 86_400.0


class TraceJob(NamedTuple):
    """A job of a trace. Seconds count from the begin of the trace."""

    number: int
    submitted: float
    seconds: float
    size: int
    """Processors, or GPUs."""
    user: str
    app: str
    """What is run, as far as the trace tells."""
    queue: str = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The shape of a made-up trace. `load` is the part of `capacity` that is asked for on average."""

    days: float = 7.0
    capacity: int = 64
    load: float = 0.9
    users: int = 12
    apps: int = 4
    """Kinds of jobs of each user."""
    queues: tuple[str, ...] = ("main",)
    median_seconds: float = 1200.0
    spread_apps: float = 1.2
    """Standard deviation of the logarithm of the median run times of kinds of jobs."""
    spread_runs: float = 0.7
    """The same of the runs of one kind."""
    tail: float = 0.05
    """The part of runs that are drawn from a Pareto distribution instead."""
    tail_index: float = 1.5
    burst: float = 3.0
    """Jobs that are submitted together, on average."""
    by_day: float = 0.6
    """How much the rate of submissions swings between day and night: 0 is not at all."""
    sizes: tuple[int, ...] = (1, 1, 1, 1, 2, 2, 4, 8)


def made_up(shape: Shape, seed: int) -> list[TraceJob]:
    """A trace of that shape, in the order of submission."""
    lots = Random(seed)
    kinds = []
    for number in range(shape.users):
        activity = lots.paretovariate(1.2)
        queue = lots.choice(shape.queues)
        for kind in range(shape.apps):
            median = shape.median_seconds * math.exp(lots.gauss(0, shape.spread_apps))
            kinds.append((f"user-{number}", f"app-{number}-{kind}", queue, activity, median, lots.choice(shape.sizes)))
    weights = [activity for _, _, _, activity, _, _ in kinds]
    jobs: list[TraceJob] = []
    work = 0.0
    wanted = shape.load * shape.capacity * shape.days * DAY
    while work < wanted:
        user, app, queue, _, median, size = lots.choices(kinds, weights)[0]
        at = _moment(shape, lots)
        for _ in range(1 + int(lots.expovariate(1 / max(shape.burst - 1, 1e-9)))):
            seconds = max(1.0, min(median * _factor(shape, lots), shape.days * DAY / 4))
            jobs.append(TraceJob(len(jobs), at, seconds, min(size, shape.capacity), user, app, queue))
            work += seconds * size
            at += lots.expovariate(1 / 20.0)
    return sorted(jobs, key=lambda job: job.submitted)


def _factor(shape: Shape, lots: Random) -> float:
    if lots.random() < shape.tail:
        return 2 * lots.paretovariate(shape.tail_index)
    return math.exp(lots.gauss(0, shape.spread_runs))


def _moment(shape: Shape, lots: Random) -> float:
    """A moment of the trace, likelier by day than by night, and half as likely at weekends."""
    while True:
        at = lots.random() * shape.days * DAY
        rate = 1 + shape.by_day * math.sin(2 * math.pi * (at / DAY - 0.35))
        weekend = 0.5 if shape.by_day and int(at / DAY) % 7 >= 5 else 1.0
        if lots.random() * (1 + shape.by_day) < rate * weekend:
            return at


def read_swf(lines: Iterable[str], source: str) -> Iterator[TraceJob]:
    """The jobs of a file in the Standard Workload Format (18 numbers a line, comments begin with a semicolon) that ran.

    Raises InvalidValue, naming the line, for a line that is none of these.
    """
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(";"):
            continue
        fields = text.split()
        try:
            values = [float(each) for each in fields[:16]]
        except ValueError:
            values = []
        if len(values) < 12:
            raise InvalidValue(source, f"line {number}", "is no line of the Standard Workload Format: 18 numbers")
        values += [-1.0] * (16 - len(values))
        size = int(values[7] if values[7] > 0 else values[4])
        if values[3] > 0 and size > 0 and values[1] >= 0:
            yield TraceJob(
                int(values[0]), values[1], values[3], size, f"user-{values[11]:.0f}", f"app-{values[13]:.0f}",
                f"queue-{values[14]:.0f}" if values[14] >= 0 else "main",
            )  # fmt: skip
