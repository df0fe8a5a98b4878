"""Decides about one Workload: admission checks, deactivation, stop policies, time limits, requeueing, and orphans.

`controllers.jobs.jobreconciler` decides about the job (creating the Workload, starting, stopping, finishing); the
engine decides about quota, and `controllers.scheduling.scheduler` writes that. This module must never reserve quota.

Order, reasons and texts follow Kueue's workload controller (pkg/controller/core/workload_controller.go).
"""

from typing import Final

from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.conditions import instant
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import find_condition, is_true
from turnstile.api.workload import Workload
from turnstile.controllers import wakes
from turnstile.controllers.jobs import jobreconciler
from turnstile.controllers.jobs.orphans import ownerless
from turnstile.controllers.jobs.release import RETRY_SECONDS, released
from turnstile.controllers.runtime.actions import Action, Delete, Emit, ReconcileResult, RequeueAfter
from turnstile.controllers.runtime.controller import Controller, every
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.status import podsready
from turnstile.controllers.status.admissionchecks import in_state, listed, required, retry_at, settled
from turnstile.controllers.status.draft import MAXIMUM_EXECUTION_TIME, StatusDraft
from turnstile.controllers.status.spans import backoff_left
from turnstile.controllers.view.clusterview import ClusterView, NotRead
from turnstile.controllers.view.multikueue import dispatching
from turnstile.controllers.workloads import heldpods, swapped, waiting
from turnstile.controllers.workloads.unused import PODS_READY_TIMEOUT, evicted_unused
from turnstile.engine.causes import Cause, Eviction
from turnstile.engine.queue.admissible import is_parent
from turnstile.engine.queue.stops import stop_of
from turnstile.jobs.naming import split_job_key
from turnstile.jobs.remote import job_uid

DEACTIVATED = "Deactivated"
ADMISSION_CHECK = "AdmissionCheck"


def decide(key: str, cluster: ClusterView) -> ReconcileResult:
    """The next writes for one Workload; no actions if none are needed."""
    workload = cluster.workloads.get(key)
    if workload is None:
        return ReconcileResult(why="gone")
    if workload.finished:
        return _kept(workload, cluster)
    orphaned = _orphaned(workload, cluster)
    left = (orphaned or workload.metadata.deletion_timestamp) and workload.admitted and not workload.evicted
    if left and (decision := _deactivated(workload, cluster) or _stopped(workload, cluster)) is not None:
        return decision  # pods hold its quota still, which are deleted when it is evicted
    if orphaned:
        return ReconcileResult(*ownerless([workload], cluster, "its owner is gone", orphans=True))
    if workload.metadata.deletion_timestamp:
        return ReconcileResult(why="being deleted")
    if (later := _delayed(workload, cluster)) is not None:
        return later
    target = find_condition(workload.status.conditions, wl.DEACTIVATION_TARGET)
    if target is not None and target.status == "True" and workload.spec.active:
        return ReconcileResult(
            [fresh_patch(workload, {"spec": {"active": False}})], why=f"deactivated: {target.message}"
        )
    waits: list[tuple[float, str]] = []
    parent = cluster.options.concurrent_admission and is_parent(workload)
    for step in _OF_PARENTS if parent else _STEPS:
        decision = step(workload, cluster)
        match decision:
            case None:
                continue
            case ReconcileResult(actions=[RequeueAfter(seconds=seconds)]):
                waits.append((seconds, decision.why))  # no action before a deadline; later steps may have actions
            case _:
                return ReconcileResult([*decision.actions, *_first_of(waits)], why=decision.why)
    return ReconcileResult(_first_of(waits), why=min(waits)[1] if waits else "nothing to do")


def _first_of(waits: list[tuple[float, str]]) -> list[Action]:
    """A requeue at the earliest deadline."""
    return [RequeueAfter(min(waits)[0])] if waits else []


def _orphaned(workload: Workload, cluster: ClusterView) -> bool:
    """Whether a Workload has no owner reference, and is being deleted or was made for a job. Also a Workload that is
    being deleted and whose owner is of an unknown kind, such as one that was taken out of the configuration."""
    meta = workload.metadata
    if meta.deletion_timestamp and not cluster.registry.jobs_of(workload):
        return True
    return not meta.owner_references and (bool(meta.deletion_timestamp) or bool(job_uid(workload)))


def _kept(workload: Workload, cluster: ClusterView) -> ReconcileResult:
    """Delete a finished Workload that has been kept for as long as `objectRetentionPolicies` says, whether its job is
    still there or not. Without a job, no other controller removes its finalizer."""
    finished = find_condition(workload.status.conditions, wl.FINISHED)
    keep, since = cluster.options.keep_finished, instant(finished.last_transition_time) if finished else None
    meta = workload.metadata
    release: list[Action] = released(workload) if _orphaned(workload, cluster) else []
    if keep is None or since is None:
        return ReconcileResult(release, why="finished")
    if meta.deletion_timestamp:
        return ReconcileResult(released(workload), why="finished, and being deleted")
    if left := cluster.left(since, keep):
        return ReconcileResult([*release, RequeueAfter(left)], why="finished, and kept for a while")
    note = "Deleted finished workload due to elapsed retention"
    delete = Delete(Workload, meta.namespace, meta.name, uid=meta.uid)
    return ReconcileResult([*released(workload), delete, Emit(workload, "Normal", "Deleted", note)], why=note)


def _without_quota(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Remove the admission of a Workload without quota: readers of the status would take it for a reservation."""
    if workload.quota_reserved or workload.status.admission is None:
        return None
    draft = cluster.draft(workload)
    draft.field("admission", None)
    return ReconcileResult([draft.patch()], why="an admission is left over")


def _deactivated(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Evict a deactivated Workload. An eviction in progress keeps its reason, and is counted once."""
    if workload.spec.active:
        return None
    target = find_condition(workload.status.conditions, wl.DEACTIVATION_TARGET)
    cause, detail = (target.reason, f" due to {target.message}") if target and target.status == "True" else ("", "")
    message = f"{Eviction.DEACTIVATED.says()}{detail}"
    draft = cluster.draft(workload)
    if not workload.evicted:
        draft.evict(DEACTIVATED, message, cause=cause)
    draft.remove(wl.DEACTIVATION_TARGET)
    if workload.status.requeue_state is not None:
        draft.field("requeueState", None)
    said = find_condition(workload.status.conditions, wl.QUOTA_RESERVED)
    if not workload.quota_reserved and draft.granular and (said is None or said.reason != DEACTIVATED):
        draft.unreserve(reason=DEACTIVATED, message=Eviction.DEACTIVATED.says())
    decision = ReconcileResult([draft.patch()] if draft.changed else [], why=message)
    if not workload.evicted and workload.status.admission is not None:
        event = f"EvictedDueTo{DEACTIVATED}" + (f"DueTo{cause}" if cause else "")
        decision.actions.append(Emit(workload, "Normal", event, message))
    return decision


def _delayed(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Record the delay that a check in Retry requests before the eviction resets the check."""
    until = retry_at(workload.status.admission_checks)
    if until is None or until <= cluster.now:
        return None
    draft = cluster.draft(workload)
    return ReconcileResult([draft.patch()], why="an admission check asks to wait") if draft.requeue(until) else None


def _requeue(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Set Requeued to True once the reason for which it was False has ended."""
    held = find_condition(workload.status.conditions, wl.REQUEUED)
    if held is None or held.status != "False":
        return _backoff(workload, cluster, draft=cluster.draft(workload))
    draft = cluster.draft(workload)
    queue = cluster.local_queue_of(workload)
    cluster_queue = cluster.cluster_queue_of(queue)
    match held.reason:
        case reason if reason.startswith(DEACTIVATED):
            draft.set(wl.REQUEUED, "True", reason="Reactivated", message="The workload was reactivated")
        case "PodsReadyTimeout" | "AdmissionCheck":
            if (waiting := _backoff(workload, cluster, draft=draft)) is not None:
                return waiting
            _end_backoff(draft)
        case "ClusterQueueStopped" if cluster_queue is not None and cluster_queue.spec.stop_policy == "None":
            draft.set(wl.REQUEUED, "True", reason="ClusterQueueRestarted", message=_RESTARTED.format("ClusterQueue"))
        case "LocalQueueStopped" if queue is not None and queue.spec.stop_policy == "None":
            draft.set(wl.REQUEUED, "True", reason="LocalQueueRestarted", message=_RESTARTED.format("LocalQueue"))
        case _:
            return None
    return ReconcileResult([draft.patch()], why="back in the queue")


_RESTARTED = "The {} was restarted after being stopped"


def _backoff(workload: Workload, cluster: ClusterView, *, draft: StatusDraft) -> ReconcileResult | None:
    """Wait until `requeueAt`, and then requeue the Workload. None if it has no `requeueAt`.

    A Workload that holds quota keeps its `requeueAt`, which applies to the attempt after its eviction.
    """
    left = backoff_left(workload, cluster.spans, cluster.now)
    if left is None or workload.quota_reserved:
        return None
    if left > 0:
        return ReconcileResult([RequeueAfter(left)], why="waiting for its back-off")
    _end_backoff(draft)
    return ReconcileResult([draft.patch()], why="back in the queue")


def _end_backoff(draft: StatusDraft) -> None:
    draft.set(wl.REQUEUED, "True", reason="BackoffFinished", message="The workload backoff was finished")
    state = draft.workload.status.requeue_state
    if state is not None and state.requeue_at is not None:
        draft.field("requeueState", {"requeueAt": None})


def _stopped(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Do what the stop policies of its queues ask for."""
    stop = stop_of(workload, ((word, queue) for word, _, queue in _queues(workload, cluster)))
    if stop is None:
        return None
    draft = cluster.draft(workload)
    if not stop.evicts:
        draft.unreserve(reason="Suspended", message=stop.message)
        return ReconcileResult([draft.patch()], why=stop.message)
    draft.evict(stop.reason, stop.message)
    event = Emit(workload, "Normal", f"EvictedDueTo{stop.reason}", stop.message)
    return ReconcileResult([draft.patch(), event], why=stop.message)


def _abandoned(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Release a reservation that was never admitted if a queue of the Workload is gone or being deleted. `_ready` comes
    first and admits a Workload whose checks are ready: else what the checks have provisioned would be lost, though no
    stop policy asks for that. Without any check no cycle leaves a reservation unadmitted: another client made it, in a
    queue that may not be known yet, and it stays as it is until the queue is there."""
    if not workload.quota_reserved or workload.admitted:
        return None
    for word, name, queue in _queues(workload, cluster):
        gone = queue is None and bool(workload.status.admission_checks)
        if gone or (queue is not None and queue.metadata.deletion_timestamp):
            message = Cause.QUEUE_GONE.says(kind=word, queue=name)
            draft = cluster.draft(workload)
            draft.unreserve(reason="Misconfigured", message=message)
            return ReconcileResult([draft.patch()], why=message)
    return None


def _queues(workload: Workload, cluster: ClusterView) -> list[tuple[str, str, LocalQueue | ClusterQueue | None]]:
    """Kind, name and object of the two queues of a Workload."""
    queue, admission = cluster.local_queue_of(workload), workload.status.admission
    name = admission.cluster_queue if admission else (queue.spec.cluster_queue or "") if queue else ""
    return [
        ("LocalQueue", workload.spec.queue_name or "", queue),
        ("ClusterQueue", name, _queue_of(workload, cluster)),
    ]


def _answered(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Deactivate a Workload that has a Rejected check; evict a Workload that has a check in Retry.

    A Workload without quota has no attempt to end: no cycle considers it until its checks have another state.
    """
    if workload.evicted or not workload.quota_reserved:
        return None
    draft = _with_checks(workload, cluster)
    if not workload.admitted:
        draft.sync_admitted()
    if rejected := in_state(draft.checks, "Rejected"):
        draft.set(wl.DEACTIVATION_TARGET, "True", reason=ADMISSION_CHECK, message=rejected)
        note = f"Deactivated due to {rejected}"
        return ReconcileResult([draft.patch(), Emit(workload, "Warning", "AdmissionCheckRejected", note)], why=rejected)
    if retried := in_state(draft.checks, "Retry"):
        message = f"Evicted due to {retried}"
        draft.evict(ADMISSION_CHECK, message)
        return ReconcileResult(
            [draft.patch(), Emit(workload, "Normal", f"EvictedDueTo{ADMISSION_CHECK}", message)], why=message
        )
    return None


def _ready(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Admit a Workload when all its checks are Ready, never an evicted Workload. If its ClusterQueue is gone, the only
    known checks are those listed in its status, and at least one must be listed.

    Admitted is never set to False here: a Workload that loses a check while it runs is evicted first, and only when its
    job has stopped are quota and admission released.
    """
    draft = _with_checks(workload, cluster)
    if not draft.checks and _queue_of(workload, cluster) is None:
        return None
    draft.sync_admitted()
    if workload.admitted or workload.evicted or not is_true(draft.conditions, wl.ADMITTED):
        return None
    return ReconcileResult([draft.patch(), _admitted(workload, cluster)], why="its checks are ready")


def _checked(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Write the required admission checks to the Workload's status, with Admitted False while it waits for them.

    After an eviction, Retry and Rejected are answers that came too late; a delay that they ask for was written before.
    """
    draft = _with_checks(workload, cluster)
    if workload.evicted:
        draft.checks = settled(draft.checks, now=cluster.now)
    known = bool(draft.checks) or _queue_of(workload, cluster) is not None
    if workload.quota_reserved and known and not (workload.admitted or workload.evicted):
        draft.sync_admitted()
    return ReconcileResult([draft.patch()], why="waits for its checks") if draft.changed else None


def _with_checks(workload: Workload, cluster: ClusterView) -> StatusDraft:
    """A draft with the checks that the Workload needs in its ClusterQueue; as listed before if the queue is unknown."""
    draft = cluster.draft(workload)
    if (queue := _queue_of(workload, cluster)) is not None:
        draft.checks = listed(draft.checks, required(queue, workload.status.admission), now=cluster.now)
    return draft


def _queue_of(workload: Workload, cluster: ClusterView) -> ClusterQueue | None:
    """The ClusterQueue that a Workload's admission names, else the ClusterQueue of its LocalQueue."""
    admission = workload.status.admission
    if admission is not None:
        return cluster.cluster_queues.get(admission.cluster_queue)
    return cluster.cluster_queue_of(cluster.local_queue_of(workload))


def _admitted(workload: Workload, cluster: ClusterView) -> Emit:
    reserved = find_condition(workload.status.conditions, wl.QUOTA_RESERVED)
    since = instant(reserved.last_transition_time) if reserved is not None else None
    waited = max(0, int((cluster.now - since).total_seconds())) if since is not None else 0
    queue = workload.status.admission.cluster_queue if workload.status.admission is not None else ""
    note = f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s"
    return Emit(workload, "Normal", "Admitted", note)


def _not_ready(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Evict a Workload whose pods do not become ready in time; deactivate it after the last allowed requeue."""
    options = cluster.options.pods_ready
    waits = podsready.patience(workload, options, cluster.now, spans=cluster.spans) if options is not None else None
    if options is None or waits is None or _reports_no_pods(workload, cluster):
        return None
    cause, left = waits
    if left > 0:
        return ReconcileResult([RequeueAfter(left)], why="waiting for its pods")
    try:
        if jobreconciler.pods_are_ready(workload, cluster):
            return None  # they got ready while no leader ran: its job is reconciled, and writes that
    except NotRead as why:
        return ReconcileResult([RequeueAfter(RETRY_SECONDS)], why=str(why))
    draft = cluster.draft(workload)
    state = workload.status.requeue_state
    again = podsready.next_attempt((state.count or 0) if state is not None else 0, options, cluster.now)
    if again is None:
        message = Eviction.RETRIES_USED_UP.says()
        draft.set(wl.DEACTIVATION_TARGET, "True", reason="RequeuingLimitExceeded", message=message)
        return ReconcileResult([draft.patch()], why=message)
    message = Eviction.PODS_LATE.says(workload=workload.metadata.key)
    draft.requeue(again, counted=True)
    draft.evict(PODS_READY_TIMEOUT, message, cause=cause)
    return ReconcileResult(
        [draft.patch(), Emit(workload, "Normal", f"EvictedDueTo{PODS_READY_TIMEOUT}", message)], why=message
    )


def _reports_no_pods(workload: Workload, cluster: ClusterView) -> bool:
    """Whether the pods run on another cluster, which waits for them, and the job here does not say what they do."""
    if dispatching(workload, cluster.admission_checks) is None:
        return False
    kinds = (cluster.registry.known.get(split_job_key(key)[0]) for key in cluster.registry.jobs_of(workload))
    return any(each is not None and each.copies is not None and not each.copies.reports_pods for each in kinds)


def _overdue(workload: Workload, cluster: ClusterView) -> ReconcileResult | None:
    """Deactivate a Workload that exceeds its maximum execution time, which adds up over evictions."""
    limit = workload.spec.maximum_execution_time_seconds
    admitted = find_condition(workload.status.conditions, wl.ADMITTED)
    if limit is None or admitted is None or admitted.status != "True" or workload.evicted:
        return None
    past = workload.status.accumulated_past_execution_time_seconds or 0
    since = instant(admitted.last_transition_time) or cluster.now
    if remaining := cluster.left(since, limit - past):
        return ReconcileResult([RequeueAfter(remaining)], why="running within its time limit")
    draft = cluster.draft(workload)
    message = Eviction.TIME_USED_UP.says()
    draft.set(wl.DEACTIVATION_TARGET, "True", reason=MAXIMUM_EXECUTION_TIME, message=message)
    draft.field("accumulatedPastExecutionTimeSeconds", None)
    note = f"The maximum execution time ({limit}s) exceeded"
    return ReconcileResult([draft.patch(), Emit(workload, "Warning", MAXIMUM_EXECUTION_TIME, note)], why=message)


_OF_PARENTS: Final = (
    _deactivated,
    _without_quota,
    _requeue,
    waiting.follow_gates,
    _stopped,
    _overdue,
    heldpods.stop_surplus,
    heldpods.lift,
)
"""Steps of a Workload whose variants wait and hold quota in its place: checks and time limits of pods are theirs."""
_STEPS: Final = (
    _deactivated,
    _without_quota,
    _requeue,
    waiting.follow_gates,
    _answered,
    _stopped,
    swapped.deactivate,
    _ready,
    _abandoned,
    _checked,
    _not_ready,
    evicted_unused,
    _overdue,
    waiting.write_reason,
    heldpods.stop_surplus,
    heldpods.lift,
)


def controller(cluster: ClusterView) -> Controller:
    """The controller that reconciles Workloads when they, their queues or their namespace change."""
    return Controller(
        name=Workload.KIND,
        kind=Workload,
        decide=lambda key: decide(key, cluster),
        watches=wakes.of_workloads(cluster),
        initial=lambda: every(cluster.workloads),
        workers=8,
    )
