"""A call or a watch that breaks is freed at once, with the buffers of its connection.

The API server restarts, and twenty watches break. What refers to itself stays until the garbage collector looks at old
objects, which it does when memory has grown.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from tests.unit.memory.cycles import cycles
from turnstile.api.errors import NotLeading, WireError
from turnstile.kube import auth
from turnstile.kube.transport import Transport

pytestmark = pytest.mark.asyncio
TIMES = 5
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest_asyncio.fixture
async def address() -> AsyncIterator[str]:
    """Of a server that begins each answer, and cuts the connection in the middle of it."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"3\r\n{}\n\r\n")
        await writer.drain()
        writer.transport.abort()

    server = await asyncio.start_server(cut, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


async def watch(transport: Transport) -> None:
    """Follow a stream until it breaks."""
    with pytest.raises(WireError):
        async for _ in transport.stream("/watch", idle_timeout=5.0):
            pass


async def call(transport: Transport) -> None:
    """Ask once."""
    with pytest.raises(WireError):
        await transport.request("GET", "/call", retry="never", timeout=5.0)


async def withheld(transport: Transport) -> None:
    """Send a write that the guard does not allow."""

    def guard() -> None:
        raise NotLeading("the Lease ran out")

    with pytest.raises(NotLeading):
        await transport.request("PATCH", "/write", body=b"{}", guard=guard, timeout=5.0)


@pytest.mark.parametrize("ask", [watch, call, withheld])
async def test_an_answer_that_is_cut(address: str, ask: Callable[[Transport], Awaitable[None]]) -> None:
    """Neither the answer nor the error refers to itself through the frames that the error has passed."""
    async with Transport(auth.Access(address, None, auth.Fixed("Bearer t"))) as transport:
        await ask(transport)
        with cycles() as left:
            for _ in range(TIMES):
                await ask(transport)
            await asyncio.sleep(0)
    assert not left


async def test_a_server_that_is_away(unused_tcp_port: int) -> None:
    """Every watch tries again and again while the API server is restarted."""
    address = f"http://127.0.0.1:{unused_tcp_port}"
    async with Transport(auth.Access(address, None, auth.Fixed("Bearer t"))) as transport:
        await watch(transport)
        with cycles() as left:
            for _ in range(TIMES):
                await watch(transport)
            await asyncio.sleep(0)
    assert not left
