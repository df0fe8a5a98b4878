"""Decides about one job of any kind: reads the job, and takes the steps of its life in order.

The engine decides what quota a Workload gets, and `controllers.workloads.workload` when the Workload must release the
quota; the steps start and stop the job accordingly, and write the state of the job to the Workload's status. They must
never reserve quota and never touch a job in a namespace that is not managed. Order, reasons, events and messages follow
Kueue's generic reconciler (pkg/controller/jobframework). A decision ends at a write that changes what later steps
depend on; the next decision starts from the result. Values that are right already are not written.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from turnstile.api.core import Pod
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.charging.podcharge import Charge, allowed_by
from turnstile.controllers.jobs import admissible, adoption, following, growing, settling, slices, starting, stopping
from turnstile.controllers.jobs.children import index_children
from turnstile.controllers.jobs.orphans import ownerless
from turnstile.controllers.jobs.plan import Outcome, Plan, Step
from turnstile.controllers.jobs.podsofsets import index_sets
from turnstile.controllers.jobs.release import RETRY_SECONDS, discarded
from turnstile.controllers.jobs.shared import index_named_jobs, share
from turnstile.controllers.jobs.view import JobView
from turnstile.controllers.runtime.actions import Action, ReconcileResult, RequeueAfter
from turnstile.controllers.view.clusterview import WORKLOADS_BY_CHAIN, WORKLOADS_BY_JOB, ClusterView, NotRead
from turnstile.jobs import workload as build
from turnstile.jobs.groups import GroupIntegration
from turnstile.jobs.integration import CannotCompose, Integration
from turnstile.jobs.labels import prebuilt_name
from turnstile.jobs.naming import group_in, split_job_key
from turnstile.jobs.registry import Registry
from turnstile.kube import raws
from turnstile.kube.gate import Rank
from turnstile.kube.store import Store

JOBS_BY_GROUP: Final = "group"
"""Index of objects by the key of their group (`pod:team-a/group/train`)."""


def wake_when_due(view: JobView) -> Outcome | None:
    """Reconcile a job again that may change without an event."""
    plan = Plan(view)
    plan.wake(view.group.due(view.job) if view.group is not None else None)
    return plan.goes_on()


LEFT_ALONE: Final[tuple[Step, ...]] = (
    admissible.end_deleted,
    admissible.skip_ignored,
    admissible.skip_unmanaged,
    adoption.take_in,
    adoption.adopt_child,
    wake_when_due,
)
"""The reasons not to queue a job at all, in Kueue's order."""

LIFE: Final[tuple[Step, ...]] = (
    settling.refuse_name,
    settling.take_prebuilt,
    growing.settle_slices,
    settling.settle_surplus,
    settling.tidy_group,
    settling.synchronize,
    growing.resize,
    starting.hasten_uncharged,
    starting.create,
    following.after_end,
    stopping.release_deleted,
    share,
    stopping.hold,
    following.report_replacements,
    following.finish,
    following.reclaim,
    stopping.hold_idle,
    following.report_readiness,
    stopping.evict,
    stopping.hold_relabelled,
    following.report_scheduling,
    starting.start,
    starting.watch_running,
    stopping.stop_unadmitted,
    stopping.wait,
)
"""The life of a job with its Workload, in Kueue's order: the first step with a reason ends the decision."""


def index_jobs(workloads: Store[Workload], registry: Registry, jobs: Mapping[type[Kind], Store[Kind]]) -> None:
    """Declare the indexes by which `decide` finds Workloads, children, and the members of groups."""
    workloads.add_index(WORKLOADS_BY_JOB, registry.jobs_of)
    workloads.add_index(WORKLOADS_BY_CHAIN, slices.chain_of)
    for kind, store in jobs.items():
        integration = registry.of(kind())
        index_children(store, integration, registry)
        if integration.groups is not None:
            _index_groups(store, integration.groups, registry)
        if kind is Pod:
            index_named_jobs(store, registry)
            index_sets(store, registry)


def _index_groups(store: Store[Any], groups: GroupIntegration[Any], registry: Registry) -> None:
    store.add_index(JOBS_BY_GROUP, lambda job: [registry.key_of(job)] if groups.group_of(job) else [])


def decide(key: str, cluster: ClusterView) -> ReconcileResult:
    """The next writes for the job of that key (`framework:namespace/name`); no actions if none are needed."""
    framework, name = split_job_key(key)
    integration = cluster.registry.known.get(framework)
    if integration is None or integration.kind not in cluster.jobs:
        return ReconcileResult([], why=f"the framework {framework} is not known")
    try:
        return _decide(key, integration, name, cluster)
    except NotRead as why:
        return ReconcileResult([], why=str(why))


def pods_are_ready(workload: Workload, cluster: ClusterView) -> bool:
    """Whether the pods of a job of the Workload are ready now, which the Workload may not say yet. Raises NotRead."""
    for key in cluster.registry.jobs_of(workload):
        framework, name = split_job_key(key)
        integration = cluster.registry.known.get(framework)
        if integration is not None and integration.kind in cluster.jobs:
            integration, job = _read(key, integration, name, [workload], cluster)
            if job is not None and integration.pods_ready(job):
                return True
    return False


def pods_asked_for(workload: Workload, cluster: ClusterView) -> dict[str, int]:
    """How many pods of each pod set the job of a Workload asks for now, which the Workload may not say yet; empty if
    the job is not known. Raises NotRead and PermanentError."""
    for key in cluster.registry.jobs_of(workload):
        framework, name = split_job_key(key)
        integration = cluster.registry.known.get(framework)
        if integration is not None and integration.kind in cluster.jobs:
            integration, job = _read(key, integration, name, [workload], cluster)
            if job is not None:
                return {each.name: each.count for each in integration.pod_sets(job)}
    return {}


def _decide(key: str, integration: Integration[Any], name: str, cluster: ClusterView) -> ReconcileResult:
    workloads = cluster.workloads.by_index(WORKLOADS_BY_JOB, key)
    integration, job = _read(key, integration, name, workloads, cluster)
    if job is None:
        if integration.as_group is not None:
            workloads = [each for each in workloads if not (build.of_a_set(each) and each.metadata.owner_references)]
        return ReconcileResult(*ownerless(workloads, cluster, "the job is gone"))
    if integration.groups is not None and integration.groups.group_of(job):
        # A Workload that was made before the object joined the group keeps the quota of the pods that run.
        unused = [each for each in workloads if not charges.held(each, cluster)]
        actions = [action for workload in unused for action in discarded(workload)]
        return ReconcileResult(actions, why="the object has joined a group, which has a Workload of its own")
    return _decided(JobView(integration, job, workloads, cluster))


def _read(
    key: str, integration: Integration[Any], name: str, workloads: Sequence[Workload], cluster: ClusterView
) -> tuple[Integration[Any], Kind | None]:
    """The job of a key as it is cached, and the integration that handles it. Raises NotRead."""
    cluster.require([integration.kind, *integration.read_with])
    store = cluster.jobs[integration.kind]
    if integration.groups is not None and (group := group_in(name)):
        charged = {owner.uid for each in workloads for owner in each.metadata.owner_references}
        members = [
            each
            for each in store.by_index(JOBS_BY_GROUP, key)
            if not integration.exceptions.skip(each) or each.metadata.uid in charged
        ]
        return integration.groups, _composed(integration.groups, group, members, cluster) if members else None
    job = store.get(name)
    return integration, job if job is None else _joined(integration, job, cluster)


def _joined(integration: Integration[Any], job: Kind, cluster: ClusterView) -> Kind:
    """A job with what the objects that its controller makes say of it: its pod templates, or its numbers of pods."""
    joined, rendering, sizing = job, integration.rendering, integration.sizing
    if rendering is not None and (made := _made(rendering.templates_in, job.metadata.name, job, cluster)) is not None:
        joined = rendering.joined(joined, made)
    if sizing is not None and not raws.stripped(job) and (name := sizing.sizes_name(job)):
        made = _made(sizing.sizes_in, name, job, cluster)
        joined = joined if made is None else sizing.sized(joined, made)
    return joined


def _made(kind: type[Kind], name: str, job: Kind, cluster: ClusterView) -> Kind | None:
    """The object of that name, if it was made for this very job."""
    made = cluster.jobs[kind].get(f"{job.metadata.namespace}/{name}") if kind in cluster.jobs else None
    owner = made.metadata.controller if made is not None else None
    if made is None or owner is None or owner.uid != job.metadata.uid or raws.stripped(made):
        return None
    return made


def _composed(integration: GroupIntegration[Any], group: str, members: list[Kind], cluster: ClusterView) -> Kind:
    """A group, with the Workload of its name, or with the prebuilt Workload that its members name."""
    named = next((found for each in members if (found := prebuilt_name(each))), "")
    workload = cluster.workloads.get(f"{members[0].metadata.namespace}/{named or group}")
    of_a_set = workload is not None and build.of_a_set(workload)
    covers = None
    if workload is not None and (named or of_a_set):
        covers = Charge(allowed_by(workload), workload.metadata.namespace, cluster).covers
    prebuilt = bool(named) and not of_a_set
    early = cluster.options.fast_quota_release
    composed: Kind = integration.compose(
        group, members, workload, now=cluster.now, covers=covers, prebuilt=prebuilt, early=early
    )
    return composed


def _decided(view: JobView) -> ReconcileResult:
    """Take the steps in order, until one of them ends the decision."""
    actions: list[Action] = []
    decision = _taken(LEFT_ALONE, view, actions)
    try:
        return decision or _taken(LIFE, view, actions) or ReconcileResult(actions)
    except CannotCompose as error:  # the next member that is created requeues the group
        return ReconcileResult([*actions, *_refused("ErrWorkloadCompose", error, view, dissolves=True)], why=str(error))
    except build.PriorityClassMissing as error:  # the creation of the class requeues the job
        return ReconcileResult([*actions, *_refused(error.reason, error, view)], why=str(error))
    except LookupError as error:
        return ReconcileResult([*actions, RequeueAfter(RETRY_SECONDS)], why=str(error))


def _taken(steps: Sequence[Step], view: JobView, actions: list[Action]) -> ReconcileResult | None:
    """Add the actions of steps, until one of them ends the decision; None if none does."""
    rank = Rank.STOP
    for step in steps:
        if (outcome := step(view)) is not None:
            actions += outcome.actions
            rank = outcome.rank if outcome.rank is not None else rank
            if outcome.why:
                return ReconcileResult(actions, why=outcome.why, rank=rank)
    return None


def _refused(reason: str, error: Exception, view: JobView, *, dissolves: bool = False) -> list[Action]:
    """The event of a job for which no Workload can be made."""
    plan = Plan(view)
    plan.emit(reason, str(error), warning=True)
    if dissolves:
        plan.dissolve()
    return plan.actions
