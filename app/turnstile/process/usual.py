"""Exports what a process counts under the names that boards and alerts of Kubernetes controllers use.

controller-runtime and client-go name these metrics; `turnstile.process.metrics` exports those for which they have no
name.
"""

import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from turnstile import __version__
from turnstile.controllers.runtime.runner import Runner
from turnstile.http.exposition import number
from turnstile.http.tls import ServingCertificate
from turnstile.kube.transport import Transport
from turnstile.kube.wire import DURATIONS
from turnstile.process.metrics import Term

_RESULTS: Final = {"success": "success", "conflict": "requeue", "error": "error"}
"""Results of reconciles in the words of controller-runtime; a conflict is decided about again at once."""


class UsualMetrics(Collector):
    """The metrics of one process. `lease` is the name of its Lease, empty without one; `certificates` are the serving
    certificates by server."""

    def __init__(
        self,
        transport: Transport,
        *,
        lease: str,
        term: Callable[[], Term | None],
        certificates: Mapping[str, ServingCertificate],
    ) -> None:
        self._transport = transport
        self._host = urlsplit(transport.server).netloc
        self._lease = lease
        self._term = term
        self._certificates = certificates

    def describe(self) -> Iterable[Metric]:
        """No metrics: which ones exist depends on the role."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics with their present values."""
        yield _build_info()
        yield self._expiries()
        yield from self._of_requests()
        term = self._term()
        if self._lease:
            status = GaugeMetricFamily(
                "leader_election_master_status", "1 while this process holds the Lease.", labels=["name"]
            )
            status.add_metric([self._lease], term is not None)
            yield status
        if term is not None:
            yield from _of_queues(term.runners)
            yield from _of_reconciles(term.runners)

    def _expiries(self) -> Metric:
        family = GaugeMetricFamily(
            "turnstile_certificate_expiry_timestamp_seconds",
            "When the serving certificate in use ends, in Unix seconds.",
            labels=["server"],
        )
        for server, certificate in self._certificates.items():
            if certificate.expires:
                family.add_metric([server], certificate.expires)
        return family

    def _of_requests(self) -> Iterator[Metric]:
        stats = self._transport.stats
        requests = CounterMetricFamily(
            "rest_client_requests", "Requests to the API server.", labels=["code", "method", "host"]
        )
        counts: dict[tuple[str, str], int] = {}
        for (verb, outcome), count in stats.requests.items():
            key = outcome if outcome.isdigit() else "<error>", "GET" if verb == "WATCH" else verb
            counts[key] = counts.get(key, 0) + count
        for (code, method), total in sorted(counts.items()):
            requests.add_metric([code, method, self._host], total)
        yield requests
        durations = HistogramMetricFamily(
            "rest_client_request_duration_seconds", "Duration of requests but watches.", labels=["verb", "host"]
        )
        bounds = [*map(number, DURATIONS), "+Inf"]
        for verb, found in sorted(stats.durations.items()):
            sums = [float(sum(found[: place + 1])) for place in range(len(found))]
            buckets = list(zip(bounds, sums, strict=True))
            durations.add_metric([verb, self._host], buckets=buckets, sum_value=stats.seconds[verb])
        yield durations


def _build_info() -> Metric:
    family = GaugeMetricFamily(
        "kueue_build_info",
        "Version of Turnstile, and what runs it.",
        labels=["git_version", "git_commit", "build_date", "go_version", "compiler", "platform"],
    )
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    version = f"turnstile-v{__version__}"
    family.add_metric([version, "", "", "", f"python-{platform.python_version()}", f"{sys.platform}/{machine}"], 1)
    return family


def _of_queues(runners: Iterable[Runner]) -> Iterator[Metric]:
    labels = ["name", "controller"]
    depth = GaugeMetricFamily("workqueue_depth", "Keys that wait in a work queue.", labels=labels)
    adds = CounterMetricFamily("workqueue_adds", "Keys added to a work queue.", labels=labels)
    workers = GaugeMetricFamily("controller_runtime_active_workers", "Keys being reconciled.", labels=["controller"])
    for runner in runners:
        for name, queue in runner.queues.items():
            depth.add_metric([name, name], len(queue))
            adds.add_metric([name, name], queue.adds)
            workers.add_metric([name], queue.processing)
    yield from (depth, adds, workers)


def _of_reconciles(runners: Iterable[Runner]) -> Iterator[Metric]:
    total = CounterMetricFamily(
        "controller_runtime_reconcile", "Reconciles, by result.", labels=["controller", "result"]
    )
    errors = CounterMetricFamily("controller_runtime_reconcile_errors", "Failed reconciles.", labels=["controller"])
    for runner in runners:
        for name in runner.queues:
            for ours, usual in _RESULTS.items():
                count = next((found for key, found in runner.reconciles.items() if key == (name, ours)), 0)
                total.add_metric([name, usual], count)
                if usual == "error":
                    errors.add_metric([name], count)
    yield from (total, errors)
