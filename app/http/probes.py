"""The ASGI application for `/healthz`, `/readyz` and `/metrics`, to which other routes can be added in front."""

import asyncio
import time
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from starlette.exceptions import HTTPException

from app.http.bodies import status_body
from app.http.health import Health

_SLICE: Final = 0.0005


def create_probes(*, health: Health, registry: CollectorRegistry, title: str = "Turnstile") -> FastAPI:
    """Create the application. `/metrics` serves `registry`, which several servers may share."""
    app = FastAPI(title=title, redoc_url=None)

    @app.get("/healthz", summary="Whether the process is alive")
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/readyz", summary="Whether reviews can be answered; names what is not ready")
    async def readyz() -> JSONResponse:
        faults = await health.faults()
        content: dict[str, object] = {"status": "not ready", "notReady": faults} if faults else {"status": "ok"}
        if notes := health.notes():
            content["failing"] = notes
        return JSONResponse(content, status_code=503 if faults else 200)

    @app.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def metrics() -> Response:
        return Response(await _exposition(registry), media_type=CONTENT_TYPE_LATEST)

    @app.exception_handler(HTTPException)
    async def refuse(_: Request, error: HTTPException) -> Response:
        body = status_body(error.status_code, str(error.detail))
        return Response(body, status_code=error.status_code, media_type="application/json", headers=error.headers)

    return app


class _Family:
    """One metric family as a collector that `generate_latest` can render."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> list[Metric]:
        return [self._metric]


async def _exposition(registry: CollectorRegistry) -> bytes:
    """The metrics as text, rendered family by family so that reviews are not delayed."""
    parts = []
    pause = time.perf_counter() + _SLICE
    for metric in registry.collect():
        parts.append(generate_latest(_Family(metric)))
        if time.perf_counter() > pause:
            await asyncio.sleep(0)
            pause = time.perf_counter() + _SLICE
    return b"".join(parts)
