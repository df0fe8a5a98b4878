"""Steps that bring the Workloads of a job in line with it: the current one follows the job, the others go.

A Workload that does not fit is rewritten while it waits, else replaced once the job has stopped. Must never start a
job, and never create a Workload.
"""

from typing import Any

from turnstile.api import names
from turnstile.api.meta import to_plain
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs.plan import Outcome, Plan
from turnstile.controllers.jobs.release import RETRY_SECONDS
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.runtime.actions import Emit, Patch
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.jobs import workload as build
from turnstile.jobs.integration import NO_MATCHING_WORKLOAD
from turnstile.jobs.labels import prebuilt_name, queue_name

_FOLLOWS = "the Workload follows its job"


def refuse_name(view: JobView) -> Outcome | None:
    """Keep a group stopped whose name is that of a Workload that was not made for a group.

    Running members are stopped; members that are being deleted lose their finalizer.
    """
    if view.group is None or prebuilt_name(view.job):
        return None
    name = build.name_of(view.integration, view.job)
    workload = view.cluster.workloads.get(f"{view.job.metadata.namespace}/{name}")
    if workload is None:
        return None
    owner = workload.metadata.controller
    of_group = workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD) == "true"
    if of_group and (owner is None or (owner.kind, owner.api_version) == ("Pod", "v1")):
        return None
    plan = Plan(view)
    conflict = f'A Workload named "{name}" already exists but is not a pod group workload'
    plan.emit("WorkloadNameConflict", f"{conflict}; this pod group cannot be admitted", warning=True)
    plan.stop(None, reason=NO_MATCHING_WORKLOAD, message="missing workload")
    plan.dissolve()
    return plan.ends(f"the Workload {name} is not a group's")


def take_prebuilt(view: JobView) -> Outcome | None:
    """Take over the Workload that a job names, or finish it where it does not fit the job."""
    name, workload, plan = prebuilt_name(view.job), view.prebuilt, Plan(view)
    if not name:
        return None
    if workload is None:
        plan.stop(None, reason=NO_MATCHING_WORKLOAD, message="missing workload")
        plan.wake(RETRY_SECONDS)
        return plan.ends(f"prebuilt workload not found: {name}")
    controlled = workload.metadata.controller is not None
    if not controlled and _has_foreign_pods(view, workload):
        plan.wake(RETRY_SECONDS)
        return plan.ends(f"prebuilt workload {name} is charged for pods of another job")
    if not controlled and not build.of_a_set(workload) and _own(plan, workload):
        return plan.ends(f"takes over prebuilt workload {name}")
    if workload.finished or view.fits(workload):
        return None
    if view.outcome is None and (view.to_stop or view.pods_hold_quota([workload])):
        known = None if view.group is not None else workload.spec.pod_sets
        stopped = plan.stop(known, reason=NO_MATCHING_WORKLOAD, message="missing workload")
        if not stopped or plan.actions or charges.held(workload, view.cluster):
            return plan.ends(f"prebuilt workload {name} does not fit the job, which is stopped first")
    plan.finish(workload, "OutOfSync", "The prebuilt workload is out of sync with its user job")
    return plan.ends(f"prebuilt workload {name} does not fit the job")


def _has_foreign_pods(view: JobView, workload: Workload) -> bool:
    """Whether pods of a job that is gone run under a Workload, or are not read yet: it was orphaned, and has no quota
    for other pods."""
    if build.of_a_set(workload):
        return False  # it is never left to another job: its name is made of the uid of its set
    if not view.cluster.pods.complete:
        return True
    pods = charges.pods_of(workload, view.cluster)
    return any((pod.metadata.controller or pod.metadata).uid not in view.uids for pod in pods)


def settle_surplus(view: JobView) -> Outcome | None:
    """Delete surplus Workloads, once the job that they do not fit has stopped. Where no Workload fits, the first one is
    rewritten while it waits: cheaper than a new Workload, and its position in the queue stays."""
    current, surplus, plan = view.roles.current, view.roles.surplus, Plan(view)
    if current is None and view.outcome is None and (view.to_stop or view.pods_hold_quota(surplus)):
        known = surplus[0].spec.pod_sets if len(surplus) == 1 else None
        complete = plan.stop(
            known,
            reason=NO_MATCHING_WORKLOAD,
            message="No matching Workload; restoring pod templates according to existent Workload"
            if known is not None
            else "Missing Workload; unable to restore pod templates",
        )
        if not complete or any(charges.held(each, view.cluster, deleting=True) for each in surplus):
            return plan.ends("the Workload that does not fit is kept until its pods are gone")
    elif current is None and surplus and view.suspended and _rewritable(surplus[0]):
        priority, integration = view.priority(), view.integration
        options = view.cluster.options
        plan.respecify(
            surplus[0], lambda job: build.spec_change(job, integration.pod_sets(job), priority, options), view.pod_sets
        )
        key = surplus[0].metadata.key
        plan.emit("UpdatedWorkload", f"Updated not matching Workload for suspended job: {key}")
        return plan.ends("the Workload is brought in line with its job")
    for workload in surplus:
        plan.discard(workload)
    if surplus:
        return plan.ends("extra workloads" if current is not None else "no matching workloads")
    return plan.goes_on()


def tidy_group(view: JobView) -> Outcome | None:
    """Delete excess members, remove the finalizer of replaced members, and add the other members as owners of the
    Workload."""
    workload = view.roles.current
    if view.group is None or workload is None or workload.finished or workload.metadata.deletion_timestamp:
        return None
    plan = Plan(view)
    plan.tidy()
    owns = not build.of_a_set(workload) and _own(plan, workload)
    return plan.ends(_FOLLOWS) if owns or plan.actions else None


def _own(plan: Plan, workload: Workload) -> bool:
    """Add the job as owner of a Workload that no other object controls. Returns whether anything was written."""
    integration, job, meta = plan.view.integration, plan.view.job, workload.metadata
    owners = {each.uid for each in meta.owner_references}
    controls = build.controls(integration)
    missing = [each for each in build.owners(integration, job) if each.metadata.uid not in owners]
    if not missing and not controls:
        return False
    added = [build.owner_reference(integration, each) for each in missing or (job,)]
    metadata: dict[str, object] = {"ownerReferences": [*(to_plain(each) for each in meta.owner_references), *added]}
    if prebuilt_name(job) and names.RESOURCE_IN_USE not in meta.finalizers:
        metadata["finalizers"] = [*meta.finalizers, names.RESOURCE_IN_USE]
    if controls:
        metadata["labels"] = build.job_uid_label(job)
    plan.actions.append(fresh_patch(workload, {"metadata": metadata}))
    if not controls:
        note = f"Added {len(missing)} owner reference(s)"
        plan.actions.append(Emit(workload, "Normal", "OwnerReferencesAdded", note))
    return True


def synchronize(view: JobView) -> Outcome | None:
    """Copy priority class and admission gates of the job to the Workload."""
    workload, options = view.roles.current, view.cluster.options
    if workload is None or prebuilt_name(view.job) or workload.finished or workload.metadata.deletion_timestamp:
        return None
    plan = Plan(view)
    for each in (workload, view.roles.growth):
        if each is not None and (patch := _followed(plan, each, options.gates_of(view.job.metadata))) is not None:
            plan.actions.insert(0, patch)
            return plan.ends(_FOLLOWS)
    return plan.goes_on()


def _followed(plan: Plan, workload: Workload, gates: str) -> Patch | None:
    """The patch by which a Workload follows the metadata of its job; None if it does."""
    meta, body = workload.metadata, dict[str, Any]()
    if gates != plan.view.cluster.options.gates_of(meta):
        body["metadata"] = {"annotations": {names.ADMISSION_GATED_BY: gates or None}}
        plan.emit("UpdatedWorkload", f'Updated workload AdmissionGatedBy to "{gates}"')
    # A set changes its Workload itself; its pods may carry an older label.
    priority = None if build.of_a_set(workload) else class_priority(plan, workload)
    if priority is not None:
        body["spec"] = {"priority": priority.value, "priorityClassRef": to_plain(priority.ref)}
        plan.emit("UpdatedWorkload", f"Updated workload priority class: {meta.key}")
    return fresh_patch(workload, body) if body else None


def class_priority(plan: Plan, workload: Workload) -> build.Priority | None:
    """The priority of the class in the job's label, if the Workload has another and may be changed.

    The label comes before a PriorityClass of the pods, and before no class, but the API server takes that change only
    without a reservation. A Workload keeps its priority while the class of the label is missing or deleted: the rest of
    the decision must still stop the job if necessary, and notice its end.
    """
    if workload.quota_reserved and not _has_class_of_ours(workload):
        return None
    return _labelled_priority(plan, workload)


def _labelled_priority(plan: Plan, workload: Workload) -> build.Priority | None:
    """The priority of the class in the job's label, if that class exists and is not what the Workload has."""
    label = plan.view.job.metadata.labels.get(names.PRIORITY_CLASS_LABEL)
    if not label:
        return None
    ref = workload.spec.priority_class_ref
    named = ref is not None and ref.name == label and _has_class_of_ours(workload)
    try:
        priority = build.workload_class_priority(label, plan.view.cluster.workload_priority_classes)
    except build.PriorityClassMissing as error:
        if not named:
            plan.emit(error.reason, str(error), warning=True)
        return None
    return None if named and (workload.spec.priority or 0) == priority.value else priority


def relabelled(plan: Plan, workload: Workload) -> str:
    """A label of the job that its Workload can only follow without the quota that it holds: another queue, or a
    priority class in place of that of its pods. Empty if there is none.

    As in Kueue, a Workload without any class keeps its quota, and gets the class when it has lost its quota.
    """
    view = plan.view
    if (queue := another_queue(view, workload)) is not None:
        return f"The job is moved to LocalQueue {queue or '(none)'}"
    if prebuilt_name(view.job) or build.of_a_set(workload) != (view.integration.as_set is not None):
        return ""  # its priority is not the job's to say
    ref = workload.spec.priority_class_ref
    if ref is None or _has_class_of_ours(workload) or _labelled_priority(plan, workload) is None:
        return ""
    return f"The job gets WorkloadPriorityClass {view.job.metadata.labels[names.PRIORITY_CLASS_LABEL]}"


def another_queue(view: JobView, workload: Workload) -> str | None:
    """The queue that the job names, or "" for none, if the Workload is to be moved to it; None if it stays.

    A Workload stays in its queue when its job names none any more, unless such jobs are managed too.
    """
    queue = queue_name(view.job)
    if not queue and not view.cluster.options.manage_jobs_without_queue_name:
        return None
    follows = view.group is None or view.group.follows_queue(view.job)
    return queue if follows and queue != (workload.spec.queue_name or "") else None


def _has_class_of_ours(workload: Workload) -> bool:
    """Whether the priority is that of a WorkloadPriorityClass, which may be changed for another at any time."""
    ref = workload.spec.priority_class_ref
    return ref is not None and ref.kind == WorkloadPriorityClass.KIND


def _rewritable(workload: Workload) -> bool:
    return not (workload.quota_reserved or workload.finished or workload.metadata.deletion_timestamp)
