"""Parses answers of the API server: Status objects into errors, bytes into objects, lists into pages. No I/O.

A proxy in front of the server may answer in HTML or plain text, and a crashing server with half a Status. Any error
answer becomes an error of `app.api.errors`, never a parse error.
"""

import datetime
import email.utils
import functools
import http
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec

from app.api import errors
from app.api.meta import Kind, Object, ObjectMeta
from app.kube import raws

T = TypeVar("T", bound=Kind)

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl stores a copy of the whole object. Turnstile never reads it, so it is dropped."""
MESSAGE_LIMIT = 500
"""Maximum characters that an error quotes from a body that is not a Status."""


class _ListMeta(Object):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")
    remaining_item_count: int = 0


class Status(Object):
    """metav1.Status, as answered with an error code or sent inside an ERROR watch event."""

    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    """With a page token that expired, the token for the rest of the list as it is now."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


class Page(Object):
    """One page of a list; the items stay bytes so that one malformed item does not affect the others."""

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
    """What identifies an object even if the rest of the object cannot be decoded."""

    metadata: HeaderMeta = msgspec.field(default_factory=HeaderMeta)

    @property
    def key(self) -> str:
        """As `ObjectMeta.key`."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


class _Metadata(Object):
    """The metadata of any object."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class Event(Object):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


decode_page = msgspec.json.Decoder(Page).decode
decode_header = msgspec.json.Decoder(Header).decode
decode_event = msgspec.json.Decoder(Event).decode
_decode_metadata = msgspec.json.Decoder(_Metadata).decode
_decode_status = msgspec.json.Decoder(Status).decode


def parse_status(body: bytes) -> Status | None:
    """The Status in a body, or None if the body is anything else."""
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
    """The error of `app.api.errors` for an unsuccessful answer, whatever its body holds."""
    status = parse_status(body)
    wait = retry_after(headers or {}, status)
    if status is not None:
        # A Status may lack its reason (webhook denials do): the reason then follows from the code.
        made = errors.api_error(
            code,
            status.reason or _phrase(code),
            status.message or "no message",
            details=status.details,
            retry_after=wait,
        )
        if isinstance(made, errors.Expired):
            made.rest = status.metadata.continue_
        return made
    return errors.api_error(code, _phrase(code), _quote(body), retry_after=wait)


def _phrase(code: int) -> str:
    try:
        return http.HTTPStatus(code).phrase.replace(" ", "")
    except ValueError:
        return "Unknown"


def _quote(body: bytes) -> str:
    """A body that is not a Status, as one short line."""
    if not body:
        return "the answer has no body"
    # Enough text to fill the message even when most of the body is markup, but never megabytes.
    text = re.sub(r"<[^>]*>", " ", body[: MESSAGE_LIMIT * 8].decode("utf-8", "replace"))
    text = " ".join(text.split()) or "the answer holds only markup"
    return text if len(text) <= MESSAGE_LIMIT else text[:MESSAGE_LIMIT] + "…"


def decoder(kind: type[T], *, version: str = "") -> Callable[[bytes | msgspec.Raw], T]:
    """The function that turns bytes into a `kind`.

    The function sets kind and version (list items of built-in kinds carry none) and copies each `msgspec.Raw` field, a
    view that would keep the whole message in memory. `version` is the version of the bytes, by default `kind.VERSION`.
    Raises msgspec.DecodeError (ValidationError among them) if the bytes are not such an object.
    """
    plain = cast("Callable[[bytes | msgspec.Raw], T]", _decoder(kind, version or kind.VERSION))
    detach = raws.detacher(kind)
    if detach is None:
        return plain

    def decoded(body: bytes | msgspec.Raw) -> T:
        value = plain(body)
        detach(value)
        return value

    return decoded


def selecting_decoder(
    kind: type[T], keep: Callable[[T], raws.Keep], *, version: str = ""
) -> Callable[[bytes | msgspec.Raw], tuple[T, bool]]:
    """As `decoder`, for a store that holds only parts: `keep` decides about each object, and may change it before its
    raw parts are copied or stripped (see `raws.stripped`). With the object, returns whether the store holds it."""
    plain = cast("Callable[[bytes | msgspec.Raw], T]", _decoder(kind, version or kind.VERSION))
    detach, strip = raws.detacher(kind), raws.stripper(kind)

    def decoded(body: bytes | msgspec.Raw) -> tuple[T, bool]:
        value = plain(body)
        kept = keep(value)
        if kept is raws.Keep.NOTHING:
            return value, False
        copy = detach if kept is raws.Keep.WHOLE else strip
        if copy is not None:
            copy(value)
        return value, True

    return decoded


def metadata_decoder(kind: type[T], *, version: str = "") -> Callable[[bytes | msgspec.Raw], T]:
    """As `decoder`, but only the metadata is decoded: all other fields have their defaults."""
    api_version = _api_version(kind, version or kind.VERSION)

    def decoded(body: bytes | msgspec.Raw) -> T:
        metadata = _decode_metadata(body).metadata
        metadata.annotations.pop(LAST_APPLIED, None)
        return kind(kind=kind.KIND, api_version=api_version, metadata=metadata)

    return decoded


@functools.cache
def _decoder(kind: type[T], version: str) -> Callable[[bytes | msgspec.Raw], T]:
    """As `decoder`, without the handling of raw parts; created once per kind and version."""
    decode = kind.decoder()
    api_version = _api_version(kind, version)

    def decoded(body: bytes | msgspec.Raw) -> T:
        value = decode(body)
        value.kind, value.api_version = kind.KIND, api_version
        value.metadata.annotations.pop(LAST_APPLIED, None)
        return value

    return decoded


def _api_version(kind: type[Kind], version: str) -> str:
    return f"{kind.GROUP}/{version}" if kind.GROUP else version


def number(version: str) -> int:
    """A resourceVersion as a number; 0 if it is none."""
    return int(version) if version.isascii() and version.isdigit() else 0


def encode(body: object, *, version: str = "") -> bytes:
    """A request body: bytes unchanged, structs and plain values as JSON. With `version` its apiVersion has that one."""
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    if not version:
        return encoded
    plain = msgspec.json.decode(encoded)
    group, slash, _ = plain["apiVersion"].rpartition("/")
    return msgspec.json.encode({**plain, "apiVersion": f"{group}{slash}{version}"})


def carries_version(body: bytes) -> bool:
    """Whether a patch names the resourceVersion it is for, so that sending it twice cannot undo another client's write.

    True for a merge patch with `metadata.resourceVersion`, and for a JSON Patch with a `test` of that field.
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
