"""Writes why a Workload without quota is in no queue: an admission gate, its queues, or its namespace keep it out.

The reason why a cycle did not admit a Workload that it tried is written by `controllers.scheduling`, and stays until a
cycle writes another. Must never reserve quota.
"""

from typing import Final

from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.engine.causes import Cause
from turnstile.engine.devices.charges import UNSETTLED, Problem

_GATED_BY: Final = Cause.ADMISSION_GATED.says(gates="")
_WRITTEN_HERE: Final = {"Misconfigured", "Suspended", "Deactivated", "Inadmissible"}
_UNCOUNTED: Final = "Inadmissible"
"""Reason of the condition Requeued of a Workload that cannot be charged for its devices."""
UNSETTLED_SECONDS: Final = 0.5
"""Seconds between two looks at a Workload while selectors of devices are evaluated."""
_COARSE: Final = {"Pending", "Waiting"}
"""Reasons that older versions wrote on every waiting Workload."""
_SAID_BY_SCHEDULER: Final = (
    "resources validation failed: ",
    "resources didn't satisfy LimitRange constraints: ",
    'workload namespace "',
    "Workload requires preemption",
)
"""Beginnings of messages that a cycle wrote under those reasons: they stay until a cycle writes another."""


def follow_gates(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Release the reservation of a Workload that gets an admission gate before it is admitted. When the last gate is
    removed, that is written before any other reason why the Workload waits."""
    gates = cluster.options.gates_of(workload.metadata)
    draft = cluster.draft(workload)
    if not gates:
        said = find_condition(workload.status.conditions, wl.QUOTA_RESERVED)
        if said is None or said.reason != "AdmissionGated" or not said.message.startswith(_GATED_BY):
            return None
        draft.unreserve(reason="PendingEvaluation", message=Cause.GATE_CLEARED.says())
        note = "Admission gate cleared, workload is now admissible"
        return ReconcileResult([draft.patch(), Emit(workload, "Normal", "AdmissionGateCleared", note)], why=note)
    if not workload.quota_reserved or workload.admitted:
        return None
    draft.unreserve(reason="AdmissionGated", message=Cause.ADMISSION_GATED.says(gates=gates))
    return ReconcileResult([draft.patch(), _gate_seen(workload, gates)], why="gated")


def _gate_seen(workload: Workload, gates: str) -> Emit:
    return Emit(workload, "Normal", "AdmissionGated", f"Workload admission is gated by: {gates}")


def write_reason(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Write why a Workload without quota is in no queue. The status of a Workload on hold has its reason already."""
    if workload.quota_reserved or workload.on_hold:
        return None
    devices = _devices(workload, cluster)
    if devices is UNSETTLED:
        return ReconcileResult([RequeueAfter(UNSETTLED_SECONDS)], why="selectors of devices are being evaluated")
    reason, message = _why_not_tried(workload, cluster, devices)
    current = find_condition(workload.status.conditions, wl.QUOTA_RESERVED)
    if not reason:
        written = _WRITTEN_HERE | _COARSE if cluster.options.granular_reasons else _WRITTEN_HERE
        said_by_scheduler = current is not None and current.message.startswith(_SAID_BY_SCHEDULER)
        stale = current is not None and current.reason in written and not said_by_scheduler
        if not (stale or (current is None and cluster.options.explicit_status)):
            return _synced(workload, cluster)
        reason, message = "PendingEvaluation", Cause.NOT_TRIED.says()
    draft = cluster.draft(workload)
    wanted = ("False", draft.reason(reason), message)
    requeued = find_condition(workload.status.conditions, wl.REQUEUED)
    if devices is not None and message == devices.message:
        draft.set(wl.REQUEUED, "False", reason=_UNCOUNTED, message=devices.requeued)
    elif requeued is not None and requeued.reason == _UNCOUNTED:
        draft.remove(wl.REQUEUED)
    if not draft.changed and current is not None and (current.status, current.reason, current.message) == wanted:
        return _synced(workload, cluster) or ReconcileResult(why=message)
    draft.unreserve(reason=reason, message=message)
    decision = ReconcileResult([draft.patch()], why=message)
    if reason == "AdmissionGated":
        gates = cluster.options.gates_of(workload.metadata)
        decision.actions.append(_gate_seen(workload, gates))
    return decision


def _synced(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Update Admitted on a waiting Workload whose status an older version, or a person, wrote without it."""
    draft = cluster.draft(workload)
    return ReconcileResult([draft.patch()], why="not admitted") if draft.sync_admitted() else None


def _devices(workload: Workload, cluster: ClusterView) -> Problem | None:
    """Why a Workload cannot be charged for its devices. Amounts that cannot be read are reported with its requests."""
    try:
        charges = cluster.counting.charges(workload)
    except InvalidValue:
        return None
    return charges.problem if charges is not None else None


def _why_not_tried(workload: Workload, cluster: ClusterView, devices: Problem | None) -> tuple[str, str]:
    """Reason and message for what keeps a Workload out of every queue; empty strings if nothing does. A gate comes
    first: the client that set the gate is the client that waits for the Workload to be admitted."""
    gates = cluster.options.gates_of(workload.metadata)
    if gates:
        return "AdmissionGated", Cause.ADMISSION_GATED.says(gates=gates)
    if devices is not None:
        return "Misconfigured", devices.message
    name = workload.spec.queue_name or ""
    queue = cluster.local_queue_of(workload)
    if queue is None:
        return "Misconfigured", Cause.LOCAL_QUEUE_MISSING.says(queue=name)
    if queue.metadata.deletion_timestamp:
        return "Misconfigured", Cause.QUEUE_GONE.says(kind="LocalQueue", queue=name)
    if queue.spec.stop_policy != "None":
        return "Suspended", Cause.LOCAL_QUEUE_STOPPED.says(queue=name)
    cluster_queue = cluster.cluster_queue_of(queue)
    if cluster_queue is None:
        return "Misconfigured", Cause.CLUSTER_QUEUE_MISSING.says(queue=queue.spec.cluster_queue or "")
    if not _is_active(cluster_queue) or _in_cycle(cluster_queue, cluster):
        return "Suspended", Cause.CLUSTER_QUEUE_INACTIVE.says(queue=cluster_queue.metadata.name)
    selector = cluster_queue.spec.namespace_selector
    namespace = cluster.namespaces.get(workload.metadata.namespace)
    if namespace is not None and (selector is None or not selector.matches(namespace.metadata.labels)):
        return "Misconfigured", Cause.NAMESPACE_NOT_SELECTED.says()
    return "", ""


def _in_cycle(cluster_queue: ClusterQueue, cluster: ClusterView) -> bool:
    """Whether the Cohorts above a ClusterQueue form a cycle, in which no Workload is admitted."""
    seen: set[str] = set()
    name = cluster_queue.spec.cohort_name
    while name and name not in seen:
        seen.add(name)
        cohort = cluster.cohorts.get(name)
        name = cohort.spec.parent_name if cohort is not None else None
    return bool(name)


def _is_active(cluster_queue: ClusterQueue) -> bool:
    """Whether a ClusterQueue may admit: by stop policy and deletion, then by its Active condition, unless that is not
    written yet or is still the condition of an ended stop."""
    if cluster_queue.spec.stop_policy != "None" or cluster_queue.metadata.deletion_timestamp:
        return False
    active = find_condition(cluster_queue.status.conditions, "Active")
    return active is None or active.status == "True" or active.reason == "Stopped"
