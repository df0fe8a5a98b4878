"""Folds the attempts to start a Workload that failed one after the other into one entry: how often, in what time, and
how much was short. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from turnstile.recorder.reading import Entry
from turnstile.wording.amounts import amount, figure, rank
from turnstile.wording.causes import lacking
from turnstile.wording.grammar import counted, listed

_FOLDED: Final = ("tried", "waiting")


def is_attempt(entry: Entry) -> bool:
    """Whether an entry tells of an attempt that failed, and preempts nobody."""
    return entry.what in _FOLDED and not entry.detail.get("preempts")


def folded(entries: Iterable[Entry]) -> Iterator[tuple[Entry, ...]]:
    """Entries in groups, in their order: attempts that failed one after the other together, all others alone."""
    attempts: list[Entry] = []
    for entry in entries:
        if is_attempt(entry):
            attempts.append(entry)
            continue
        if attempts:
            yield tuple(attempts)
            attempts = []
        yield (entry,)
    if attempts:
        yield tuple(attempts)


def attempted(attempts: Sequence[Entry]) -> str:
    """`Tried 4 times in 21 s, 1 to 2 CPUs short`; empty for entries that tell of one attempt at most."""
    times = len([entry for entry in attempts if entry.what == "tried"])
    if times < 2:
        return ""
    return f"Tried {counted(times, 'time')} in {_lasting(attempts[-1].at - attempts[0].at)}{_short(attempts)}"


def _short(attempts: Sequence[Entry]) -> str:
    """The amounts that were short of each resource, from the smallest to the largest."""
    found: dict[str, set[int]] = {}
    for entry in attempts:
        for short in lacking(entry.message):
            found.setdefault(short.resource, set()).add(short.lacking)
    ranges = []
    for resource in sorted(found, key=rank):
        least, most = min(found[resource]), max(found[resource])
        ranges.append((f"{figure(resource, least)} to " if least < most else "") + amount(resource, most))
    return f", {listed(ranges)} short" if ranges else ""


def _lasting(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
