"""What the API server answered, as data: errors out of Status objects, objects out of bytes, pages out of lists. No
I/O.

A proxy between us and the server answers in HTML or plain text, and a dying server answers half a Status. Whatever
comes, an error of the tree comes out of here and never a parse error.
"""

import datetime
import email.utils
import functools
import http
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec

from app.api import errors
from app.api.meta import Kind, Object

T = TypeVar("T", bound=Kind)

MESSAGE_LIMIT = 500
"""Characters of a body that is no Status which an error quotes."""


class Status(Object):
    """metav1.Status, as answered with an error code or sent inside an ERROR watch event."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


class _ListMeta(Object):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int = 0


class Page(Object):
    """One page of a list; the items are left as bytes so that one bad item cannot spoil the others."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


class HeaderMeta(Object):
    """The part of metadata that names one version of one object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class Header(Object):
    """What identifies an object even if the rest of it makes no sense to us."""

    metadata: HeaderMeta = msgspec.field(default_factory=HeaderMeta)

    @property
    def key(self) -> str:
        """As `ObjectMeta.key`."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class Event(Object):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


decode_page = msgspec.json.Decoder(Page).decode
decode_header = msgspec.json.Decoder(Header).decode
decode_event = msgspec.json.Decoder(Event).decode
_decode_status = msgspec.json.Decoder(Status).decode


def parse_status(body: bytes) -> Status | None:
    """The Status in a body, or None if it is anything else."""
    try:
        status = _decode_status(body)
    except (msgspec.DecodeError, ValueError):
        return None
    return status if status.kind == "Status" else None


def retry_after(
    headers: Mapping[str, str], status: Status | None, now: datetime.datetime | None = None
) -> float | None:
    """Seconds the server asked to wait: the Retry-After header (seconds or a date), else `retryAfterSeconds`."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    if value:
        try:
            when = email.utils.parsedate_to_datetime(value)
        except ValueError:
            when = None
        if when is not None and when.tzinfo is not None:
            return max(0.0, (when - (now or datetime.datetime.now(datetime.UTC))).total_seconds())
    seconds = (status.details or {}).get("retryAfterSeconds") if status else None
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None


def error(code: int, body: bytes, headers: Mapping[str, str] | None = None) -> errors.ApiError:
    """The error of the tree for an answer that is not a success, whatever its body holds."""
    status = parse_status(body)
    wait = retry_after(headers or {}, status)
    if status is not None:
        # A Status may lack its reason (webhook denials do): the code then says what it is.
        return errors.api_error(
            code,
            status.reason or _phrase(code),
            status.message or "no message",
            details=status.details,
            retry_after=wait,
        )
    return errors.api_error(code, _phrase(code), _quote(body), retry_after=wait)


def _phrase(code: int) -> str:
    try:
        return http.HTTPStatus(code).phrase.replace(" ", "")
    except ValueError:
        return "Unknown"


def _quote(body: bytes) -> str:
    """A body that is no Status as one short line."""
    if not body:
        return "the answer has no body"
    # Enough raw text to fill the message even when most of it is markup, and never megabytes of it.
    text = re.sub(r"<[^>]*>", " ", body[: MESSAGE_LIMIT * 8].decode("utf-8", "replace"))
    text = " ".join(text.split()) or "the answer holds only markup"
    return text if len(text) <= MESSAGE_LIMIT else text[:MESSAGE_LIMIT] + "…"


def decoder(kind: type[T]) -> Callable[[bytes | msgspec.Raw], T]:
    """The function that turns bytes into a `kind`; made once a kind.

    It names the kind where the server did not (items of a list of built-ins carry none) and lets go of the message:
    a `msgspec.Raw` field is a view that would keep the whole message, with all that we did not want, in memory.
    Raises msgspec.DecodeError (ValidationError among them) if the bytes are no such object.
    """
    return cast("Callable[[bytes | msgspec.Raw], T]", _decoder(kind))


@functools.cache
def _decoder(kind: type[T]) -> Callable[[bytes | msgspec.Raw], T]:
    decode = kind.decoder()
    detach = _detacher(kind)
    api_version = f"{kind.GROUP}/{kind.VERSION}" if kind.GROUP else kind.VERSION

    def decoded(body: bytes | msgspec.Raw) -> T:
        value = decode(body)
        value.kind, value.api_version = kind.KIND, api_version
        if detach is not None:
            detach(value)
        return value

    return decoded


@functools.cache
def _detacher(struct: type[msgspec.Struct]) -> Callable[[Any], None] | None:
    """A function that copies every Raw inside a struct out of the message, or None if there is none to copy."""
    steps: list[tuple[str, Callable[[Any], Any]]] = []
    for name, hint in typing.get_type_hints(struct).items():
        if name in struct.__struct_fields__ and (step := _step(hint)) is not None:
            steps.append((name, step))
    if not steps:
        return None

    def detach(value: Any) -> None:
        for name, step in steps:
            inner = getattr(value, name)
            if inner is not None:
                setattr(value, name, step(inner))

    return detach


def _step(hint: Any) -> Callable[[Any], Any] | None:
    """What to do with a field of that type: the value to put in its place, or None if it holds no Raw."""
    if hint is msgspec.Raw:
        return lambda raw: raw.copy()
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        inner = _detacher(hint)
        return None if inner is None else functools.partial(_in_place, inner)
    arguments = [argument for argument in typing.get_args(hint) if argument is not type(None)]
    if len(arguments) == 1:
        step = _step(arguments[0])
        if typing.get_origin(hint) is list and step is not None:
            return lambda items: [step(item) for item in items]
        if typing.get_origin(hint) is not list:
            return step
    return None


def _in_place(detach: Callable[[Any], None], value: Any) -> Any:
    detach(value)
    return value


def encode(body: object) -> bytes:
    """A request body: bytes go as they are, structs and plain values as their JSON."""
    return body if isinstance(body, bytes) else msgspec.json.encode(body)


def carries_version(body: bytes) -> bool:
    """Whether a patch says which version it is for, so that sending it twice cannot change a third party's write.

    True for a merge patch with `metadata.resourceVersion` and a JSON Patch with a `test` of it.
    """
    try:
        plain = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError):
        return False
    if isinstance(plain, dict):
        metadata = plain.get("metadata")
        return isinstance(metadata, dict) and bool(metadata.get("resourceVersion"))
    if isinstance(plain, list):
        operations = [cast("dict[str, Any]", operation) for operation in plain if isinstance(operation, dict)]
        return any(each.get("op") == "test" and each.get("path") == "/metadata/resourceVersion" for each in operations)
    return False
