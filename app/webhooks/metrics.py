"""Metrics of the admission reviews. Label values come from a fixed set; client input must never become one."""

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

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
