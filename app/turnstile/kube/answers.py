"""Parses answers of the API server: Status objects into errors, bytes into objects, lists into pages. No I/O.

A proxy in front of the server may answer in HTML or plain text, and a crashing server with half a Status. Any error
answer becomes an error of `turnstile.api.errors`, never a parse error.
"""

import datetime
import email.utils
import functools
import http
import itertools
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from turnstile.api import errors
from turnstile.api.meta import Kind, Object, ObjectMeta
from turnstile.kube import raws

T = TypeVar("T", bound=Kind)
N = TypeVar("N", bound="Kind | Header")
W = TypeVar("W", bound=Object)
D = TypeVar("D", bound="_Groups | _Resources")

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which kubectl stores a copy of the whole object. Turnstile never reads it, so it is dropped."""
DEPTH: Final = 11_000
"""Maximum depth of JSON that is read; the API server takes objects that are nested 10,000 deep."""
LONGEST_WAIT: Final = 60.0
"""Maximum seconds that are waited because an answer asks for it."""
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
    status: str = ""
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
    """The identity of an object, even if the rest of the object cannot be decoded."""

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


class _Version(Object):
    version: str = ""


class _Group(Object):
    name: str = ""
    versions: list[_Version] = msgspec.field(default_factory=list)


class _Groups(Object):
    """metav1.APIGroupList: all groups of the server but the core."""

    kind: str = ""
    groups: list[_Group] = msgspec.field(default_factory=list)


class _Resource(Object):
    name: str = ""
    kind: str = ""


class _Resources(Object):
    """metav1.APIResourceList: what a version of a group has."""

    kind: str = ""
    resources: list[_Resource] = msgspec.field(default_factory=list)


def _deep(decode: Callable[[bytes | msgspec.Raw], W]) -> Callable[[bytes | msgspec.Raw], W]:
    """As `decode`, also for JSON that is nested more deeply than Python's recursion limit, as a tenant's object may
    be."""

    def decoded(body: bytes | msgspec.Raw) -> W:
        try:
            return decode(body)
        except RecursionError:
            limit = sys.getrecursionlimit()
            sys.setrecursionlimit(limit + DEPTH)
            try:
                return decode(body)
            finally:
                sys.setrecursionlimit(limit)

    return decoded


decode_page = _deep(msgspec.json.Decoder(Page).decode)
decode_header = _deep(msgspec.json.Decoder(Header).decode)
decode_event = _deep(msgspec.json.Decoder(Event).decode)
_decode_metadata = msgspec.json.Decoder(_Metadata).decode
_decode_groups = msgspec.json.Decoder(_Groups).decode
_decode_resources = msgspec.json.Decoder(_Resources).decode
_decode_status = msgspec.json.Decoder(Status).decode


def parse_status(body: bytes) -> Status | None:
    """The Status in a body, or None if the body is anything else."""
    try:
        status = _decode_status(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return status if status.kind == "Status" else None


def retry_after(
    headers: Mapping[str, str], status: Status | None, now: datetime.datetime | None = None
) -> float | None:
    """Seconds the server asked to wait: the Retry-After header (seconds or a date), else `retryAfterSeconds`. At most
    `LONGEST_WAIT`: whoever answers may have the time wrong, and what waits may be the end of a job."""
    value = headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), LONGEST_WAIT)
    if value:
        try:
            when = email.utils.parsedate_to_datetime(value)
        except ValueError:
            when = None
        if when is not None and when.tzinfo is not None:
            left = (when - (now or datetime.datetime.now(datetime.UTC))).total_seconds()
            return min(max(0.0, left), LONGEST_WAIT)
    seconds = (status.details or {}).get("retryAfterSeconds") if status else None
    return float(min(seconds, LONGEST_WAIT)) if isinstance(seconds, int | float) and seconds > 0 else None


def error(code: int, body: bytes, headers: Mapping[str, str] | None = None, *, path: str = "") -> errors.ApiError:
    """The error of `turnstile.api.errors` for an unsuccessful answer to a request of `path`, whatever its body holds.

    Only a Status is the API server's word, and a Status about an object (404, 409) has to name one that the path names:
    a version that is not served, a proxy and a server that is starting answer 404 about any object.
    """
    status = parse_status(body)
    wait = retry_after(headers or {}, status)
    if status is None:
        return errors.api_error(code, _phrase(code), _quote(body), proven=False, retry_after=wait)
    # A Status may lack its reason (webhook denials do): the reason then follows from the code.
    made = errors.api_error(
        code,
        status.reason or _phrase(code),
        status.message or "no message",
        proven=code not in _REASONS or (status.reason in _REASONS[code] and _names(status, code, path)),
        details=status.details,
        retry_after=wait,
    )
    if isinstance(made, errors.Expired):
        made.rest = status.metadata.continue_
    return made


def read_object(decode: Callable[[bytes], N], answer: bytes, what: str, *, name: str = "") -> N:
    """The object in an answer, `what` was asked for. Raises Unreadable if `decode` fails, and if the object has no name
    or another one: JSON of anything else decodes to an object whose fields are all empty."""
    try:
        value = decode(answer)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise errors.Unreadable(f"{what}: answered {_quote(answer)!r}: {error}") from error
    if not value.metadata.name or (name and value.metadata.name != name):
        raise errors.Unreadable(f"{what}: answered {_quote(answer)!r}, which is another object or none")
    return value


def read_groups(answer: bytes) -> dict[str, list[str]]:
    """The versions of each group, by the discovery document of all groups. Raises Unreadable."""
    found = _discovered(_decode_groups, answer, "APIGroupList")
    return {group.name: [each.version for each in group.versions] for group in found.groups}


def read_resources(answer: bytes) -> dict[str, str]:
    """The kind of each plural that a version of a group has, by its discovery document; that of a subresource is
    `jobs/status`. Raises Unreadable."""
    return {each.name: each.kind for each in _discovered(_decode_resources, answer, "APIResourceList").resources}


def _discovered(decode: Callable[[bytes], D], answer: bytes, kind: str) -> D:
    try:
        found = decode(answer)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise errors.Unreadable(f"{kind}: answered {_quote(answer)!r}: {error}") from error
    if found.kind != kind:
        raise errors.Unreadable(f"{kind}: answered {_quote(answer)!r}")
    return found


def says_gone(answer: bytes) -> bool:
    """Whether the answer to a deletion is a Status of success: the object is gone. An object that is to be deleted
    later, because of a finalizer or a grace period, is in the answer itself."""
    status = parse_status(answer)
    return status is not None and status.status == "Success"


_REASONS: Final = {404: ("NotFound",), 409: ("Conflict", "AlreadyExists")}
"""Reasons of the codes that are about one object."""


def _names(status: Status, code: int, path: str) -> bool:
    """Whether a Status names an object of a path: the object, its namespace or, after a conflict with a creation, an
    object of the collection. A conflict of field managers has no name, but names the managers."""
    details = status.details or {}
    kind, name = str(details.get("kind") or "").partition("/")[0], str(details.get("name") or "")
    if code == 409 and any(cause.get("reason") == "FieldManagerConflict" for cause in _causes(details)):
        return True
    if not kind or not name:
        return False
    parts = path.split("/")
    if code == 409 and _is_of(parts[-1], kind):
        return True
    return any(_is_of(plural, kind) and name == each for plural, each in itertools.pairwise(parts))


def _is_of(plural: str, kind: str) -> bool:
    """Whether a Status means the objects of that plural by `kind`: the plural, or in some conflicts the kind's name."""
    return plural == kind or (kind[:1].isupper() and plural.startswith(kind.lower()[:-1]))


def _causes(details: Mapping[str, Any]) -> list[dict[str, Any]]:
    causes = details.get("causes")
    return [each for each in causes if isinstance(each, dict)] if isinstance(causes, list) else []


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


def decoder(kind: type[T], *, version: str = "", whole: bool = False) -> Callable[[bytes | msgspec.Raw], T]:
    """The function that turns bytes into a `kind`.

    The function sets kind and version (list items of built-in kinds carry none) and copies each `msgspec.Raw` field, a
    view that would keep the whole message in memory; of large pod templates only what decides, unless the object is
    wanted `whole`. `version` is the version of the bytes, by default `kind.VERSION`.
    Raises msgspec.DecodeError (ValidationError among them) if the bytes are not such an object.
    """
    plain = cast("Callable[[bytes | msgspec.Raw], T]", _decoder(kind, version or kind.VERSION))
    detach = raws.detacher(kind, whole=whole)
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
