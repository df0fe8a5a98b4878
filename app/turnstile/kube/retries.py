"""Decides which requests may be sent again after which failure. Pure.

The rule: requests that were certainly not executed, and requests that do no harm when executed twice.
"""

from typing import Literal

from turnstile.api.errors import ApiError, ConnectionLost
from turnstile.kube import answers

PatchType = Literal["merge", "apply", "json", "strategic"]

CONTENT_TYPES: dict[PatchType, str] = {
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})


class NeverSent(ConnectionLost):
    """No connection was established, so nothing was sent."""


class Untrusted(ConnectionLost):
    """Turnstile does not trust the server's certificate; a retry gets the same certificate."""


def may_repeat(
    error: ApiError | ConnectionLost, method: str, body: bytes | None, content_type: str, *, always: bool
) -> bool:
    """Whether a failed request may be sent again.

    Any request may that was certainly not executed: no connection, 429, or 503 with a time to retry. Otherwise only
    requests that do no harm when executed twice.
    """
    if isinstance(error, NeverSent):
        return True
    if isinstance(error, Untrusted):
        return False
    if isinstance(error, ApiError):
        if error.code == 429 or (error.code == 503 and error.retry_after is not None):
            return True
        if error.code not in (500, 502, 503, 504):
            return False
    if always or method in _REPEATABLE:
        return True
    return method == "PATCH" and (
        content_type == CONTENT_TYPES["apply"] or (body is not None and answers.carries_version(body))
    )
