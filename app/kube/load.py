"""How hard the API server is working, judged from its answers to us, so that housekeeping can wait its turn.

There is no client-side rate: the server's own priority and fairness says when it is enough. Nothing is decided here;
callers ask for `pressure` and defer what can be deferred.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Stats:
    """Counts since the start, exported by `app.process.metrics`. Outcome is the HTTP status, `timeout` or `lost`."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (verb, outcome), one an attempt."""
    retries: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By (verb, outcome of the attempt before)."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds spent in attempts, by verb; not those spent waiting between them."""
    streams: int = 0
    """Watches opened."""


class Load:
    """A running estimate of the server's load from latencies and refusals.

    `slow` is the latency in seconds that counts as full load, `half_life` the seconds after which a measurement counts
    half, `hold` the seconds for which one 429 says that the server is shedding load.
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
        """An answer came after so many seconds."""
        now = self._clock()
        # The older the estimate, the more the new figure says; 0.1 keeps a burst from being judged by its last answer.
        old = 0.9 * self._decay(now)
        self._latency = old * self._latency + (1.0 - old) * seconds
        self._seen_at = now

    def shed(self, seconds: float | None) -> None:
        """The server refused to serve for load, and asked to wait so many seconds if it said."""
        self._shed_until = max(self._shed_until, self._clock() + max(self._hold, seconds or 0.0))

    @property
    def latency(self) -> float:
        """Seconds an answer takes now, by the estimate; goes to zero while nothing is asked."""
        return self._latency * self._decay(self._clock())

    @property
    def pressure(self) -> float:
        """0 for an idle server, 1 for one that sheds load or takes `slow` seconds for an answer."""
        if self._clock() < self._shed_until:
            return 1.0
        return min(1.0, self.latency / self._slow)

    def _decay(self, now: float) -> float:
        return math.exp2((self._seen_at - now) / self._half_life)
