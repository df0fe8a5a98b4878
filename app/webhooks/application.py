"""Builds the webhook application: admission reviews, conversion of API versions, and the probes."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from app.http.health import Health
from app.http.probes import create_probes
from app.webhooks.conversion import Conversions
from app.webhooks.dispatch import Dispatcher
from app.webhooks.metrics import ReviewMetrics
from app.webhooks.review import Handler


def create_app(handlers: Mapping[str, Handler], *, health: Health, registry: CollectorRegistry) -> ASGIApp:
    """The application: reviews at the paths of `handlers`, `/convert`, `/healthz`, `/readyz`, `/metrics` and `/docs`.

    `/metrics` shows `registry`; the counters of the reviews are added to it.
    """
    app = create_probes(health=health, registry=registry, title="Turnstile webhooks")
    _describe_reviews(app, handlers)
    conversions = Conversions(app, health=health, registry=registry)
    return Dispatcher(conversions, handlers, health=health, metrics=ReviewMetrics(registry, handlers))


def _describe_reviews(app: FastAPI, handlers: Mapping[str, Handler]) -> None:
    """Add the review paths to the OpenAPI document; FastAPI itself never receives their requests."""
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
                        "500": {"description": "A bug; the log of the webhook has the traceback"},
                    },
                }
            }
        return document

    app.openapi = openapi  # type: ignore[method-assign]
