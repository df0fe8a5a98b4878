"""The ASGI application for `/healthz`, `/readyz` and `/metrics`, to which other routes can be added in front."""

from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
from starlette.exceptions import HTTPException

from turnstile.http.bodies import refusal_headers, status_body
from turnstile.http.exposition import exposition
from turnstile.http.health import Health

_REFUSALS: Final = {
    401: "send a bearer token of an account that may read the metrics",
    403: "this account may not get the path /metrics",
    404: "the metrics are not served at this address",
    429: "too many unknown tokens: try again",
    503: "the API server could not be asked who reads the metrics",
}

MetricsReaders = Callable[[str], Awaitable[int]]
"""Whether the bearer of a token (empty without one) may read the metrics: 200, or the code of the refusal."""


async def any_reader(_: str) -> int:
    """Readers of the metrics: all who ask."""
    return 200


async def no_reader(_: str) -> int:
    """Readers of the metrics: none, because they are served elsewhere."""
    return 404


def create_probes(
    *, health: Health, registry: CollectorRegistry, title: str = "Turnstile", readers: MetricsReaders = any_reader
) -> FastAPI:
    """Create the application. `/metrics` serves `registry`, which several servers may share, to `readers`."""
    app = FastAPI(title=title, openapi_url=None)

    @app.get("/healthz", summary="Whether the process is alive; names what only a restart can mend")
    async def healthz() -> JSONResponse:
        dead = health.dead()
        content: dict[str, object] = {"status": "dead", "dead": dict(dead)} if dead else {"status": "ok"}
        return JSONResponse(content, status_code=503 if dead else 200)

    @app.get("/readyz", summary="Whether reviews can be answered; names what is not ready")
    async def readyz() -> JSONResponse:
        faults = await health.faults()
        content: dict[str, object] = {"status": "not ready", "notReady": faults} if faults else {"status": "ok"}
        if notes := health.notes():
            content["failing"] = notes
        return JSONResponse(content, status_code=503 if faults else 200)

    @app.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def metrics(request: Request) -> Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        code = await readers(token.strip() if scheme.lower() == "bearer" else "")
        if code != 200:
            raise HTTPException(code, _REFUSALS[code], headers=refusal_headers(code))
        return Response(await exposition(registry), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(HTTPException)
    async def refuse(_: Request, error: HTTPException) -> Response:
        body = status_body(error.status_code, str(error.detail))
        return Response(body, status_code=error.status_code, media_type="application/json", headers=error.headers)

    return app
