"""What is counted of Workloads: how long evictions take, and how long jobs run.

Names and labels of metrics are Kueue's, so that its dashboards go on working. Only the leader counts, each change of a
Workload once. Label values come from names of ClusterQueues and priority classes and from a fixed set of reasons. Must
never decide anything.
"""

from datetime import datetime
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Histogram

from app.api import workload as wl
from app.api.conditions import instant
from app.api.meta import Condition, find_condition
from app.api.workload import Workload

Phase = Literal["pending", "quotaReserved", "admitted", "finished"]

_LATENCY_BUCKETS: Final = (1.0, *(2.5 * 2**i for i in range(13)))
_EXECUTION_BUCKETS: Final = (1.0, *(2.5 * 2**i for i in range(15)))
_ROLE: Final = "leader"


def phase(workload: Workload) -> Phase:
    """Where a Workload stands, in one word; the last that it reached counts."""
    if workload.finished:
        return "finished"
    if workload.admitted:
        return "admitted"
    return "quotaReserved" if workload.quota_reserved else "pending"


def lost_quota(before: Phase, after: Phase) -> bool:
    """Whether quota was given back for another attempt."""
    return before in {"quotaReserved", "admitted"} and after == "pending"


def eviction_latency(old: Workload, new: Workload, now: datetime) -> tuple[str, str, float] | None:
    """ClusterQueue, reason and seconds from the eviction until the quota was free; None if this change is not that."""
    evicted = _true(new, wl.EVICTED)
    admission = old.status.admission
    if evicted is None or admission is None or not lost_quota(phase(old), phase(new)):
        return None
    since = instant(evicted.last_transition_time)
    return (admission.cluster_queue, evicted.reason, (now - since).total_seconds()) if since is not None else None


def execution_seconds(workload: Workload) -> float | None:
    """Seconds that it was admitted in all its runs; None unless it finished while it was."""
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
    """The metrics of one process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._latency = Histogram(
            "kueue_workload_eviction_latency_seconds",
            "Time from an eviction until the quota was free, by ClusterQueue and reason.",
            ("cluster_queue", "reason", "replica_role"),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self._execution = Histogram(
            "kueue_execution_time_seconds",
            "Time that a finished Workload was admitted over all its runs, by ClusterQueue and priority class.",
            ("cluster_queue", "priority_class", "replica_role"),
            buckets=_EXECUTION_BUCKETS,
            registry=registry,
        )

    def changed(self, old: Workload | None, new: Workload | None, now: datetime) -> None:
        """Count what one change of a Workload means."""
        if old is None or new is None:
            return
        if (latency := eviction_latency(old, new, now)) is not None:
            queue, reason, seconds = latency
            self._latency.labels(queue, reason, _ROLE).observe(max(0.0, seconds))
        if new.finished and not old.finished and (ran := execution_seconds(new)) is not None:
            admission, ref = new.status.admission, new.spec.priority_class_ref
            queue = admission.cluster_queue if admission is not None else ""
            self._execution.labels(queue, ref.name if ref is not None else "", _ROLE).observe(max(0.0, ran))

    def forget(self, cluster_queue: str) -> None:
        """A ClusterQueue is gone: so are its figures."""
        for metric in (self._latency, self._execution):
            metric.remove_by_labels({"cluster_queue": cluster_queue})
