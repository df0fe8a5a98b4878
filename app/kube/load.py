"""Estimates the load of the API server from its answers, so that low-priority requests can be deferred.

Turnstile has no client-side rate limit: the server's API Priority and Fairness sets the limit. This module decides
nothing; callers read `pressure` and defer what they can.
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

DURATIONS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Limits in seconds by which durations of attempts are counted: those of client-go."""


@dataclass(slots=True)
class Stats:
    """Counts since the start, for `app.process.metrics`. Outcome: HTTP status, `timeout`, `lost` or `withheld`."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Attempts by (verb, outcome)."""
    retries: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Repeated attempts by (verb, outcome of the previous attempt)."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds spent in attempts, by verb, without the waits between attempts."""
    durations: defaultdict[str, list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0] * (len(DURATIONS) + 1))
    )
    """How many attempts lasted at most each of `DURATIONS`, but longer than the one before, by verb."""
    streams: int = 0
    """Watches opened."""

    def lasted(self, verb: str, seconds: float) -> None:
        """Count the duration of an attempt."""
        self.seconds[verb] += seconds
        self.durations[verb][bisect_left(DURATIONS, seconds)] += 1


class Load:
    """A running estimate of the server's load from latencies and refusals.

    `slow` is the latency in seconds that counts as full load, `half_life` the seconds after which the weight of a
    measurement halves, `hold` the seconds for which the server counts as shedding load after a 429.
    """

    __slots__ = ("_clock", "_half_life", "_hold", "_latency", "_seen_at", "_shed_until", "_slow")

    def __init__(
        self, clock: Callable[[], float], *, slow: float = 0.5, half_life: float = 2.0, hold: float = 5.0
    ) -> None:
        self._clock = clock
        self._slow = slow
        self._half_life = half_life
        self._hold = hold
        self._latency = 0.0
        self._seen_at = -math.inf
        self._shed_until = -math.inf

    def answered(self, seconds: float) -> None:
        """Record an answer that took so many seconds."""
        now = self._clock()
        # The older the estimate, the more a new answer counts; in a burst each answer counts for a tenth.
        old = 0.9 * self._decay(now)
        self._latency = old * self._latency + (1.0 - old) * seconds
        self._seen_at = now

    def shed(self, seconds: float | None) -> None:
        """Record that the server shed a request, with the seconds of its Retry-After if it sent any."""
        self._shed_until = max(self._shed_until, self._clock() + max(self._hold, seconds or 0.0))

    @property
    def latency(self) -> float:
        """Estimated seconds for an answer now; decays to zero while there are no requests."""
        return self._latency * self._decay(self._clock())

    @property
    def pressure(self) -> float:
        """0 for an idle server, 1 for a server that sheds load or takes `slow` seconds for an answer."""
        if self._clock() < self._shed_until:
            return 1.0
        return min(1.0, self.latency / self._slow)

    def _decay(self, now: float) -> float:
        return math.exp2((self._seen_at - now) / self._half_life)
