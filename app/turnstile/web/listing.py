"""The order of My jobs: what waits first, then what runs, then the rest, and the newest first in each.

Kept from change to change, so that a page of a large cluster costs its rows. Reads no store and no clock.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final, NamedTuple

from turnstile.api.workload import Workload
from turnstile.engine.instants import instant_or_zero
from turnstile.wording.workloads import job_of

RANKS: Final = {"pending": 0, "reserved": 0, "leaving": 0, "admitted": 1, "inactive": 2, "finished": 3}
"""States of Workloads, and in which group of the list they are."""


class Line(NamedTuple):
    """A Workload in the list; lines sort in its order."""

    rank: int
    age: float
    """The negated time of creation."""
    key: str
    state: str
    text: str
    """The text that words of a search are looked for in: its key, and the name of its job in small letters."""


def state_of(workload: Workload) -> str:
    """`pending`, `reserved`, `admitted`, `leaving` (evicted, and holds quota still), `finished` or `inactive`."""
    if workload.finished:
        return "finished"
    if workload.quota_reserved:
        return "leaving" if workload.evicted else "admitted" if workload.admitted else "reserved"
    return "pending" if workload.spec.active else "inactive"


class Listing:
    """The lines of all Workloads in order."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self._sorted: list[Line] | None = None
        """None until a page asks: at the start all Workloads come at once."""

    def put(self, key: str, workload: Workload | None) -> None:
        """A Workload exists or changed, or is gone."""
        before = self._lines.pop(key, None)
        now = None if workload is None else _line(key, workload)
        if now is not None:
            self._lines[key] = now
        if self._sorted is None or before == now:
            return
        if before is not None:
            del self._sorted[bisect_left(self._sorted, before)]
        if now is not None:
            insort(self._sorted, now)

    def page(
        self, words: Iterable[str], *, states: Iterable[str], namespaces: frozenset[str] | None, offset: int, limit: int
    ) -> tuple[list[str], int]:
        """The keys of a part of the lines that match, and how many match. `words` are parts of namespaces and names, in
        small letters; `states` and `namespaces` leave out others, unless they are empty, or None."""
        if self._sorted is None:
            self._sorted = sorted(self._lines.values())
        states = frozenset(states)
        found = self._sorted
        if namespaces is not None:
            found = [each for each in found if each.key.partition("/")[0] in namespaces]
        if states:
            found = [each for each in found if each.state in states]
        for word in words:
            found = [each for each in found if word in each.text]
        return [each.key for each in found[offset : offset + limit]], len(found)


def _line(key: str, workload: Workload) -> Line:
    state = state_of(workload)
    age = -instant_or_zero(workload.metadata.creation_timestamp)
    return Line(RANKS[state], age, key, state, f"{key}\n{job_of(workload)[1].lower()}")
