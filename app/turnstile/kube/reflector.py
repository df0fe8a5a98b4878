"""Keeps a store equal to the API server's objects of one kind: list once, then watch, and recover from any failure.

Three nested functions: `run` loops for ever and waits between streams; `_follow` is one stream, with all objects or
resumed from the last version; `_take` handles one line of the stream. The rules that make the reflector correct:

- A full read gets all objects from the watch itself (`sendInitialEvents`), or from a paged list on servers without
  that, and applies the difference to the store, deletions included. Nothing else reveals what was deleted meanwhile.
- No full read has a deadline in total: it is cut only when nothing arrives for a while. One that was cut in the middle
  goes on page by page, and a failing page is read again by itself (`pages`).
- A stream that ends, is cut or falls silent is resumed from the last version seen. A version too old (410, as an answer
  or as an event) causes a full read. So do several refusals in a row without a single event, because the version itself
  may be what the server rejects.
- A watch from a version that the API server has not reached, because etcd was restored from a backup, brings neither
  events nor an error. So before a watch is resumed that failed, or ended before its time, a consistent read shows
  whether the server's version has gone back; then all objects are read again.
- Silence ends a watch, because the connection may be dead. Bookmarks, which the server sends about once a minute, keep
  an idle watch open. For a kind without any change since the server started the server sends no bookmarks: its watch
  is reopened after each timeout, and only silence after bookmarks is reported as a failure. From then on the server is
  asked to end that watch before the timeout, so that it is heard of at the end (`last_contact`).
- An object that `keep` drops is treated as if it did not exist; `read_again` reads it when `keep` decides otherwise.
- An object that cannot be decoded is reported and skipped; its last good version stays in the store. The next stream
  begins with a full read: a watch that is older than the conversion of its definition delivers objects as they are
  stored, and nothing but their next change would show them again.
- A kind with several versions is followed in the first version that the server has. When that version changes, all
  objects are read again.
- The answer that there is no such kind (404) ends `run` if the kind is optional. The caller decides what follows.

Never skips an event that it does not understand, and never retries without a pause.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
import structlog

from turnstile.api.errors import (
    ApiError,
    BadRequest,
    ConnectionLost,
    Expired,
    Forbidden,
    Invalid,
    NotServed,
    RequestTimeout,
    ServerError,
    Silent,
    TooManyRequests,
    WireError,
)
from turnstile.api.meta import Kind
from turnstile.kube import answers
from turnstile.kube.backoff import Backoff, Jitter
from turnstile.kube.decoding import Decoding
from turnstile.kube.freshness import Freshness
from turnstile.kube.initial import Initial
from turnstile.kube.intake import Intake
from turnstile.kube.listing import Listing
from turnstile.kube.pages import FIRST_PAGE, PAGE_SIZE, Pages
from turnstile.kube.raws import Keep
from turnstile.kube.slices import in_slices
from turnstile.kube.store import Store
from turnstile.kube.transport import PATIENCE, Transport
from turnstile.kube.wire import Params

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
SHORT_TIMEOUT = 3
"""Seconds after which the server is asked to end a watch whose bookmark is waited for. It sends the bookmark two
seconds before the end, and none if that moment is past when it begins."""
SHORT_STREAMS = 4
"""Such watches without the bookmark, each twice as long as the one before, until all objects are read instead."""
FEW = 50
"""Objects that are read once more rather than waited for, which takes one request and no second."""

_log = structlog.get_logger(__name__)


class Reflector(Generic[T]):
    """Mirrors the objects of a kind into a store. `await run()` in a task of its own; `synced` is set once the store
    is full.

    `params` narrows by `labelSelector` or `fieldSelector`, `namespace` to one namespace. With `metadata_only` the
    server sends only metadata, and all other fields of the objects have their defaults. `keep` decides for each object
    whether it is held whole, without its raw parts (`turnstile.kube.raws`), or not at all. `on_undecodable(key, error)`
    is called for objects that cannot be decoded. `last_contact` is the loop time (monotonic seconds) at which the
    server last sent anything or ended a watch.
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
        self._decoding = Decoding(kind, metadata_only=metadata_only, keep=keep, on_undecodable=on_undecodable)
        self._intake = Intake(store, self._decoding)
        self._idle_timeout = idle_timeout
        self._server_timeout = server_timeout
        self._sync_timeout = sync_timeout
        self._page_size = page_size
        self._healthy_after = healthy_after
        self._streaming_list = streaming_list
        self._backoff = backoff
        self._jitter = jitter
        self._version = ""
        self._initial: Initial[T] | None = None
        self._listing: Listing[T] | None = None
        self._by_pages = False
        self._pages_again: dict[str, Pages] = {}
        self._stream: asyncio.Timeout | None = None
        self._short = 0
        self._short_streams = 0
        self._to_read_all = False
        self._undecodable_before = 0
        self._cut = False
        self._bookmarked = False
        self._broken = self._opened = False
        self._listed = False
        store.doubt()
        self.freshness = Freshness(self)
        self.synced = asyncio.Event()
        self.tried = asyncio.Event()
        """Set once all objects were read, or attempts to read them have failed for `patience` seconds."""
        self.error: WireError | ApiError | None = None
        """Why the kind is not watched at the moment; None if it is, or if nothing has failed yet."""
        self.last_contact = float("-inf")
        self.position = 0
        """The version up to which the store has all changes, as a number; 0 if it is not known."""
        self.relisted = 0
        """Full reads of all objects, the first included."""
        self.pages = 0
        """Pages of full reads."""
        self.events = 0
        """Watch events processed."""
        self.failures = 0
        """Streams that ended neither by a clean close nor by silence without a bookmark before."""

    @property
    def kind(self) -> type[T]:
        """The kind that is mirrored."""
        return self._kind

    @property
    def undecodable(self) -> int:
        """Object versions that could not be decoded, since the start."""
        return self._decoding.undecodable

    @property
    def bad(self) -> dict[str, str]:
        """Errors by key, for objects whose newest version could not be decoded; the store has the last good one."""
        return self._decoding.bad

    async def run(self) -> None:
        """Keep the store equal to the server's objects until cancelled."""
        loop = asyncio.get_running_loop()
        attempt = in_vain = 0
        while True:
            started, events, pages = loop.time(), self.events, self.pages
            try:
                await self._follow()
                in_vain = 0
                if self._was_cut():
                    attempt = 0
                    continue
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
                    self._was_cut()
            except WireError as error:
                self._failed(error, attempt)
            except ApiError as error:
                if self._optional and isinstance(error, NotServed):
                    raise
                self._failed(error, attempt)
                sheds = error.code == 429 or error.retry_after is not None
                in_vain = 0 if sheds else in_vain + 1 if self.events == events else 1
                if in_vain >= FAILURES_BEFORE_RELIST:
                    self._version, in_vain = "", 0
                if error.retry_after is not None:
                    await asyncio.sleep(error.retry_after)
            if loop.time() - started >= self._healthy_after or self.pages > pages:
                attempt = 0
            patient = self._optional and isinstance(self.error, Forbidden)
            backoff = FORBIDDEN_BACKOFF if patient else self._backoff
            await asyncio.sleep(backoff.delay(attempt, self._jitter))
            attempt += 1

    def _was_cut(self) -> bool:
        """Whether the watch is reopened at once after a clean end, because `_interrupt` has cut it. Else decides how
        the next watch is to end."""
        if self._cut or not self._short:
            return self._cut
        self._short_streams += 1
        if self.freshness.shown:
            self._short = 0
        elif self._short_streams >= SHORT_STREAMS:
            _log.info("reflector.no_bookmarks", kind=self._kind.KIND, version=self._version)
            self._to_read_all = True
        else:
            self._short *= 2  # a busy server may have used up the time before it began to send
        return False

    @property
    def listed(self) -> bool:
        """Whether the store had all objects of the kind at some time, and has followed their changes since."""
        return self._listed

    # --- freshness: see `Freshness` -----------------------------------------------------------------------------------

    async def newest(self, *, patience: float) -> answers.Page:
        """The first objects of the kind, by a consistent read. All of them, if the store has few."""
        few = len(self._store) <= FEW
        most = 2 * FEW if few else 1
        pages = self._pages(self._namespace, page_size=most, first=most, patience=patience)
        found = await pages.next()
        assert found is not None
        return found[1]

    async def take_all(self, page: answers.Page) -> None:
        """Store a page that has all objects of the kind, beside the watch."""
        initial: Initial[T] = Initial()
        version = page.metadata.resource_version
        with self._store.remembering():
            await in_slices(self._intake.take_page(initial, page))
            await in_slices(self._store.replacing(initial.found, resource_version=version))
        self.position = max(self.position, answers.number(version))

    def hurry(self) -> None:
        """Resume the watch with a short end, unless that has happened or a full read is under way."""
        if self._short or self._stream is None or self._initial is not None:
            return
        self._short, self._short_streams = SHORT_TIMEOUT, 0
        self._interrupt(self._stream)

    def read_all(self) -> None:
        """Read all objects once more, as soon as the present full read, if there is one, has ended."""
        self._to_read_all = True
        if self._stream is not None and self._initial is None:
            self._interrupt(self._stream)

    def _interrupt(self, stream: asyncio.Timeout) -> None:
        if not stream.expired():
            self._cut = True
            stream.reschedule(asyncio.get_running_loop().time())

    def settled(self) -> None:
        """Mark the store complete if all objects were read and nothing says that they are stale."""
        if self._listed and self.freshness.shown:
            self._store.believe()

    def doubt(self) -> None:
        """Mark the store incomplete until the next full read."""
        self._listed = False
        self._store.doubt()

    def doubt_freshness(self) -> None:
        """Mark the store incomplete until `Freshness.show` has shown that it is fresh."""
        self.freshness.doubt()
        self._store.doubt()

    # --- reads beside the watch ---------------------------------------------------------------------------------------

    async def read_again(self, namespace: str, *, anew: bool) -> None:
        """Read the objects of a namespace once more, and hold of each what `keep` decides now.

        Deletions are left to the watch. Raises WireError and ApiError; the next call goes on where this one failed,
        unless it begins `anew`.
        """
        if anew or namespace not in self._pages_again:
            self._pages_again[namespace] = self._pages(namespace)
        pages = self._pages_again[namespace]
        with self._store.remembering():
            while (found := await pages.next()) is not None:
                await in_slices(self._intake.take_again(found[1]))
                del found
        del self._pages_again[namespace]

    async def forget(self) -> None:
        """Empty the store because the server has no such kind any more. The next `run` begins with a full read."""
        self._version, self._listing = "", None
        self.synced.clear()
        await self._intake.clear()
        self.error = None
        self._store.followed = self._listed = True
        self.freshness.release()
        self.tried.set()

    def failed(self, error: WireError | ApiError) -> None:
        """Record that the kind cannot be watched at the moment, with the error that `run` raised."""
        self._failed(error, 0)

    def _failed(self, error: WireError | ApiError, attempt: int) -> None:
        self.failures += 1
        known = self.error is not None and str(self.error) == str(error)
        log = _log.debug if known else _log.warning  # warn once of an error that persists
        log("reflector.stream_failed", kind=self._kind.KIND, error=str(error), attempt=attempt)
        self.error = error
        self._store.followed = False
        now = asyncio.get_running_loop().time()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= self._patience:
            self.tried.set()

    def _answered(self) -> None:
        """Clear the error: the server has begun to answer a watch."""
        self._opened = True
        if self.synced.is_set():
            self.error = None
            self._store.followed = True

    @property
    def _path(self) -> str:
        return self._transport.collection_path(self._kind, self._namespace, version=self._decoding.served)

    async def _settle_version(self) -> None:
        """Choose the first version of the kind that the server has, and its plural if that is not known. Raises
        NotServed if the server has none."""
        await self._transport.find_plural(self._kind)
        if len(self._kind.VERSIONS) < 2:
            return
        version = await self._transport.find_version(self._kind, self._namespace)
        if version != self._decoding.served:
            self._decoding.serve(version)
            self._version, self._intake.again, self._listing = "", True, None

    async def _follow(self) -> None:
        """Read one stream until the server ends it cleanly."""
        await self._settle_version()
        if self._to_read_all or self._decoding.undecodable > self._undecodable_before:
            self._version, self._to_read_all = "", False
        if not self._version:
            self._short = 0
        params: dict[str, str | int] = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": self._short or int(self._server_timeout * (1.0 + 0.1 * self._jitter())),
        }
        if not self._version and (self._by_pages or not self._streaming_list):
            await self._list()
        if self._version and self._broken:
            if await self._went_back():
                self._version, self._broken = "", False
                await self._follow()
                return
            self._broken = False
        if self._version:
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
        except (WireError, ServerError, TooManyRequests):
            self._by_pages = self._initial is not None  # such a read can go on where it failed
            raise
        finally:
            self._initial = None

    async def _went_back(self) -> bool:
        """Whether the server's newest version is lower than one that was seen."""
        pages = self._pages(self._namespace, page_size=1, first=1)
        found = await pages.next()
        number = answers.number(found[1].metadata.resource_version) if found is not None else 0
        return 0 < number < self.position

    async def _read(self, params: Params) -> None:
        """Send one watch request and process its lines."""
        self._bookmarked = self._cut = False
        loop = asyncio.get_running_loop()
        began, in_time, self._opened = loop.time(), False, False
        stream = self._transport.watch(
            self._path,
            params=params,
            idle_timeout=self._idle_timeout,
            metadata_only=self._metadata_only,
            on_answer=self._answered,
        )
        # A server that sends a byte now and then is never idle: the requested timeout bounds the whole stream.
        limit = 2 * self._short + 10.0 if self._short else self._server_timeout * 1.1 + self._idle_timeout
        if self._initial is not None:
            limit = self._sync_timeout
        try:
            async with asyncio.timeout(limit) as deadline, contextlib.aclosing(stream) as lines:
                self._stream, moved = deadline, loop.time()
                async for line in lines:
                    self.last_contact = loop.time()
                    ended = self._take(line)
                    if self._initial is None:
                        continue
                    if ended:
                        deadline.reschedule(None)  # no timeout while the store is updated
                        await self._complete(self._initial)
                        self._initial = None
                        deadline.reschedule(loop.time() + self._server_timeout * 1.1 + self._idle_timeout)
                    elif self.last_contact - moved > 0.1 * self._sync_timeout:
                        moved = self.last_contact
                        deadline.reschedule(moved + self._sync_timeout)
            self.last_contact = loop.time()
            in_time = self.last_contact - began >= 0.9 * float(params["timeoutSeconds"])
        except TimeoutError:
            if self._cut:
                in_time = True
                return
            if self._initial is not None:
                # A server that does not know sendInitialEvents ignores it and never marks the end of initial events.
                self._streaming_list = False
                raise RequestTimeout(f"WATCH {self._path}: nothing more after {limit:g} s") from None
            raise RequestTimeout(f"WATCH {self._path}: not done after {limit:g} s") from None
        finally:
            self._stream = None
            self._broken |= self._opened and not in_time

    def _take(self, line: bytes) -> bool:
        """Process one line; return True if it marks the end of the initial events."""
        try:
            event = answers.decode_event(line)
            match event.type:
                case "ADDED" | "MODIFIED":
                    if self._initial is not None:
                        version = self._intake.take_initial(self._initial, event.object)
                    else:
                        version = self._intake.take(event.object)
                case "DELETED":
                    version = self._intake.delete(answers.decode_header(event.object), self._initial)
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
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            # Not an event: something other than the API server answers. Skipping the line might skip a change.
            raise ConnectionLost(f"WATCH {self._path}: {line[:200]!r} is no event: {error}") from error
        self.events += 1
        if self._initial is None:
            self._advance(version)
        return False

    def _advance(self, version: str) -> None:
        """Record that all changes up to that version are processed."""
        if version:
            self._version = version
            self.position = max(self.position, answers.number(version))
            self.freshness.advanced()

    async def _list(self) -> None:
        """Read all objects page by page, before a watch. A call after a failure goes on at the page that failed."""
        if self._listing is None:
            self._listing = Listing(self._pages(self._namespace), self._intake, self._heard_page)
        initial = await self._listing.finish()
        self._listing = None
        await self._complete(initial)

    def _heard_page(self) -> None:
        self.pages += 1
        self.last_contact = asyncio.get_running_loop().time()

    def _pages(
        self, namespace: str, *, page_size: int = 0, first: int = FIRST_PAGE, patience: float = PATIENCE
    ) -> Pages:
        path = self._transport.collection_path(self._kind, namespace, version=self._decoding.served)
        return self._transport.pages(
            path,
            params=self._params,
            page_size=page_size or self._page_size,
            first=first,
            metadata_only=self._metadata_only,
            patience=patience,
        )

    async def _complete(self, initial: Initial[T]) -> None:
        """End a full read: apply its difference to the store, and continue from its version."""
        rewound = answers.number(initial.version) < self.position
        await self._intake.complete(initial, rewound=rewound)
        self._by_pages = self._broken = False
        self._undecodable_before = self._decoding.undecodable
        self.relisted += 1
        self.error = None
        self._store.followed = self._listed = True
        self.synced.set()
        self.tried.set()
        if rewound:
            self.position = 0
        self._advance(initial.version)
        self.freshness.advanced()
        self.settled()


def _error_event(body: msgspec.Raw) -> ApiError:
    """The error of an ERROR event: a Status sent inside a watch that was answered with 200."""
    status = answers.parse_status(bytes(body))
    return answers.error(status.code if status and status.code else 500, bytes(body))
