"""The one way to the API server: requests with deadlines and retries by the book, and watches line by line.

Built on aiohttp alone, with a session for watches and one for the rest so that neither starves the other. Every call
has a deadline that covers its retries. What is sent again is only what may be: reads, deletions, writes that say
which version they are for, server-side apply, and what was certainly never executed (refused connection, 429). A
conflict goes to the caller. It has no rate of its own; `pressure` tells callers when housekeeping should wait. Never
parses what it need not.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
import yarl

from app.api import names
from app.api.errors import ApiError, ConnectionLost, Expired, RequestTimeout, Silent, Unauthorized
from app.api.meta import Kind
from app.kube import answers, auth
from app.kube.backoff import Backoff, Jitter
from app.kube.load import Load, Stats
from app.kube.retries import CONTENT_TYPES, NeverSent, PatchType, Untrusted, may_repeat
from app.kube.sealed import Sealed
from app.kube.sockets import abandoned, watchful_socket

T = TypeVar("T", bound=Kind)
Retry = Literal["auto", "always", "never"]
Propagation = Literal["Background", "Foreground", "Orphan"]
Params = Mapping[str, str | int]
Guard = Callable[[], None]
"""Raises if a request may not go out."""

TIMEOUT = 10.0
"""Seconds for a call with all its retries, unless the caller says otherwise."""
CONNECT_TIMEOUT = 5.0
BACKOFF = Backoff(first=0.1, limit=2.0)
IN_FLIGHT = 64
"""Calls at once; what is above waits here instead of in the server's queues."""
PAGE_SIZE = 500
LINE_LIMIT = 8 * 2**20
"""Bytes of a watch line. etcd takes objects up to 1.5 MiB; whatever is longer than this is no event."""

_READ_BUFFER = 2**21
_KEEPALIVE = 60.0  # the server closes idle connections after 90 s: be the one that closes first
_YIELD_AFTER = 64  # lines handed out before other tasks get the loop


class Transport:
    """A client of one API server under one identity. Belongs to the event loop it was made in; close it there.

    Every method raises errors of `app.api.errors`: an ApiError for what the server answered, ConnectionLost and
    RequestTimeout when it is unknown whether the request took effect.
    """

    def __init__(
        self,
        access: auth.Access,
        *,
        user_agent: str = names.FIELD_MANAGER,
        timeout: float = TIMEOUT,
        in_flight: int = IN_FLIGHT,
        backoff: Backoff = BACKOFF,
        jitter: Jitter = random.random,
        stats: Stats | None = None,
    ) -> None:
        self._access = access
        self._user_agent = user_agent
        self._timeout = timeout
        self._backoff = backoff
        self._jitter = jitter
        self._loop = asyncio.get_running_loop()
        self._slots = asyncio.Semaphore(in_flight)
        self._refreshing = asyncio.Lock()
        self._generation = 0
        self._retired: list[aiohttp.ClientSession] = []
        self._calls, self._watches = self._open(), self._open()
        self.stats = stats if stats is not None else Stats()
        self.load = Load(self._loop.time)

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None, **options: Any) -> Self:
        """Find server and identity as `auth.connect` does; `options` as for the class. Sends nothing yet."""
        return cls(await auth.connect(kubeconfig, context), **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections; watches in progress fail with ConnectionLost."""
        for session in (self._calls, self._watches, *self._retired):
            await session.close()

    @property
    def server(self) -> str:
        """URL of the API server, without a slash at its end."""
        return self._access.server

    @property
    def pressure(self) -> float:
        """How hard the server works, from 0 (idle) to 1 (it sheds load, or all our slots are taken): see `Load`."""
        return 1.0 if self._slots.locked() else self.load.pressure

    # --- requests -----------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout: float | None = None,
        retry: Retry = "auto",
        urgent: bool = False,
        guard: Guard | None = None,
    ) -> bytes:
        """The body of the answer to one call.

        `timeout` is in seconds and covers everything, retries and waiting for a slot included. `retry="always"` says
        that sending twice does no harm, `"never"` allows one attempt. `urgent` calls (a Lease) do not queue behind
        the others. `guard` is asked before each attempt's body is written to its connection, with nothing awaited in
        between; what it raises ends the call, and nothing of that attempt was sent.
        """
        limit = self._timeout if timeout is None else timeout
        deadline = self._loop.time() + limit
        try:
            async with asyncio.timeout_at(deadline):
                if urgent:
                    return await self._attempts(method, path, params, body, content_type, deadline, retry, guard)
                async with self._slots:
                    return await self._attempts(method, path, params, body, content_type, deadline, retry, guard)
        except TimeoutError:
            self.stats.requests[method, "timeout"] += 1
            self.load.answered(limit)
            raise RequestTimeout(f"{method} {path}: no answer within {limit:g} s") from None

    async def _attempts(
        self,
        method: str,
        path: str,
        params: Params | None,
        body: bytes | None,
        content_type: str,
        deadline: float,
        retry: Retry,
        guard: Guard | None,
    ) -> bytes:
        """Send until there is an answer to hand on; wait only if the deadline leaves room for another attempt."""
        url = self._url(path, params)
        attempt = 0
        refreshed = False
        while True:
            generation = self._generation
            try:
                return await self._send(method, path, url, body, content_type, guard)
            except Unauthorized:
                if refreshed:
                    raise
                refreshed = True
                await self._refresh(generation)
                continue
            except (ApiError, ConnectionLost) as error:
                if retry == "never" or not may_repeat(error, method, body, content_type, always=retry == "always"):
                    raise
                delay = self._backoff.delay(attempt, self._jitter)
                if isinstance(error, ApiError) and error.retry_after is not None:
                    # Everybody was told the same number: come back a little apart, and never at once.
                    delay = max(delay, error.retry_after + 0.1 * self._jitter())
                if self._loop.time() + delay >= deadline:
                    raise
                self.stats.retries[method, str(error.code) if isinstance(error, ApiError) else "lost"] += 1
            attempt += 1
            await asyncio.sleep(delay)

    async def _send(
        self, method: str, path: str, url: yarl.URL, body: bytes | None, content_type: str, guard: Guard | None
    ) -> bytes:
        """One attempt."""
        started = self._loop.time()
        outcome = "lost"
        sealed = Sealed(body, guard) if guard is not None and body is not None else None
        try:
            async with self._calls.request(
                method,
                url,
                data=body if sealed is None else sealed,
                headers=self._headers(content_type if body is not None else None),
                allow_redirects=False,
                proxy=self._access.proxy,
                server_hostname=self._access.server_name,
            ) as response:
                with abandoned(response):
                    answer = await response.read()
                outcome = str(response.status)
                if response.status < 300:
                    self.load.answered(self._loop.time() - started)
                    return answer
                raise self._refused(response, answer)
        except asyncio.CancelledError:
            outcome = ""  # the call's deadline, counted there, or the caller went away
            raise
        except aiohttp.ClientConnectorCertificateError as error:
            raise Untrusted(f"{method} {path}: {error}") from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NeverSent(f"{method} {path}: {_reason(error)}") from error
        except (aiohttp.ClientError, OSError) as error:
            if sealed is not None and sealed.refusal is not None:
                outcome = "withheld"
                raise sealed.refusal from None
            raise ConnectionLost(f"{method} {path}: {_reason(error)}") from error
        finally:
            if outcome:
                self.stats.requests[method, outcome] += 1
            self.stats.seconds[method] += self._loop.time() - started

    def _refused(self, response: aiohttp.ClientResponse, body: bytes) -> ApiError:
        error = answers.error(response.status, body, response.headers)
        if response.status == 429 or (response.status == 503 and error.retry_after is not None):
            self.load.shed(error.retry_after)
        return error

    async def _refresh(self, generation: int) -> None:
        """Get credentials anew, once for all the calls that were refused with the same ones."""
        async with self._refreshing:
            if generation != self._generation:
                return
            if await self._access.credentials.refresh(self._access.tls):
                # Open connections keep the identity they were made with. What is in flight on them may end; what is
                # still open when the identity changes again is cut.
                for session in self._retired:
                    await session.close()
                self._retired = [self._calls, self._watches]
                self._calls, self._watches = self._open(), self._open()
            self._generation += 1

    # --- watches ------------------------------------------------------------------------------------------------------

    async def stream(
        self, path: str, *, params: Params | None = None, idle_timeout: float
    ) -> AsyncGenerator[bytes, None]:
        """The lines of one long answer, without their line ends, until the server closes it cleanly.

        Raises an ApiError if the server refuses, RequestTimeout if it does not answer within `idle_timeout` seconds,
        Silent after so many without a byte from then on, ConnectionLost if the connection is cut (in mid-line too) or
        the answer is no JSON. Close the iterator (`contextlib.aclosing`).
        """
        url = self._url(path, params)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=idle_timeout)
        self.stats.streams += 1
        for last in (False, True):
            generation = self._generation
            try:
                async with contextlib.aclosing(self._lines(path, url, timeout)) as lines:
                    async for line in lines:
                        yield line
            except Unauthorized:
                if last:
                    raise
                await self._refresh(generation)
            except TimeoutError:
                raise RequestTimeout(f"WATCH {path}: no answer within {idle_timeout:g} s") from None
            except (aiohttp.ClientError, OSError) as error:
                raise ConnectionLost(f"WATCH {path}: {_reason(error)}") from error
            else:
                return

    async def _lines(self, path: str, url: yarl.URL, timeout: aiohttp.ClientTimeout) -> AsyncGenerator[bytes, None]:
        opened = self._watches.get(
            url,
            headers=self._headers(None),
            timeout=timeout,
            allow_redirects=False,
            proxy=self._access.proxy,
            server_hostname=self._access.server_name,
        )
        async with opened as response:
            with abandoned(response):
                self.stats.requests["WATCH", str(response.status)] += 1
                if response.status != 200:
                    raise self._refused(response, await response.content.read(2**16))
                if response.content_type != "application/json":
                    body = await response.content.read(2**16)
                    raise ConnectionLost(f"WATCH {path}: answered {response.content_type}, not JSON: {body[:200]!r}")
                rest = b""
                given = 0
                while chunk := await self._heard(response, path, timeout):
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if line:
                            yield line
                            given += 1
                            if given % _YIELD_AFTER == 0:
                                await asyncio.sleep(0)
                    if len(rest) > LINE_LIMIT:
                        raise ConnectionLost(f"WATCH {path}: a line of more than {LINE_LIMIT} bytes")
                if rest:
                    raise ConnectionLost(f"WATCH {path}: cut in mid-line")

    @staticmethod
    async def _heard(response: aiohttp.ClientResponse, path: str, timeout: aiohttp.ClientTimeout) -> bytes:
        try:
            return await response.content.readany()
        except TimeoutError:
            raise Silent(f"WATCH {path}: silent for {timeout.sock_read:g} s") from None

    # --- objects ------------------------------------------------------------------------------------------------------

    async def get(self, kind: type[T], name: str, namespace: str = "", *, timeout: float | None = None) -> T:
        """Read one object."""
        answer = await self.request("GET", kind.path(name, namespace), timeout=timeout)
        return answers.decoder(kind)(answer)

    async def list_all(
        self, kind: type[T], namespace: str = "", *, params: Params | None = None, timeout: float | None = None
    ) -> list[T]:
        """Read all objects of a kind, in all namespaces if none is given. `timeout` is for a page."""
        items, _ = await self.list_raw(kind.collection_path(namespace), params=params, timeout=timeout)
        decode = answers.decoder(kind)
        return [decode(item) for item in items]

    async def list_raw(
        self,
        path: str,
        *,
        params: Params | None = None,
        page_size: int = PAGE_SIZE,
        timeout: float | None = None,
    ) -> tuple[list[msgspec.Raw], str]:
        """The items of a collection as bytes, and the resource version they are of.

        Read in pages of one snapshot. If the snapshot expires on the way (410), all is read again in one piece, as
        half of an old list and half of a new one would hide changes.
        """
        query = dict(params or {})
        query["limit"] = page_size
        items: list[msgspec.Raw] = []
        while True:
            try:
                page = answers.decode_page(await self.request("GET", path, params=query, timeout=timeout))
            except Expired:
                if "continue" not in query:
                    raise
                del query["continue"], query["limit"]
                items = []
                continue
            except msgspec.DecodeError as error:
                raise ConnectionLost(f"GET {path}: the answer is no list: {error}") from error
            items += page.items or []
            if not page.metadata.continue_:
                return items, page.metadata.resource_version
            query["continue"] = page.metadata.continue_

    async def create(
        self,
        kind: type[T],
        namespace: str,
        body: object,
        *,
        dry_run: bool = False,
        timeout: float | None = None,
        retry: Retry = "auto",
        guard: Guard | None = None,
    ) -> T:
        """Create an object from bytes, a struct or plain values. ConnectionLost means: read whether it is there."""
        answer = await self.request(
            "POST",
            kind.collection_path(namespace),
            params=_write_params(dry_run=dry_run),
            body=answers.encode(body),
            timeout=timeout,
            retry=retry,
            guard=guard,
        )
        return answers.decoder(kind)(answer)

    async def update(
        self,
        kind: type[T],
        name: str,
        namespace: str,
        body: object,
        *,
        subresource: str = "",
        dry_run: bool = False,
        timeout: float | None = None,
        retry: Retry = "auto",
        urgent: bool = False,
    ) -> T:
        """Replace an object; with a resourceVersion in the body a stale one is refused."""
        answer = await self.request(
            "PUT",
            _path(kind, name, namespace, subresource),
            params=_write_params(dry_run=dry_run),
            body=answers.encode(body),
            timeout=timeout,
            retry=retry,
            urgent=urgent,
        )
        return answers.decoder(kind)(answer)

    async def patch(
        self,
        kind: type[T],
        name: str,
        namespace: str,
        body: object,
        *,
        type: PatchType = "merge",  # noqa: A002  the word kubectl uses
        subresource: str = "",
        force: bool = True,
        dry_run: bool = False,
        timeout: float | None = None,
        retry: Retry = "auto",
        guard: Guard | None = None,
    ) -> T:
        """Change an object. `type="apply"` is server-side apply as our one field manager; `force` takes fields over."""
        params = _write_params(dry_run=dry_run)
        if type == "apply":
            params["force"] = "true" if force else "false"
        answer = await self.request(
            "PATCH",
            _path(kind, name, namespace, subresource),
            params=params,
            body=answers.encode(body),
            content_type=CONTENT_TYPES[type],
            timeout=timeout,
            retry=retry,
            guard=guard,
        )
        return answers.decoder(kind)(answer)

    async def delete(
        self,
        kind: type[Kind],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Background",
        dry_run: bool = False,
        timeout: float | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Delete an object, if it still has that uid and version. Raises NotFound when it is gone, Conflict when it is
        another.
        """
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if given := {name: value for name, value in preconditions.items() if value}:
            body["preconditions"] = given
        if dry_run:
            body["dryRun"] = ["All"]
        await self.request(
            "DELETE", kind.path(name, namespace), body=answers.encode(body), timeout=timeout, guard=guard
        )

    # --- parts --------------------------------------------------------------------------------------------------------

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,  # calls are bounded by slots, watches by how many reflectors there are
            ssl=self._access.tls if self._access.tls is not None else True,
            keepalive_timeout=_KEEPALIVE,
            socket_factory=watchful_socket,
        )
        return aiohttp.ClientSession(
            connector=connector,
            trust_env=False,  # else proxy variables and netrc are read for every request, at half its cost
            read_bufsize=_READ_BUFFER,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    def _headers(self, content_type: str | None) -> list[tuple[str, str]]:
        # No compression: the server would pay for it in CPU, and it is the server's CPU that is scarce.
        headers = [("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", self._user_agent)]
        if authorization := self._access.credentials.authorization():
            headers.append(("Authorization", authorization))
        if content_type is not None:
            headers.append(("Content-Type", content_type))
        headers.extend(self._access.headers)
        return headers

    def _url(self, path: str, params: Params | None) -> yarl.URL:
        # A name that came from a label or a user must not become another path or a query.
        query = f"?{urlencode(params)}" if params else ""
        return yarl.URL(f"{self._access.server}{quote(path, safe='/:')}{query}", encoded=True)


def _path(kind: type[Kind], name: str, namespace: str, subresource: str) -> str:
    path = kind.path(name, namespace)
    return f"{path}/{subresource}" if subresource else path


def _write_params(*, dry_run: bool) -> dict[str, str | int]:
    params: dict[str, str | int] = {"fieldManager": names.FIELD_MANAGER}
    if dry_run:
        params["dryRun"] = "All"
    return params


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
