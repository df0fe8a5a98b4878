"""Computes the wait before the next attempt: exponential, bounded and jittered. Pure: never sleeps, never draws random
numbers itself.
"""

from collections.abc import Callable
from dataclasses import dataclass

Jitter = Callable[[], float]
"""A source of numbers in [0, 1); `random.random` in production, a constant in tests."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before attempt `n`: `first * factor**n`, at most `limit`, of which the upper half is jittered.

    Half is fixed so that jitter cannot reduce the wait to zero.
    """

    first: float = 0.1
    factor: float = 2.0
    limit: float = 5.0

    def delay(self, attempt: int, jitter: Jitter) -> float:
        """Seconds to wait after `attempt` failures in a row, counted from 0."""
        # The exponent is bounded so that a week of failures cannot overflow the float.
        full = min(self.limit, self.first * self.factor ** min(attempt, 64))
        return full * (0.5 + 0.5 * jitter())
