"""Serves an ASGI application over TLS in the caller's event loop, the only loop of the process.

Stops gracefully: fails its readiness probe, continues to answer while the endpoints of the Service change, asks the
client to close the connection with each answer, leaves idle connections to their clients to close, and only then closes
the rest. Never handles signals: `main` does.
"""

import asyncio
import math
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from turnstile.http.bodies import status_body
from turnstile.http.connections import DEADLINES, Connection, Connections, State
from turnstile.http.health import Health
from turnstile.http.listener import Listener, listen

HEAD_LIMIT: Final = 16 * 1024
"""Bytes of the headers of a request. The API server sends about 500."""
BUFFER: Final = 64 * 1024
"""Bytes of an answer that may wait for the client to read it, and of a body that may wait for the application."""


async def serve(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    health: Health,
    stop: asyncio.Event,
    connections: Connections | None = None,
    drain_seconds: float = 5.0,
    idle_seconds: float = 0.0,
    no_more_requests: Callable[[], Coroutine[Any, Any, None]] | None = None,
    grace_seconds: float = 10.0,
    on_listening: Callable[[str, int], object] | None = None,
    chunks: bool = False,
) -> None:
    """Serve `app` until `stop` is set, then drain connections and return.

    TLS with the certificate of `health.certificate`, plain HTTP without a certificate. From `stop` on `/readyz` fails
    and answers carry `Connection: close`. All this goes on for `drain_seconds`, and then for as long as a client has a
    connection, at most `idle_seconds` more: a request that is sent while the server closes its connection is lost, so
    the client has to close it. `no_more_requests` returns when no client will send a request any more; the server then
    waits no longer. Then no new connection is accepted, and idle connections are closed; after `grace_seconds` more the
    remaining connections are cut. Cancellation skips all this. `on_listening` is called with the address; port 0 picks
    a free port. With `chunks` a client with a certificate that the server knows may send a body without a declared
    length: the application has to count. Raises OSError if the address cannot be bound.
    """
    listener = listen(host, port)
    try:
        health.address = listener.getsockname()[:2]
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http=HttpToolsProtocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=math.ceil(DEADLINES[State.IDLE]),
            timeout_graceful_shutdown=math.ceil(grace_seconds),
        )
        certificate = health.certificate

        def context() -> ssl.SSLContext | None:
            return None if certificate is None else certificate.context

        counted = Connections() if connections is None else connections
        server = _Server(config, listener, counted, context, chunks=chunks)
        serving = asyncio.create_task(server.serve())
        stopping = asyncio.create_task(stop.wait())
        try:
            if on_listening is not None:
                on_listening(*health.address)
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                health.draining = True
                await asyncio.sleep(drain_seconds)
                await _idle(counted, idle_seconds, no_more_requests)
            server.should_exit = True
            await serving
        finally:
            stopping.cancel()
            if not serving.done():
                serving.cancel()
            await server.cut()
    finally:
        listener.close()


async def _idle(
    connections: Connections, seconds: float, no_more_requests: Callable[[], Coroutine[Any, Any, None]] | None
) -> None:
    """Leave idle connections to their clients for so many seconds at most, until `no_more_requests` returns."""
    waits = {asyncio.create_task(connections.left(seconds))}
    if no_more_requests is not None and seconds:
        waits.add(asyncio.create_task(no_more_requests()))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


class _Server(uvicorn.Server):
    """uvicorn in the caller's event loop: it accepts through a `Listener`, installs no signal handlers and can be
    stopped at once.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        connections: Connections,
        context: Callable[[], ssl.SSLContext | None],
        *,
        chunks: bool,
    ) -> None:
        super().__init__(config)
        self._chunks = chunks
        self._socket = listener
        self._connections = connections
        self._context = context
        self._listener: Listener | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        self._listener = Listener(self._socket, self._connections, self._protocol, self._context)
        self.servers: list[Any] = [self._listener]
        self.started = True

    def _protocol(self, connection: Connection) -> asyncio.Protocol:
        return _Protocol(
            self.config, self.server_state, connections=self._connections, connection=connection, chunks=self._chunks
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals: `main` handles them."""
        yield

    async def cut(self) -> None:
        """Accept nothing more and abort all open connections."""
        if self._listener is not None:
            await self._listener.cut()
        for connection in list(self.server_state.connections):
            transport = connection.transport
            if transport is not None:
                transport.abort()


class _Refused(Exception):
    """The HTTP parser ends with it; the client gets its code and message."""


class _Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol, which tells `Connections` what its connection is doing.

    Refuses what no API server sends and would need memory without limit: long heads, bodies without a declared length
    (their chunks may have extensions and trailers), and a request before the last one was answered.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: uvicorn.server.ServerState,
        *,
        connections: Connections,
        connection: Connection,
        chunks: bool,
    ) -> None:
        super().__init__(config, server_state, {})
        self._chunks = chunks
        self._connections = connections
        self._connection = connection
        self._gone = False
        self._receiving = False
        self._in_head = False
        self._asked = False
        self._head_bytes = 0
        self._refusal = (400, "no HTTP request that can be read")
        self._extensions: dict[str, dict[str, str]] = {}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=BUFFER)
        if hasattr(transport, "set_read_buffer_limits"):  # a TLS transport decrypts ahead
            transport.set_read_buffer_limits(high=BUFFER)
        self._connection.cut = self._cut
        if certificate := transport.get_extra_info("peercert"):
            self._connection.trusted = True
            self._extensions = {"tls": {"client_cert_name": _common_name(certificate)}}
        self._connections.move(self._connection, State.SILENT)

    def _cut(self) -> None:
        """Close the connection at once; the application sees that the client has gone."""
        self.flow.read_paused = False  # uvicorn would resume reading on the closed transport
        if self._asked:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.leave(self._connection)
        super().connection_lost(exc)
        self._connection.cut = _nothing
        self._gone = True
        self._release()

    def _release(self) -> None:
        """Let go of a request that was answered, which refers to this object: else both, with the buffers of their
        connection, would stay until the garbage collector looks at old objects."""
        if getattr(self.cycle, "response_complete", False):  # None before the first request
            self.cycle = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if not self._receiving:
            self._receiving = self._in_head = True
            self._head_bytes = 0
            self._connections.move(self._connection, State.HEAD)
        self._head_bytes += len(data)
        super().data_received(data)
        if self._in_head and self._head_bytes > HEAD_LIMIT and not self.transport.is_closing():
            self._refusal = (431, f"the headers have more than {HEAD_LIMIT} bytes")
            self.send_400_response("")

    def on_message_begin(self) -> None:
        if self._asked and not self.cycle.response_complete:
            self._refusal = (400, "wait for the answer before the next request")
            raise _Refused
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        chunked = any(name == b"transfer-encoding" for name, _ in self.headers)
        if chunked and not (self._chunks and self._connection.trusted):
            self._refusal = (411, "declare the length of the body: send content-length")
            raise _Refused
        self._in_head = False
        self._connections.move(self._connection, State.BODY)
        self.scope["extensions"] = self._extensions  # type: ignore[typeddict-item]
        self._asked = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._receiving = False
        super().on_message_complete()
        self._connections.move(self._connection, State.IDLE if self.cycle.response_complete else State.ANSWERING)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._gone:
            self._release()
        elif self._receiving:  # a graceful close would decrypt what the client still sends
            self._cut()
        else:
            self._connections.move(self._connection, State.IDLE)

    def send_400_response(self, msg: str) -> None:
        """Close the connection with a Status; uvicorn calls it for whatever its parser cannot read."""
        code, message = self._refusal
        body = status_body(code, message)
        head = f"HTTP/1.1 {code} \r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()


def _nothing() -> None:
    """In the place of `_cut` once the connection is closed."""


def _common_name(certificate: dict[str, Any]) -> str:
    """The common name of a certificate's subject, as `ssl` describes it."""
    names = (value for part in certificate.get("subject", ()) for key, value in part if key == "commonName")
    return next(names, "")
