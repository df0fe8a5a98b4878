"""Steps that give a job its Workload, start the job once the Workload is admitted, and watch that no more runs.

Must never reserve quota.
"""

from typing import Any

from turnstile.api.core import Pod
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges, patience
from turnstile.controllers.charging.excess import excess
from turnstile.controllers.jobs.children import running_children
from turnstile.controllers.jobs.following import FAILED_TO_START
from turnstile.controllers.jobs.plan import Outcome, Plan
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.controllers.view.multikueue import dispatching
from turnstile.jobs import workload as build
from turnstile.jobs.integration import NOT_ADMITTED, Change
from turnstile.kube.gate import Rank


def hasten_uncharged(view: JobView) -> Outcome | None:
    """Shorten the grace period of pods that terminate while no Workload with quota charges for them."""
    workload = view.roles.current
    if workload is not None:
        return None
    plan = Plan(view)
    plan.hasten()
    return plan.goes_on()


def create(view: JobView) -> Outcome | None:
    """Create the Workload of a job that has none."""
    if view.roles.current is not None:
        return None
    plan, integration, job, options = Plan(view), view.integration, view.job, view.cluster.options
    if view.outcome is not None:
        plan.finalize()
        return plan.ends("the job has ended")
    if integration.active(job) or running_children(integration, job, view.cluster):
        return plan.ends("pods of an earlier run are still there")
    if why := view.unread:
        return plan.ends(why)  # a change of the object that has the pod templates requeues the job
    priority = view.priority()

    elastic = build.elastic(integration, job, options)
    taken = {each.metadata.name for each in view.workloads}
    name = build.slice_to_make(integration, job, taken) if elastic else build.name_of(integration, job)

    def body(job: Kind) -> dict[str, Any]:
        return build.body(integration, job, integration.pod_sets(job), priority, options, name=name)

    plan.tidy()  # deletes members that the Workload would not charge for
    plan.create(name, body, view.pod_sets)
    plan.emit("CreatedWorkload", f"Created Workload: {job.metadata.namespace}/{name}")
    return plan.ends("a Workload is made")


def start(view: JobView) -> Outcome | None:
    """Start a job whose Workload is admitted."""
    workload = view.roles.current
    waits = view.suspended if view.group is None else view.group.waits(view.job)
    if workload is None or not workload.admitted or not (waits or view.half_stopped):
        return None
    plan = Plan(view)
    copies = view.integration.copies
    held = view.integration.gated_pods is not None or (copies is not None and copies.managed_by is None)
    if held and dispatching(workload, view.cluster.admission_checks) is not None:
        return plan.ends("admitted, and held here: its copy runs on another cluster")
    if view.half_stopped:
        plan.stop(workload.spec.pod_sets, reason=NOT_ADMITTED, message="Not admitted by cluster queue")
        return plan.ends("a stop that was cut short is finished first")
    if running_children(view.integration, view.job, view.cluster):
        return plan.ends("admitted, but pods of an earlier run are still there")
    try:
        started = view.integration.start(view.job, view.cluster.infos_of(workload)) or ()
    except PermanentError as error:
        if view.group is not None and view.to_stop:  # some members may run already
            plan.stop(workload.spec.pod_sets, reason=NOT_ADMITTED, message=f"Cannot start: {error}")
            return plan.ends(f"cannot start, and what runs is stopped first: {error}")
        plan.finish(workload, FAILED_TO_START, str(error))
        return plan.ends(f"cannot start: {error}")
    _warn_of_uncovered(plan)
    plan.rank = Rank.START
    for change in [started] if isinstance(started, Change) else started:
        plan.patch(change)
        if change.subresource == "":
            queue = workload.status.admission.cluster_queue if workload.status.admission else ""
            about = [change.target] if change.target is not None else None
            plan.emit("Started", f"Admitted by clusterQueue {queue}", about=about)
    return plan.ends("admitted" if started else "admitted, but pods of an earlier run are still there")


def _warn_of_uncovered(plan: Plan) -> None:
    """Warn of members that stay gated because the group's prebuilt Workload does not charge for them."""
    group = plan.view.group
    for member in group.uncovered(plan.view.job) if group is not None else ():
        note = f"Pod {member.metadata.name} stays gated: it requests more than a role of the prebuilt workload"
        plan.emit("PodExceedsRoleRequests", note, warning=True, about=[member])


def watch_running(view: JobView) -> Outcome | None:
    """Hold a job that runs to the pods that its Workload charges for."""
    workload = view.roles.current
    if workload is None or not workload.admitted:
        return None
    plan, cluster = Plan(view), view.cluster
    # No controller makes the pods of a group: a group whose pods were all deleted is over, as a job that was deleted.
    over = view.group is not None and not build.of_a_set(workload) and not any(map(_goes_on, view.members))
    late, again = (patience.forsaken if over else patience.outnumbering)(workload, cluster)
    plan.actions += late
    plan.wake(again)
    if view.integration.counted_pods is not None and workload.spec.active and cluster.pods.complete:
        found = excess(workload, cluster)
        if found is not None and found.seconds:
            plan.wake(found.seconds)
            return plan.ends(f"running, and may have too many pods: {found.problem}")
        if found is not None:
            return _deactivate(plan, workload, found.problem)
    plan.prepare()
    return plan.ends("running")


def _goes_on(pod: Kind) -> bool:
    """Whether a member of a group may run and is not being deleted."""
    return isinstance(pod, Pod) and charges.may_run(pod) and not pod.metadata.deletion_timestamp


def _deactivate(plan: Plan, workload: Workload, problem: str) -> Outcome:
    """Deactivate the Workload of a job that has more pods than it is charged for. Evicted alone, the job would run
    again at once, and so would these pods."""
    plan.actions.append(fresh_patch(workload, {"spec": {"active": False}}))
    note = f"Workload '{workload.metadata.key}' is deactivated: {problem}"
    plan.emit("NotCharged", note, warning=True)
    return plan.ends(note)
