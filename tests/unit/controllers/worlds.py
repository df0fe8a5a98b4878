"""A small world for reconcilers to decide in: stores filled by hand, a clock that stands still."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Job, LimitRange, Namespace, Node, Pod, PodTemplate, PriorityClass, RuntimeClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.provisioningrequest import ProvisioningRequest
from turnstile.api.provisioningrequestconfig import ProvisioningRequestConfig
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import Topology
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.charging.charges import index_pods
from turnstile.controllers.view.clusterview import ClusterView, index_stores, indexed_nodes
from turnstile.controllers.view.provisioning import Provisioning, index_provisioning
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube.store import Store

T = TypeVar("T", bound=Kind)
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EARLIER = "2026-01-02T03:00:00Z"


def store(objects: Iterable[T]) -> Store[T]:
    """A store that holds these objects."""
    filled: Store[T] = Store()
    for number, obj in enumerate(objects, 1):
        if not obj.metadata.resource_version:
            obj.metadata.resource_version = str(number)
        filled.observe(obj)
    return filled


def world(*objects: Kind, now: datetime = NOW, options: JobOptions | None = None) -> ClusterView:
    """A world of these objects; the namespace `ns` is always there."""

    def of(kind: type[T]) -> Store[T]:
        return store(obj for obj in everything if isinstance(obj, kind))

    everything = [*objects, decode(Namespace, {"metadata": {"name": "ns", "labels": {"team": "a"}}})]
    pods = of(Pod)
    made = ClusterView(
        clock=lambda: now,
        options=options or JobOptions(),
        registry=Registry(),
        workloads=of(Workload),
        cluster_queues=of(ClusterQueue),
        local_queues=of(LocalQueue),
        cohorts=of(Cohort),
        flavors=of(ResourceFlavor),
        admission_checks=of(AdmissionCheck),
        topologies=of(Topology),
        namespaces=of(Namespace),
        limit_ranges=of(LimitRange),
        runtime_classes=of(RuntimeClass),
        priority_classes=of(PriorityClass),
        workload_priority_classes=of(WorkloadPriorityClass),
        jobs={Job: of(Job), Pod: pods},
        pods=pods,
        nodes=indexed_nodes(of(Node)),
    )
    made.provisioning = Provisioning(
        configs=of(ProvisioningRequestConfig), requests=of(ProvisioningRequest), templates=of(PodTemplate)
    )
    index_provisioning(made.provisioning.requests, made.admission_checks, made.workloads)
    index_pods(pods)
    index_stores(made.workloads, made.local_queues, made.cluster_queues, made.flavors)
    return made


def decode(kind: type[T], value: dict[str, Any]) -> T:
    """An object of a kind from plain JSON."""
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)


def condition(kind: str, status: str, reason: str, message: str = "", since: str = EARLIER) -> dict[str, str]:
    """A condition as JSON."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


RESERVED = condition("QuotaReserved", "True", "QuotaReserved", "Quota reserved in ClusterQueue cq")
ADMITTED = condition("Admitted", "True", "Admitted", "The workload is admitted")
ADMISSION = {
    "clusterQueue": "cq",
    "podSetAssignments": [{"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}, "count": 1}],
}


def workload(
    *conditions: dict[str, str], admission: bool = False, spec: Any = None, more_status: Any = None, **metadata: Any
) -> Workload:
    """Workload `ns/wl` of Job `job` in LocalQueue `lq`."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job-uid", "controller": True}
    status: dict[str, Any] = {"conditions": list(conditions), **(more_status or {})}
    if admission:
        status["admission"] = ADMISSION
    meta = {
        "name": "wl",
        "namespace": "ns",
        "uid": "wl-uid",
        "resourceVersion": "7",
        "creationTimestamp": EARLIER,
        "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        "ownerReferences": [owner],
        **metadata,
    }
    return decode(Workload, {"metadata": meta, "spec": {"queueName": "lq", **(spec or {})}, "status": status})


def local_queue(**spec: Any) -> LocalQueue:
    """LocalQueue `ns/lq` to ClusterQueue `cq`."""
    return decode(LocalQueue, {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq", **spec}})


def cluster_queue(**spec: Any) -> ClusterQueue:
    """ClusterQueue `cq` open to every namespace."""
    return decode(
        ClusterQueue,
        {
            "metadata": {"name": "cq", "finalizers": ["kueue.x-k8s.io/resource-in-use"], "generation": 1},
            "spec": {"namespaceSelector": {}, **spec},
        },
    )
