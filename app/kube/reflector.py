"""Keeps a store equal to the API server's objects of one kind: list once, then watch, and recover from any failure.

Three nested functions: `run` loops for ever and waits between streams; `_follow` is one stream, with all objects or
resumed from the last version; `_take` handles one line of the stream. The rules that make the reflector correct:

- A full read gets all objects from the watch itself (`sendInitialEvents`), or from a paged list on servers without
  that, and applies the difference to the store, deletions included. Nothing else reveals what was deleted meanwhile.
- A stream that ends, is cut or falls silent is resumed from the last version seen. A version too old (410, as an answer
  or as an event) causes a full read. So do several refusals in a row without a single event, because the version itself
  may be what the server rejects.
- Silence ends a watch, because the connection may be dead. Bookmarks, which the server sends about once a minute, keep
  an idle watch open. For a kind without any change since the server started the server sends no bookmarks: its watch
  is reopened after each timeout, and only silence after bookmarks is reported as a failure. From then on the server is
  asked to end that watch before the timeout, so that it is heard of at the end (`last_contact`).
- An object that `keep` drops is treated as if it did not exist; `read_again` reads it when `keep` decides otherwise.
- An object that cannot be decoded is reported and skipped; its last good version stays in the store.
- A kind with several versions is followed in the first version that the server has. When that version changes, all
  objects are read again.
- The answer that there is no such kind (404) ends `run` if the kind is optional. The caller decides what follows.

Never skips an event that it does not understand, and never retries without a pause.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec
import structlog

from app.api.errors import (
    ApiError,
    BadRequest,
    ConnectionLost,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    RequestTimeout,
    Silent,
    WireError,
)
from app.api.meta import Kind
from app.kube import answers
from app.kube.backoff import Backoff, Jitter
from app.kube.initial import Initial
from app.kube.raws import Keep
from app.kube.slices import in_slices
from app.kube.store import Store
from app.kube.transport import PAGE_SIZE, Transport
from app.kube.wire import Params

T = TypeVar("T", bound=Kind)

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
IDLE_TIMEOUT = 90.0
"""Seconds without a byte after which a watch is reopened. Bookmarks arrive about every 60 s."""
SERVER_TIMEOUT = 290.0
"""Seconds after which the server is asked to end a watch, plus up to a tenth, so that watches do not end together."""
CALM = 0.8
"""Part of the idle timeout after which the server is asked to end a watch of a kind that does not change: the clean end
shows that the server is heard."""
HEALTHY_AFTER = 30.0
"""Seconds a stream must have lasted for the back-off to be reset."""
BACKOFF = Backoff(first=0.1, limit=5.0)
FORBIDDEN_BACKOFF = Backoff(first=0.1, limit=30.0)
"""For an optional kind that RBAC forbids to read: nothing waits for it, and RBAC rules change seldom."""
FAILURES_BEFORE_RELIST = 4

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """One version of an object; the value is None if it cannot be decoded. `held`: whether the store holds it."""

    key: str
    version: str
    value: T | None
    held: bool


class Reflector(Generic[T]):
    """Mirrors the objects of a kind into a store. `await run()` in a task of its own; `synced` is set once the store
    is full.

    `params` narrows by `labelSelector` or `fieldSelector`, `namespace` to one namespace. With `metadata_only` the
    server sends only metadata, and all other fields of the objects have their defaults. `keep` decides for each object
    whether it is held whole, without its raw parts (`app.kube.raws`), or not at all. `on_undecodable(key, error)` is
    called for objects that cannot be decoded. `last_contact` is the loop time (monotonic seconds) at which the server
    last sent anything or ended a watch.
    """

    def __init__(
        self,
        transport: Transport,
        store: Store[T],
        kind: type[T],
        *,
        namespace: str = "",
        params: Params | None = None,
        optional: bool = False,
        patience: float = 0.0,
        metadata_only: bool = False,
        keep: Callable[[T], Keep] | None = None,
        on_undecodable: Callable[[str, Exception], None] | None = None,
        idle_timeout: float = IDLE_TIMEOUT,
        server_timeout: float = SERVER_TIMEOUT,
        sync_timeout: float = 60.0,
        page_size: int = PAGE_SIZE,
        healthy_after: float = HEALTHY_AFTER,
        streaming_list: bool = True,
        backoff: Backoff = BACKOFF,
        jitter: Jitter = random.random,
    ) -> None:
        self._transport = transport
        self._store = store
        self._kind = kind
        self._namespace = namespace
        self._params = dict(params or {})
        self._optional = optional
        self._patience = patience
        self._failing_since: float | None = None
        self._metadata_only = metadata_only
        self._keep = keep
        self._served = kind.VERSION
        self._decode = self._decoder()
        self._on_undecodable = on_undecodable
        self._idle_timeout = idle_timeout
        self._server_timeout = server_timeout
        self._sync_timeout = sync_timeout
        self._page_size = page_size
        self._healthy_after = healthy_after
        self._streaming_list = streaming_list
        self._backoff = backoff
        self._jitter = jitter
        self._version = ""
        self._highest = 0
        self._initial: Initial[T] | None = None
        self._bookmarked = False
        self._skips = True
        self._again = False
        store.doubt()
        self.synced = asyncio.Event()
        self.tried = asyncio.Event()
        """Set once all objects were read, or attempts to read them have failed for `patience` seconds."""
        self.error: WireError | ApiError | None = None
        """Why the kind is not watched at the moment; None if it is, or if nothing has failed yet."""
        self.last_contact = float("-inf")
        self.relisted = 0
        """Full reads of all objects, the first included."""
        self.events = 0
        """Watch events processed."""
        self.failures = 0
        """Streams that ended neither by a clean close nor by silence without a bookmark before."""
        self.undecodable = 0
        """Object versions that could not be decoded, since the start."""
        self.bad: dict[str, str] = {}
        """Errors by key, for objects whose newest version could not be decoded; the store has the last good one."""

    @property
    def kind(self) -> type[T]:
        """The kind that is mirrored."""
        return self._kind

    async def run(self) -> None:
        """Keep the store equal to the server's objects until cancelled."""
        loop = asyncio.get_running_loop()
        attempt = in_vain = 0
        while True:
            started, events = loop.time(), self.events
            try:
                await self._follow()
                in_vain = 0
            except Expired:
                _log.info("reflector.version_expired", kind=self._kind.KIND, version=self._version)
                self._version = ""
                in_vain = 0
            except Silent as error:
                if self._bookmarked:
                    self._failed(error, attempt)
                else:
                    _log.debug("reflector.calm", kind=self._kind.KIND)
                    self._server_timeout = min(self._server_timeout, max(1.0, CALM * self._idle_timeout))
            except WireError as error:
                self._failed(error, attempt)
            except ApiError as error:
                if self._optional and isinstance(error, NotFound):
                    raise
                self._failed(error, attempt)
                in_vain = in_vain + 1 if self.events == events else 1
                if in_vain >= FAILURES_BEFORE_RELIST:
                    self._version, in_vain = "", 0
                if error.retry_after is not None:
                    await asyncio.sleep(min(error.retry_after, 60.0))
            if loop.time() - started >= self._healthy_after:
                attempt = 0
            patient = self._optional and isinstance(self.error, Forbidden)
            backoff = FORBIDDEN_BACKOFF if patient else self._backoff
            await asyncio.sleep(backoff.delay(attempt, self._jitter))
            attempt += 1

    async def renew(self) -> None:
        """Read all objects once more, beside the watch: the store is then at least as new as the server at this call.

        For callers that must not act on stale objects, because a watch may have fallen silent unnoticed. Raises
        WireError and ApiError, and leaves the store unchanged then.
        """
        with self._store.remembering():
            read = await self._read_all()
            await in_slices(self._store.replacing(read.found, resource_version=read.version))

    async def read_again(self, namespace: str) -> None:
        """Read the objects of a namespace once more, and hold of each what `keep` decides now.

        Deletions are left to the watch. Raises WireError and ApiError.
        """
        with self._store.remembering():
            async with contextlib.aclosing(self._pages(namespace)) as pages:
                async for _, page in pages:
                    await in_slices(self._take_again(page))
                    del page

    def _take_again(self, page: answers.Page) -> Generator[None, None, None]:
        for body in page.items or ():
            self._put(self._read_object(body), again=True)
            yield

    async def forget(self) -> None:
        """Empty the store because the server has no such kind any more. The next `run` begins with a full read."""
        self._version = ""
        self.synced.clear()
        self.bad.clear()
        await in_slices(self._store.replacing({}))
        self.error = None
        self._store.believe()
        self.tried.set()

    def failed(self, error: WireError | ApiError) -> None:
        """Record that the kind cannot be watched at the moment, with the error that `run` raised."""
        self._failed(error, 0)

    def _failed(self, error: WireError | ApiError, attempt: int) -> None:
        self.failures += 1
        known = self.error is not None and str(self.error) == str(error)
        tell = _log.debug if known else _log.warning  # warn once of an error that persists
        tell("reflector.stream_failed", kind=self._kind.KIND, error=str(error), attempt=attempt)
        self.error = error
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= self._patience:
            self.tried.set()

    def _answered(self) -> None:
        """Clear the error: the server has begun to answer a watch."""
        if self.synced.is_set():
            self.error = None

    def _decoder(self) -> Callable[[bytes | msgspec.Raw], tuple[T, bool]]:
        """The function that decodes an object and returns whether it is held."""
        if self._keep is not None and not self._metadata_only:
            return answers.selecting_decoder(self._kind, self._keep, version=self._served)
        decoder = answers.metadata_decoder if self._metadata_only else answers.decoder
        decode = decoder(self._kind, version=self._served)
        return lambda body: (decode(body), True)

    @property
    def _path(self) -> str:
        return self._kind.collection_path(self._namespace, version=self._served)

    async def _settle_version(self) -> None:
        """Choose the first version of the kind that the server has. Raises NotFound if the server has none."""
        if len(self._kind.VERSIONS) < 2:
            return
        version = await self._transport.find_version(self._kind, self._namespace)
        if version != self._served:
            self._served = version
            self._decode = self._decoder()
            self._version, self._again = "", True

    async def _follow(self) -> None:
        """Read one stream until the server ends it cleanly."""
        await self._settle_version()
        params: dict[str, str | int] = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": int(self._server_timeout * (1.0 + 0.1 * self._jitter())),
        }
        if self._version:
            params["resourceVersion"] = self._version
            await self._read(params)
            return
        if not self._streaming_list:
            await self._list()
            params["resourceVersion"] = self._version
            await self._read(params)
            return
        # Without a resourceVersion the server refreshes its cache first: the objects are never older than those seen.
        params |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        self._initial = Initial()
        try:
            await self._read(params)
        except (BadRequest, Invalid) as error:
            _log.info("reflector.no_streaming_list", kind=self._kind.KIND, error=error.message)
            self._streaming_list = False
        finally:
            self._initial = None

    async def _read(self, params: Params) -> None:
        """Send one watch request and process its lines."""
        self._bookmarked = False
        loop = asyncio.get_running_loop()
        stream = self._transport.watch(
            self._path,
            params=params,
            idle_timeout=self._idle_timeout,
            metadata_only=self._metadata_only,
            on_answer=self._answered,
        )
        # A server that sends a byte now and then is never idle: the requested timeout bounds the whole stream.
        limit = self._server_timeout * 1.1 + self._idle_timeout
        if self._initial is not None:
            limit = self._sync_timeout
        try:
            async with asyncio.timeout(limit) as deadline, contextlib.aclosing(stream) as lines:
                async for line in lines:
                    self.last_contact = loop.time()
                    if self._take(line) and self._initial is not None:
                        deadline.reschedule(None)  # no timeout while the store is updated
                        await self._complete(self._initial)
                        self._initial = None
                        deadline.reschedule(loop.time() + self._server_timeout * 1.1 + self._idle_timeout)
            self.last_contact = loop.time()
        except TimeoutError:
            if self._initial is not None:
                # A server that does not know sendInitialEvents ignores it and never marks the end of initial events.
                self._streaming_list = False
            raise RequestTimeout(f"WATCH {self._path}: not done after {limit:g} s") from None

    def _take(self, line: bytes) -> bool:
        """Process one line; return True if it marks the end of the initial events."""
        try:
            event = answers.decode_event(line)
            match event.type:
                case "ADDED" | "MODIFIED":
                    if self._initial is not None:
                        version = self._take_initial(self._initial, event.object)
                    else:
                        read = self._read_object(event.object)
                        version = read.version
                        self._put(read)
                case "DELETED":
                    version = self._delete(answers.decode_header(event.object))
                case "BOOKMARK":
                    meta = answers.decode_header(event.object).metadata
                    version = meta.resource_version
                    if self._initial is not None and (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true":
                        self.events += 1
                        self._initial.version = version
                        return True
                    self._bookmarked = True
                case "ERROR":
                    raise _error_event(event.object)
                case other:
                    raise ConnectionLost(f"WATCH {self._path}: unknown event type {other!r}")
        except msgspec.DecodeError as error:
            # Not an event: something other than the API server answers. Skipping the line might skip a change.
            raise ConnectionLost(f"WATCH {self._path}: {line[:200]!r} is no event: {error}") from error
        self.events += 1
        if self._initial is None:
            self._advance(version)
        return False

    def _take_initial(self, initial: Initial[T], body: msgspec.Raw) -> str:
        """Add one object of a full read; return its version.

        An object that the store has already is recognised by its header, at a fifth of the cost of decoding. After a
        lost watch these are nearly all objects.
        """
        if self._skips and not self._again and len(self._store):
            header = answers.decode_header(body)
            key, meta = header.key, header.metadata
            if meta.resource_version.isdigit() and self._store.holds(key, int(meta.resource_version)):
                self.bad.pop(key, None)
                initial.skip(key)
                return meta.resource_version
        read = self._read_object(body)
        if read.held:
            initial.put(read.key, read.value)
        else:
            initial.drop(read.key)
        return read.version

    def _put(self, read: _Read[T], *, again: bool = False) -> None:
        """Store what was read, or remove what is not held any more."""
        if not read.held:
            self._store.leave_out(read.key, resource_version=read.version)
        elif read.value is not None:
            self._store.observe(read.value, again=again, listed=again)

    def _read_object(self, body: msgspec.Raw) -> _Read[T]:
        """Decode an object; one that cannot be decoded is reported, and has no value."""
        try:
            value, held = self._decode(body)
        except (msgspec.DecodeError, ValueError, TypeError, KeyError) as error:
            header = answers.decode_header(body)
            self._report(header.key, error)
            return _Read(header.key, header.metadata.resource_version, None, held=True)
        key = value.metadata.key
        if self.bad:
            self.bad.pop(key, None)
        return _Read(key, value.metadata.resource_version, value, held=held)

    def _report(self, key: str, error: Exception) -> None:
        self.undecodable += 1
        self.bad[key] = str(error)
        _log.error("reflector.undecodable", kind=self._kind.KIND, key=key, error=str(error))
        if self._on_undecodable is not None:
            try:
                self._on_undecodable(key, error)
            except Exception:
                _log.exception("reflector.callback_failed", kind=self._kind.KIND, key=key)

    def _delete(self, header: answers.Header) -> str:
        """Remove an object, for which its header suffices; return the version of the deletion."""
        self.bad.pop(header.key, None)
        if self._initial is not None:
            self._initial.drop(header.key)
        else:
            self._store.delete(header.key, resource_version=header.metadata.resource_version)
        return header.metadata.resource_version

    def _advance(self, version: str) -> None:
        """Record that all changes up to that version are processed."""
        if version:
            self._version = version
            self._highest = int(version) if version.isdigit() else 0

    async def _list(self) -> None:
        """Read all objects page by page, before a watch."""
        initial = await self._read_all()
        self.last_contact = asyncio.get_running_loop().time()
        await self._complete(initial)

    async def _read_all(self) -> Initial[T]:
        """Read all objects page by page, without changing the store."""
        initial: Initial[T] = Initial()
        async with contextlib.aclosing(self._pages(self._namespace)) as pages:
            async for first, page in pages:
                if first:
                    initial = Initial()
                await asyncio.sleep(0)  # parsing the page took a slice of its own
                await in_slices(self._take_page(initial, page))
                initial.version = page.metadata.resource_version
                await asyncio.sleep(0)  # freeing the page takes another slice
                del page  # free the page before the next one arrives
        return initial

    def _pages(self, namespace: str) -> AsyncGenerator[tuple[bool, answers.Page], None]:
        path = self._kind.collection_path(namespace, version=self._served)
        return self._transport.pages(
            path, params=self._params, page_size=self._page_size, metadata_only=self._metadata_only
        )

    def _take_page(self, initial: Initial[T], page: answers.Page) -> Generator[None, None, None]:
        """Add the items of one page, one per step."""
        for body in page.items or ():
            try:
                self._take_initial(initial, body)
            except msgspec.DecodeError as error:
                raise ConnectionLost(f"GET {self._path}: {bytes(body)[:200]!r} is no object: {error}") from error
            yield

    async def _complete(self, initial: Initial[T]) -> None:
        """End a full read: apply its difference to the store, and continue from its version."""
        version = initial.version
        number = int(version) if version.isdigit() else 0
        rewound = number < self._highest
        if rewound:
            _log.warning("reflector.history_went_back", kind=self._kind.KIND, version=version, seen=self._highest)
            if initial.skipped:
                self._skips = False
                raise Expired(410, "Expired", "what was read is compared with a history that is no more")
        await in_slices(
            self._store.replacing(initial.found, resource_version=version, rewound=rewound, again=self._again)
        )
        for key in [key for key in self.bad if key not in initial.bad]:
            del self.bad[key]
        self._skips = True
        self._again = False
        self._advance(version)
        self.relisted += 1
        self.error = None
        self.synced.set()
        self.tried.set()
        self._store.believe()


def _error_event(body: msgspec.Raw) -> ApiError:
    """The error of an ERROR event: a Status sent inside a watch that was answered with 200."""
    status = answers.parse_status(bytes(body))
    return answers.error(status.code if status and status.code else 500, bytes(body))
