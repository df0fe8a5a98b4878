"""Which changes of an object require reconciling a job, a Workload or a queue; other changes are ignored.

A Job in Kubernetes changes with every pod that starts or ends, and a Workload with every new reason why it waits. Few
of these fields affect a decision. The rule: a change may be ignored only if no decision reads the changed field, so a
field that a decision begins to read is added here, or to its kind's `significant`. Must never decide anything.
"""

from collections.abc import Generator
from typing import Any

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Namespace, Pod
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind, ObjectMeta, find_condition
from turnstile.api.resourceclaim import ResourceClaim, ResourceClaimTemplate
from turnstile.api.resourceslice import ResourceSlice
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.runtime.controller import Watch
from turnstile.controllers.view.clusterview import (
    LOCAL_QUEUES_BY_CLUSTER_QUEUE,
    WORKLOADS_BY_CLAIM,
    WORKLOADS_BY_CLUSTER_QUEUE,
    WORKLOADS_BY_QUEUE,
    ClusterView,
)
from turnstile.jobs import pods
from turnstile.jobs.integration import Integration
from turnstile.jobs.options import JobOptions
from turnstile.kube import raws
from turnstile.kube.slices import ordered

Keys = Generator[str | None, None, None]


def job_concerned(old: Kind | None, new: Kind | None, *, integration: Integration[Any], options: JobOptions) -> bool:
    """Whether a job has to be reconciled after this change of the job."""
    if all(each is None or integration.exceptions.skip(each) for each in (old, new)):
        return False
    if old is None or new is None or metadata_of(old.metadata) != metadata_of(new.metadata):
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
    return _to_release(old, new) or _reported_to_job(old) != _reported_to_job(new)


def workload_concerned(old: Workload | None, new: Workload | None) -> bool:
    """Whether a Workload has to be reconciled after this change; once finished, only if its metadata changed."""
    if old is None or new is None or not (old.finished and new.finished):
        return True
    return _to_release(old, new) or metadata_of(old.metadata) != metadata_of(new.metadata)


def metadata_of(meta: ObjectMeta) -> tuple[object, ...]:
    """The metadata that decisions read, without the finalizer `kueue.x-k8s.io/resource-in-use`."""
    finalizers = [each for each in meta.finalizers if each != names.RESOURCE_IN_USE]
    deletion = meta.deletion_timestamp, meta.deletion_grace_period_seconds
    return meta.uid, deletion, meta.labels, meta.annotations, finalizers, meta.owner_references


def _to_release(old: Workload, new: Workload) -> bool:
    """Whether this change added the finalizer, which has to be removed; its removal requires no reconcile."""
    return names.RESOURCE_IN_USE in new.metadata.finalizers and names.RESOURCE_IN_USE not in old.metadata.finalizers


def _reported_to_job(workload: Workload) -> tuple[object, ...]:
    status = workload.status
    return (
        workload.metadata.generation,
        metadata_of(workload.metadata),
        workload.quota_reserved,
        workload.admitted,
        find_condition(status.conditions, wl.EVICTED),
        find_condition(status.conditions, wl.FINISHED),
        find_condition(status.conditions, wl.PODS_READY),
        find_condition(status.conditions, wl.PODS_SCHEDULED),
        find_condition(status.conditions, wl.WAITING_FOR_REPLACEMENT_PODS),
        status.admission,
        status.admission_checks,
        status.reclaimable_pods,
    )


def spec_concerned(old: Kind | None, new: Kind | None) -> bool:
    """Whether the spec of an object (by its generation) or its deletion timestamp has changed."""
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
    """Whether the objects of a namespace have to be reconciled. New labels may change whether the namespace is managed
    and which ClusterQueues select it. Objects may have been read before their new namespace, and have waited for it."""
    return new is not None and (old is None or old.metadata.labels != new.metadata.labels)


def of_workloads(cluster: ClusterView) -> list[Watch[Any, str]]:
    """The watches of the Workload controller."""
    workloads = cluster.workloads

    def changed(key: str, old: Workload | None, new: Workload | None) -> tuple[str, ...]:
        return (key,) if workload_concerned(old, new) else ()

    def cluster_queue_changed(key: str, old: ClusterQueue | None, new: ClusterQueue | None) -> Keys | None:
        return members(key) if members_concerned(old, new) else None

    def members(cluster_queue: str) -> Keys:
        for queue in cluster.local_queues.keys_by_index(LOCAL_QUEUES_BY_CLUSTER_QUEUE, cluster_queue):
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

    def device_class_changed(key: str, old: DeviceClass | None, new: DeviceClass | None) -> Keys | None:
        return waiting() if old is None or new is None or old.spec != new.spec else None

    def claim_changed(
        key: str, old: ResourceClaim | ResourceClaimTemplate | None, new: ResourceClaim | ResourceClaimTemplate | None
    ) -> Keys | None:
        return claiming(key) if old is None or new is None or old.spec != new.spec else None

    def claiming(claim: str) -> Keys:
        yield from (yield from ordered(workloads.keys_by_index(WORKLOADS_BY_CLAIM, claim, ordered=False)))

    def slice_changed(key: str, old: ResourceSlice | None, new: ResourceSlice | None) -> Keys | None:
        return claimants() if old is None or new is None or old.spec != new.spec else None

    def claimants() -> Keys:
        for claim in [*cluster.claim_templates.keys(), *cluster.claims.keys()]:
            yield from claiming(claim)

    def waiting() -> Keys:
        keys, found = workloads.keys(), []
        for key in keys:
            workload = workloads.get(key)
            if workload is not None and not workload.quota_reserved and not workload.finished:
                found.append(key)
            yield None
        yield from (yield from ordered(found))

    def pod_changed(key: str, old: Pod | None, new: Pod | None) -> tuple[str, ...]:
        """A pod that a gate of Kueue's holds, or the end of a pod in whose place such a pod may run."""
        held = new is not None and pods.is_left_gated(new)
        over = old is not None and charges.may_run(old) and (new is None or not charges.may_run(new))
        pod = new if held else old
        if pod is None or not (held or over):
            return ()
        found = charges.workloads_of(pod, cluster)
        return tuple(each.metadata.key for each in found if charges.left_gated_pods(each, cluster))

    return [
        Watch(workloads, changed),
        Watch(cluster.pods, pod_changed),
        Watch(cluster.device_classes, many=device_class_changed, after_ledger=True),
        Watch(cluster.claim_templates, many=claim_changed, after_ledger=True),
        Watch(cluster.claims, many=claim_changed, after_ledger=True),
        Watch(cluster.resource_slices, many=slice_changed, after_ledger=True),
        Watch(cluster.cluster_queues, many=cluster_queue_changed),
        Watch(cluster.local_queues, many=local_queue_changed),
        Watch(cluster.namespaces, many=namespace_changed),
    ]
