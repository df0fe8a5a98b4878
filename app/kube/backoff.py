"""How long to wait before the next try: exponential, bounded, jittered, and pure. Never sleeps, never draws lots
itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

Jitter = Callable[[], float]
"""A source of numbers in [0, 1); `random.random` in production, a constant in tests."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before try `n`: `first * factor**n`, at most `limit`, of which the upper half is jittered.

    Half stays fixed so that a lucky draw cannot turn the wait into none.
    """

    first: float = 0.1
    factor: float = 2.0
    limit: float = 5.0

    def delay(self, attempt: int, jitter: Jitter) -> float:
        """Seconds to wait after `attempt` failures in a row, counted from 0."""
        # The exponent is bounded so that a server that is away for a week cannot overflow the float.
        full = min(self.limit, self.first * self.factor ** min(attempt, 64))
        return full * (0.5 + 0.5 * jitter())
