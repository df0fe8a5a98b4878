"""Decides what is cached of jobs and pods: jobs of enabled kinds in managed namespaces and jobs that have an unfinished
Workload with their pod templates, and the pods that may concern Turnstile.

Other jobs are cached without pod templates, which no code reads. Pods are watched all over the cluster, because a pod
that was admitted may lose any of its labels; those in namespaces that are not managed are dropped as soon as they are
decoded, unless they carry a mark of Turnstile. While there is a Topology, or a ClusterQueue that waits for room, node
and requests are cached of those that are bound to a node, because they take room there. Little is cached of a pod that
a controller made, for `turnstile.controllers.charging.charges`. Must never decide about a job: `jobreconciler.decide`
ignores a job that was not cached whole until the job was read again.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from turnstile.api import names
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Namespace, Pod, PodStatus
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Kind
from turnstile.api.pods import PodSpec
from turnstile.api.topology import Topology
from turnstile.api.waitforroom import asks_for_room
from turnstile.api.workload import Workload
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB
from turnstile.engine.quota.requests import amount, effective_pod, pod_requests
from turnstile.jobs.naming import split_job_key
from turnstile.jobs.options import JobOptions
from turnstile.jobs.pods import GRACE_SECONDS, gates, grace_seconds, is_bound, is_left_gated, is_over, unschedulable
from turnstile.jobs.registry import Registry
from turnstile.kube import raws
from turnstile.kube.cache import State
from turnstile.kube.caches import Caches
from turnstile.kube.raws import Keep
from turnstile.kube.store import Store

_OURS: Final = "kueue.x-k8s.io/"
_NOTHING: Final[dict[str, str]] = {}
"""Labels of pods that have none. Not to be changed."""
_NOT_OVER: Final = PodStatus(phase="Running")
"""Status shared by pods that are read only to know whether they ended. Not to be changed."""
_INDEX: Final = "-index"
"""Part of each label by which the controller of a job numbers its pods: `batch.kubernetes.io/job-completion-index`."""
_decode_spec: Final[Callable[[msgspec.Raw], PodSpec]] = msgspec.json.Decoder(PodSpec).decode


class ManagedNamespaces:
    """Watches the labels of namespaces. When a namespace becomes managed, or unmanaged, its jobs and pods are read
    again."""

    def __init__(self, caches: Caches, options: JobOptions, registry: Registry) -> None:
        self._caches = caches
        self._registry = registry
        self._selector = options.managed_jobs_namespace_selector
        self._workloads = caches.of(Workload)
        self._workloads.subscribe(self._workload_changed)
        self._namespaces = caches.of(Namespace)
        self._namespaces.subscribe(self._changed)
        self._topologies = caches.of(Topology) if options.topologies else Store[Topology]()
        self._topologies.subscribe(self._topology_changed)
        self._by_default = options.wait_for_room
        self._follows_queues = options.topologies
        self._asking: set[str] = set()
        """ClusterQueues that wait for room on nodes."""
        kinds: set[type[Kind]] = {each.kind for each in registry.followed}
        self._kinds: Final = kinds | {Pod}

    def follow_queues(self, cluster_queues: Store[ClusterQueue]) -> None:
        """Follow which ClusterQueues wait for room on nodes."""
        if self._follows_queues:
            cluster_queues.subscribe(self._queue_changed, replay=True)

    def take_options(self, options: JobOptions) -> None:
        """Take over the namespace selector of a changed configuration."""
        before, self._selector = self._selector, options.managed_jobs_namespace_selector
        for namespace in self._namespaces.values():
            labels = namespace.metadata.labels
            if before.matches(labels) != self._selector.matches(labels):
                self._read_again(namespace.metadata.name)

    def keep(self, job: Kind) -> Keep:
        """How much of a job to cache; all of it also while its namespace is unknown; for `Caches.of`."""
        enabled = self._registry.is_enabled(self._registry.of(job))
        if (enabled and self._manages(job.metadata.namespace)) or self._is_followed(job):
            return Keep.WHOLE
        return Keep.STRIPPED

    def keep_pod(self, pod: Pod) -> Keep:
        """Whether to cache a pod; for `Caches.of`. The requests of a pod that is not queued by itself are cached,
        until it has ended."""
        meta = pod.metadata
        gated = (
            names.MANAGED_LABEL in meta.labels
            or names.POD_FINALIZER in meta.finalizers
            or names.POD_SUSPENDING_PARENT in meta.annotations
        )
        admitted = names.PODSET_LABEL in meta.labels or names.WORKLOAD in meta.annotations
        if not (gated or admitted or self._manages(meta.namespace)):
            return keep_bound(pod) if len(self._topologies) or self._asking else Keep.NOTHING
        if gated:
            return Keep.WHOLE
        owner = meta.controller
        of_job = owner is not None and owner.kind == "Job"
        if not of_job and names.WORKLOAD in meta.annotations:
            return Keep.WHOLE  # it may be a queued pod that lost its other marks
        if is_over(pod):
            return Keep.NOTHING
        marks = () if names.PODSET_LABEL in meta.labels else self._registry.pod_marks
        _reduce(pod, with_index=bool(len(self._topologies)) or self._is_placed(pod), marks=marks)
        return Keep.WHOLE

    def _is_placed(self, pod: Pod) -> bool:
        """Whether the Workload that a pod names has places, though there may be no Topology any more."""
        name = pod.metadata.annotations.get(names.WORKLOAD)
        workload = self._workloads.get(f"{pod.metadata.namespace}/{name}") if name else None
        return workload is not None and has_places(workload)

    def _is_followed(self, job: Kind) -> bool:
        workloads = self._workloads.by_index(WORKLOADS_BY_JOB, self._registry.key_of(job))
        return any(not each.finished for each in workloads)

    def _manages(self, namespace: str) -> bool:
        found = self._namespaces.get(namespace)
        return found is None or self._selector.matches(found.metadata.labels)

    def _changed(self, key: str, old: Namespace | None, new: Namespace | None) -> None:
        if old is not None and new is not None:
            managed = [self._selector.matches(each.metadata.labels) for each in (old, new)]
            if managed[0] != managed[1]:
                self._read_again(key)

    def _topology_changed(self, _: str, old: Topology | None, new: Topology | None) -> None:
        """Read the pods of namespaces that are not managed when the first Topology is created."""
        if old is None and new is not None and len(self._topologies) == 1 and not self._asking:
            self._read_others_pods(Topology)

    def _queue_changed(self, key: str, _: ClusterQueue | None, new: ClusterQueue | None) -> None:
        """The same when the first ClusterQueue waits for room."""
        if new is None or not asks_for_room(new.metadata, self._by_default):
            self._asking.discard(key)
            return
        first = not self._asking and not len(self._topologies)
        self._asking.add(key)
        if first:
            self._read_others_pods(ClusterQueue)

    def _read_others_pods(self, kind: type[Kind]) -> None:
        """Read the pods of namespaces that are not managed, because of the first object of a kind."""
        if self._caches.held(Pod) is None or self._caches.standing(kind).state is not State.SYNCED:
            return  # pods are read after objects of that kind
        for namespace in self._namespaces.values():
            if not self._manages(namespace.metadata.name):
                self._caches.read_again(Pod, namespace.metadata.name)

    def _workload_changed(self, _: str, old: Workload | None, new: Workload | None) -> None:
        """Read a job again that gets a Workload although its templates were not cached."""
        if old is not None or new is None or new.finished:
            return
        for key in self._registry.jobs_of(new):
            framework, name = split_job_key(key)
            integration = self._registry.known[framework]
            store = self._caches.held(integration.kind) if integration.kind in self._kinds else None
            job = store.get(name) if store is not None else None
            if job is not None and raws.stripped(job):
                self._caches.read_again(integration.kind, new.metadata.namespace)

    def _read_again(self, namespace: str) -> None:
        for kind in self._kinds:
            if self._caches.held(kind) is not None:
                self._caches.read_again(kind, namespace)


def has_places(workload: Workload) -> bool:
    """Whether topology has placed pods of a Workload."""
    admission = workload.status.admission
    given = admission.pod_set_assignments if admission is not None else ()
    return any(each.topology_assignment is not None for each in given)


def keep_bound(pod: Pod) -> Keep:
    """Keep of a pod that takes room on a node what decides how much, and nothing of other pods; for `Caches.of`."""
    if is_over(pod) or not is_bound(pod):
        return Keep.NOTHING
    _reduce(pod, with_index=False)
    meta = pod.metadata
    workload = meta.annotations.get(names.WORKLOAD)  # its pods count in the places of the Workload, and not once more
    meta.labels, meta.annotations = _NOTHING, {names.WORKLOAD: workload} if workload else _NOTHING
    meta.finalizers = meta.owner_references = ()
    pod.status = _NOT_OVER
    meta.generate_name, meta.creation_timestamp, meta.namespace = "", None, sys.intern(meta.namespace)
    return Keep.WHOLE


def _reduce(pod: Pod, *, with_index: bool, marks: Sequence[str] = ()) -> None:
    """Leave out of a pod what no code reads: the spec is one container that requests what the pod requests, on
    the nodes of the node selector. Labels that number the pods of a job stay `with_index`, as do `marks`."""
    meta = pod.metadata
    kept = (_OURS, _INDEX, *marks) if with_index else (_OURS, *marks)
    meta.labels = {key: value for key, value in meta.labels.items() if any(part in key for part in kept)}
    meta.annotations = {key: value for key, value in meta.annotations.items() if _OURS in key}
    refused = unschedulable(pod)
    if refused is not None:
        refused.message = sys.intern(refused.message)  # the pods of a job that do not fit all have the same text
    pod.status.conditions = [refused] if refused is not None else []
    pod.status.message = ""
    try:
        spec = _decode_spec(pod.spec)
        totals = {name: amount(name, value) for name, value in pod_requests(effective_pod(spec)).items()}
    except (msgspec.ValidationError, InvalidValue):
        return  # kept as it is
    requests = {name: f"{value}m" if name == "cpu" else str(value) for name, value in totals.items()}
    reduced: dict[str, object] = {
        "nodeName": spec.node_name,
        "nodeSelector": spec.node_selector,
        "containers": [{"resources": {"requests": requests}}],
    }
    if (seconds := grace_seconds(pod)) != GRACE_SECONDS:
        reduced["terminationGracePeriodSeconds"] = seconds
    if is_left_gated(pod):
        reduced["schedulingGates"] = [{"name": gate} for gate in gates(pod)]
    pod.spec = msgspec.Raw(msgspec.json.encode(reduced))
