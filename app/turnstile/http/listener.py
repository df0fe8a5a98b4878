"""Accepts connections while there are places for them, and shakes hands with each.

uvicorn accepts every connection and allows a TLS handshake 60 seconds; its `limit_concurrency` answers all clients 503,
honest clients too. Here a connection that finds no place waits in the backlog until another one has given way.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from turnstile.http.connections import DEADLINES, SWEEP_SECONDS, Connection, Connections, State

BACKLOG: Final = 1024
RECEIVE_BUFFER: Final = 16 * 1024
"""Bytes that the kernel keeps of what a client sent before the process reads them: without a limit they may be
megabytes a connection, which count as memory of the container. Also limits how much is read and decrypted at once, so
that hundreds of clients that send as fast as they can do not hold up the others."""
CLOSING_SECONDS: Final = 5.0
"""Seconds for which a connection that is being closed may take to send what is left."""
_NO_DESCRIPTOR_SECONDS: Final = 0.25

_log = structlog.get_logger(__name__)


class Listener:
    """Accepts from one socket. Has the part of `asyncio.Server` that uvicorn uses. `context` returns what the next
    handshake uses, None for plain HTTP."""

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        protocol: Callable[[Connection], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext | None],
    ) -> None:
        self._listener = listener
        self._connections = connections
        self._protocol = protocol
        self._context = context
        self._accepting: asyncio.Task[None] | None = None
        self._running = asyncio.create_task(self._run(), name="connections")

    def close(self) -> None:
        """Accept nothing more; handshakes that have begun go on."""
        if self._accepting is not None:
            self._accepting.cancel()

    async def wait_closed(self) -> None:
        """Wait until the last handshake has ended."""
        await asyncio.wait({self._running})

    async def cut(self) -> None:
        """Accept nothing more, and end all handshakes."""
        self._running.cancel()
        await asyncio.wait({self._running})

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as handshakes:
            self._accepting = handshakes.create_task(self._accept(handshakes))
            while not self._accepting.done():
                self._connections.sweep()
                await asyncio.wait({self._accepting}, timeout=SWEEP_SECONDS)

    async def _accept(self, handshakes: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._connections.place()
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except OSError as error:  # the client is gone already, or the process has no file descriptor left
                _log.warning("connection.refused", error=str(error))
                await asyncio.sleep(_NO_DESCRIPTOR_SECONDS)
                continue
            connection = self._connections.enter(partial(_shut, accepted))
            handshakes.create_task(self._connect(accepted, connection))
            await asyncio.sleep(0)  # a handshake costs a millisecond: of many at once, requests are answered between

    async def _connect(self, accepted: socket.socket, connection: Connection) -> None:
        """Shake hands; then the protocol has the connection, and gives its place back."""
        loop = asyncio.get_running_loop()
        context = self._context()
        timeouts = (
            {}
            if context is None
            else {
                "ssl_handshake_timeout": DEADLINES[State.HANDSHAKE],
                "ssl_shutdown_timeout": CLOSING_SECONDS,
            }
        )
        protocol = self._protocol(connection)
        try:
            await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=context, **timeouts)
        except OSError as error:  # also SSLError and TimeoutError: the client did not shake hands
            self._connections.leave(connection)
            protocol.connection_lost(error.with_traceback(None))  # no loop says that before the handshake
            accepted.close()
        except asyncio.CancelledError:
            self._connections.leave(connection)
            _shut(accepted)
            raise


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError if the address cannot be bound."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)  # accepted sockets inherit it
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _shut(accepted: socket.socket) -> None:
    """End a connection whose transport is not known yet: the handshake then fails."""
    with suppress(OSError):
        accepted.shutdown(socket.SHUT_RDWR)
