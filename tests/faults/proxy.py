"""A proxy in front of a real API server that misbehaves on request.

It speaks plain HTTP/1.1 towards the client under test and TLS with the admin's identity towards the server, understands
just enough of HTTP to see where one request or one watch line ends, and plays one fault a request, in the order they
were planned. What no fault is planned for is passed on faithfully.
"""

import asyncio
import contextlib
import socket
import struct
import threading
import urllib.parse
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from turnstile.kube import auth


@dataclass
class Request:
    """One request as it came in; `raw` is all of it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    raw: bytes
    at: float

    @property
    def watch(self) -> bool:
        """Whether it asks for a watch."""
        return self.query.get("watch") == "true"


@dataclass(eq=False)
class Exchange:
    """A request that a fault has to deal with."""

    request: Request
    client: asyncio.StreamWriter
    proxy: "Proxy"

    async def write(self, data: bytes) -> None:
        """Send bytes to the client."""
        self.client.write(data)
        await self.client.drain()

    async def forward(self) -> "Upstream":
        """Hand the request on to the real server."""
        return await Upstream.open(self.proxy.upstream, self.request)

    def reset(self) -> None:
        """End the connection as a crashed peer does: with RST."""
        sock: socket.socket = self.client.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.client.transport.abort()


class Upstream:
    """The real server's answer to one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self.head = head
        headers = _headers(head)
        self._length = int(headers.get("content-length", "0"))
        self.chunked = headers.get("transfer-encoding") == "chunked"

    @classmethod
    async def open(cls, access: auth.Access, request: Request) -> Self:
        """Connect and send."""
        url = urllib.parse.urlsplit(access.server)
        reader, writer = await asyncio.open_connection(url.hostname, url.port, ssl=access.tls, limit=2**24)
        try:
            writer.write(request.raw)
            return cls(reader, writer, await reader.readuntil(b"\r\n\r\n"))
        except BaseException:
            await _closed(writer)
            raise

    async def chunk(self) -> bytes:
        """The next chunk with its frame, which for a watch is one line; or the whole body. Empty at the end."""
        if not self.chunked:
            length, self._length = self._length, 0
            return await self._reader.readexactly(length)
        size = await self._reader.readline()
        return size + await self._reader.readexactly(int(size, 16) + 2)

    async def close(self) -> None:
        """Leave the server."""
        await _closed(self._writer)


Fault = Callable[[Exchange], Awaitable[bool]]
"""Deals with one request. True keeps the connection for the next one."""


async def passed(exchange: Exchange) -> bool:
    """No fault."""
    await _relay(exchange)
    return True


async def _relay(exchange: Exchange, *, chunks: float = float("inf"), and_then: int = 0, wait: float = 0.0) -> bytes:
    """Pass on the answer, or only its first chunks, after a wait. Gives back further chunks that were not passed on."""
    upstream = await exchange.forward()
    try:
        await asyncio.sleep(wait)
        await exchange.write(upstream.head)
        sent = 0
        while sent < chunks:
            chunk = await upstream.chunk()
            await exchange.write(chunk)
            sent += 1
            if not upstream.chunked or chunk.startswith(b"0\r\n"):
                break
        return b"".join([await upstream.chunk() for _ in range(and_then)])
    finally:
        await upstream.close()


def answer(status: str, body: bytes = b"", *, content_type: str = "application/json", **headers: str) -> Fault:
    """Answer in the server's place: `answer("429 Too Many Requests", Retry_After="1")`."""

    async def fault(exchange: Exchange) -> bool:
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await exchange.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return True

    return fault


def stream(*lines: bytes, content_type: str = "application/json") -> Fault:
    """Answer a watch in the server's place with these lines and end it cleanly."""

    async def fault(exchange: Exchange) -> bool:
        await _write_lines(exchange, lines, content_type)
        await exchange.write(b"0\r\n\r\n")
        return True

    return fault


def hushed(*lines: bytes) -> Fault:
    """Answer a watch in the server's place with these lines, then nothing more, with the connection open."""

    async def fault(exchange: Exchange) -> bool:
        await _write_lines(exchange, lines, "application/json")
        await exchange.proxy.closing.wait()
        return False

    return fault


async def _write_lines(exchange: Exchange, lines: tuple[bytes, ...], content_type: str) -> None:
    await exchange.write(
        f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    for line in lines:
        await exchange.write(b"%x\r\n%s\r\n" % (len(line), line))


async def black_hole(exchange: Exchange) -> bool:
    """Take the request and never say anything."""
    await exchange.proxy.closing.wait()
    return False


def held(gate: asyncio.Event, fault: Fault) -> Fault:
    """Say nothing until the gate opens, then play another fault."""

    async def waiting(exchange: Exchange) -> bool:
        await gate.wait()
        return await fault(exchange)

    return waiting


def silence_after(chunks: int) -> Fault:
    """Pass on so many chunks of the answer, then nothing more, with the connection open."""

    async def fault(exchange: Exchange) -> bool:
        await _relay(exchange, chunks=chunks)
        await exchange.proxy.closing.wait()
        return False

    return fault


def deafened(silence: asyncio.Event | threading.Event) -> Fault:
    """Pass on a watch until the event is set, then nothing more, with the connection open."""

    async def fault(exchange: Exchange) -> bool:
        upstream = await exchange.forward()
        try:
            await exchange.write(upstream.head)
            while True:
                chunk = await upstream.chunk()
                if silence.is_set():
                    await exchange.proxy.closing.wait()
                    return False
                await exchange.write(chunk)
                if not upstream.chunked or chunk.startswith(b"0\r\n"):
                    return True
        finally:
            await upstream.close()

    return fault


def trickle(content_type: str = "application/json") -> Fault:
    """Answer a watch with a line that never ends, a byte at a time."""

    async def fault(exchange: Exchange) -> bool:
        await exchange.write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        while not exchange.proxy.closing.is_set():
            await exchange.write(b"1\r\n \r\n")
            await asyncio.sleep(0.05)
        return False

    return fault


def cut_in_line(chunks: int) -> Fault:
    """Pass on so many chunks and half of the next one, then reset the connection."""

    async def fault(exchange: Exchange) -> bool:
        rest = await _relay(exchange, chunks=chunks, and_then=1)
        await exchange.write(rest[: len(rest) // 2])
        await asyncio.sleep(0.05)  # else the reset overtakes the bytes
        exchange.reset()
        return False

    return fault


def half_close(chunks: int) -> Fault:
    """Pass on so many chunks, then end our direction and keep the other one open."""

    async def fault(exchange: Exchange) -> bool:
        await _relay(exchange, chunks=chunks)
        exchange.client.write_eof()
        await exchange.proxy.closing.wait()
        return False

    return fault


async def drop(exchange: Exchange) -> bool:
    """Close the connection without an answer; the server never hears of the request."""
    return False


async def lose_answer(exchange: Exchange) -> bool:
    """Let the server carry the request out, then close the connection without handing on its answer."""
    upstream = await exchange.forward()
    try:
        await upstream.chunk()
    finally:
        await upstream.close()
    return False


def late_answer(seconds: float) -> Fault:
    """Pass the request on at once and its answer late; of a watch, the beginning."""

    async def fault(exchange: Exchange) -> bool:
        await _relay(exchange, wait=seconds)
        return True

    return fault


def delay(seconds: float) -> Fault:
    """Pass the request on late."""

    async def fault(exchange: Exchange) -> bool:
        await asyncio.sleep(seconds)
        return await passed(exchange)

    return fault


@dataclass
class _Plan:
    fault: Fault
    applies: Callable[[Request], bool]
    times: float


@dataclass
class Proxy:
    """`async with Proxy(upstream) as proxy`; `proxy.access` is what a transport needs to speak through it."""

    upstream: auth.Access
    requests: list[Request] = field(default_factory=list)
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._plans: deque[_Plan] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: dict[Exchange, asyncio.Task[None]] = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=2**24)
        port = self._server.sockets[0].getsockname()[1]
        self.access = auth.Access(server=f"http://127.0.0.1:{port}", tls=None, credentials=auth.Fixed())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing.set()
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def plan(self, *faults: Fault, applies: Callable[[Request], bool] = lambda request: True, times: float = 1) -> None:
        """Play each of these faults `times` times for requests that it applies to, before passing on anything."""
        self._plans.extend(_Plan(fault, applies, times) for fault in faults)

    def clear(self) -> None:
        """Behave from now on."""
        self._plans.clear()

    def cut_watches(self) -> None:
        """Reset the connection of every open watch. Any thread may call this."""

        def cut() -> None:
            for exchange, task in tuple(self._watching.items()):
                exchange.reset()
                task.cancel()

        self._loop.call_soon_threadsafe(cut)

    @property
    def watches(self) -> list[Request]:
        """The watches that were asked for."""
        return [request for request in self.requests if request.watch]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._serve(await self._read(reader), writer):
                    pass
        finally:
            await _closed(writer)
            self._tasks.discard(task)

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = await reader.readuntil(b"\r\n\r\n")
        method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        headers = _headers(head)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        url = urllib.parse.urlsplit(target)
        at = asyncio.get_running_loop().time()
        return Request(method, url.path, dict(urllib.parse.parse_qsl(url.query)), headers, head + body, at)

    async def _serve(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        self.requests.append(request)
        fault: Fault = passed
        for plan in self._plans:
            if plan.applies(request):
                fault = plan.fault
                plan.times -= 1
                if plan.times <= 0:
                    self._plans.remove(plan)
                break
        exchange, task = Exchange(request, writer, self), asyncio.current_task()
        assert task is not None
        if request.watch:
            self._watching[exchange] = task
        try:
            return await fault(exchange)
        finally:
            self._watching.pop(exchange, None)


async def _closed(writer: asyncio.StreamWriter) -> None:
    if writer.get_extra_info("ssl_object") is not None:
        writer.transport.abort()  # a polite end of TLS takes as long as the other side likes
    writer.close()
    with contextlib.suppress(OSError, asyncio.CancelledError):
        await writer.wait_closed()


def _headers(head: bytes) -> dict[str, str]:
    lines = head.decode("latin-1").split("\r\n")[1:]
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
