"""Serves an ASGI application over TLS in the caller's event loop, the only loop of the process.

Stops gracefully: fails its readiness probe, continues to answer while the endpoints of the Service change, asks the
client to close the connection with each answer, and only then closes. Never handles signals: `main` does.
"""

import asyncio
import math
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http.health import Health

KEEP_ALIVE_SECONDS: Final = 120
"""Longer than the 90 s for which the API server keeps idle connections, so that the API server closes them first. It
also opens spare connections in advance: a review sent while the webhook closes its connection is not retried, and the
write under review fails."""
HEAD_DEADLINE: Final = 10.0
"""Seconds that a client has for the headers of a request, from its first byte."""
BACKLOG: Final = 1024


async def serve(
    app: ASGIApp,
    *,
    host: str,
    port: int,
    health: Health,
    stop: asyncio.Event,
    drain_seconds: float = 5.0,
    grace_seconds: float = 10.0,
    on_listening: Callable[[str, int], object] | None = None,
) -> None:
    """Serve `app` until `stop` is set, then drain connections and return.

    TLS with the certificate of `health.certificate`, plain HTTP without a certificate. From `stop` on `/readyz` fails
    and answers carry `Connection: close`; after `drain_seconds` no new connection is accepted, after `grace_seconds`
    more the remaining connections are cut. Cancellation skips both. `on_listening` is called with the address; port 0
    picks a free port. Raises OSError if the address cannot be bound.
    """
    listener = _listen(host, port)
    try:
        health.address = listener.getsockname()[:2]
        config = uvicorn.Config(
            app,
            interface="asgi3",
            http=_Protocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=math.ceil(grace_seconds),
            ssl_context_factory=_context_of(health),
        )
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        stopping = asyncio.create_task(stop.wait())
        try:
            if on_listening is not None:
                on_listening(*health.address)
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                health.draining = True
                await asyncio.sleep(drain_seconds)
            server.should_exit = True
            await serving
        finally:
            stopping.cancel()
            if not serving.done():
                serving.cancel()
            server.cut()
    finally:
        listener.close()


def _context_of(health: Health) -> Any:
    certificate = health.certificate
    return None if certificate is None else lambda *_: certificate.context


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """uvicorn in the caller's event loop: it installs no signal handlers and can be stopped at once."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals: `main` handles them."""
        yield

    def cut(self) -> None:
        """Close all listeners and abort all open connections."""
        for server in getattr(self, "servers", ()):
            server.close()
        for connection in list(self.server_state.connections):
            transport = connection.transport
            if transport is not None:
                transport.abort()


class _Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a deadline for the headers of a request, which uvicorn lacks."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head(KEEP_ALIVE_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._head_came()
        self._await_head(HEAD_DEADLINE)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_came()
        super().on_headers_complete()

    def _await_head(self, seconds: float) -> None:
        self._head_timer = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
