"""The ASGI application for `/healthz`, `/readyz` and `/metrics`, to which other routes can be added in front.

Every process of the server imports this module. Must never need FastAPI: its import takes a quarter of a start.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

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


def create_probes(*, health: Health, registry: CollectorRegistry, readers: MetricsReaders = any_reader) -> Starlette:
    """Create the application. `/metrics` serves `registry`, which several servers may share, to `readers`."""

    async def healthz(_: Request) -> Response:
        """Whether the process is alive; names what only a restart can mend."""
        dead = health.dead()
        content: dict[str, object] = {"status": "dead", "dead": dict(dead)} if dead else {"status": "ok"}
        return JSONResponse(content, status_code=503 if dead else 200)

    async def readyz(_: Request) -> Response:
        """Whether reviews can be answered; names what is not ready."""
        faults = await health.faults()
        content: dict[str, object] = {"status": "not ready", "notReady": faults} if faults else {"status": "ok"}
        if notes := health.notes():
            content["failing"] = notes
        return JSONResponse(content, status_code=503 if faults else 200)

    async def metrics(request: Request) -> Response:
        """Prometheus metrics."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        code = await readers(token.strip() if scheme.lower() == "bearer" else "")
        if code != 200:
            raise HTTPException(code, _REFUSALS[code], headers=refusal_headers(code))
        return Response(await exposition(registry), media_type=CONTENT_TYPE_LATEST)

    async def refuse(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        body = status_body(error.status_code, str(error.detail))
        return Response(body, status_code=error.status_code, media_type="application/json", headers=error.headers)

    routes = [Route(f"/{each.__name__}", each, methods=["GET"]) for each in (healthz, readyz, metrics)]
    return Starlette(routes=routes, exception_handlers={HTTPException: refuse})
