"""Steps of an elastic job, which may change its number of pods while it runs: its slices follow the job.

Growth is a second Workload, which is charged for the difference and takes the place of the first when it is admitted;
until then the first runs on. A job that shrinks gives quota back when the pods that go have gone: Kueue gives it back
at once. Must never lift a gate: `controllers.workloads.heldpods` does, within what the current slice charges for.
"""

from collections.abc import Iterator
from typing import Any, Final

from turnstile.api import names
from turnstile.api.conditions import instant
from turnstile.api.meta import Kind, find_condition
from turnstile.api.workload import ADMITTED, Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs import slices
from turnstile.controllers.jobs.plan import Outcome, Plan
from turnstile.controllers.jobs.release import discarded, released, taken_back
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs import podsets
from turnstile.jobs import workload as build
from turnstile.jobs.remote import is_copy

KEPT: Final = 3
"""Finished slices of a running job that are kept; Kueue keeps all."""
LIFTED_SECONDS: Final = 5.0
"""Seconds after the admission of a slice, or the creation of a pod, in which its gate may be lifted though no cache
shows it yet."""
_AGAIN_SECONDS: Final = 5.0
"""Seconds until the pods of a job that shrinks are counted again, if none of them ends before: gated ones may stay."""


def settle_slices(view: JobView) -> Outcome | None:
    """Finish the slices that charge for nothing any more, and let those go that are finished."""
    roles, plan = view.roles, Plan(view)
    for spent in roles.spent:
        plan.finish(spent.workload, spent.reason, spent.message)
    if roles.spent:
        return plan.ends("a slice in its place charges for the pods")
    for each in roles.past[:-KEPT] if view.outcome is None else ():
        plan.actions += discarded(each)
    for each in roles.past[-KEPT:]:
        plan.actions += released(each, deferrable=each.metadata.deletion_timestamp is None)
    growth = roles.growth
    if growth is not None and growth.metadata.deletion_timestamp:
        plan.actions += released(growth)
        return plan.ends("the slice that waited is being deleted")
    if growth is not None and growth.evicted and growth.quota_reserved:
        plan.actions.append(taken_back(growth, view.cluster, requeues=True))
        return plan.ends("the slice that waited for admission checks is evicted: no pod of its own runs")
    return plan.goes_on()


def resize(view: JobView) -> Outcome | None:
    """Have the slices charge for as many pods as the job asks for: write other numbers, or create the next slice."""
    current, plan = view.roles.current, Plan(view)
    latest = view.roles.growth or current
    if latest is None or current is None or not view.elastic or view.outcome is not None or view.unread:
        return None
    stops = current.evicted and current.quota_reserved
    if current.finished or stops or any(e.metadata.deletion_timestamp for e in (current, latest)):
        return None
    wished = {each.name: each.count for each in view.pod_sets}
    running = _running(view, current)
    wanted = {name: max(count, running.get(name, 0)) for name, count in wished.items()}
    match slices.change(latest, wanted):
        case "numbers":
            plan.resize(latest, wanted)
            plan.emit("UpdatedWorkload", f"Updated pod counts of Workload: {latest.metadata.key}")
            return plan.ends("the slice gets other numbers of pods")
        case "growth" if is_copy(view.job):
            return plan.ends("the job grows when its manager has sent the next slice")
        case "growth":
            return _grow(plan, latest, wanted)
    if wanted != wished:
        plan.wake(_AGAIN_SECONDS)
    return plan.goes_on()


def _grow(plan: Plan, latest: Workload, wanted: dict[str, int]) -> Outcome:
    """Create the slice that takes the place of the latest one."""
    view, integration, options = plan.view, plan.view.integration, plan.view.cluster.options
    priority = view.priority()
    name = build.slice_to_make(integration, view.job, {each.metadata.name for each in view.workloads})

    def body(job: Kind) -> dict[str, Any]:
        pod_sets = integration.pod_sets(job)
        made = build.body(integration, job, pod_sets, priority, options, name=name, replaces=latest)
        for each, before in zip(made["spec"]["podSets"], latest.spec.pod_sets, strict=True):
            each["count"] = wanted.get(each["name"], each["count"])
            each["template"] = podsets.with_directives(each["template"], before.template)
        return made

    plan.create(name, body, view.pod_sets)
    plan.emit("CreatedWorkload", f"Created Workload: {view.job.metadata.namespace}/{name}")
    return plan.ends("the job grows: the next slice is made")


def _about_to_run(current: Workload, cluster: ClusterView) -> Iterator[str]:
    """The pod sets of gated pods whose gate may be lifted at this moment, each as often as it has such a pod: these
    are new, or the slice is. No slice gives their quota back meanwhile."""
    admitted = find_condition(current.status.conditions, ADMITTED)
    since = instant(admitted.last_transition_time) if admitted is not None else None
    alone = current.spec.pod_sets[0].name if len(current.spec.pod_sets) == 1 else ""
    for pod in charges.left_gated_pods(current, cluster):
        times = (since, instant(pod.metadata.creation_timestamp))
        if not pod.metadata.deletion_timestamp and any(cluster.left(each, LIFTED_SECONDS) for each in times):
            yield pod.metadata.labels.get(names.PODSET_LABEL) or alone


def _running(view: JobView, current: Workload) -> dict[str, int]:
    """How many pods of each pod set hold quota or are about to, up to what the current slice charges for: a job that
    shrinks keeps it until they have gone."""
    if not current.quota_reserved:
        return {}
    charged = charges.pods_charged(current)
    if not view.cluster.pods.complete:
        return charged
    found = charges.ungated_pods(current, view.cluster)
    for name in _about_to_run(current, view.cluster):
        found[name] = found.get(name, 0) + 1
    return {name: min(count, found.get(name, 0)) for name, count in charged.items()}
