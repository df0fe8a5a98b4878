"""Builds the webhook application: admission reviews, conversion of API versions, and the probes."""

from collections.abc import Collection, Mapping

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from turnstile.http.bodies import Turns
from turnstile.http.connections import Connections
from turnstile.http.health import Health
from turnstile.http.probes import MetricsReaders, any_reader, create_probes
from turnstile.webhooks.conversion import TURNS as CONVERSION_TURNS
from turnstile.webhooks.conversion import Conversions
from turnstile.webhooks.dispatch import Dispatcher
from turnstile.webhooks.metrics import ReviewMetrics, ServerMetrics
from turnstile.webhooks.review import Handler


def create_app(
    handlers: Mapping[str, Handler],
    *,
    health: Health,
    registry: CollectorRegistry,
    connections: Connections | None = None,
    clients: Collection[str] | None = None,
    readers: MetricsReaders = any_reader,
) -> ASGIApp:
    """The application: reviews at the paths of `handlers`, `/convert`, `/healthz`, `/readyz` and `/metrics`.

    `clients` are the names of clients that may ask for reviews, None for all clients. `/metrics` shows `registry` to
    `readers`; the counters of the reviews and of `connections` are added to it.
    """
    turns, conversion_turns = Turns(), Turns(CONVERSION_TURNS)
    app = create_probes(health=health, registry=registry, readers=readers)
    conversions = Conversions(app, health=health, registry=registry, turns=conversion_turns)
    metrics = ReviewMetrics(registry, handlers)
    if connections is not None:
        registry.register(ServerMetrics(connections, {"review": turns, "convert": conversion_turns}))
    return Dispatcher(conversions, handlers, health=health, metrics=metrics, turns=turns, clients=clients)
