"""Errors of writes: which of them are about the object that was to be written, and when a write is sent again.

A refusal is about the object that it names; everything else is retried, and never believed. Must never send anything.
"""

from typing import Final

from turnstile.api.errors import (
    ApiError,
    Conflict,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unproven,
    WireError,
)
from turnstile.kube.backoff import Backoff

REFUSED: Final = Backoff(first=1.0, limit=60.0)
"""Back-off of one object's write that the API server refuses again and again."""
RETRY: Final = Backoff(first=0.05, limit=2.0)
"""Pauses between attempts to learn the outcome of a write."""
IN_DOUBT: Final = (WireError, ServerError, TooManyRequests, Conflict, Unproven)
"""Errors after which the API server may still accept the write, or may have applied it already."""
OUTAGE: Final = (WireError, ServerError, TooManyRequests, Unauthorized, Unproven)
"""Errors that say nothing of the object that was to be written: any other write may fail too."""


def is_refusal(error: Exception) -> bool:
    """Whether the API server has refused a write because of what it says: it will refuse the same write again."""
    return isinstance(error, ApiError) and not isinstance(error, (*IN_DOUBT, NotFound, Unauthorized))
