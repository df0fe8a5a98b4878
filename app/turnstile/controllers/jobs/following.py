"""Steps that write the state of a job to its Workload: what its pods do, and that the job has ended.

Values that are right already are not written. Must never start a job.
"""

from typing import Final

from turnstile.api import workload as wl
from turnstile.api.errors import PermanentError
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs import podsscheduled
from turnstile.controllers.jobs.plan import Outcome, Plan
from turnstile.controllers.jobs.release import ended, released
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.status import podsready
from turnstile.jobs import workload as build
from turnstile.jobs.integration import NOT_ADMITTED
from turnstile.kube.gate import Rank

FAILED_TO_START: Final = "FailedToStart"
_OWN_END: Final = frozenset(("Succeeded", "Failed"))
_FAILED = ("PodsFailed", "Some Failed pods need replacement")
_REPLACED = ("PodsReady", "No pods need replacement")
_AGAIN_SECONDS: Final = 1.0
"""Seconds until pods are read again if the status of their job does not say whether they run, or are ready."""


def after_end(view: JobView) -> Outcome | None:
    """Remove finalizers once the Workload is finished; a job that has not ended must not run any more."""
    workload, plan = view.roles.current, Plan(view)
    if workload is None or not workload.finished:
        return None
    finished = find_condition(workload.status.conditions, wl.FINISHED)
    if view.outcome is None:
        said = f"{finished.reason}: {finished.message}" if finished is not None else ""
        if not view.suspended:
            message = f"Workload '{workload.metadata.key}' is finished, {said}"
            plan.stop(workload.spec.pod_sets, reason=NOT_ADMITTED, message=message)
            plan.hasten()
            return plan.ends(f"stopped, because its Workload is finished, {said}")
        if finished is not None and finished.reason == FAILED_TO_START and _can_start(view, workload):
            plan.discard(workload)
            return plan.ends("repaired: a new Workload is made")
    plan.finalize()
    let_go = bool(plan.actions)
    release = released(workload, deferrable=workload.metadata.deletion_timestamp is None)
    plan.actions.extend(release)
    # The end of the job itself had its event when Finished was written, unless another program wrote that.
    if let_go or (release and finished is not None and finished.reason not in _OWN_END):
        plan.emit("FinishedWorkload", f"Workload '{workload.metadata.key}' is declared finished")
    return plan.ends("the Workload is finished")


def _can_start(view: JobView, workload: Workload) -> bool:
    """Whether the job no longer contradicts the admission with which it could not be started."""
    try:
        view.integration.start(view.job, view.cluster.infos_of(workload))
    except (LookupError, PermanentError):
        return False
    return True


def finish(view: JobView) -> Outcome | None:
    """Finish the Workload of a job that has ended, once none of its pods runs."""
    workload, plan = view.roles.current, Plan(view)
    if workload is None or view.outcome is None:
        return None
    if charges.held_anywhere(workload, view.cluster):
        if workload.evicted:
            plan.stop_children()
        plan.actions.extend(ended(workload, view.cluster))
        plan.wake(_AGAIN_SECONDS if view.cluster.multikueue.elsewhere.holds(workload) else None)
        return plan.ends("the job has ended, but pods still run")
    plan.finish(workload, "Succeeded" if view.outcome.success else "Failed", view.outcome.message)
    plan.emit("FinishedWorkload", f"Workload '{workload.metadata.key}' is declared finished")
    plan.finalize()
    return plan.ends("the job has ended")


def reclaim(view: JobView) -> Outcome | None:
    """Write which pods give their quota back. Quota is given back by what runs: the Workload never holds less than its
    pods that may run need, nor gives back what the cluster to which it was sent has not."""
    workload, plan = view.roles.current, Plan(view)
    if workload is None or not view.cluster.options.reclaimable_pods:
        return None
    wanted = build.limited_reclaimable(workload, build.reclaimable(view.integration, view.job))
    released = view.cluster.multikueue.elsewhere.released(workload)
    if released is not None and any(count > released.get(name, 0) for name, count in wanted.items()):
        wanted = {name: found for name, count in wanted.items() if (found := min(count, released.get(name, 0)))}
        plan.wake(_AGAIN_SECONDS)
    if workload.quota_reserved:
        current = {each.name: each.count for each in workload.status.reclaimable_pods}
        if any(count > current.get(name, 0) for name, count in wanted.items()):
            if not view.cluster.pods.complete:
                return None
            roles = view.group.roles(view.job) if view.group is not None else {}
            most = charges.most_reclaimable(workload, view.cluster, roles)
            if any(count > most.get(name, 0) for name, count in wanted.items()):
                plan.wake(_AGAIN_SECONDS)  # the end of a pod does not change the job
                wanted = {name: found for name, count in wanted.items() if (found := min(count, most.get(name, 0)))}
        # The API refuses a smaller count while quota is reserved.
        wanted = {name: max(wanted.get(name, 0), current.get(name, 0)) for name in {**current, **wanted}}
    draft = view.cluster.draft(workload)
    draft.reclaim(wanted)
    if not draft.changed:
        return plan.goes_on()
    plan.actions.append(draft.patch())
    return plan.ends("pods that are done give their quota back")


def report_replacements(view: JobView) -> Outcome | None:
    """Write whether members of a group have to be replaced: the condition WaitingForReplacementPods."""
    workload, plan = view.roles.current, Plan(view)
    if workload is None or view.group is None:
        return None
    condition = find_condition(workload.status.conditions, wl.WAITING_FOR_REPLACEMENT_PODS)
    waited = condition is not None and condition.status == "True"
    evicted = find_condition(workload.status.conditions, wl.EVICTED)
    if not view.group.incomplete(view.job):
        if not waited:
            return None
        status, (reason, message) = "False", _REPLACED
    elif evicted is not None and evicted.status == "True":
        status, reason, message = "True", evicted.reason, evicted.message
    elif condition is not None and waited:
        return None
    else:
        status, (reason, message) = "True", _FAILED
    draft = view.cluster.draft(workload)
    draft.set(wl.WAITING_FOR_REPLACEMENT_PODS, status, reason=reason, message=message)  # type: ignore[arg-type]
    if not draft.changed:
        return None
    plan.actions.append(draft.patch())
    return plan.ends("says whether members have to be replaced")


def report_readiness(view: JobView) -> Outcome | None:
    """Write whether all pods are ready: the condition PodsReady."""
    workload, plan = view.roles.current, Plan(view)
    if workload is None or view.cluster.options.pods_ready is None:
        return None
    ready = workload.admitted and (view.integration.pods_ready(view.job) or _ready_but_for_growth(view, workload))
    if view.roles.growth is not None and not ready:
        plan.wake(_AGAIN_SECONDS)  # that a pod is ready does not wake a job whose other pods are gated
    status, reason, message = podsready.condition(workload, ready=ready)
    written = find_condition(workload.status.conditions, wl.PODS_READY)
    if written is not None and (written.status, written.reason) == (status, reason):
        return plan.goes_on()
    draft = view.cluster.draft(workload)
    draft.set(wl.PODS_READY, status, reason=reason, message=message)
    plan.actions.append(draft.patch())
    return plan.ends("says whether its pods are ready")


def _ready_but_for_growth(view: JobView, workload: Workload) -> bool:
    """Whether all pods are ready that a job may have while its growth waits: it asks for more, which are gated."""
    if view.roles.growth is None:
        return False
    ready = charges.ungated_pods(workload, view.cluster, ready=True)
    return all(ready.get(name, 0) >= count for name, count in charges.pods_charged(workload).items())


def report_scheduling(view: JobView) -> Outcome | None:
    """Write whether kube-scheduler finds nodes for the pods: the condition PodsScheduled."""
    workload, plan = view.roles.current, Plan(view)
    if workload is None:
        return None
    patch, seconds = podsscheduled.report(workload, view.cluster)
    plan.wake(seconds)
    if patch is None:
        return plan.goes_on()
    plan.actions.append(patch)
    plan.rank = Rank.REASON
    return plan.ends("says whether kube-scheduler finds nodes for its pods")
