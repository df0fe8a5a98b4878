"""How many writes may be in flight, judged from how long the API server takes for them. Pure.

More writes in flight make a server faster only up to a point; beyond it they wait in the server, where they delay
other clients and take as long as they would have waited here. So the window follows the latency, as TCP Vegas does:

- The lowest latency of each kind of write is what the server takes when nothing waits in it. The *slowness* is how
  many times that the server takes now.
- `size / slowness` writes are being worked on, and the rest of the window waits in the server. The window moves to the
  size at which `QUEUED` of our writes wait there: it grows by a few per round trip while the latency stays near the
  lowest, and shrinks as the latency grows, whichever client causes the load. It never stays below `QUEUED`, so that
  Turnstile goes on writing when other clients keep the server busy for hours. A smaller `QUEUED` makes other clients'
  calls quicker and jobs start later: other controllers do not give way (docs/performance.md has figures).
- A refusal because of load (429) halves it, at most once in `REFUSED_SECONDS`.

The lowest latency is forgotten slowly: it doubles every `FORGET_SECONDS` unless it is seen again, so that a server
that was moved to a slower machine is not taken for a loaded one for ever.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

FIRST: Final = 32.0
"""Size before anything is known."""
SMALLEST: Final = 4.0
LARGEST: Final = 64.0
QUEUED: Final = 32.0
"""Writes of ours that may wait in the server."""
FORGET_SECONDS: Final = 600.0
"""Seconds in which the lowest latency doubles unless it is seen again."""
FEW: Final = 8.0
"""Admissions of ours, and evictions for them, that may wait in the server."""
REFUSED_SECONDS: Final = 1.0
"""Minimum seconds between two times that refusals halve the window."""
HALF_LIFE: Final = 2.0
"""Seconds after which the weight of a measurement halves."""
WEIGHT: Final = 0.1
"""Weight of one answer among many answers at the same time."""
EASE_SECONDS: Final = 0.25
"""Latency up to which a server is at ease."""
REFUSAL_HOLDS: Final = 5.0
"""Seconds after a refusal for which the server is not at ease."""
PATIENCE: Final = 20.0
"""The deadline of a request, as a multiple of what the server takes now."""
LONGEST: Final = 60.0
"""Maximum deadline: by default an API server gives up a request after as many seconds."""


@dataclass(slots=True)
class _Lowest:
    seconds: float
    seen_at: float


class Window:
    """The window of one process. `clock` returns seconds that never go back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._size = FIRST
        self._lowest: dict[str, _Lowest] = {}
        self._latency = 0.0
        self._slowness = 0.0  # as a logarithm, so that one answer in a hundred that takes long counts little
        self._seen_at = -math.inf
        self._halved_at = -math.inf
        self._refused_until = -math.inf

    @property
    def size(self) -> int:
        """How many writes may be in flight."""
        return int(self._size)

    @property
    def few(self) -> int:
        """How many admissions may be in flight. If no other writes were, `FEW` of these would wait in the server, and
        the rest would be worked on."""
        waiting_part = 1.0 - 1.0 / self.slowness
        return int(min(self._size, FEW / waiting_part)) if waiting_part > 0 else self.size

    @property
    def latency(self) -> float:
        """Seconds that the server takes for a write now; 0 before the first."""
        return self._latency

    @property
    def slowness(self) -> float:
        """How many times its lowest latency the server takes for a write now."""
        return math.exp(self._slowness)

    @property
    def at_ease(self) -> bool:
        """Whether the server has time for writes that can wait."""
        return self._latency <= EASE_SECONDS and self._clock() >= self._refused_until

    def deadline(self, least: float) -> float:
        """Seconds to wait for an answer: a multiple of the latency, at least `least`."""
        return max(least, min(LONGEST, PATIENCE * self._latency))

    def answered(self, what: str, seconds: float, *, in_flight: int, done: bool = True) -> None:
        """Record what the server took for a write of that kind, and how many were in flight, this one included.

        A write that failed in the server or got no answer is not `done`: it may be slow, but never the fastest.
        """
        now = self._clock()
        seconds = max(seconds, 1e-6)
        lowest = self._lowest_of(what, seconds, now, done=done)
        slowness = max(0.0, math.log(seconds / lowest))
        # The older the estimate, the more a new answer counts.
        old = (1.0 - WEIGHT) * math.exp2((self._seen_at - now) / HALF_LIFE)
        self._latency = old * self._latency + (1.0 - old) * seconds
        self._slowness = old * self._slowness + (1.0 - old) * slowness
        self._seen_at = now
        wanted = self._size / self.slowness + QUEUED
        if wanted > self._size and in_flight < self._size / 2:
            return  # with so few in flight their latency does not tell what more would take
        step = (wanted - self._size) * 0.5 / self._size
        self._size = min(LARGEST, max(SMALLEST, self._size + step))

    def refused(self, retry_after: float | None = None) -> None:
        """Record that the server refused a request because of its load."""
        now = self._clock()
        self._refused_until = max(self._refused_until, now + max(REFUSAL_HOLDS, retry_after or 0.0))
        if now >= self._halved_at + REFUSED_SECONDS:
            self._halved_at = now
            self._size = max(SMALLEST, self._size / 2)

    def _lowest_of(self, what: str, seconds: float, now: float, *, done: bool) -> float:
        """The lowest latency of a kind of write."""
        lowest = self._lowest.get(what)
        if lowest is None:
            if done:
                self._lowest[what] = _Lowest(seconds, now)
            return seconds
        lowest.seconds *= math.exp2((now - lowest.seen_at) / FORGET_SECONDS)
        if done:
            lowest.seconds = min(seconds, lowest.seconds)
        lowest.seen_at = now
        return lowest.seconds
