"""Every error of Turnstile, in one tree.

    TurnstileError
    ├── InvalidValue            a field holds something it must not; names field, value and cure
    ├── InvalidConfiguration    a configuration file does not hold; has every fault
    ├── NotInstalled            a package is missing that only the extra turnstile-queue[server] installs
    ├── PermanentError          retrying cannot help: the object has to change first
    ├── WireError               the request may or may not have arrived
    │   ├── ConnectionLost      refused, reset, cut, half closed
    │   ├── Unreadable          an answer of success that is not the object that was asked for
    │   ├── RequestTimeout      no answer within the caller's limit
    │   │   └── Silent          a watch that was answered, and then said nothing
    │   └── Suspended           not sent: the Lease could not be renewed in time; a later attempt waits until it is
    ├── NotLeading              the Lease is lost: the write was refused here and never sent
    ├── Unanswered              a question about the ledger got no answer; it may be asked again
    └── ApiError                the API server answered with a Status
        ├── Unproven            3xx or 4xx that is no Status of the API server about what was asked for
        │   └── NotServed       such a 404: no such path or version, or the page of a proxy
        ├── BadRequest          400
        ├── Unauthorized        401
        ├── Forbidden           403
        ├── NotFound            404 that names the object, or its namespace
        ├── Conflict            409 that names the object
        │   └── AlreadyExists   409, reason AlreadyExists
        ├── Expired             410
        ├── Invalid             422
        ├── TooManyRequests     429, with the seconds to wait
        └── ServerError         5xx

Errors know the object or field, the value and the cure; their text is one sentence a person can act on.
"""

from collections.abc import Sequence
from typing import Any


class TurnstileError(Exception):
    """Root of the tree."""


class InvalidValue(TurnstileError):
    """A value that is not acceptable where it stands."""

    def __init__(self, field: str, value: object, cure: str) -> None:
        super().__init__(f"{field}: {value!r}: {cure}")
        self.field = field
        self.value = value
        self.cure = cure


class InvalidConfiguration(TurnstileError):
    """A configuration file that does not hold. `problems` are its faults, in the order of the lines."""

    def __init__(self, problems: Sequence[Any]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class NotInstalled(TurnstileError):
    """A package that `user` (a command or an option) needs is missing: only an extra of Turnstile installs it."""

    def __init__(self, user: str, missing: ImportError, *, extra: str = "server") -> None:
        cure = f"install turnstile-queue[{extra}]"
        super().__init__(f"{user} needs the package {missing.name}, which is not installed: {cure}")


class PermanentError(TurnstileError):
    """Something that no retry will mend; the reconciler reports it on the object and goes on."""


class WireError(TurnstileError):
    """The network failed; whether the request took effect is unknown."""


class ConnectionLost(WireError):
    """The connection was refused, reset, cut or half closed."""


class Unreadable(WireError):
    """An answer of success whose body is not the object that was asked for: the write may have taken effect."""


class RequestTimeout(WireError):
    """No answer within the limit."""


class Silent(RequestTimeout):
    """A watch that was answered brought nothing for long: its connection is dead, or no object changed."""


class Suspended(WireError):
    """A write was not sent, because the Lease could not be renewed in time; it may be sent once the Lease is."""


class NotLeading(TurnstileError):
    """This process does not hold the Lease, so it must not write."""


class Unanswered(TurnstileError):
    """The fork that works out an answer failed or took too long."""


class ApiError(TurnstileError):
    """The API server refused; carries the Status it sent.

    `code` is the HTTP status, `reason` the machine word (`NotFound`), `details` the Status details as plain JSON,
    `retry_after` the seconds the server asked to wait, if it did.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details or {}
        self.retry_after = retry_after


class Unproven(ApiError):
    """A refusal that may not be the API server's word about the object: it has no Status, or one that does not name the
    object. It is in doubt: neither success nor failure follows from it, and the request is sent again later."""


class NotServed(Unproven):
    """404 that names no object: the API server has no such path or version, or a proxy answers in its place."""


class BadRequest(ApiError):
    """400: the request itself is malformed."""


class Unauthorized(ApiError):
    """401: the credentials are missing or stale."""


class Forbidden(ApiError):
    """403: RBAC or an admission webhook said no."""


class NotFound(ApiError):
    """404: the object that was named does not exist, or its namespace does not."""


class Conflict(ApiError):
    """409: the object changed since it was read. Read again, decide again."""


class AlreadyExists(Conflict):
    """409: an object of that name is there already."""


class Expired(ApiError):
    """410: the resource version or continue token is too old. List again."""

    rest = ""
    """The token with which the server lists the rest of the collection as it is now, if it offers one."""


class Invalid(ApiError):
    """422: schema, CEL or field validation refused the object."""


class TooManyRequests(ApiError):
    """429: the server sheds load."""


class ServerError(ApiError):
    """5xx: the server's own trouble."""


_BY_CODE: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TooManyRequests,
}
_OF_NO_OBJECT = (401, 429)
"""Codes that a proxy in front of the API server answers with the same meaning: nothing was done."""


def api_error(
    code: int,
    reason: str,
    message: str,
    *,
    proven: bool = True,
    details: dict[str, Any] | None = None,
    retry_after: float | None = None,
) -> ApiError:
    """The error of the tree that fits an answer of the API server. `proven`: the answer is the API server's word about
    what was asked for."""
    if not proven and code < 500 and code not in _OF_NO_OBJECT:
        error: type[ApiError] = NotServed if code == 404 else Unproven
    elif code == 409 and reason == "AlreadyExists":
        error = AlreadyExists
    else:
        error = _BY_CODE.get(code, ServerError if code >= 500 else ApiError)
    return error(code, reason, message, details=details, retry_after=retry_after)
