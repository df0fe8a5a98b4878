"""Declares a controller for each known job kind, named after its framework; `controllers.jobs.jobreconciler` decides.

Each kind has its own work queue and workers, so that a flood of Pods delays no Job. Changes that affect jobs of any
kind have one subscription for all kinds: the owner references of a Workload determine which controller reconciles which
key.
"""

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, Final

from turnstile.api import names
from turnstile.api.core import Namespace, Pod, PriorityClass
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers import wakes
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs import jobreconciler, podsofsets, servingsets
from turnstile.controllers.jobs.children import children_of, imported_above, may_make_pods, runs_still
from turnstile.controllers.jobs.shared import PODS_BY_NAMED_JOB, jobs_named_by
from turnstile.controllers.jobs.undecided import undecided
from turnstile.controllers.runtime.actions import ReconcileResult
from turnstile.controllers.runtime.controller import Controller, Dispatch, Target, Watch
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB, ClusterView
from turnstile.engine.pace import finish
from turnstile.jobs import pods
from turnstile.jobs.integration import Integration
from turnstile.jobs.labels import is_elastic
from turnstile.jobs.naming import group_of, job_key, split_job_key
from turnstile.kube.slices import ordered
from turnstile.kube.store import Store

WORKERS: Final = 32
"""Jobs of one kind that are reconciled concurrently."""

Targets = Generator[Target | None, None, None]


def controllers(cluster: ClusterView) -> list[Controller]:
    """One controller for each job kind that is watched."""
    return [_controller(each, cluster) for each in cluster.registry.followed if each.kind in cluster.jobs]


def _controller(integration: Integration[Any], cluster: ClusterView) -> Controller:
    registry, kind = cluster.registry, integration.kind

    def concerned(_: str, old: Kind | None, new: Kind | None) -> Iterable[str]:
        if not wakes.job_concerned(old, new, integration=integration, options=cluster.options):
            return ()
        return dict.fromkeys(registry.key_of(job) for job in (old, new) if job is not None)

    def child_stopped(_: str, old: Kind | None, new: Kind | None) -> Iterable[str]:
        """The owner, whose stop may wait for that, or whose Workload when it is gone itself."""
        owner = old.metadata.controller if old is not None else None
        if old is None or owner is None or (group_of(owner), owner.kind) != (kind.GROUP, kind.KIND):
            return ()
        ended = may_make_pods(old, cluster) and (new is None or not may_make_pods(new, cluster))
        stopped = runs_still(old, cluster) and (new is None or not runs_still(new, cluster))
        if not (ended or stopped):
            return ()
        return (job_key(integration.framework, old.metadata.namespace, owner.name),)

    def owner_concerned(_: str, old: Kind | None, new: Kind | None) -> Iterable[str]:
        """The jobs whose pod templates, or numbers of pods, are in the object that changed."""
        latest = new or old
        if latest is None or not wakes.job_concerned(
            old, new, integration=registry.of(latest), options=cluster.options
        ):
            return ()
        owners = [each.metadata.controller for each in (old, new) if each is not None]
        return dict.fromkeys(
            job_key(integration.framework, latest.metadata.namespace, owner.name)
            for owner in owners
            if owner is not None and registry.by_owner(owner) is integration
        )

    watches: list[Watch[Any, str]] = [Watch(cluster.jobs[kind], concerned)]
    made = [each for each in cluster.jobs if (each.GROUP, each.KIND) in integration.makes and each is not Pod]
    watches += [Watch(cluster.jobs[each], child_stopped) for each in made]
    watches += [Watch(cluster.jobs[each], owner_concerned) for each in integration.read_with if each in cluster.jobs]
    if integration.as_set is not None:
        watches.append(podsofsets.watch_of_pods(cluster, integration.as_set))
    return Controller(
        name=integration.framework,
        kind=kind,
        decide=partial(_steps if integration.as_set is not None else decide, cluster=cluster),
        watches=watches,
        workers=WORKERS,
    )


def decide(key: str, cluster: ClusterView) -> ReconcileResult:
    """The next writes for the job, group or serving set of that key."""
    framework, _ = split_job_key(key)
    integration = cluster.registry.known.get(framework)
    if integration is not None and integration.as_set is not None:
        return finish(_steps(key, cluster))
    try:
        return jobreconciler.decide(key, cluster)
    except Exception as error:
        return undecided(key, cluster, error)


def _steps(key: str, cluster: ClusterView) -> servingsets.Steps:
    """The steps of `decide` for a serving set."""
    try:
        return (yield from servingsets.steps(key, cluster))
    except Exception as error:
        return undecided(key, cluster, error)


def dispatch(cluster: ClusterView) -> Dispatch:
    """The watches that concern jobs of any kind."""
    registry, workloads = cluster.registry, cluster.workloads

    def workload_changed(_: str, old: Workload | None, new: Workload | None) -> list[Target]:
        latest = new or old
        if latest is None or not wakes.owner_concerned(old, new):
            return []
        targets = [_target(job) for job in registry.jobs_of(latest)]
        orphaned = old is not None and old.metadata.controller is not None and latest.metadata.controller is None
        ended = new is None or new.finished or new.evicted or not new.admitted
        if old is not None and old.admitted and (ended or orphaned):
            targets += [_target(child) for child in children_of(old, cluster)]
            targets += [_target(registry.key_of(pod)) for pod in shared_by(old)]
        if new is None:  # a group may now use the deleted Workload's name
            targets += [_target(group) for group in registry.groups_named(latest)]
        return targets

    def shared_by(workload: Workload) -> list[Pod]:
        """The pods that name a job of a Workload: once it has ended they are queued by themselves."""
        jobs = registry.jobs_of(workload)
        return [pod for job in jobs for pod in cluster.pods.by_index(PODS_BY_NAMED_JOB, job)]

    def jobs_where(concerned: Callable[[Kind], bool]) -> Targets:
        for store in cluster.jobs.values():
            for key in (yield from ordered(store.keys())):
                job = store.get(key)
                reconciled = job is not None and not registry.of(job).exceptions.skip(job) and concerned(job)
                yield _target(registry.key_of(job)) if job is not None and reconciled else None

    def workload_class_changed(key: str, old: WorkloadPriorityClass | None, _: object) -> Targets | None:
        """Jobs with the label of a class that was just created may have waited for the class."""
        if old is not None:
            return None
        return jobs_where(lambda job: job.metadata.labels.get(names.PRIORITY_CLASS_LABEL) == key)

    def class_changed(_: str, old: PriorityClass | None, __: object) -> Targets | None:
        """Jobs without a Workload: their pods may name the class that was just created."""
        if old is not None:
            return None
        return jobs_where(lambda job: not workloads.keys_by_index(WORKLOADS_BY_JOB, registry.key_of(job)))

    def namespace_changed(key: str, old: Namespace | None, new: Namespace | None) -> Targets | None:
        if not wakes.namespace_concerned(old, new):
            return None
        return jobs_where(lambda job: job.metadata.namespace == key)

    def every_job() -> Targets:
        """All jobs, and the owners of Workloads, which may have been deleted while no process led or while their kind
        was not read."""
        yield from jobs_where(lambda _: True)
        for key in (yield from ordered(workloads.keys())):
            held = workloads.get(key)
            yield from _targets(held) if held is not None else ()
            yield None

    def known(kind: type[Kind]) -> Targets:
        """The jobs and Workloads that may have waited until a kind was read: its own jobs, those that follow an owner
        or have their templates or sizes in it, and those that end when nothing of it runs any more."""

        def makes(integration: Integration[Any]) -> bool:
            return (kind.GROUP, kind.KIND) in integration.makes

        def waited(integration: Integration[Any]) -> bool:
            own = kind is integration.kind or kind in integration.read_with
            return own or (integration.children is not None and makes(integration)) or pods_of_sets(integration)

        def pods_of_sets(integration: Integration[Any]) -> bool:
            return kind is Pod and integration.as_set is not None

        def stays(integration: Integration[Any], key: str) -> bool:
            job = (
                cluster.jobs[integration.kind].get(split_job_key(key)[1]) if integration.kind in cluster.jobs else None
            )
            return job is not None and not job.metadata.deletion_timestamp

        yield from jobs_where(lambda job: job.metadata.controller is not None or waited(registry.of(job)))
        for key in (yield from ordered(workloads.keys())):
            workload = workloads.get(key)
            if workload is None:
                continue
            charged = kind is Pod and workload.quota_reserved and not workload.finished
            for framework, job in _targets(workload):
                found = registry.known.get(framework)
                if charged or (found is not None and (waited(found) or (makes(found) and not stays(found, job)))):
                    yield framework, job
            yield None

    def pod_changed(_: str, old: Pod | None, new: Pod | None) -> list[Target]:
        """The end of the last pod that a Workload waited for: until then the changes of pods decide nothing, except of
        those that share what their job has reserved, new pods of a job whose pods are counted or of an imported one,
        pods for which kube-scheduler finds no node, pods that take long to stop, and the end of each pod of an elastic
        job."""
        found = [*shared_changed(old, new), *counted(old, new), *end_of(old, new), *unschedulable(old, new)]
        return [*found, *slow(old, new), *unmarked(old, new)]

    def unmarked(old: Pod | None, new: Pod | None) -> list[Target]:
        if old is not None or new is None or names.WORKLOAD in new.metadata.annotations or not charges.may_run(new):
            return []
        return [_target(key) for key in imported_above(new, cluster)]

    def shared_changed(old: Pod | None, new: Pod | None) -> list[Target]:
        """The job that a pod names, which starts it, when the pod is created, starts or ends."""
        if _stage(old) == _stage(new):
            return []
        jobs = (job for pod in (old, new) if pod is not None for job in jobs_named_by(pod, registry))
        return [_target(job) for job in dict.fromkeys(jobs)]

    def end_of(old: Pod | None, new: Pod | None) -> list[Target]:
        if old is None or not charges.may_run(old) or (new is not None and charges.may_run(new)):
            return []
        found = {each.metadata.key: each for each in charges.waiting_for(old, cluster)}
        for each in charges.workloads_of(old, cluster):
            if is_elastic(each.metadata) and each.quota_reserved and not each.finished:
                found[each.metadata.key] = each  # it shrinks when the pods that go have gone
        return [target for workload in found.values() for target in _targets(workload)]

    def counted(old: Pod | None, new: Pod | None) -> list[Target]:
        if old is not None or new is None or not charges.may_run(new):
            return []
        jobs = (each for workload in charges.workloads_of(new, cluster) for each in _targets(workload))
        found = ((each, registry.by_framework(each[0])) for each in jobs)
        return [each for each, kind in found if kind is not None and kind.counted_pods is not None]

    def slow(old: Pod | None, new: Pod | None) -> list[Target]:
        """The jobs of a pod that is being deleted and has long for it: it may be replaced meanwhile."""
        if new is None or not charges.is_slow(new) or (old is not None and charges.is_slow(old)):
            return []
        return [each for workload in charges.workloads_of(new, cluster) for each in _targets(workload)]

    def unschedulable(old: Pod | None, new: Pod | None) -> list[Target]:
        """The jobs of the first pod of a Workload for which kube-scheduler finds no node, and of the last such pod when
        that is over: the others of a large gang change nothing."""
        before, now = (pod is not None and pods.unschedulable(pod) is not None for pod in (old, new))
        latest = new or old
        if latest is None or before == now:
            return []
        alone = 1 if now else 0
        return [
            target
            for workload in charges.workloads_of(latest, cluster)
            if workload.admitted and len(charges.unschedulable_pods(workload, cluster)) <= alone
            for target in _targets(workload)
        ]

    def _targets(workload: Workload) -> list[Target]:
        """The keys that are reconciled for a Workload: its jobs, or the Workload itself if it has no owner any more."""
        jobs = [_target(job) for job in registry.jobs_of(workload)]
        return jobs or [(Workload.KIND, workload.metadata.key)]

    read: dict[type[Kind], Store[Any]] = {Pod: cluster.pods, **cluster.jobs}
    return Dispatch(
        watches=[
            Watch(workloads, workload_changed),
            Watch(cluster.pods, pod_changed),
            Watch(cluster.workload_priority_classes, many=workload_class_changed),
            Watch(cluster.priority_classes, many=class_changed),
            Watch(cluster.namespaces, many=namespace_changed),
        ],
        initial=every_job,
        complete={store: partial(known, kind) for kind, store in read.items()},
    )


def _stage(pod: Pod | None) -> tuple[bool, bool]:
    """Whether a pod may run, and whether it is gated."""
    return pod is not None and charges.may_run(pod), pod is not None and pods.is_gated(pod)


def _target(key: str) -> Target:
    framework, _ = split_job_key(key)
    return framework, key
