"""Where a Workload stands by its own word: its priority, since when it waits, whether it may wait and be tried at all.

Read from the API object alone. Must never look at queues or quota.
"""

from typing import Final

from app.api import names
from app.api.meta import find_condition
from app.api.workload import EVICTED, PODS_READY, PREEMPTED, REQUEUED, Workload
from app.engine.instants import Instant, instant, instant_or_zero
from app.engine.options import Options

PRIORITY_BOOST: Final = "kueue.x-k8s.io/priority-boost"
VARIANT_PARENT_LABEL: Final = "kueue.x-k8s.io/concurrent-admission-parent"

OrderKey = tuple[int, Instant, str, str]
"""Negative priority, queue timestamp, UID and key of a Workload: the smallest comes first."""


def effective_priority(workload: Workload, *, boost: bool) -> int:
    """Priority, 0 if absent, plus the boost annotation if that is on and an int32."""
    base = workload.spec.priority or 0
    if boost:
        text = workload.metadata.annotations.get(PRIORITY_BOOST, "")
        digits = text[1:] if text[:1] in {"+", "-"} else text
        if digits.isascii() and digits.isdecimal() and -(2**31) <= int(text) < 2**31:
            return base + int(text)
    return base


def queue_timestamp(workload: Workload, options: Options) -> Instant:
    """Since when a workload stands in line: an eviction for lack of ready pods or by a check sends it to the back, any
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


def order_key(workload: Workload, options: Options) -> OrderKey:
    """What orders Workloads within a ClusterQueue, but for usage and for a preemptor that comes first: priority, queue
    timestamp, UID. The key of the Workload only tells two apart."""
    priority = effective_priority(workload, boost=options.gates.priority_boost)
    meta = workload.metadata
    return -priority, queue_timestamp(workload, options), meta.uid, meta.key


def is_admissible(workload: Workload, options: Options) -> bool:
    """Whether a workload may stand in a queue at all (Kueue: IsAdmissible). Under concurrent admission its variants
    stand there in its place. One that is being deleted is not let in any more, however long its finalizers take: quota
    would be kept for it, and others evicted."""
    if workload.metadata.deletion_timestamp:
        return False
    if options.gates.concurrent_admission and workload.metadata.labels.get(VARIANT_PARENT_LABEL) == "true":
        return False
    if options.gates.admission_gated_by and workload.metadata.annotations.get(names.ADMISSION_GATED_BY):
        return False
    if not workload.spec.active:
        return False
    for condition in workload.status.conditions:
        match condition.type, condition.status:
            case ("Finished", "True") | ("QuotaReserved", "True") | ("WaitingForReplacementPods", "True"):
                return False
            case ("QuotaReserved", "False") if condition.reason == "OnHold":
                return False
            case _:
                pass
    return True


def backoff_over(workload: Workload, now: Instant) -> bool:
    """Whether it may be tried: `Requeued` is not False, and `requeueAt` has come (to the second, inclusive)."""
    requeued = find_condition(workload.status.conditions, REQUEUED)
    if requeued is not None and requeued.status == "False":
        return False
    state = workload.status.requeue_state
    if state is None or state.requeue_at is None:
        return True
    return now >= instant(state.requeue_at)


def preemption_gated(workload: Workload) -> bool:
    """Whether a preemption gate of its spec is not open."""
    if not workload.spec.preemption_gates:
        return False
    positions = {gate.name: gate.position for gate in workload.status.preemption_gates}
    return any(positions.get(gate.name) != "Open" for gate in workload.spec.preemption_gates)


def pods_ready(workload: Workload) -> bool:
    """Whether its PodsReady condition is True."""
    condition = find_condition(workload.status.conditions, PODS_READY)
    return condition is not None and condition.status == "True"
