"""Metrics of the admission reviews. Label values come from a fixed set; client input must never become one."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from turnstile.http.bodies import Turns
from turnstile.http.connections import Connections

_OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)


class ReviewMetrics:
    """Reviews by path, operation and outcome, and how long they took, by path.

    Outcomes: `allowed`, `mutated`, `denied`, `error`; for an invalid review or a handler's bug, the reason of the
    Status in the answer. Label lookups are cached, because a lookup costs more than the increment.
    """

    def __init__(self, registry: CollectorRegistry, paths: Iterable[str]) -> None:
        self._reviews = Counter(
            "turnstile_webhook_reviews_total",
            "Admission reviews by path, operation and outcome.",
            ("path", "operation", "outcome"),
            registry=registry,
        )
        seconds = Histogram(
            "turnstile_webhook_review_duration_seconds",
            "Time from the head of a review to its answer, by path.",
            ("path",),
            buckets=_BUCKETS,
            registry=registry,
        )
        self._observe = {path: seconds.labels(path).observe for path in paths}
        self._count: dict[tuple[str, str, str], Counter] = {}

    def observe(self, path: str, operation: str, outcome: str, seconds: float) -> None:
        """Count one review."""
        if operation not in _OPERATIONS:
            operation = "other"
        key = (path, operation, outcome)
        counter = self._count.get(key)
        if counter is None:
            counter = self._count[key] = self._reviews.labels(*key)
        counter.inc()
        self._observe[path](seconds)


class ServerMetrics(Collector):
    """The connections of the webhook server and the bodies that it holds."""

    def __init__(self, connections: Connections, turns: Mapping[str, Turns]) -> None:
        self._connections = connections
        self._turns = turns

    def collect(self) -> Iterator[Metric]:
        """The figures of this moment."""
        now = GaugeMetricFamily("turnstile_webhook_connections", "Connections, by what they do.", labels=["state"])
        for state, count in self._connections.counts():
            now.add_metric([state.name.lower()], count)
        yield now
        dropped = CounterMetricFamily(
            "turnstile_webhook_connections_dropped",
            "Connections closed by the server: late for a deadline, or because another one needed the place.",
            labels=["state", "cause"],
        )
        for (state, cause), count in self._connections.dropped.items():
            dropped.add_metric([state.name.lower(), cause], count)
        yield dropped
        large = GaugeMetricFamily(
            "turnstile_webhook_large_bodies",
            "Bodies of more than 64 KiB: those that are read, and those that wait for their turn.",
            labels=["kind", "state"],
        )
        refused = CounterMetricFamily(
            "turnstile_webhook_bodies_refused", "Large bodies refused because others waited.", labels=["kind"]
        )
        for kind, turns in self._turns.items():
            large.add_metric([kind, "reading"], turns.reading)
            large.add_metric([kind, "waiting"], turns.waiting)
            refused.add_metric([kind], turns.refused)
        yield large
        yield refused
