"""Sends requests to the API server, with deadlines and safe retries, and reads watches line by line.

Built on aiohttp alone, with one session for watches and one for requests so that neither starves the other. Every
request has a deadline that covers its retries. Only these requests are sent again: reads, deletions, writes that name
their resourceVersion, server-side apply, and requests that were certainly never executed (refused connection, 429). A
conflict is raised to the caller. There is no rate limit: writes take turns at the `gate`, whose window follows the
latencies measured here. Never looks into a body: that is the task of `transport`.
"""

import asyncio
import contextlib
import random
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import quote, urlencode

import aiohttp
import yarl

from turnstile.api import names
from turnstile.api.errors import ApiError, ConnectionLost, RequestTimeout, Silent, Unauthorized
from turnstile.kube import answers, auth
from turnstile.kube.backoff import Backoff, Jitter
from turnstile.kube.gate import Gate
from turnstile.kube.retries import NeverSent, Untrusted, may_repeat
from turnstile.kube.sealed import Sealed
from turnstile.kube.slices import Slice
from turnstile.kube.sockets import abandoned, watchful_socket

Retry = Literal["auto", "always", "never"]
Params = Mapping[str, str | int]
Repeated = Mapping[str, tuple[str, ...]]
"""Parameters of which each may be given several times."""
Guard = Callable[[], None]
Within = Callable[[], float]
"""Seconds from now after which a write must not take effect any more."""
"""Raises if a request must not be sent."""

TIMEOUT = 10.0
"""Seconds for a request with all its retries, while the server is not slow."""
CONNECT_TIMEOUT = 5.0
BACKOFF = Backoff(first=0.1, limit=2.0)
JSON = "application/json"
ANY = "*/*"
"""The media type of a log in a request: the API server answers 406 to one for text alone, though it sends text."""
LINE_LIMIT = 8 * 2**20
"""Maximum bytes of a watch line. etcd stores objects of up to 1.5 MiB; a longer line cannot be an event."""

_CALL_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)
"""The deadline of a request is kept by `request` itself."""
_CALL_BUFFER = 2**21
_WATCH_BUFFER = 2**16  # a full buffer is split into lines at once, which blocks the event loop
_KEEPALIVE = 60.0  # less than the 90 s of the server, so that the client closes idle connections first


DURATIONS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Limits in seconds by which durations of attempts are counted: those of client-go."""


@dataclass(slots=True)
class Stats:
    """Counts since start, for `turnstile.process.metrics`. Outcome: HTTP status, `timeout`, `lost` or `withheld`."""

    requests: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Attempts by (verb, outcome)."""
    retries: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Repeated attempts by (verb, outcome of the previous attempt)."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Seconds spent in attempts, by verb, without the waits between attempts."""
    durations: defaultdict[str, list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0] * (len(DURATIONS) + 1))
    )
    """How many attempts lasted at most each of `DURATIONS`, but longer than the one before, by verb."""
    streams: int = 0
    """Watches opened."""

    def lasted(self, verb: str, seconds: float) -> None:
        """Count the duration of an attempt."""
        self.seconds[verb] += seconds
        self.durations[verb][bisect_left(DURATIONS, seconds)] += 1


class Wire:
    """A client of one API server under one identity. Belongs to the event loop in which it was created; close it there.

    Every method raises errors of `turnstile.api.errors`: an ApiError for what the server answered, ConnectionLost and
    RequestTimeout when it is unknown whether the request took effect.
    """

    def __init__(
        self,
        access: auth.Access,
        *,
        user_agent: str = names.FIELD_MANAGER,
        timeout: float = TIMEOUT,
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
        self._refreshing = asyncio.Lock()
        self._generation = 0
        self._retired: list[aiohttp.ClientSession] = []
        self._calls, self._watches = self._open(_CALL_BUFFER), self._open(_WATCH_BUFFER)
        self.stats = stats if stats is not None else Stats()
        self.gate = Gate(self._loop.time)
        """Where writes wait for their turn."""

    @classmethod
    async def connect(cls, kubeconfig: str | None = None, context: str | None = None, **options: Any) -> Self:
        """Create a client with server and identity of `auth.connect`; `options` as for the class. Sends nothing."""
        return cls(await auth.connect(kubeconfig, context), **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; open watches raise ConnectionLost."""
        for session in (self._calls, self._watches, *self._retired):
            await session.close()

    @property
    def server(self) -> str:
        """URL of the API server, without a trailing slash."""
        return self._access.server

    # --- requests -----------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Params | Repeated | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,
        retry: Retry = "auto",
        guard: Guard | None = None,
        within: Within | None = None,
        write: str = "",
    ) -> bytes:
        """Send one request and return the body of its answer.

        `timeout` is in seconds and includes retries; by default it is longer while the server is slow, so that no
        request is cut and repeated while the server works on it. `retry="always"` states that sending twice does no
        harm, `"never"` allows one attempt. `guard` is called right before each attempt's body is written to its
        connection, with nothing awaited in between; an error of the guard ends the request, and nothing of that attempt
        is sent. `within` is asked before each attempt: the server gives the attempt up if it could not carry it out so
        many seconds after its arrival. `accept` is the Accept header. `write` names what kind of write this is: the
        gate learns from its latency; the caller has a turn.
        """
        limit = self.gate.window.deadline(self._timeout) if timeout is None else timeout
        deadline = self._loop.time() + limit
        try:
            async with asyncio.timeout_at(deadline):
                return await self._attempts(
                    method, path, params, body, content_type, accept, deadline, retry, guard, within, write
                )
        except TimeoutError:
            self.stats.requests[method, "timeout"] += 1
            if write:
                self.gate.answered(write, limit, done=False)
            raise RequestTimeout(f"{method} {path}: no answer within {limit:g} s") from None

    async def read(self, path: str, *, params: Params | None = None, accept: str = JSON, patience: float) -> bytes:
        """Read one large answer, in one attempt, for as long as it makes progress: there is no limit in total, but one
        of `patience` seconds for the next byte. The caller reads again what failed. Raises as `request`.
        """
        url = self._url(path, params)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=patience)
        generation = self._generation
        try:
            return await self._send("GET", path, url, None, JSON, accept, None, timeout=timeout)
        except Unauthorized:
            await self._refresh(generation)
            return await self._send("GET", path, url, None, JSON, accept, None, timeout=timeout)

    async def _attempts(
        self,
        method: str,
        path: str,
        params: Params | Repeated | None,
        body: bytes | None,
        content_type: str,
        accept: str,
        deadline: float,
        retry: Retry,
        guard: Guard | None,
        within: Within | None,
        write: str,
    ) -> bytes:
        """Send until an answer or an error is final; wait only if the deadline leaves time for another attempt."""
        target = self._target(path, params)
        attempt = 0
        refreshed = False
        while True:
            generation = self._generation
            limit = f"{'&' if params else '?'}timeout={max(1, int(1000 * within()))}ms" if within is not None else ""
            url = yarl.URL(target + limit, encoded=True)
            try:
                return await self._send(method, path, url, body, content_type, accept, guard, write)
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
                    # All clients got the same Retry-After: jitter spreads their retries.
                    delay = max(delay, error.retry_after + 0.1 * self._jitter())
                if self._loop.time() + delay >= deadline:
                    raise
                self.stats.retries[method, str(error.code) if isinstance(error, ApiError) else "lost"] += 1
            attempt += 1
            await asyncio.sleep(delay)

    async def _send(
        self,
        method: str,
        path: str,
        url: yarl.URL,
        body: bytes | None,
        content_type: str,
        accept: str,
        guard: Guard | None,
        write: str = "",
        *,
        timeout: aiohttp.ClientTimeout = _CALL_TIMEOUT,
    ) -> bytes:
        """Make one attempt."""
        started = self._loop.time()
        outcome = "lost"
        sealed = Sealed(body, guard) if guard is not None and body is not None else None
        try:
            async with self._calls.request(
                method,
                url,
                data=body if sealed is None else sealed,
                headers=self._headers(content_type if body is not None else None, accept=accept),
                timeout=timeout,
                allow_redirects=False,
                proxy=self._access.proxy,
                server_hostname=self._access.server_name,
            ) as response:
                with abandoned(response):
                    answer = await response.read()
                outcome = str(response.status)
                if response.status < 300:
                    if write:
                        self.gate.answered(write, self._loop.time() - started)
                    return answer
                if write and response.status >= 500:
                    self.gate.answered(write, self._loop.time() - started, done=False)
                raise self._refused(response, answer, path)
        except asyncio.CancelledError:
            outcome = ""  # the deadline, counted in `request`, or the caller was cancelled
            raise
        except aiohttp.ClientConnectorCertificateError as error:
            raise Untrusted(f"{method} {path}: {error}") from _released(error)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NeverSent(f"{method} {path}: {_reason(error)}") from _released(error)
        except aiohttp.SocketTimeoutError as error:
            outcome = "timeout"
            raise RequestTimeout(f"{method} {path}: no byte within {timeout.sock_read:g} s") from _released(error)
        except (aiohttp.ClientError, OSError) as error:
            if sealed is not None and sealed.refusal is not None:
                outcome = "withheld"
                raise sealed.withheld(_released(error)) from None
            raise ConnectionLost(f"{method} {path}: {_reason(error)}") from _released(error)
        finally:
            if outcome:
                self.stats.requests[method, outcome] += 1
            self.stats.lasted(method, self._loop.time() - started)

    def _refused(self, response: aiohttp.ClientResponse, body: bytes, path: str) -> ApiError:
        error = answers.error(response.status, body, response.headers, path=path)
        if response.status == 429 or (response.status == 503 and error.retry_after is not None):
            self.gate.window.refused(error.retry_after)
        return error

    async def _refresh(self, generation: int) -> None:
        """Renew the credentials, once for all requests that were refused with the same credentials."""
        async with self._refreshing:
            if generation != self._generation:
                return
            if await self._access.credentials.refresh(self._access.tls):
                # Open connections keep their TLS identity. Requests in flight on them may finish; connections still
                # open at the next change of identity are closed.
                for session in self._retired:
                    await session.close()
                self._retired = [self._calls, self._watches]
                self._calls, self._watches = self._open(_CALL_BUFFER), self._open(_WATCH_BUFFER)
            self._generation += 1

    # --- watches ------------------------------------------------------------------------------------------------------

    async def stream(
        self,
        path: str,
        *,
        params: Params | None = None,
        idle_timeout: float,
        accept: str = JSON,
        on_answer: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[bytes, None]:
        """The lines of one streamed answer, without line ends, until the server closes the stream cleanly.

        `on_answer` is called when the headers of the answer arrive, which may be long before the first line.

        Raises an ApiError if the server refuses, RequestTimeout if it does not answer within `idle_timeout` seconds,
        Silent after `idle_timeout` seconds without a byte later, ConnectionLost if the connection is cut (in mid-line
        too) or the answer is not JSON. Close the iterator (`contextlib.aclosing`).
        """
        turn = Slice()
        pieces = self.pieces(
            path, params=params, idle_timeout=idle_timeout, accept=accept, on_answer=on_answer, turn=turn
        )
        lines = _lines(pieces, path, turn)
        async with contextlib.aclosing(pieces), contextlib.aclosing(lines):
            async for line in lines:
                yield line

    async def pieces(
        self,
        path: str,
        *,
        params: Params | None = None,
        idle_timeout: float,
        accept: str = JSON,
        on_answer: Callable[[], None] = lambda: None,
        turn: Slice | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of one streamed answer as they arrive, however long its lines are. Otherwise as `stream`; `turn`
        begins anew when bytes had to be waited for."""
        url = self._url(path, params)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=idle_timeout)
        self.stats.streams += 1
        for last in (False, True):
            generation = self._generation
            try:
                received = self._received(path, url, timeout, accept, on_answer, turn or Slice())
                async with contextlib.aclosing(received):
                    async for piece in received:
                        yield piece
            except Unauthorized:
                if last:
                    raise
                await self._refresh(generation)
            except TimeoutError:
                raise RequestTimeout(f"WATCH {path}: no answer within {idle_timeout:g} s") from None
            except (aiohttp.ClientError, OSError) as error:
                raise ConnectionLost(f"WATCH {path}: {_reason(error)}") from _released(error)
            else:
                return

    async def _received(
        self,
        path: str,
        url: yarl.URL,
        timeout: aiohttp.ClientTimeout,
        accept: str,
        on_answer: Callable[[], None],
        turn: Slice,
    ) -> AsyncGenerator[bytes, None]:
        opened = self._watches.get(
            url,
            headers=self._headers(None, accept=accept),
            timeout=timeout,
            allow_redirects=False,
            proxy=self._access.proxy,
            server_hostname=self._access.server_name,
        )
        async with opened as response:
            with abandoned(response):
                self.stats.requests["WATCH", str(response.status)] += 1
                if response.status != 200:
                    raise self._refused(response, await response.content.read(2**16), path)
                if accept.startswith(JSON) and response.content_type != JSON:
                    body = await response.content.read(2**16)
                    raise ConnectionLost(f"WATCH {path}: answered {response.content_type}, not JSON: {body[:200]!r}")
                on_answer()
                while chunk := await self._heard(response, path, timeout, turn):
                    yield chunk

    @staticmethod
    async def _heard(response: aiohttp.ClientResponse, path: str, timeout: aiohttp.ClientTimeout, turn: Slice) -> bytes:
        """The bytes received; empty at the end of the answer. Begins a new slice if it had to wait."""
        try:
            if chunk := response.content.read_nowait():
                return chunk
            chunk = await response.content.readany()
        except TimeoutError:
            raise Silent(f"WATCH {path}: silent for {timeout.sock_read:g} s") from None
        turn.begin()
        return chunk

    # --- parts --------------------------------------------------------------------------------------------------------

    def _open(self, buffer: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,  # writes are limited by the gate, reads and watches by the number of their tasks
            ssl=self._access.tls if self._access.tls is not None else True,
            keepalive_timeout=_KEEPALIVE,
            socket_factory=watchful_socket,
        )
        return aiohttp.ClientSession(
            connector=connector,
            trust_env=False,  # else aiohttp reads proxy variables and netrc for every request, at half its cost
            read_bufsize=buffer,
            timeout=_CALL_TIMEOUT,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    def _headers(self, content_type: str | None, *, accept: str) -> list[tuple[str, str]]:
        # No compression: it costs CPU on the server, which is scarce there.
        headers = [("Accept", accept), ("Accept-Encoding", "identity"), ("User-Agent", self._user_agent)]
        if authorization := self._access.credentials.authorization():
            headers.append(("Authorization", authorization))
        if content_type is not None:
            headers.append(("Content-Type", content_type))
        headers.extend(self._access.headers)
        return headers

    def _url(self, path: str, params: Params | Repeated | None) -> yarl.URL:
        return yarl.URL(self._target(path, params), encoded=True)

    def _target(self, path: str, params: Params | Repeated | None) -> str:
        # Quoting keeps a name from a label or a user from changing the path or the query.
        query = _query(tuple(params.items())) if params else ""
        return f"{self._access.server}{quote(path, safe='/:')}{query}"


async def _lines(pieces: AsyncGenerator[bytes, None], path: str, turn: Slice) -> AsyncGenerator[bytes, None]:
    """The lines of a stream that are not empty."""
    rest: list[bytes] = []
    async for chunk in pieces:
        *lines, end = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*rest, lines[0]))
            rest.clear()
        for line in lines:
            if line:
                yield line
                if turn.over:
                    await turn.rest()
        rest.append(end)
        if sum(map(len, rest)) > LINE_LIMIT:
            raise ConnectionLost(f"WATCH {path}: a line of more than {LINE_LIMIT} bytes")
    if any(rest):
        raise ConnectionLost(f"WATCH {path}: cut in mid-line")


@lru_cache(maxsize=64)
def _query(params: tuple[tuple[str, str | int | tuple[str, ...]], ...]) -> str:
    """Parameters as a query; those of writes are few."""
    return f"?{urlencode(params, doseq=True)}"


def _released(error: BaseException) -> BaseException:
    """An error, and what caused it, without the frames they passed through. A frame refers to the connection, and the
    connection to the error: such a cycle would stay until the garbage collector looks at old objects."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
    return error


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
