"""The metrics of Workloads: evictions and preemptions, the duration of evictions, and execution times.

Names and labels of metrics are Kueue's, so that its dashboards go on working. Only the leader counts, from the
versions of a Workload that its watch receives, whatever client wrote them. So a write that is refused, repeated or
answered late counts once, and events from before the leader's term do not count again. Label values are names of queues
and priority classes and a fixed set of reasons. Must never decide anything.
"""

from collections import Counter as Counted
from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.api import workload as wl
from app.api.conditions import instant
from app.api.meta import Condition, find_condition
from app.api.workload import Workload
from app.engine.decisions import Decision, preempting_queue
from app.engine.reasons import Mode

Phase = Literal["pending", "quotaReserved", "admitted", "finished"]

_LATENCY_BUCKETS: Final = (1.0, *(2.5 * 2**i for i in range(13)))
_EXECUTION_BUCKETS: Final = (1.0, *(2.5 * 2**i for i in range(15)))
_ROLE: Final = "leader"


def phase(workload: Workload) -> Phase:
    """The last phase that a Workload has reached."""
    if workload.finished:
        return "finished"
    if workload.admitted:
        return "admitted"
    return "quotaReserved" if workload.quota_reserved else "pending"


def lost_quota(before: Phase, after: Phase) -> bool:
    """Whether a Workload released its quota and waits for another attempt."""
    return before in {"quotaReserved", "admitted"} and after == "pending"


def eviction_latency(old: Workload, new: Workload, now: datetime) -> tuple[str, str, float] | None:
    """ClusterQueue, reason and seconds from an eviction until the quota was released; None if this change did not
    release the quota of an evicted Workload."""
    evicted = _true(new, wl.EVICTED)
    admission = old.status.admission
    if evicted is None or admission is None or not admission.cluster_queue or not lost_quota(phase(old), phase(new)):
        return None
    since = instant(evicted.last_transition_time)
    return (admission.cluster_queue, evicted.reason, (now - since).total_seconds()) if since is not None else None


class Eviction(NamedTuple):
    """Evictions of one Workload for one reason in one change: `times` is 1, unless the watch missed versions.
    `cluster_queue` is where the Workload held quota, `first` whether it is its first eviction for this reason."""

    cluster_queue: str
    reason: str
    cause: str
    times: int
    first: bool


def evictions(old: Workload, new: Workload) -> list[Eviction]:
    """Evictions between two versions of a Workload, by the counts in its status. An eviction of a Workload without
    quota does not count, as in Kueue."""
    admission = old.status.admission or new.status.admission
    stats = new.status.scheduling_stats
    if admission is None or stats is None or stats is old.status.scheduling_stats:
        return []
    past = old.status.scheduling_stats
    before = {(each.reason, each.underlying_cause): each.count for each in (past.evictions if past is not None else ())}
    found = []
    for each in stats.evictions:
        known = before.get((each.reason, each.underlying_cause), 0)
        if each.count > known:
            times = each.count - known
            found.append(Eviction(admission.cluster_queue, each.reason, each.underlying_cause, times, known == 0))
    return found


def seconds_ready(old: Workload, new: Workload) -> float | None:
    """Seconds for which the pods were ready when the Workload was evicted; None if they were not."""
    ready, evicted = _true(old, wl.PODS_READY), _true(new, wl.EVICTED)
    begin = instant(ready.last_transition_time) if ready is not None else None
    end = instant(evicted.last_transition_time) if evicted is not None else None
    return (end - begin).total_seconds() if begin is not None and end is not None else None


def execution_seconds(workload: Workload) -> float | None:
    """Seconds for which a Workload was admitted in all its runs; None unless it finished while admitted."""
    finished, admitted = _true(workload, wl.FINISHED), _true(workload, wl.ADMITTED)
    if finished is None or admitted is None:
        return None
    end, begin = instant(finished.last_transition_time), instant(admitted.last_transition_time)
    if end is None or begin is None:
        return None
    return (end - begin).total_seconds() + (workload.status.accumulated_past_execution_time_seconds or 0)


def _true(workload: Workload, kind: str) -> Condition | None:
    found = find_condition(workload.status.conditions, kind)
    return found if found is not None and found.status == "True" else None


class WorkloadMetrics:
    """The metrics of one process, with those of LocalQueues if `local_queues`."""

    def __init__(self, registry: CollectorRegistry, *, local_queues: bool = True) -> None:
        causes = ("reason", "underlying_cause", "priority_class", "replica_role")
        eviction = ("cluster_queue", *causes)
        self._evicted = Counter(
            "kueue_evicted_workloads_total",
            "Evictions of Workloads that held quota.",
            eviction,
            registry=registry,
        )
        self._evicted_once = Counter(
            "kueue_evicted_workloads_once_total",
            "Workloads that were evicted for a reason and cause for the first time.",
            eviction,
            registry=registry,
        )
        self._evicted_from = Counter(
            "kueue_local_queue_evicted_workloads_total",
            "Evictions of Workloads that held quota, by LocalQueue.",
            ("name", "namespace", *causes),
            registry=registry if local_queues else None,
        )
        self._preempted = Counter(
            "kueue_preempted_workloads_total",
            "Workloads that were preempted, by the ClusterQueue of the preemptor and the reason.",
            ("preempting_cluster_queue", "reason", "replica_role"),
            registry=registry,
        )
        self._recomputed = Counter(
            "kueue_preemption_target_recomputations_total",
            "Workloads whose victims another preemptor took in the same cycle, by the result of the new search.",
            ("cluster_queue", "result", "replica_role"),
            registry=registry,
        )
        self._skips = Gauge(
            "kueue_admission_cycle_preemption_skips",
            "Workloads that had victims in the last cycle and lost to other ClusterQueues.",
            ("cluster_queue", "replica_role"),
            registry=registry,
        )
        self._skipped: Counted[str] = Counted()
        self._ready = Histogram(
            "kueue_pods_ready_to_evicted_time_seconds",
            "Time from all pods being ready until the eviction.",
            ("cluster_queue", "reason", "underlying_cause", "replica_role"),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self._latency = Histogram(
            "kueue_workload_eviction_latency_seconds",
            "Time from an eviction until the quota was free.",
            ("cluster_queue", "reason", "replica_role"),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self._execution = Histogram(
            "kueue_execution_time_seconds",
            "Time that a finished Workload was admitted over all its runs.",
            ("cluster_queue", "priority_class", "replica_role"),
            buckets=_EXECUTION_BUCKETS,
            registry=registry,
        )

    def changed(self, old: Workload | None, new: Workload | None, now: datetime) -> None:
        """Count the evictions and the end of a Workload in one change."""
        if old is None or new is None or old.metadata.uid != new.metadata.uid:
            return
        for eviction in evictions(old, new):
            self._count(eviction, old, new)
        if (latency := eviction_latency(old, new, now)) is not None:
            queue, reason, seconds = latency
            self._latency.labels(queue, reason, _ROLE).observe(max(0.0, seconds))
        if new.finished and not old.finished and (ran := execution_seconds(new)) is not None:
            admission = new.status.admission
            queue = admission.cluster_queue if admission is not None else ""
            self._execution.labels(queue, _priority_class(new), _ROLE).observe(max(0.0, ran))

    def decided(self, decisions: Iterable[Decision]) -> None:
        """Count the decisions of one cycle about Workloads that need to preempt."""
        skipped: Counted[str] = Counted()
        for decision in decisions:
            queue = decision.cluster_queue
            if decision.recomputed:
                self._recomputed.labels(queue, _recomputation(decision), _ROLE).inc()
            if decision.outcome == "skipped" and decision.mode is Mode.PREEMPT:
                skipped[queue] += 1
        for queue in skipped.keys() | self._skipped.keys():
            self._skips.labels(queue, _ROLE).set(skipped[queue])
        self._skipped = skipped

    def _count(self, eviction: Eviction, old: Workload, new: Workload) -> None:
        queue, reason, cause, times, first = eviction
        labels = reason, cause, _priority_class(new), _ROLE
        self._evicted.labels(queue, *labels).inc(times)
        if first:
            self._evicted_once.labels(queue, *labels).inc()
        meta = new.metadata
        self._evicted_from.labels(new.spec.queue_name or "", meta.namespace, *labels).inc(times)
        if (ready := seconds_ready(old, new)) is not None:
            self._ready.labels(queue, reason, cause, _ROLE).observe(max(0.0, ready))
        preempted = find_condition(new.status.conditions, wl.PREEMPTED) if reason == "Preempted" else None
        if preempted is not None and (preemptor := preempting_queue(preempted.message)) is not None:
            self._preempted.labels(preemptor, preempted.reason, _ROLE).inc(times)

    def forget(self, cluster_queue: str) -> None:
        """Remove the metrics of a deleted ClusterQueue."""
        by_queue = (self._evicted, self._evicted_once, self._recomputed, self._skips)
        for metric in (*by_queue, self._ready, self._latency, self._execution):
            metric.remove_by_labels({"cluster_queue": cluster_queue})
        del self._skipped[cluster_queue]
        self._preempted.remove_by_labels({"preempting_cluster_queue": cluster_queue})

    def forget_local_queue(self, key: str) -> None:
        """Remove the metrics of a deleted LocalQueue (`namespace/name`)."""
        namespace, _, name = key.partition("/")
        self._evicted_from.remove_by_labels({"name": name, "namespace": namespace})


def _recomputation(decision: Decision) -> str:
    """The result for a preemptor whose victims were computed again."""
    if decision.mode is Mode.DEFERRED_FIT:
        return "deferred_fit"
    return "new_targets" if decision.outcome == "preempting" else "skipped"


def _priority_class(workload: Workload) -> str:
    ref = workload.spec.priority_class_ref
    return ref.name if ref is not None else ""
