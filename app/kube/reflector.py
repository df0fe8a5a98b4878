"""Keeps a store equal to what the API server holds of one kind, for ever: list once, then watch, and go on after any
failure.

Three functions, one inside the other: `run` goes on for ever and waits between streams; `_follow` is one stream, of
everything or from where the last one ended; `_take` is one line of it. The rules that make it sound:

- A new start learns everything from the watch itself (`sendInitialEvents`), or from a paged list on servers that
  cannot, and gives the store the difference, deletions too. There is no other way to learn of what was deleted
  meanwhile.
- A stream that ends, is cut or falls silent is resumed from the last version seen. A version too old (410, as an answer
  or as an event) means a new start. So do several refusals in a row without a single event, for then the version
  itself may be what the server stumbles over.
- Silence ends a watch, for it may be dead. Bookmarks, which the server sends about once a minute, keep a calm one
  alive. For a kind that nothing has happened to since it started the server sends none: such a watch is begun anew
  each time, and only one that falls silent after bookmarks is told as a failure.
- An object that cannot be decoded is reported and skipped; its last good version stays in the store.
- A kind with several versions is followed in the first one that the server has. What is held of another version is
  read anew.
- The answer that there is no such kind (404) ends `run` if the kind is optional. What follows from that is not decided
  here.

Never drops an event it cannot place, and never asks again without a pause.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Generator
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
from app.kube.slices import in_slices
from app.kube.store import Store
from app.kube.transport import PAGE_SIZE, Transport
from app.kube.wire import Params

T = TypeVar("T", bound=Kind)

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
IDLE_TIMEOUT = 90.0
"""Seconds without a byte after which a watch is begun anew. Bookmarks come about every 60 s."""
SERVER_TIMEOUT = 290.0
"""Seconds after which the server is asked to end a watch, plus up to a tenth, so that watches do not end together."""
HEALTHY_AFTER = 30.0
"""Seconds a stream must have lasted for the back-off to start over."""
BACKOFF = Backoff(first=0.1, limit=5.0)
FORBIDDEN_BACKOFF = Backoff(first=0.1, limit=30.0)
"""For an optional kind that may not be read: nobody waits for it, and rights change seldom."""
FAILURES_BEFORE_RELIST = 4

_log = structlog.get_logger(__name__)


class Reflector(Generic[T]):
    """Mirrors the objects of a kind into a store. `await run()` in a task of its own; `synced` is set once the store
    is full.

    `params` narrows by `labelSelector` or `fieldSelector`, `namespace` to one namespace. With `metadata_only` the
    server sends nothing but metadata, and all other fields of the objects are as if they were absent. Objects that
    `keep` does not want whole are stripped of their raw parts (`app.kube.raws`). `on_undecodable(key, error)` hears of
    objects that make no sense. `last_contact` is loop time (monotonic seconds) at which the server last said anything.
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
        metadata_only: bool = False,
        keep: Callable[[T], bool] | None = None,
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
        """Set once everything was read, or an attempt to do so has failed."""
        self.error: WireError | ApiError | None = None
        """Why the kind is not followed at the moment; None if it is, or if nothing has failed yet."""
        self.last_contact = float("-inf")
        self.relisted = 0
        """How many times everything was read, the first included."""
        self.events = 0
        """Watch events taken in."""
        self.failures = 0
        """Streams that ended in any way but a clean close, or the silence of a kind without news."""
        self.undecodable = 0
        """Versions of objects that could not be decoded, since the start."""
        self.bad: dict[str, str] = {}
        """Keys whose newest version could not be decoded, and why; the store has the version before it, if any."""

    @property
    def kind(self) -> type[T]:
        """What is mirrored."""
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
        """Read everything once more, beside the watch: the store is then as new as the server was at this call.

        For whoever must not act on what a watch last said, as that may have fallen silent unnoticed. Raises WireError
        and ApiError; the store is then as it was.
        """
        with self._store.remembering():
            read = await self._read_all()
            await in_slices(self._store.replacing(read.found, resource_version=read.version))

    async def read_again(self, namespace: str) -> None:
        """Read the objects of a namespace once more, and take them as they are to be kept now.

        What is gone is left to the watch. Raises WireError and ApiError.
        """
        with self._store.remembering():
            async with contextlib.aclosing(self._pages(namespace)) as pages:
                async for _, page in pages:
                    await in_slices(self._take_again(page))
                    del page

    def _take_again(self, page: answers.Page) -> Generator[None, None, None]:
        for body in page.items or ():
            _, _, value = self._read_object(body)
            if value is not None:
                self._store.observe(value, again=True)
            yield

    async def forget(self) -> None:
        """The server has no such kind any more: empty the store. `run` then starts anew."""
        self._version = ""
        self.synced.clear()
        self.bad.clear()
        await in_slices(self._store.replacing({}))
        self.error = None
        self._store.believe()
        self.tried.set()

    def failed(self, error: WireError | ApiError) -> None:
        """The kind cannot be followed at the moment, for a reason that `run` has raised."""
        self._failed(error, 0)

    def _failed(self, error: WireError | ApiError, attempt: int) -> None:
        self.failures += 1
        known = self.error is not None and str(self.error) == str(error)
        tell = _log.debug if known else _log.warning  # what stays so is told once
        tell("reflector.stream_failed", kind=self._kind.KIND, error=str(error), attempt=attempt)
        self.error = error
        self.tried.set()

    def _answered(self) -> None:
        """The server has begun to answer a watch."""
        if self.synced.is_set():
            self.error = None

    def _decoder(self) -> Callable[[bytes | msgspec.Raw], T]:
        if self._metadata_only:
            return answers.metadata_decoder(self._kind, version=self._served)
        return answers.decoder(self._kind, version=self._served, keep=self._keep)

    @property
    def _path(self) -> str:
        return self._kind.collection_path(self._namespace, version=self._served)

    async def _settle_version(self) -> None:
        """Follow the kind in the first of its versions that the server has. Raises NotFound if it has none."""
        if len(self._kind.VERSIONS) < 2:
            return
        version = await self._transport.find_version(self._kind, self._namespace)
        if version != self._served:
            self._served = version
            self._decode = self._decoder()
            self._version, self._again = "", True

    async def _follow(self) -> None:
        """One stream, until the server ends it cleanly."""
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
        # Without a resourceVersion the server brings its cache up to date first: never a step back in time.
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
        """The lines of one watch request."""
        self._bookmarked = False
        loop = asyncio.get_running_loop()
        stream = self._transport.watch(
            self._path,
            params=params,
            idle_timeout=self._idle_timeout,
            metadata_only=self._metadata_only,
            on_answer=self._answered,
        )
        # A server that trickles would never be idle: what it said it would do bounds the whole.
        limit = self._server_timeout * 1.1 + self._idle_timeout
        if self._initial is not None:
            limit = self._sync_timeout
        try:
            async with asyncio.timeout(limit) as deadline, contextlib.aclosing(stream) as lines:
                async for line in lines:
                    self.last_contact = loop.time()
                    if self._take(line) and self._initial is not None:
                        deadline.reschedule(None)  # what was read is taken in to its end
                        await self._complete(self._initial)
                        self._initial = None
                        deadline.reschedule(loop.time() + self._server_timeout * 1.1 + self._idle_timeout)
        except TimeoutError:
            if self._initial is not None:
                # A server that knows nothing of sendInitialEvents ignores it and never says that it is at the end.
                self._streaming_list = False
            raise RequestTimeout(f"WATCH {self._path}: not done after {limit:g} s") from None

    def _take(self, line: bytes) -> bool:
        """One line; true if it was the end of the initial events."""
        try:
            event = answers.decode_event(line)
            match event.type:
                case "ADDED" | "MODIFIED":
                    if self._initial is not None:
                        version = self._take_initial(self._initial, event.object)
                    else:
                        _, version, value = self._read_object(event.object)
                        if value is not None:
                            self._store.observe(value)
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
            # Not an event: something else answers in the server's place. Skipping the line might skip a change.
            raise ConnectionLost(f"WATCH {self._path}: {line[:200]!r} is no event: {error}") from error
        self.events += 1
        if self._initial is None:
            self._advance(version)
        return False

    def _take_initial(self, initial: Initial[T], body: msgspec.Raw) -> str:
        """One object of a new start; returns its version.

        What the store has already is only recognised, at a fifth of the price: after a lost watch that is nearly all.
        """
        if self._skips and not self._again and len(self._store):
            header = answers.decode_header(body)
            key, meta = header.key, header.metadata
            if meta.resource_version.isdigit() and self._store.holds(key, int(meta.resource_version)):
                self.bad.pop(key, None)
                initial.skip(key)
                return meta.resource_version
        key, version, value = self._read_object(body)
        initial.put(key, value)
        return version

    def _read_object(self, body: msgspec.Raw) -> tuple[str, str, T | None]:
        """Key, version and value of an object; the value is None, and told of, if it makes no sense to us."""
        try:
            value = self._decode(body)
        except (msgspec.DecodeError, ValueError, TypeError, KeyError) as error:
            header = answers.decode_header(body)
            self._report(header.key, error)
            return header.key, header.metadata.resource_version, None
        key = value.metadata.key
        if self.bad:
            self.bad.pop(key, None)
        return key, value.metadata.resource_version, value

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
        """Forget an object, which needs no more than its header; returns the version of the deletion."""
        self.bad.pop(header.key, None)
        if self._initial is not None:
            self._initial.drop(header.key)
        else:
            self._store.delete(header.key, resource_version=header.metadata.resource_version)
        return header.metadata.resource_version

    def _advance(self, version: str) -> None:
        """Everything up to that version is known."""
        if version:
            self._version = version
            self._highest = int(version) if version.isdigit() else 0

    async def _list(self) -> None:
        """Everything, page by page, as the beginning of a watch."""
        initial = await self._read_all()
        self.last_contact = asyncio.get_running_loop().time()
        await self._complete(initial)

    async def _read_all(self) -> Initial[T]:
        """All objects, page by page; what the store has is left as it is meanwhile."""
        initial: Initial[T] = Initial()
        async with contextlib.aclosing(self._pages(self._namespace)) as pages:
            async for first, page in pages:
                if first:
                    initial = Initial()
                await asyncio.sleep(0)  # to take the page apart was a slice of its own
                await in_slices(self._take_page(initial, page))
                initial.version = page.metadata.resource_version
                await asyncio.sleep(0)  # and so is to let go of it
                del page  # while the next one comes it is not held
        return initial

    def _pages(self, namespace: str) -> AsyncGenerator[tuple[bool, answers.Page], None]:
        path = self._kind.collection_path(namespace, version=self._served)
        return self._transport.pages(
            path, params=self._params, page_size=self._page_size, metadata_only=self._metadata_only
        )

    def _take_page(self, initial: Initial[T], page: answers.Page) -> Generator[None, None, None]:
        """The items of one page, one by one."""
        for body in page.items or ():
            try:
                self._take_initial(initial, body)
            except msgspec.DecodeError as error:
                raise ConnectionLost(f"GET {self._path}: {bytes(body)[:200]!r} is no object: {error}") from error
            yield

    async def _complete(self, initial: Initial[T]) -> None:
        """Everything is known as of a version: hand the difference to the store."""
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
    """The error of an ERROR event: a Status that came after the answer's own 200."""
    status = answers.parse_status(bytes(body))
    return answers.error(status.code if status and status.code else 500, bytes(body))
