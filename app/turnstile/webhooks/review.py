"""Decodes AdmissionReview v1 into a request, and encodes a handler's answer.

The reviewed object stays raw JSON until a handler decodes the fields it reads, so a review costs microseconds. The
handler writes a patch as the shortest ordered list of operations; objects are never diffed. This module must never
depend on a kind, and no handler may write to the API server: every handler must be safe for a dry run.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from turnstile.api.errors import TurnstileError
from turnstile.api.meta import Object, tolerating_nulls
from turnstile.api.patch import JsonPatch

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

CREATE = "CREATE"
UPDATE = "UPDATE"


class Malformed(TurnstileError):
    """The body is not a review that this server can decode; the message is the reason."""


class GroupVersionKind(Object):
    """metav1.GroupVersionKind."""

    group: str = ""
    version: str = ""
    kind: str = ""


class Request(Object):
    """admission.k8s.io/v1 AdmissionRequest, reduced to what the handlers read. `object` and `old_object` are JSON."""

    uid: str
    kind: GroupVersionKind
    operation: str
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(Object):
    request: Request
    api_version: str = ""
    kind: str = ""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A handler's answer: allowed, with `patch` if set, unless `code` is set.

    `code`, `reason` and `message` become the Status that the client receives.
    """

    patch: JsonPatch | None = None
    warnings: tuple[str, ...] = ()
    code: int = 0
    reason: str = ""
    message: str = ""

    @property
    def outcome(self) -> str:
        """The outcome for the metrics: `allowed`, `mutated`, `denied` or `error`."""
        if self.code:
            return "error" if self.code >= 500 else "denied"
        return "mutated" if self.patch else "allowed"


Handler = Callable[[Request], Answer]
"""Decides one review. Pure except for reads of the caches; must not raise because of client input."""

ALLOWED = Answer()


def changed(patch: JsonPatch, warnings: tuple[str, ...] = ()) -> Answer:
    """Allowed, with this patch unless it is empty."""
    return Answer(patch=patch or None, warnings=warnings) if patch or warnings else ALLOWED


def denied(message: str, *, warnings: tuple[str, ...] = ()) -> Answer:
    """The object breaks a rule: 403 Forbidden, as controller-runtime answers for Kueue's validation errors."""
    return Answer(code=403, reason="Forbidden", message=message, warnings=warnings)


def undecodable(message: str) -> Answer:
    """The object does not match its schema: 400 BadRequest."""
    return Answer(code=400, reason="BadRequest", message=message)


def failed(message: str) -> Answer:
    """The review cannot be decided yet: 500 InternalError, so that the client retries."""
    return Answer(code=500, reason="InternalError", message=message)


_reviews = msgspec.json.Decoder(_Review)


def read(body: bytes) -> Request:
    """The request of a review.

    Raises Malformed with a sentence that names the field, when the body is not an AdmissionReview v1 with a uid.
    """
    return read_review(body, _reviews, api_version=API_VERSION, kind=KIND).request


class _Asked(Protocol):
    @property
    def uid(self) -> str: ...


class _Envelope(Protocol):
    @property
    def api_version(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def request(self) -> _Asked: ...


R = TypeVar("R", bound=_Envelope)


def read_review(body: bytes, decoder: msgspec.json.Decoder[R], *, api_version: str, kind: str) -> R:
    """A decoded review of `kind`, admission or conversion. Raises Malformed with a sentence that names the field."""
    try:
        review = decoder.decode(body)
    except RecursionError:
        raise Malformed("the body is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"the body is no {kind}: {error}") from None
    if review.kind != kind or review.api_version != api_version:
        raise Malformed(
            f"expected apiVersion {api_version!r} and kind {kind!r}, got {review.api_version!r} and {review.kind!r}"
        )
    if not review.request.uid:
        raise Malformed("request.uid is empty")
    return review


class _Status(Object):
    code: int
    reason: str
    message: str


class _Response(Object):
    uid: str
    allowed: bool
    status: _Status | None = None
    patch: bytes | None = None
    patch_type: str | None = None
    warnings: tuple[str, ...] = ()


class _Reply(msgspec.Struct, rename="camel", gc=False):
    response: _Response
    api_version: str = API_VERSION
    kind: str = KIND


_encode = msgspec.json.Encoder().encode


def write(uid: str, answer: Answer) -> bytes:
    """The AdmissionReview that answers the request with this uid."""
    response = _Response(uid=uid, allowed=not answer.code, warnings=answer.warnings)
    if answer.code:
        response.status = _Status(code=answer.code, reason=answer.reason, message=answer.message)
    elif answer.patch:
        response.patch = answer.patch.encode()  # msgspec encodes bytes as base64, as the API requires
        response.patch_type = "JSONPatch"
    return _encode(_Reply(response=response))


T = TypeVar("T")


def decoder(kind: type[T]) -> Callable[[bytes | msgspec.Raw], T]:
    """A function that decodes an object into the view `kind`; it raises `msgspec.MsgspecError` or `RecursionError`."""
    return tolerating_nulls(msgspec.json.Decoder(kind).decode)
