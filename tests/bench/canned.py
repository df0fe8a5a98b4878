"""A server of canned answers on a plain loopback socket, in a process of its own, so that figures are ours alone."""

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""Writes the answer to a request, of which it gets the head; the body has been read."""

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
STREAM = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
"""Head of an answer in chunks."""
END = b"0\r\n\r\n"
"""End of an answer in chunks."""


def whole(body: bytes) -> bytes:
    """An answer at once."""
    return _HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def added(item: bytes) -> bytes:
    """A chunk that is the event of an object in a watch."""
    return _chunk(b'{"type":"ADDED","object":%s}\n' % item)


def complete(version: int) -> bytes:
    """A chunk that is the bookmark after the first objects of a watch."""
    return _chunk(
        b'{"type":"BOOKMARK","object":{"kind":"Workload","metadata":{"resourceVersion":"%d",'
        b'"annotations":{"k8s.io/initial-events-end":"true"}}}}\n' % version
    )


def _chunk(line: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(line), line)


@contextmanager
def canned(make: Callable[..., Answer], *arguments: Any) -> Iterator[str]:
    """The URL of a server for as long as this lasts. `make(*arguments)` is called in its process, so it is a function
    of a module."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    server = context.Process(target=_serve, args=(there, make, arguments), daemon=True)
    server.start()
    there.close()  # then its end is seen here
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        server.terminate()
        server.join()


def _serve(ready: Connection, make: Callable[..., Answer], arguments: tuple[Any, ...]) -> None:
    answer = make(*arguments)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                _, _, length = request.lower().partition(b"content-length: ")
                await reader.readexactly(int(length.split(b"\r\n")[0]) if length else 0)
                await answer(request, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def serve() -> None:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        ready.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())
