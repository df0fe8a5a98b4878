"""Steps that leave a job alone: it is being deleted, or it is not managed. The first steps of every decision.

A job that was queued is followed to its end, whatever is configured and labelled since. Must never start a job.
"""

from typing import Final

from turnstile.api.core import Pod
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs.orphans import ownerless
from turnstile.controllers.jobs.plan import Outcome, Plan
from turnstile.controllers.jobs.release import released
from turnstile.controllers.jobs.view import TEMPLATES_ARE_READ, JobView
from turnstile.kube import raws

_ORPHANS: Final = "orphan"
"""The finalizer of an object that is deleted with orphan propagation."""


def end_deleted(view: JobView) -> Outcome | None:
    """Finish the Workloads of a job that is being deleted, once none of their pods runs, and let the job go."""
    if not view.job.metadata.deletion_timestamp:
        return None
    plan = Plan(view)
    if view.integration.exceptions.winds_down(view.job):
        return plan.ends("the job is being deleted, and cleans up")
    orphans = _ORPHANS in view.job.metadata.finalizers
    plan.actions, why = ownerless(view.workloads, view.cluster, "the job is being deleted", orphans=orphans)
    if isinstance(view.job, Pod) and not view.integration.exceptions.skip(view.job):
        plan.hasten()
    if not any(charges.held(each, view.cluster) for each in view.workloads):
        plan.finalize()
    return plan.ends(why)


def skip_ignored(view: JobView) -> Outcome | None:
    """Leave a job alone that its kind skips."""
    return unless_followed(view, view.integration.exceptions.skip(view.job))


def skip_unmanaged(view: JobView) -> Outcome | None:
    """Leave a job alone whose framework or namespace is not managed."""
    options = view.cluster.options
    namespace = view.cluster.namespaces.get(view.job.metadata.namespace)
    if namespace is None:
        return Plan(view).ends(f"namespace {view.job.metadata.namespace} is gone")
    why = ""
    if not view.cluster.registry.is_enabled(view.integration):
        why = f"the framework {view.integration.framework} is not enabled"
    elif not options.managed_jobs_namespace_selector.matches(namespace.metadata.labels):
        why = f"namespace {namespace.metadata.name} is not managed"
    if (outcome := unless_followed(view, why)) is not None:
        return outcome
    if raws.stripped(view.job):
        return Plan(view).ends(TEMPLATES_ARE_READ)  # they were not cached while the job was not managed
    return None


def unless_followed(view: JobView, why: str) -> Outcome | None:
    """End the decision about a job that is not managed, with the reason; None if there is none, or if the job is
    reconciled all the same, because its Workload holds quota or is still needed to stop or finish the job. A Workload
    that is not needed any more is deleted."""
    if not why:
        return None
    plan = Plan(view)
    if not view.unfinished:
        _let_go(plan)
        return plan.ends(why)
    if raws.stripped(view.job):
        return plan.ends(TEMPLATES_ARE_READ)
    to_restore = view.half_stopped or (view.suspended and view.carries_admission)
    if to_restore or view.outcome is not None or any(each.quota_reserved for each in view.unfinished):
        return None
    for workload in view.unfinished:
        plan.discard(workload)
    return plan.ends(why)


def _let_go(plan: Plan) -> None:
    """Remove the finalizers of a job that is not managed any more and has no unfinished Workload: the removal may have
    been cut short, and no other step does it."""
    view = plan.view
    if view.owned:
        plan.finalize()
    elif not view.workloads:
        plan.dissolve()
    for each in view.owned:
        plan.actions.extend(released(each, deferrable=each.metadata.deletion_timestamp is None))
