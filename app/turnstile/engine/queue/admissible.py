"""Where a Workload stands by its own word: its priority, since when it waits, whether it may wait and be tried at all.

Read from the API object alone. Must never look at queues or quota.
"""

from typing import Final

from turnstile.api import names
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.meta import find_condition
from turnstile.api.workload import PODS_READY, REQUEUED, Workload
from turnstile.engine.instants import Instant, instant
from turnstile.engine.options import Options

PARENT_LABEL: Final = "kueue.x-k8s.io/concurrent-admission-parent"
"""Label of a Workload whose variants wait and hold quota in its place (concurrent admission)."""


def is_admissible(workload: Workload, options: Options) -> bool:
    """Whether a workload may stand in a queue at all (Kueue: IsAdmissible). Under concurrent admission its variants
    stand there in its place. One that is being deleted is not let in any more, however long its finalizers take: quota
    would be kept for it, and others evicted."""
    if workload.metadata.deletion_timestamp:
        return False
    if options.gates.concurrent_admission and is_parent(workload):
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


def is_parent(workload: Workload) -> bool:
    """Whether variants wait and hold quota in the place of a Workload."""
    return workload.metadata.labels.get(PARENT_LABEL) == "true"


def has_variants(workload: Workload, queue: ClusterQueue) -> bool:
    """Whether a Workload has variants in a ClusterQueue: the queue has a policy for it. A slice of an elastic job has
    none, because only one flavor is right for it, and neither has a variant."""
    sliced = names.SLICE_NAME in workload.metadata.annotations
    return queue.spec.concurrent_admission_policy is not None and not is_variant(workload) and not sliced


def is_variant(workload: Workload) -> bool:
    """Whether a Workload competes for a flavor in the place of another Workload."""
    owner = workload.metadata.controller
    return owner is not None and owner.kind == Workload.KIND


def variant_of(workload: Workload, parent: Workload) -> bool:
    """Whether a Workload is a variant of that very parent."""
    owner = workload.metadata.controller
    return owner is not None and (owner.kind, owner.uid) == (Workload.KIND, parent.metadata.uid)


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
