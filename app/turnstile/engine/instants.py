"""Instants as Unix seconds (float), read from the RFC 3339 text of API objects.

Times in the API have a resolution of one second, so a float is exact. Must never read a clock.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from turnstile.api.conditions import timestamp

Instant = float
"""Unix seconds."""

ZERO: Final[Instant] = -62135596800.0
"""Go's zero time, the year 1: what an absent creation timestamp sorts as."""


@lru_cache(maxsize=1 << 14)
def instant(value: str) -> Instant:
    """Unix seconds of an RFC 3339 time. Raises ValueError with the text."""
    return datetime.fromisoformat(value).timestamp()


def instant_or_zero(value: str | None) -> Instant:
    """Unix seconds, or the zero time if the field is absent."""
    return instant(value) if value else ZERO


def stamp(at: Instant) -> str:
    """An instant as the API has it."""
    return timestamp(datetime.fromtimestamp(at, UTC))
