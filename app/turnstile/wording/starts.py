"""Sentences about when a Workload will start, and how long something lasts. Must never forecast."""

from datetime import datetime, timedelta
from typing import Final

SOON: Final = 60.0
"""Seconds below which a start has no time of day: it is at once, whatever happens."""
_SHORT: Final = 120.0
"""Seconds below which they are said, and not minutes."""


def soon(latest: float | None) -> bool:
    """Whether a start is at once, by the later end of its interval in seconds."""
    return latest is not None and latest < SOON


def likely(earliest: float, median: float | None, latest: float | None, now: datetime) -> str:
    """`likely start Thu 18:50 (in 5.0 h); 8 of 10 times between Thu 15:52 and Fri 00:55`; seconds count from now."""
    if soon(latest):
        return "starts in less than a minute"
    middle = f"likely start {_at(median, now)} (in {lasting(median)})" if median is not None else ""
    if latest is None:
        edge = f"not before {_at(earliest, now)} (in {lasting(earliest)}), 9 of 10 times"
    else:
        edge = f"8 of 10 times between {_at(earliest, now)} and {_at(latest, now)}"
    return "; ".join(filter(None, (middle, edge)))


def _at(seconds: float, now: datetime) -> str:
    when = now + timedelta(seconds=seconds)
    return f"{when:%a %H:%M}" if seconds >= _SHORT else f"{when:%H:%M:%S}"


def lasting(seconds: float) -> str:
    """A duration in its largest unit: `90 s`, `45 min`, `5.0 h`, `2.1 days`."""
    if seconds < _SHORT:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours = seconds / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"
