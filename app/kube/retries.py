"""What may be sent again after which failure. Pure.

The rule: what was certainly not executed, and what does no harm when it is done twice.
"""

from typing import Literal

from app.api.errors import ApiError, ConnectionLost
from app.kube import answers

PatchType = Literal["merge", "apply", "json", "strategic"]

CONTENT_TYPES: dict[PatchType, str] = {
    "merge": "application/merge-patch+json",
    "apply": "application/apply-patch+yaml",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})


class NeverSent(ConnectionLost):
    """No connection came about, so nothing was sent."""


class Untrusted(ConnectionLost):
    """The server's certificate is not one we trust; asking again gives the same one."""


def may_repeat(
    error: ApiError | ConnectionLost, method: str, body: bytes | None, content_type: str, *, always: bool
) -> bool:
    """Whether a failed attempt may be made again.

    What was certainly not executed may be, whatever it was: no connection, 429, and a refusal that names a time to come
    back. Otherwise only what does no harm when it is done twice.
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
