"""The time that is left of a span. The only rule for it.

A wall clock may be set back, and the clocks of two machines differ. So a span that is this process's own is measured
with a clock that never goes back. One whose beginning is written in an object is compared with the wall clock, and if
it has not begun by that clock, it begins when it is looked at for the first time: nothing that is left exceeds the
length of its span, however often it is looked at. Must never read a wall clock itself.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from turnstile.api import workload as wl
from turnstile.api.conditions import instant, later
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload

REMEMBERED: Final = 10_000
"""Beginnings after the present time that are remembered; of one that is forgotten the whole span is left again."""

_ZERO: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Spans:
    """Spans of one process. `clock` are seconds that only grow; without it the wall clock is taken for such a one."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock
        self._ahead: dict[datetime, datetime] = {}

    def measured(self, now: datetime) -> datetime:
        """A time to measure with: it never goes back, and means nothing but its distance from others. `now` is what the
        wall clock says."""
        return now if self._clock is None else _ZERO + timedelta(seconds=self._clock())

    def left(self, since: datetime, seconds: float, now: datetime) -> float:
        """Seconds until a span of so many seconds is over that began at a time which is written in an object; 0 or less
        if it is over. `now` is what the wall clock says."""
        left = (later(since, seconds) - now).total_seconds()
        if since > now and since not in self._ahead:
            self._ahead[since] = self.measured(now)
            if len(self._ahead) > REMEMBERED:
                del self._ahead[next(iter(self._ahead))]
        seen = self._ahead.get(since)
        if seen is None:
            return left
        return min(left, (later(seen, seconds) - self.measured(now)).total_seconds())


def backoff_left(workload: Workload, spans: Spans, now: datetime) -> float | None:
    """Seconds until the `requeueAt` of a Workload, 0 if it is past; None if the Workload has none. It was written with
    the condition that says why the Workload waits."""
    state = workload.status.requeue_state
    due = instant(state.requeue_at) if state is not None else None
    if due is None:
        return None
    conditions = workload.status.conditions
    ended = find_condition(conditions, wl.REQUEUED) or find_condition(conditions, wl.EVICTED)
    since = instant(ended.last_transition_time) if ended is not None else None
    if since is None or since > due:
        return max(0.0, (due - now).total_seconds())
    return max(0.0, spans.left(since, (due - since).total_seconds(), now))
