"""Which changes of an object call for reconciling a job, a Workload or a queue; the others cost nothing.

A Job in Kubernetes changes with every pod that starts or ends, and a Workload with every word about why it waits. What
is decided about depends on little of that. The rule: a change may be passed over only if no decision reads what
changed, so a decision that reads something new adds it here, or to its kind's `significant`. Must never decide
anything.
"""

from collections.abc import Generator
from typing import Any

from app.api import names
from app.api import workload as wl
from app.api.clusterqueue import ClusterQueue
from app.api.core import Namespace
from app.api.localqueue import LocalQueue
from app.api.meta import Kind, ObjectMeta, find_condition
from app.api.workload import Workload
from app.controllers.controller import Watch
from app.controllers.world import (
    LOCAL_QUEUES_BY_CLUSTER_QUEUE,
    WORKLOADS_BY_CLUSTER_QUEUE,
    WORKLOADS_BY_QUEUE,
    World,
)
from app.jobs.integration import Integration
from app.jobs.options import Options
from app.kube import raws
from app.kube.slices import ordered

Keys = Generator[str | None, None, None]


def job_concerned(old: Kind | None, new: Kind | None, *, integration: Integration[Any], options: Options) -> bool:
    """Whether a job has to be reconciled after this change of itself."""
    if old is None or new is None or _metadata(old.metadata) != _metadata(new.metadata):
        return True
    if raws.stripped(old) != raws.stripped(new):
        return True
    if options.pods_ready is not None and integration.pods_ready(old) != integration.pods_ready(new):
        return True
    return integration.significant(old) != integration.significant(new)


def owner_concerned(old: Workload | None, new: Workload | None) -> bool:
    """Whether the job of a Workload has to be reconciled after this change of the Workload."""
    if old is None or new is None:
        return True
    return _to_release(old, new) or _told_to_job(old) != _told_to_job(new)


def workload_concerned(old: Workload | None, new: Workload | None) -> bool:
    """Whether a Workload has to be reconciled after this change of it: once finished it only waits to be removed."""
    if old is None or new is None or not (old.finished and new.finished):
        return True
    return _to_release(old, new) or _metadata(old.metadata) != _metadata(new.metadata)


def _metadata(meta: ObjectMeta) -> tuple[object, ...]:
    """What is decided by, without finalizers of a Workload's own."""
    finalizers = [each for each in meta.finalizers if each != names.RESOURCE_IN_USE]
    deletion = meta.deletion_timestamp, meta.deletion_grace_period_seconds
    return meta.uid, deletion, meta.labels, meta.annotations, finalizers, meta.owner_references


def _to_release(old: Workload, new: Workload) -> bool:
    """Whether there is a finalizer to take away that was not there: nobody misses one that is gone."""
    return names.RESOURCE_IN_USE in new.metadata.finalizers and names.RESOURCE_IN_USE not in old.metadata.finalizers


def _told_to_job(workload: Workload) -> tuple[object, ...]:
    status = workload.status
    return (
        workload.metadata.generation,
        _metadata(workload.metadata),
        workload.quota_reserved,
        workload.admitted,
        find_condition(status.conditions, wl.EVICTED),
        find_condition(status.conditions, wl.FINISHED),
        find_condition(status.conditions, wl.PODS_READY),
        find_condition(status.conditions, wl.WAITING_FOR_REPLACEMENT_PODS),
        status.admission,
        status.admission_checks,
        status.reclaimable_pods,
    )


def spec_concerned(old: Kind | None, new: Kind | None) -> bool:
    """Whether what an object asks for has changed: its spec, with which its generation grows, or that it is to stay."""
    if old is None or new is None:
        return True
    return (old.metadata.generation, old.metadata.deletion_timestamp) != (
        new.metadata.generation,
        new.metadata.deletion_timestamp,
    )


def members_concerned(old: ClusterQueue | None, new: ClusterQueue | None) -> bool:
    """Whether the LocalQueues and Workloads of a ClusterQueue have to be reconciled after this change of it: they
    depend on its spec and on whether it is active."""
    if old is None or new is None or spec_concerned(old, new):
        return True
    return [each.status for each in old.status.conditions] != [each.status for each in new.status.conditions]


def namespace_concerned(old: Namespace | None, new: Namespace | None) -> bool:
    """Whether what is in a namespace has to be reconciled: relabelled, it may be managed from now on, or no longer, or
    be let into other queues. What is in a new one may have been seen before the namespace itself, and have waited."""
    return new is not None and (old is None or old.metadata.labels != new.metadata.labels)


def of_workloads(world: World) -> list[Watch[Any, str]]:
    """What the controller of Workloads watches."""
    workloads = world.workloads

    def changed(key: str, old: Workload | None, new: Workload | None) -> tuple[str, ...]:
        return (key,) if workload_concerned(old, new) else ()

    def cluster_queue_changed(key: str, old: ClusterQueue | None, new: ClusterQueue | None) -> Keys | None:
        return members(key) if members_concerned(old, new) else None

    def members(cluster_queue: str) -> Keys:
        for queue in world.local_queues.keys_by_index(LOCAL_QUEUES_BY_CLUSTER_QUEUE, cluster_queue):
            yield from under(WORKLOADS_BY_QUEUE, queue)
        yield from under(WORKLOADS_BY_CLUSTER_QUEUE, cluster_queue)

    def under(index: str, value: str) -> Keys:
        yield from (yield from ordered(workloads.keys_by_index(index, value, ordered=False)))

    def local_queue_changed(key: str, old: LocalQueue | None, new: LocalQueue | None) -> Keys | None:
        return under(WORKLOADS_BY_QUEUE, key) if spec_concerned(old, new) else None

    def namespace_changed(key: str, old: Namespace | None, new: Namespace | None) -> Keys | None:
        return inside(key) if namespace_concerned(old, new) else None

    def inside(namespace: str) -> Keys:
        keys, found = workloads.keys(), []
        for key in keys:
            if key.startswith(f"{namespace}/"):
                found.append(key)
            yield None
        yield from (yield from ordered(found))

    return [
        Watch(workloads, changed),
        Watch(world.cluster_queues, many=cluster_queue_changed),
        Watch(world.local_queues, many=local_queue_changed),
        Watch(world.namespaces, many=namespace_changed),
    ]
