"""The webhook server: the application with its probes, and serving it over TLS in an event loop of somebody else's.

Stops as a webhook should: it says that it is not ready, goes on answering while the endpoints of the Service change,
asks its clients to leave with each answer, and only then closes. Signals belong to `main`; one process, one loop.
"""

import asyncio
import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.webhooks.conversion import Conversions
from app.webhooks.dispatch import Dispatcher, status_body
from app.webhooks.health import Health
from app.webhooks.metrics import ReviewMetrics
from app.webhooks.review import Handler

KEEP_ALIVE_SECONDS: Final = 120
"""Longer than the 90 s for which the API server keeps an idle connection, so that it is the one to close. It also opens
some in advance and keeps those: a request that meets our close of one is not sent again, and somebody's write fails."""
HEAD_DEADLINE: Final = 10.0
"""Seconds that a client has for the head of a request, once it has begun."""
BACKLOG: Final = 1024
_SLICE: Final = 0.0005


def create_app(handlers: Mapping[str, Handler], *, health: Health, registry: CollectorRegistry) -> ASGIApp:
    """The application: reviews at the paths of `handlers`, `/convert`, `/healthz`, `/readyz`, `/metrics` and `/docs`.

    `registry` is what `/metrics` shows; the counters of the reviews are added to it. Without handlers the application
    has the probes alone and may share its registry with another one.
    """
    app = FastAPI(title="Turnstile webhooks", redoc_url=None)

    @app.get("/healthz", summary="Whether the process is alive")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", summary="Whether reviews can be answered; names what is not ready")
    async def readyz() -> JSONResponse:
        faults = await health.faults()
        content = {"status": "not ready", "notReady": faults} if faults else {"status": "ok"}
        return JSONResponse(content, status_code=503 if faults else 200)

    @app.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def metrics() -> Response:
        return Response(await _exposition(registry), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(HTTPException)
    async def refuse(_: Request, error: HTTPException) -> Response:
        body = status_body(error.status_code, str(error.detail))
        return Response(body, status_code=error.status_code, media_type="application/json", headers=error.headers)

    if not handlers:
        return app
    _describe_reviews(app, handlers)
    conversions = Conversions(app, health=health, registry=registry)
    return Dispatcher(conversions, handlers, health=health, metrics=ReviewMetrics(registry, handlers))


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
    """Serve `app` until `stop` is set, then let the clients go and return.

    TLS with the certificate of `health.certificate`, plain HTTP without one. From `stop` on `/readyz` fails and answers
    carry `Connection: close`; after `drain_seconds` nobody new is let in, after `grace_seconds` more whoever is left is
    cut. Cancellation skips both. `on_listening` is told the address; port 0 picks a free one. Raises OSError if the
    address cannot be had.
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
    """uvicorn inside a loop of ours: it leaves signals alone and can be cut short."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to `main`."""
        yield

    def cut(self) -> None:
        """Close every listener and connection that is left, at once."""
        for server in getattr(self, "servers", ()):
            server.close()
        for connection in list(self.server_state.connections):
            transport = connection.transport
            if transport is not None:
                transport.abort()


class _Protocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a deadline for the head of a request, which it does not have."""

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


class _Family:
    """One metric family as something that can be rendered."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> list[Metric]:
        return [self._metric]


async def _exposition(registry: CollectorRegistry) -> bytes:
    """The metrics as text, made a family at a time so that reviews are not held up."""
    parts = []
    pause = time.perf_counter() + _SLICE
    for metric in registry.collect():
        parts.append(generate_latest(_Family(metric)))
        if time.perf_counter() > pause:
            await asyncio.sleep(0)
            pause = time.perf_counter() + _SLICE
    return b"".join(parts)


def _describe_reviews(app: FastAPI, handlers: Mapping[str, Handler]) -> None:
    """Put the review paths into the OpenAPI document, though FastAPI never sees their requests."""
    describe = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        for path in handlers:
            document["paths"][path] = {
                "post": {
                    "summary": "AdmissionReview v1 in, AdmissionReview v1 out",
                    "requestBody": {"required": True, "content": {"application/json": {}}},
                    "responses": {
                        "200": {"description": "The answer", "content": {"application/json": {}}},
                        "400": {"description": "No AdmissionReview v1"},
                        "405": {"description": "Not POST"},
                        "408": {"description": "The body came too slowly"},
                        "413": {"description": "Body over 3 MiB"},
                        "415": {"description": "Not application/json"},
                        "500": {"description": "A bug; the log tells"},
                    },
                }
            }
        return document

    app.openapi = openapi  # type: ignore[method-assign]
