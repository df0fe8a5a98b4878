"""Decodes the objects of a kind, and keeps account of those that cannot be decoded. Never reads the network."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import structlog

from turnstile.api.meta import Kind
from turnstile.kube import answers
from turnstile.kube.raws import Keep

T = TypeVar("T", bound=Kind)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Read(Generic[T]):
    """One version of an object; the value is None if it cannot be decoded. `held`: whether the store holds it."""

    key: str
    version: str
    value: T | None
    held: bool


class Decoding(Generic[T]):
    """Decodes objects of a kind in the version that is served.

    `keep` decides for each object whether it is held whole, without its raw parts (`turnstile.kube.raws`), or not at
    all. `on_undecodable(key, error)` is called for objects that cannot be decoded.
    """

    def __init__(
        self,
        kind: type[T],
        *,
        metadata_only: bool,
        keep: Callable[[T], Keep] | None,
        on_undecodable: Callable[[str, Exception], None] | None,
    ) -> None:
        self.kind = kind
        self._metadata_only = metadata_only
        self._keep = keep
        self._on_undecodable = on_undecodable
        self.undecodable = 0
        """Object versions that could not be decoded, since the start."""
        self.bad: dict[str, str] = {}
        """Errors by key, for objects whose newest version could not be decoded; the store has the last good one."""
        self.serve(kind.VERSION)

    def serve(self, version: str) -> None:
        """Decode objects of that version from now on."""
        self.served = version
        self._decode = self._decoder()

    def _decoder(self) -> Callable[[bytes | msgspec.Raw], tuple[T, bool]]:
        """The function that decodes an object and returns whether it is held."""
        if self._keep is not None and not self._metadata_only:
            return answers.selecting_decoder(self.kind, self._keep, version=self.served)
        decoder = answers.metadata_decoder if self._metadata_only else answers.decoder
        decode = decoder(self.kind, version=self.served)
        return lambda body: (decode(body), True)

    def read(self, body: msgspec.Raw) -> Read[T]:
        """Decode an object; one that cannot be decoded is reported, and has no value."""
        try:
            value, held = self._decode(body)
        except (msgspec.DecodeError, ValueError, TypeError, KeyError, RecursionError) as error:
            header = answers.decode_header(body)
            self._report(header.key, error)
            return Read(header.key, header.metadata.resource_version, None, held=True)
        key = value.metadata.key
        if self.bad:
            self.bad.pop(key, None)
        return Read(key, value.metadata.resource_version, value, held=held)

    def _report(self, key: str, error: Exception) -> None:
        self.undecodable += 1
        self.bad[key] = str(error)
        _log.error("reflector.undecodable", kind=self.kind.KIND, key=key, error=str(error))
        if self._on_undecodable is not None:
            try:
                self._on_undecodable(key, error)
            except Exception:
                _log.exception("reflector.callback_failed", kind=self.kind.KIND, key=key)
