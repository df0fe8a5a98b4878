"""The order of Workloads in a ClusterQueue: priority and queue timestamp, read from the API object alone.

Must never look at queues or quota.
"""

from typing import Final

from turnstile.api.numbers import parse_int32
from turnstile.api.workload import EVICTED, PREEMPTED, Workload
from turnstile.engine.instants import Instant, instant_or_zero
from turnstile.engine.options import Options

PRIORITY_BOOST: Final = "kueue.x-k8s.io/priority-boost"
OrderKey = tuple[int, Instant, int, str, str]
"""Negative priority, queue timestamp, birth, UID and key of a Workload: the smallest comes first."""


def birth(workload: Workload) -> int:
    """The resourceVersion with which a Workload was created, which orders those of the same second; 0 where it is not
    known, because the Workload was changed before it was first seen. To be asked of the first version that is seen."""
    meta = workload.metadata
    unchanged = not workload.status.conditions and meta.generation <= 1 and not meta.deletion_timestamp
    return int(meta.resource_version) if unchanged and meta.resource_version.isdecimal() else 0


def effective_priority(workload: Workload, *, boost: bool) -> int:
    """Priority, 0 if absent, plus the boost annotation if that is on and an int32."""
    base = workload.spec.priority or 0
    if boost:
        return base + (parse_int32(workload.metadata.annotations.get(PRIORITY_BOOST, "")) or 0)
    return base


def queue_timestamp(workload: Workload, options: Options) -> Instant:
    """Since when a Workload waits: an eviction for lack of ready pods or by a check sends it to the back, any
    other keeps its place (Kueue: GetQueueOrderTimestamp)."""
    evicted = preempted = None
    for condition in workload.status.conditions:
        if condition.status == "True":
            if condition.type == EVICTED:
                evicted = condition
            elif condition.type == PREEMPTED:
                preempted = condition
    if evicted is not None:
        by_eviction = options.wait_for_pods_ready.requeuing_timestamp == "Eviction"
        if evicted.reason == "AdmissionCheck" or (evicted.reason == "PodsReadyTimeout" and by_eviction):
            return instant_or_zero(evicted.last_transition_time)
    if (
        preempted is not None
        and preempted.reason == "InCohortReclaimWhileBorrowing"
        and not options.gates.priority_sorting_within_cohort
    ):
        return instant_or_zero(preempted.last_transition_time) + 0.001
    return instant_or_zero(workload.metadata.creation_timestamp)


def order_key(workload: Workload, options: Options, *, born: int = 0) -> OrderKey:
    """The order of Workloads within a ClusterQueue, but for usage and for a preemptor that comes first: priority, queue
    timestamp, birth, UID. The key of the Workload only tells two apart.

    Timestamps are whole seconds, and UIDs random. Kueue goes by these alone; where Turnstile saw the Workload when it
    was new, those of one second are queued as they were created.
    """
    priority = effective_priority(workload, boost=options.gates.priority_boost)
    meta = workload.metadata
    return -priority, queue_timestamp(workload, options), born, meta.uid, meta.key
