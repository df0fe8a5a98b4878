"""Steps of a job that another object made: queued by itself, or with an ancestor whose Workload charges for its pods;
and of a job that ran before it was queued.

Must never create a Workload, and never resume a job: the job's own controller does.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from turnstile.api import names
from turnstile.api.conditions import instant
from turnstile.api.core import Pod
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, find_condition
from turnstile.api.patch import JsonPatch
from turnstile.api.workload import ADMITTED, EVICTED, Workload
from turnstile.controllers.jobs.admissible import unless_followed
from turnstile.controllers.jobs.children import Family, below, unmarked_pods
from turnstile.controllers.jobs.plan import Outcome, Plan, job_patch
from turnstile.controllers.jobs.release import RETRY_SECONDS
from turnstile.controllers.jobs.shared import sharing
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.runtime.actions import Emit
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB
from turnstile.jobs import workload as build
from turnstile.jobs.ancestors import Ancestor, lent_queue, managed_ancestor
from turnstile.jobs.integration import NOT_ADMITTED, Change
from turnstile.jobs.labels import queue_name
from turnstile.jobs.naming import job_key
from turnstile.jobs.podsets import PodSetInfo
from turnstile.kube import raws

_STRAY: Final = f"its pods have the label {names.PODSET_LABEL}, but no owner whose Workload charges for them"
_CURE: Final = f"set the label {names.QUEUE_LABEL} on it to have it queued by itself"
_SUSPENDED: Final = "Kueue managed child job suspended"


def take_in(view: JobView) -> Outcome | None:
    """Mark a job as queued that ran before it had a Workload. No webhook has seen it, and of a Pod without the marks
    too little is cached to compare it with its Workload: nothing else is decided until it carries them. Templates come
    first: the webhook lets the pods of a queued job run that are made from marked templates."""
    workload = next((each for each in view.unfinished if build.is_imported(each)), None)
    queue = workload.spec.queue_name if workload is not None else ""
    if workload is None or not queue or view.group is not None or view.outcome is not None:
        return None
    plan = Plan(view)
    if (change := _templates_marked(view, workload)) is not None:
        plan.patch(change)
        return plan.ends("the pods that it makes later are marked first")
    marks = view.integration.importing.marks_to_import(view.job)
    if not queue_name(view.job):
        marks["labels"] = {**marks.get("labels", {}), names.QUEUE_LABEL: queue}
    if not marks:
        return _children_marked(plan, workload)
    plan.patch(Change({"metadata": marks}, fresh=True))
    plan.emit("Imported", f"It ran without a queue, and is charged to LocalQueue {queue} from now on")
    return plan.ends("it is imported into its queue")


def _children_marked(plan: Plan, workload: Workload) -> Outcome | None:
    """Mark the pods of the children that an imported job had, so that these are charged like pods of marked templates,
    and the templates of children in which they may change. Where they may not, while a Job runs, the pods that it makes
    later are marked when they are seen."""
    view = plan.view
    if not workload.admitted:
        return None
    try:
        infos = {each.name: each for each in view.cluster.infos_of(workload)}
    except (LookupError, PermanentError):
        return None
    for parent, child in below(view.job, view.cluster):
        marks = view.cluster.registry.of(parent).importing
        named = [infos[each] for each in marks.pod_sets_of(child) if each in infos]
        if (change := _marks_of_child(view, child, named)) is not None:
            plan.actions.append(job_patch(type(child), child, change))
        for pod_set, pod in unmarked_pods(parent, child, view.cluster):
            if (info := infos.get(pod_set)) is not None:
                labels = {key: value for key, value in info.labels.items() if key not in pod.metadata.labels}
                meta = {"labels": labels, "annotations": dict(info.annotations)}
                plan.actions.append(job_patch(Pod, pod, Change({"metadata": meta})))
    return plan.goes_on()


def _marks_of_child(view: JobView, child: Kind, infos: Sequence[PodSetInfo]) -> Change | None:
    """The patch that adds the admission to the templates of a child; None if it needs none, or is left as it is."""
    made_by = view.cluster.registry.of(child)
    if child.metadata.deletion_timestamp or not infos or raws.stripped(child) or made_by.suspended(child):
        return None
    try:
        return made_by.importing.mark_running(child, infos)
    except PermanentError:
        return None


def _templates_marked(view: JobView, workload: Workload) -> Change | None:
    """The patch that adds the admission to the templates of a running job; None if it needs none."""
    if not view.runs:
        return None
    try:
        return view.integration.importing.mark_running(view.job, view.cluster.infos_of(workload))
    except (LookupError, PermanentError):
        return None  # a template that contradicts the flavor: the next pods wait, as those of a job that cannot start


def adopt_child(view: JobView) -> Outcome | None:
    """Suspend a running child of a managed job until that job is admitted; a job for which no ancestor's Workload
    charges must name a queue. A job with a Workload of its own keeps its queue, whatever its labels and owners are
    since."""
    job, cluster, plan = view.job, view.cluster, Plan(view)
    if view.unfinished:
        named = queue_name(job) or any(each.spec.queue_name for each in view.unfinished)
        everything = cluster.options.manage_jobs_without_queue_name
        return None if named or everything else unless_followed(view, "no queue name")
    if isinstance(job, Pod) and (workload := sharing(job, cluster)) is not None:
        if view.outcome is not None:
            plan.finalize()
        return plan.ends(f"started within what Workload {workload.metadata.key} reserves")
    try:
        ancestor = _ancestor(view)
    except LookupError as error:
        if view.is_new:  # the owner may have been created only a moment before the job
            plan.wake(RETRY_SECONDS)
            return plan.ends(str(error))
        return _by_itself(view, str(error) if view.names_pod_set or queue_name(job) else "")
    except PermanentError as error:
        return _by_itself(view, str(error))
    if ancestor is None and not queue_name(job) and (queue := lent_queue(job, cluster.find_job, cluster.registry)):
        plan.patch(Change({"metadata": {"labels": {names.QUEUE_LABEL: queue}}}, fresh=True))
        return plan.ends(f"takes queue {queue} of its owner")
    if ancestor is None:
        return _by_itself(view, _STRAY if view.names_pod_set else "")
    if ancestor.job is None:
        return plan.ends(f"managed elsewhere with {ancestor.kind} {ancestor.name}")
    return None if Family(cluster).own_workload(job) else _follow(view, ancestor, ancestor.job)


def _follow(view: JobView, ancestor: Ancestor, parent: Kind) -> Outcome | None:
    """Let a job run with its ancestor, if the ancestor's Workload charges for it."""
    cluster, plan, family = view.cluster, Plan(view), Family(view.cluster)
    workload = _workload_of(view, parent)
    if workload is None or not workload.admitted:
        if view.runs and plan.suspend(view.integration, view.job):
            plan.emit("Suspended", _SUSPENDED)
        else:
            plan.prepare()
        plan.hasten()
        return plan.ends(f"queued with {ancestor.kind} {ancestor.name}")
    if workload.evicted and view.runs and _left_running(plan, workload):
        return plan.ends(f"queued with {ancestor.kind} {ancestor.name}, which is stopped")
    problem = ancestor.fault
    if not problem and _judged(view, workload) and not family.left_over(view.job, parent):
        problem = family.uncharged(view.job, ancestor, workload)
    if problem:
        return _by_itself(view, problem)
    plan.prepare()
    for sibling in family.beyond(view.job, ancestor, workload):
        if plan.suspend(cluster.registry.of(sibling), sibling):
            note = f"The Workload of {ancestor.kind} {ancestor.name} does not charge for its pods: {_CURE}"
            plan.actions.append(Emit(sibling, "Warning", "NotCharged", note))
    return plan.ends(f"queued with {ancestor.kind} {ancestor.name}")


def _left_running(plan: Plan, workload: Workload) -> bool:
    """Whether the Workload of the ancestor was evicted so long ago that the job, which runs still, is suspended here:
    the ancestor's own controller does not run, or is late."""
    view = plan.view
    evicted = find_condition(workload.status.conditions, EVICTED)
    since = instant(evicted.last_transition_time) if evicted is not None else None
    assert since is not None
    if left := view.cluster.left(since, RETRY_SECONDS):
        plan.wake(left)
        return False
    if plan.suspend(view.integration, view.job):
        plan.emit("Suspended", _SUSPENDED)
    return True


def _ancestor(view: JobView) -> Ancestor | None:
    if view.integration.handling.top_level:
        return None
    cluster = view.cluster
    return managed_ancestor(view.job, cluster.find_job, options=cluster.options, registry=cluster.registry)


def _by_itself(view: JobView, problem: str) -> Outcome | None:
    """Go on with a job that names a queue or need not name one. Leave every other job alone, unless it has a problem:
    it would run as the child of a job whose Workload does not charge for it."""
    plan = Plan(view)
    if view.cluster.options.manage_jobs_without_queue_name or queue_name(view.job):
        if problem and not view.workloads:
            plan.emit("QueuedByItself", f"It is queued by itself: {problem}")
        return plan.goes_on()
    if not problem and not any(each.admitted for each in view.workloads):
        gated = view.integration.gated_pods
        problem = gated.needs_queue(view.job) if gated is not None else ""
    if not problem:
        return plan.ends("it is put into the default queue" if _enter_default_queue(plan) else "no queue name")
    if view.outcome is None:
        if view.runs and not plan.suspend(view.integration, view.job):
            plan.stop(None, reason=NOT_ADMITTED, message=f"Not admitted: {problem}")
        plan.emit("NotCharged", f"It may not run: {problem}; {_CURE}", warning=True)
    plan.hasten()
    return plan.ends(problem)


def _enter_default_queue(plan: Plan) -> bool:
    """Put a job into the default queue of its namespace that the webhook did not put there because of an owner that
    has never come, or that the job names no more. A job that is older than the queue was never in it."""
    view = plan.view
    meta, cluster = view.job.metadata, view.cluster
    if view.integration.kind is Pod:  # it is gated when it is created, or never
        return False
    queue = cluster.local_queues.get(f"{meta.namespace}/{names.DEFAULT_LOCAL_QUEUE}")
    since = instant(queue.metadata.creation_timestamp) if queue is not None else None
    created = instant(meta.creation_timestamp)
    if since is None or created is None or created < since or view.outcome is not None:
        return False
    if view.workloads or meta.deletion_timestamp or cluster.registry.follows(view.job, cluster.find_job):
        return False
    patch = JsonPatch()
    patch.put(meta.labels, "metadata", "labels", key=names.QUEUE_LABEL, value=names.DEFAULT_LOCAL_QUEUE)
    view.integration.additions.prepare(view.job, patch)
    if not view.integration.held(view.job):
        view.integration.hold(view.job, patch)
    plan.patch(Change(patch, fresh=True))
    note = f"It names no queue, and no owner is queued for it: it is put into LocalQueue {names.DEFAULT_LOCAL_QUEUE}"
    plan.emit("QueuedByDefault", note)
    return True


def _judged(view: JobView, workload: Workload) -> bool:
    """Whether the job must be charged for by now.

    A suspended child that is not clearly younger than the admission may still get its label: the owner's controller
    adds it when it resumes the child.
    """
    if view.outcome is not None:
        return False
    if view.runs or view.names_pod_set:
        return True
    condition = find_condition(workload.status.conditions, ADMITTED)
    admitted = instant(condition.last_transition_time) if condition is not None else None
    created = instant(view.job.metadata.creation_timestamp)
    return admitted is not None and created is not None and created > admitted + timedelta(seconds=RETRY_SECONDS)


def _workload_of(view: JobView, ancestor: Kind) -> Workload | None:
    """The newest unfinished Workload of a job, or of the owner of a job that is being deleted.

    The owner may be gone before what it made has cleaned up.
    """
    registry, meta = view.cluster.registry, ancestor.metadata
    uids, keys = {meta.uid}, [registry.key_of(ancestor)]
    owner = meta.controller if meta.deletion_timestamp else None
    if owner is not None and (integration := registry.by_owner(owner)) is not None:
        uids.add(owner.uid)
        keys.append(job_key(integration.framework, meta.namespace, owner.name))
    workloads = [
        each
        for key in keys
        for each in view.cluster.workloads.by_index(WORKLOADS_BY_JOB, key)
        if not each.finished and any(o.uid in uids for o in each.metadata.owner_references)
    ]
    running = [each for each in workloads if each.admitted and not each.evicted]  # growth of an elastic job may wait
    return max(
        running or workloads,
        key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name),
        default=None,
    )
