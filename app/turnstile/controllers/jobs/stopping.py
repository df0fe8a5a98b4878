"""Steps that stop a job and take its quota back: evicted, on hold, its Workload deleted, or not admitted.

Quota is released only when no pod of the job can run or be created any more. Must never start a job.
"""

from typing import Final

from turnstile.api import workload as wl
from turnstile.api.conditions import instant
from turnstile.api.meta import Condition, find_condition
from turnstile.api.workload import ON_HOLD, Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs.children import stop_is_acknowledged
from turnstile.controllers.jobs.plan import Outcome, Plan
from turnstile.controllers.jobs.release import (
    RETRY_SECONDS,
    hastened,
    left,
    put_on_hold,
    released,
    taken_back,
    taken_off_hold,
)
from turnstile.controllers.jobs.settling import another_queue, relabelled
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.runtime.actions import Delete
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.view.ends import UNSEEN_SECONDS
from turnstile.jobs import workload as build
from turnstile.jobs.integration import NOT_ADMITTED, WORKLOAD_DELETED, WORKLOAD_EVICTED
from turnstile.jobs.labels import queue_name

_DEACTIVATED_BY_TURNSTILE: Final = "DeactivatedDueTo"
_NOT_ADMITTED: Final = "Not admitted by cluster queue"
_AGAIN_SECONDS: Final = 1.0
"""Seconds until the children of a stopped job are read again."""


def release_deleted(view: JobView) -> Outcome | None:
    """Stop a job whose Workload is being deleted, and let the Workload go."""
    workload, plan = view.roles.current, Plan(view)
    if workload is None or not workload.metadata.deletion_timestamp:
        return None
    stopped = plan.stop(workload.spec.pod_sets, reason=WORKLOAD_DELETED, message="Workload is deleted")
    if charges.held_anywhere(workload, view.cluster):
        _end_pods(plan, workload, stopped=stopped and not plan.actions)
    elif stopped and not _unseen(plan, workload):
        plan.actions.extend(released(workload))
    return plan.ends("the Workload is being deleted")


def hold(view: JobView) -> Outcome | None:
    """Hold a job that its own controller would not run."""
    workload, refused = view.roles.current, view.integration.exceptions.on_hold(view.job)
    return _hold(view, workload, "Job is on hold") if workload and refused else None


def hold_idle(view: JobView) -> Outcome | None:
    """Hold a group without a pod that may run."""
    workload = view.roles.current
    if workload is None or view.group is None or not view.group.idle(view.job) or workload.evicted:
        return None
    if not (workload.quota_reserved or workload.on_hold):
        return None
    return _hold(view, workload, "All pods of the group have ended; the group waits for a pod that may run")


def hold_relabelled(view: JobView) -> Outcome | None:
    """Hold a job whose Workload has to follow a label, and cannot with the quota that it holds."""
    workload, plan = view.roles.current, Plan(view)
    if workload is None or not (workload.quota_reserved and view.suspended):
        return None
    why = relabelled(plan, workload)
    return _hold(view, workload, why, plan) if why else plan.goes_on()


def _hold(view: JobView, workload: Workload, why: str, plan: Plan | None = None) -> Outcome:
    """Release the quota of a job that must not run as admitted, and keep the Workload out of its queue until it may be
    admitted again."""
    plan = plan or Plan(view)
    stopped = plan.stop(workload.spec.pod_sets, reason=ON_HOLD, message=why)
    if not stopped or view.integration.active(view.job) or charges.held(workload, view.cluster):
        return plan.ends("the job is on hold, but pods still run")
    if workload.quota_reserved and _unseen(plan, workload):
        return plan.ends("the job is on hold, but pods may be created still")
    plan.actions.extend(put_on_hold(workload, view.cluster, why))
    return plan.ends("the job is on hold")


def evict(view: JobView) -> Outcome | None:
    """Stop an evicted job; once no pod runs, release the quota and set Requeued."""
    workload, plan = view.roles.current, Plan(view)
    if workload is None or not workload.evicted:
        return None
    condition = find_condition(workload.status.conditions, wl.EVICTED)
    assert condition is not None
    reason = f"{WORKLOAD_EVICTED}DueTo{condition.reason}"
    stopped = plan.stop(workload.spec.pod_sets, reason=reason, message=condition.message)
    if not workload.quota_reserved:
        plan.hasten()
        # In Kueue the Workload keeps its queue until its next admission; in Turnstile it may move while it waits.
        moved = _move(plan, workload) if queue_name(view.job) and not plan.actions else ""
        return plan.ends(moved or _delete_kept(plan, workload, condition) or f"evicted: {condition.message}")
    if not stopped or view.integration.active(view.job) or charges.held_anywhere(workload, view.cluster):
        _end_pods(plan, workload, stopped=stopped and not plan.actions)
        return plan.ends("evicted, but pods still run")
    if _unseen(plan, workload):
        return plan.ends("evicted, but pods may be created still")
    plan.actions.append(taken_back(workload, view.cluster, requeues=view.integration.handling.keeps_reassignment))
    return plan.ends(f"evicted: {condition.message}")


def _delete_kept(plan: Plan, workload: Workload, evicted: Condition) -> str:
    """Delete a job that Turnstile has deactivated, when it was kept for as long as `objectRetentionPolicies` says;
    empty if it stays, as do the pods of a set: its controller would create them again at once."""
    view = plan.view
    keep, since = view.cluster.options.keep_deactivated, instant(evicted.last_transition_time)
    ours = evicted.reason.startswith(_DEACTIVATED_BY_TURNSTILE) and not workload.spec.active
    ours = ours and not build.of_a_set(workload)
    if keep is None or since is None or not ours or plan.actions:
        return ""
    if seconds := view.cluster.left(since, keep):
        plan.wake(seconds)
        return "deactivated, and kept for a while"
    plan.finalize()  # first: a deletion makes the version that is read here stale
    for member in view.members:
        meta = member.metadata
        plan.actions.append(Delete(type(member), meta.namespace, meta.name, uid=meta.uid))
    plan.emit("Deleted", "Deleted job: deactivation retention period expired")
    return "deactivated, and deleted when it was kept long enough"


def _end_pods(plan: Plan, workload: Workload, *, stopped: bool) -> None:
    """Delete the pods for which a Workload keeps quota that it has to give up: those that take too long, and once the
    job is `stopped` all, because its own controller does not know those that are left."""
    stopped = stopped and not plan.view.integration.active(plan.view.job)
    rest = left(workload, plan.view.cluster) if stopped else []
    plan.actions += rest or hastened(workload, plan.view.cluster)
    if stopped:
        plan.wake(RETRY_SECONDS)  # there may be others by then


def _unseen(plan: Plan, workload: Workload) -> bool:
    """Whether pods of a stopped job may be created still, by a controller that has not read that it is suspended; then
    the job is reconciled again when that is over."""
    view, seconds = plan.view, 0.0
    acknowledgement, cluster = view.integration.acknowledgement, view.cluster
    if acknowledgement is None or not acknowledgement.stays_active:
        seconds = charges.unseen_seconds(workload, cluster)
        unheard = not (view.suspended or charges.stops_are_known(view.integration))  # it is stopped in this decision
        if unheard and workload.admitted and charges.some_unseen(workload, cluster):
            seconds = UNSEEN_SECONDS
    if acknowledgement is not None and not acknowledgement.acknowledged(view.job):
        seconds = max(seconds, charges.unread_seconds(workload, cluster))
    elif not stop_is_acknowledged(workload, cluster):  # a child that says so later does not wake its owner
        seconds = max(seconds, min(_AGAIN_SECONDS, charges.unread_seconds(workload, cluster)))
    plan.wake(seconds or None)
    return bool(seconds)


def stop_unadmitted(view: JobView) -> Outcome | None:
    """Stop a job that runs without being admitted."""
    workload, plan = view.roles.current, Plan(view)
    if workload is None:
        return None
    if not workload.quota_reserved:
        plan.hasten()
    if view.suspended:
        return plan.goes_on()
    if view.elastic and workload.quota_reserved and view.carries_admission:
        return plan.ends("gates hold the pods that no slice is admitted for")
    plan.stop(workload.spec.pod_sets, reason=NOT_ADMITTED, message=_NOT_ADMITTED)
    return plan.ends("not admitted")


def wait(view: JobView) -> Outcome | None:
    """Keep a suspended job waiting: finish a stop that was cut short, and let the Workload follow the job's queue."""
    workload, plan = view.roles.current, Plan(view)
    if workload is None:
        return None
    plan.stop(workload.spec.pod_sets, reason=NOT_ADMITTED, message=_NOT_ADMITTED)
    if plan.actions:
        return plan.ends("a stop that was cut short is finished")
    if workload.quota_reserved:
        checks = [
            f"{check.name}: {check.message}"
            for check in workload.status.admission_checks
            if check.state == "Pending" and check.message
        ]
        if checks:
            plan.emit("UpdatedAdmissionCheck", "; ".join(checks), about=view.members)
        return plan.ends("waiting for admission checks")
    return plan.ends(_move(plan, workload) or _take_off_hold(plan, workload) or "waiting")


def _move(plan: Plan, workload: Workload) -> str:
    """Move the Workload to the queue that the job names; empty if it is there already."""
    queue = another_queue(plan.view, workload)
    if queue is None:
        return ""
    plan.actions.append(fresh_patch(workload, {"spec": {"queueName": queue or None}}))
    return f"moves to queue {queue}"


def _take_off_hold(plan: Plan, workload: Workload) -> str:
    """Let a Workload back into its queue whose job is not on hold any more; empty if that is not for its job."""
    if not workload.on_hold or build.of_a_set(workload):
        return ""
    plan.actions.append(taken_off_hold(workload, plan.view.cluster))
    return "not on hold any more"
