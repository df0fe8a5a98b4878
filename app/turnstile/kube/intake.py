"""Puts what a reflector reads into its store: single events, and the collected objects of a full read.

Never reads the network, and never decides what is read.
"""

from collections.abc import Generator
from typing import Generic, TypeVar

import msgspec
import structlog

from turnstile.api.errors import ConnectionLost, Expired
from turnstile.api.meta import Kind
from turnstile.kube import answers
from turnstile.kube.decoding import Decoding, Read
from turnstile.kube.initial import Initial
from turnstile.kube.slices import in_slices
from turnstile.kube.store import Store

T = TypeVar("T", bound=Kind)

_log = structlog.get_logger(__name__)


class Intake(Generic[T]):
    """The way of the objects of a kind into its store."""

    def __init__(self, store: Store[T], decoding: Decoding[T]) -> None:
        self._store = store
        self.decoding = decoding
        self._skips = True
        self.again = False
        """Whether the next full read replaces objects of the same version too: they are read in another API version."""

    def take(self, body: msgspec.Raw) -> str:
        """Store the object of an event; return its version."""
        read = self.decoding.read(body)
        self._put(read)
        return read.version

    def take_again(self, page: answers.Page) -> Generator[None, None, None]:
        """Store the objects of a page, also those whose version the store has, one per step."""
        for body in page.items or ():
            self._put(self.decoding.read(body), again=True)
            yield

    def take_initial(self, initial: Initial[T], body: msgspec.Raw) -> str:
        """Add one object of a full read; return its version.

        An object that the store has already is recognised by its header, at a fifth of the cost of decoding. After a
        lost watch these are nearly all objects.
        """
        if self._skips and not self.again and len(self._store):
            header = answers.decode_header(body)
            key, meta = header.key, header.metadata
            if meta.resource_version.isdigit() and self._store.holds_exactly(key, int(meta.resource_version)):
                self.decoding.bad.pop(key, None)
                initial.skip(key)
                return meta.resource_version
        read = self.decoding.read(body)
        if read.held:
            initial.put(read.key, read.value)
        else:
            initial.drop(read.key)
        return read.version

    def take_page(self, initial: Initial[T], page: answers.Page) -> Generator[None, None, None]:
        """Add the objects of one page of a full read, one per step."""
        for body in page.items or ():
            try:
                self.take_initial(initial, body)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise ConnectionLost(f"{bytes(body)[:200]!r} is no object: {error}") from error
            yield

    def _put(self, read: Read[T], *, again: bool = False) -> None:
        """Store what was read, or remove what is not held any more."""
        if not read.held:
            self._store.leave_out(read.key, resource_version=read.version)
        elif read.value is not None:
            self._store.observe(read.value, again=again, listed=again)

    def delete(self, header: answers.Header, initial: Initial[T] | None) -> str:
        """Remove an object, for which its header suffices; return the version of the deletion."""
        self.decoding.bad.pop(header.key, None)
        if initial is not None:
            initial.drop(header.key)
        else:
            self._store.delete(header.key, resource_version=header.metadata.resource_version)
        return header.metadata.resource_version

    async def complete(self, initial: Initial[T], *, rewound: bool) -> None:
        """Make the store equal to a full read. Raises Expired if objects were skipped that a `rewound` history, that of
        a restored backup, may not have."""
        if rewound:
            _log.warning("reflector.history_went_back", kind=self.decoding.kind.KIND, version=initial.version)
            if initial.skipped:
                self._skips = False
                raise Expired(410, "Expired", "what was read is compared with a history that is no more")
        await in_slices(
            self._store.replacing(initial.found, resource_version=initial.version, rewound=rewound, again=self.again)
        )
        bad = self.decoding.bad
        for key in [key for key in bad if key not in initial.bad]:
            del bad[key]
        self._skips = True
        self.again = False

    async def clear(self) -> None:
        """Empty the store."""
        self.decoding.bad.clear()
        await in_slices(self._store.replacing({}))
