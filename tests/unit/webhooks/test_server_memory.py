"""A connection that is closed is freed at once, with its TLS buffers.

Each probe of a kubelet is a connection. What refers to itself stays until the garbage collector looks at old objects,
which it does when memory has grown.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from tests.unit.memory.cycles import cycles
from tests.unit.webhooks.conftest import PATH, Server, eventually
from tests.unit.webhooks.test_server_requests import review
from turnstile.http.connections import Connections

pytestmark = pytest.mark.asyncio
TIMES = 5


async def answered(server: Server) -> None:
    """A client sends two reviews and goes."""
    client = await server.connect()
    for _ in range(2):
        assert (await client.ask("POST", PATH, review())).status == 200
    client.close()


async def gone_before_the_answer(server: Server) -> None:
    """A client asks and goes."""
    client = await server.connect()
    await client.send("GET", "/readyz")
    client.close()


async def silent(server: Server) -> None:
    """A client shakes hands and goes."""
    (await server.connect()).close()


async def without_tls(server: Server) -> None:
    """A client connects and goes, as a probe of the port does."""
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(b"no handshake")
    with suppress(ConnectionError):
        await reader.read()
    writer.transport.abort()


@pytest.mark.parametrize("come", [answered, gone_before_the_answer, silent, without_tls])
async def test_of_a_connection_nothing_stays(
    start: Callable[..., Awaitable[Server]], come: Callable[[Server], Awaitable[None]]
) -> None:
    """Neither the protocol nor the request refers to itself."""
    connections = Connections()
    server = await start(connections=connections)

    async def times(number: int) -> None:
        for _ in range(number):
            await come(server)
        server.clients.clear()
        await eventually(lambda: not len(connections))
        for _ in range(5):
            await asyncio.sleep(0)

    await times(1)
    with cycles() as left:
        await times(TIMES)
    assert not left
