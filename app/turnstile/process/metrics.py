"""Exports at `/metrics` the counters that the components of a process maintain. docs/reference/metrics.md lists them.
Those for which controller-runtime and client-go have names are in `turnstile.process.usual`.

Counts nothing itself: reads the counters at each scrape. Label values are verbs, results, and names of kinds and
controllers; of objects only the ClusterQueues that audit findings are about. Counters of a term start at zero with each
term of leadership.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from turnstile.controllers.audit import Auditor
from turnstile.controllers.metrics.queues import QueueMetrics
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.runtime.runner import Runner
from turnstile.controllers.scheduling.scheduler import Scheduler
from turnstile.kube.cache import State
from turnstile.kube.caches import Caches
from turnstile.kube.events import Recorder
from turnstile.kube.gate import Rank
from turnstile.kube.lease import LeaseStats
from turnstile.kube.reflector import Reflector
from turnstile.kube.transport import Transport
from turnstile.process.cloudevents import CloudEvents
from turnstile.recorder.writer import Writer

if TYPE_CHECKING:
    from turnstile.process.tracing import Tracing

Samples = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Term:
    """The components that run while this process leads."""

    executor: Executor
    scheduler: Scheduler
    runners: tuple[Runner, ...]
    auditor: Auditor
    queues: QueueMetrics


class ProcessMetrics(Collector):
    """The metrics of one process. `term` returns the present term of leadership, None while not leading."""

    def __init__(
        self,
        transport: Transport,
        caches: Caches,
        recorder: Recorder,
        *,
        term: Callable[[], Term | None],
        lease: LeaseStats | None = None,
        unable_for: Callable[[], float] = float,
        flight: Writer | None = None,
        notices: CloudEvents | None = None,
        tracing: "Tracing | None" = None,
    ) -> None:
        self._transport = transport
        self._caches = caches
        self._recorder = recorder
        self._term = term
        self._lease = lease
        self._unable_for = unable_for
        self._flight = flight
        self._notices = notices
        self._tracing = tracing

    def describe(self) -> Iterable[Metric]:
        """No metrics: which metrics exist depends on the role, and the registry need not know them in advance."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The metrics with their present values."""
        yield from self._of_transport()
        yield from self._of_caches()
        yield from self._of_events()
        term = self._term()
        yield from self._of_gate(term)
        yield _gauge("turnstile_leading", "1 while this process leads.", [((), term is not None)])
        if self._lease is not None:
            yield from self._of_lease(self._lease)
        if self._flight is not None:
            yield from self._of_flight(self._flight)
        if self._notices is not None:
            yield from self._of_notices(self._notices)
        if self._tracing is not None:
            yield from self._of_traces(self._tracing)
        if term is not None:
            yield from self._of_writes(term.executor)
            yield from self._of_controllers(term.runners)
            yield from self._of_scheduler(term.scheduler)
            yield from self._of_audits(term.auditor)
            yield from term.queues.collect()

    def _of_transport(self) -> Iterator[Metric]:
        stats = self._transport.stats
        yield _counter(
            "turnstile_api_retries",
            "Requests sent once more, by HTTP method and outcome of the attempt before.",
            _pairs(stats.retries),
            ("verb", "outcome"),
        )
        yield _counter("turnstile_api_watches_opened", "Watches opened.", [((), stats.streams)])

    def _of_gate(self, term: Term | None) -> Iterator[Metric]:
        gate, label = self._transport.gate, ("class",)
        window, stats = gate.window, gate.stats
        yield _gauge("turnstile_write_window", "Writes that may be in flight at once.", [((), window.size)])
        yield _gauge(
            "turnstile_write_latency_seconds",
            "What the API server takes for a write now; as it was at the last write while there is none.",
            [((), window.latency)],
        )
        yield _gauge(
            "turnstile_write_slowness",
            "How many times its lowest latency the API server takes for a write now.",
            [((), window.slowness)],
        )
        behind = {Rank.EVENT: len(self._recorder)}
        if term is not None:
            behind |= {Rank.STATUS: term.executor.waiting, Rank.REASON: len(term.scheduler.reasons)}
        yield _gauge(
            "turnstile_writes_waiting",
            "Writes that wait here for their turn.",
            [((rank.word,), max(gate.waiting(rank), behind.get(rank, 0))) for rank in Rank],
            label,
        )
        yield _gauge(
            "turnstile_writes_in_flight",
            "Writes without an answer yet.",
            [((rank.word,), gate.in_flight(rank)) for rank in Rank],
            label,
        )
        yield _counter(
            "turnstile_write_turns", "Turns to write.", [((rank.word,), stats.turns[rank]) for rank in Rank], label
        )
        yield _counter(
            "turnstile_write_wait_seconds",
            "Seconds that writes waited for their turn.",
            [((rank.word,), stats.waited[rank]) for rank in Rank],
            label,
        )

    def _of_caches(self) -> Iterator[Metric]:
        caches = sorted(((cache.name, cache) for cache in self._caches.all), key=lambda each: each[0])
        states: Samples = [
            ((name, str(state)), cache.standing.state is state) for name, cache in caches for state in State
        ]
        yield _gauge(
            "turnstile_cache_state",
            "1 for the state that a kind is in: reading, synced, dormant (the cluster has no such kind) or failing.",
            states,
            ("kind", "state"),
        )
        yield _gauge(
            "turnstile_cache_objects",
            "Objects of a kind in the cache.",
            [((name,), len(cache.store)) for name, cache in caches],
            ("kind",),
        )
        yield _gauge(
            "turnstile_cache_behind",
            "1 while this process leads and its cache of a kind is not shown yet to be as new as the term.",
            [((name,), not cache.reflector.freshness.shown) for name, cache in caches],
            ("kind",),
        )
        counts: dict[str, tuple[str, Callable[[Reflector[Any]], int]]] = {
            "events": ("Watch events processed.", lambda reflector: reflector.events),
            "relists": ("How often all objects of a kind were read.", lambda reflector: reflector.relisted),
            "failures": ("Watches that failed.", lambda reflector: reflector.failures),
            "undecodable": ("Versions of objects that cannot be decoded.", lambda reflector: reflector.undecodable),
        }
        for what, (text, count) in counts.items():
            samples: Samples = [((name,), count(cache.reflector)) for name, cache in caches]
            yield _counter(f"turnstile_cache_{what}", text, samples, ("kind",))

    def _of_events(self) -> Iterator[Metric]:
        stats = self._recorder.stats
        yield _counter(
            "turnstile_events_emitted",
            "Kubernetes events that controllers reported, written or not.",
            [((), stats.emitted)],
        )
        yield _counter("turnstile_events_created", "Kubernetes events written.", [((), stats.created)])
        yield _counter("turnstile_events_repeated", "Kubernetes events counted up.", [((), stats.repeated)])
        yield _counter(
            "turnstile_events_dropped",
            "Kubernetes events given up, by their type and the cause: full, refused or failed.",
            _pairs(stats.dropped),
            ("type", "cause"),
        )
        yield _gauge("turnstile_events_waiting", "New Kubernetes events not written yet.", [((), len(self._recorder))])

    def _of_lease(self, stats: LeaseStats) -> Iterator[Metric]:
        fence = stats.fence
        yield _counter("turnstile_lease_terms", "How often this process got the Lease.", [((), stats.terms)])
        yield _gauge(
            "turnstile_lease_transitions",
            "How often any process got the Lease, as its record says.",
            [((), stats.transitions)],
        )
        yield _counter(
            "turnstile_lease_renewals",
            "Attempts to renew the Lease, by result: success or error.",
            [(("success",), stats.renewed), (("error",), stats.failed)],
            ("result",),
        )
        yield _gauge(
            "turnstile_lease_renewal_seconds", "Duration of the last renewal that succeeded.", [((), stats.seconds)]
        )
        yield _gauge(
            "turnstile_lease_renewed_ago_seconds",
            "Time since the start of the last renewal that succeeded; 0 while another process holds the Lease.",
            [((), fence.since_renewal if fence is not None else 0.0)],
        )
        yield _gauge(
            "turnstile_lease_suspended",
            "1 while this process leads and may not write, because the Lease was not renewed in time.",
            [((), fence is not None and fence.suspended)],
        )
        yield _counter(
            "turnstile_lease_suspensions", "How often a term of this process was suspended.", [((), stats.suspensions)]
        )
        yield _gauge(
            "turnstile_leader_unable_seconds",
            "Time for which this process has led without being able to write; 0 if it can.",
            [((), self._unable_for())],
        )

    def _of_flight(self, flight: Writer) -> Iterator[Metric]:
        stats = flight.stats
        yield _counter("turnstile_recorder_records", "Records given to the flight recorder.", [((), stats.put)])
        yield _counter("turnstile_recorder_written", "Records written to its store.", [((), stats.written)])
        yield _counter(
            "turnstile_recorder_dropped",
            "Records given up: too many waited, or the store refused them.",
            [((), stats.dropped)],
        )
        yield _gauge("turnstile_recorder_waiting", "Records that wait to be written.", [((), len(flight))])
        yield _gauge(
            "turnstile_recorder_failing", "1 while the store cannot be written to.", [((), bool(stats.failing))]
        )
        yield _gauge("turnstile_recorder_bytes", "Bytes in use in the store, once a minute.", [((), stats.bytes)])

    def _of_notices(self, notices: CloudEvents) -> Iterator[Metric]:
        stats = notices.stats
        yield _counter("turnstile_notifications_sent", "CloudEvents that the webhook took.", [((), stats.sent)])
        yield _counter(
            "turnstile_notifications_failures", "Attempts to send a CloudEvent that failed.", [((), stats.failures)]
        )
        yield _counter(
            "turnstile_notifications_dropped",
            "CloudEvents given up, by the cause: full, refused or failed.",
            [((cause,), stats.dropped[cause]) for cause in ("full", "refused", "failed")],
            ("cause",),
        )
        yield _gauge("turnstile_notifications_waiting", "CloudEvents that wait to be sent.", [((), len(notices))])

    def _of_traces(self, tracing: "Tracing") -> Iterator[Metric]:
        stats = tracing.stats
        yield _counter("turnstile_traces_spans_sent", "Spans that the collector took.", [((), stats.sent)])
        yield _counter(
            "turnstile_traces_spans_dropped",
            "Spans given up: too many waited, or the collector did not take them.",
            [((), stats.dropped)],
        )
        yield _gauge("turnstile_traces_spans_waiting", "Spans that wait to be sent.", [((), len(tracing))])

    def _of_writes(self, executor: Executor) -> Iterator[Metric]:
        stats = executor.stats
        yield _counter("turnstile_writes", "Writes that succeeded.", _pairs(stats.writes), ("kind", "verb"))
        yield _counter(
            "turnstile_write_failures",
            "What reconciling, scheduling and writing failed with, by the kind of the object.",
            _pairs(stats.failures),
            ("kind", "error"),
        )
        yield _counter("turnstile_writes_deferred", "Patches put off until nothing is urgent.", [((), stats.deferred)])

    def _of_controllers(self, runners: Iterable[Runner]) -> Iterator[Metric]:
        yield _gauge(
            "turnstile_queue_delayed",
            "Keys to be added later.",
            [((name,), queue.delayed) for runner in runners for name, queue in runner.queues.items()],
            ("controller",),
        )

    def _of_scheduler(self, scheduler: Scheduler) -> Iterator[Metric]:
        yield _counter("turnstile_scheduler_cycles", "Scheduling cycles.", [((), scheduler.cycles)])
        yield _counter("turnstile_scheduler_admissions", "Reservations written.", [((), scheduler.admissions)])
        yield _counter("turnstile_scheduler_preemptions", "Victims evicted.", [((), scheduler.preemptions)])
        leaving, now = scheduler.state.reservations.leaving, scheduler.cluster.now.timestamp()
        yield _gauge(
            "turnstile_evicted_workloads_holding_quota",
            "Workloads that were evicted and still hold quota.",
            [((), len(leaving))],
        )
        yield _gauge(
            "turnstile_evicted_workloads_oldest_seconds",
            "Time since the eviction of the one of them that was evicted first; 0 without one.",
            [((), max(0.0, now - min(leaving.values(), default=now)))],
        )
        yield _gauge(
            "turnstile_evicted_workloads_overdue",
            "Of them, those that no preemptor waits for any more.",
            [((), len(scheduler.state.reservations.overdue))],
        )

    def _of_audits(self, auditor: Auditor) -> Iterator[Metric]:
        yield _gauge(
            "turnstile_audit_findings",
            "Disagreements between running pods, quotas and admissions that the last two audits found.",
            _pairs(auditor.counts()),
            ("finding", "cluster_queue"),
        )
        yield _counter("turnstile_audits", "Audits done.", [((), auditor.audits)])
        yield _gauge("turnstile_audit_seconds", "Duration of the last audit.", [((), auditor.seconds)])
        yield _gauge(
            "turnstile_audit_last_timestamp_seconds",
            "When the last audit ended, in Unix seconds; 0 before the first.",
            [((), auditor.ended_at)],
        )


def _pairs(counts: Mapping[Any, float]) -> Samples:
    return [(tuple(map(str, labels)), count) for labels, count in sorted(counts.items())]


def _counter(name: str, text: str, samples: Samples, labels: tuple[str, ...] = ()) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def _gauge(name: str, text: str, samples: Samples, labels: tuple[str, ...] = ()) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, samples: Samples) -> Metric:
    for labels, value in samples:
        family.add_metric(labels, value)
    return family
