"""The view of the cluster for reconcilers and webhooks: which kinds a process reads, and how much of them.

Declares the caches; starts nothing, and never decides anything.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import structlog

from turnstile.advice.offer import OFFERED, Offer
from turnstile.api import names
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange, Namespace, Node, Pod, PodTemplate, PriorityClass, RuntimeClass
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.effectivequota import with_effective_quota
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.multikueue import MultiKueueCluster, MultiKueueConfig
from turnstile.api.provisioningrequest import ProvisioningRequest
from turnstile.api.provisioningrequestconfig import ProvisioningRequestConfig
from turnstile.api.resourceclaim import ResourceClaim, ResourceClaimTemplate
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.resourceslice import ResourceSlice
from turnstile.api.topology import Topology
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.charging.charges import follow_ends, index_pods, workloads_of
from turnstile.controllers.jobs.jobreconciler import index_jobs
from turnstile.controllers.podrecovery import index_stuck
from turnstile.controllers.status.spans import Spans
from turnstile.controllers.view.clusterview import Clock, ClusterView, checks_in, index_stores, indexed_nodes
from turnstile.controllers.view.managed import ManagedNamespaces, has_places
from turnstile.controllers.view.multikueue import MultiKueue, index_multikueue, is_multikueue
from turnstile.controllers.view.provisioning import Provisioning, index_provisioning
from turnstile.controllers.workloads.unused import follow_idle, in_use, runs
from turnstile.engine.intake import placing
from turnstile.engine.options import Options as EngineOptions
from turnstile.jobs.integration import Integration
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry, external_kinds
from turnstile.kube import cache
from turnstile.kube.caches import Caches
from turnstile.kube.fence import monotonic
from turnstile.kube.raws import Keep
from turnstile.kube.store import Store
from turnstile.recorder.recording import Pods

_log = structlog.get_logger(__name__)


def cluster_view(
    caches: Caches, options: JobOptions, registry: Registry, managed: ManagedNamespaces, *, clock: Clock, namespace: str
) -> ClusterView:
    """All stores that reconcilers read; `managed` decides what is held of jobs and pods. `namespace` is Turnstile's."""
    keep = managed.keep
    before = (Namespace, Topology, ClusterQueue, Workload)
    pods: Store[Any] = caches.of(Pod, optional=True, keep=managed.keep_pod, after=before)
    sent = options.multikueue
    external = Registry(kinds=external_kinds(sent.external)) if sent is not None and sent.external else None
    cluster = ClusterView(
        clock=clock,
        spans=Spans(monotonic),
        options=options,
        registry=registry,
        workloads=caches.of(Workload),
        cluster_queues=caches.of(ClusterQueue, keep=_keep_quota if options.effective_quotas else None),
        local_queues=caches.of(LocalQueue),
        cohorts=caches.of(Cohort, keep=_keep_quota if options.effective_quotas else None),
        flavors=caches.of(ResourceFlavor),
        admission_checks=caches.of(AdmissionCheck),
        topologies=caches.of(Topology),
        nodes=_nodes(caches, options),
        namespaces=caches.of(Namespace),
        limit_ranges=caches.of(LimitRange),
        runtime_classes=caches.of(RuntimeClass),
        priority_classes=caches.of(PriorityClass),
        workload_priority_classes=caches.of(WorkloadPriorityClass),
        jobs={
            each.kind: pods
            if each.kind is Pod
            else caches.of(each.kind, optional=True, keep=keep, after=(Namespace, Workload))
            for each in registry.followed
        },
        pods=pods,
        device_classes=caches.of(DeviceClass, optional=True),
        claim_templates=caches.of(ResourceClaimTemplate, optional=True),
        claims=caches.of(ResourceClaim, optional=True, keep=_keep_claim),
        resource_slices=caches.of(ResourceSlice, optional=True),
        provisioning=provisioning(caches),
        multikueue=MultiKueue(
            configs=caches.of(MultiKueueConfig),
            clusters=caches.of(MultiKueueCluster),
            namespace=namespace,
            served=lambda kind: caches.standing(kind).state is not cache.State.DORMANT,
            external=external,
            external_jobs={each.kind: caches.of(each.kind, optional=True) for each in external.enabled}
            if external is not None
            else {},
        ),
    )
    managed.follow_queues(cluster.cluster_queues)
    index_multikueue(cluster.multikueue.configs, cluster.admission_checks, cluster.workloads, external)
    index_provisioning(cluster.provisioning.requests, cluster.admission_checks, cluster.workloads)
    index_stores(cluster.workloads, cluster.local_queues, cluster.cluster_queues, cluster.flavors)
    index_jobs(cluster.workloads, registry, cluster.jobs)
    index_pods(pods)
    follow_ends(cluster)
    if options.failure_recovery:
        index_stuck(cluster.pods)
    follow_idle(cluster)
    return cluster


def _keep_quota(quota: ClusterQueue | Cohort) -> Keep:
    """ClusterQueues and Cohorts with the quota that holds, for all that compare usage with quota."""
    quota.spec = with_effective_quota(quota).spec
    return Keep.WHOLE


def _keep_claim(claim: ResourceClaim) -> Keep:
    """Claims that were made for a pod belong to that pod: their templates are counted."""
    return Keep.NOTHING if claim.metadata.controller is not None else Keep.WHOLE


def _nodes(caches: Caches, options: JobOptions) -> Store[Node]:
    """Nodes, read once there is a Topology, a ClusterQueue that waits for room, a Workload that has places though its
    Topology is gone, or a node that is unreachable matters; after the pods bound to them."""
    if not (options.topologies or options.failure_recovery):
        return indexed_nodes(Store())
    matter: dict[type[Kind], Callable[[Any], bool]] = placing(wait_for_room=options.wait_for_room)
    matter[Workload] = has_places
    only_with = None if options.failure_recovery else matter
    return indexed_nodes(caches.of(Node, optional=True, only_with=only_with, after=(Pod,)))


def provisioning(caches: Caches) -> Provisioning:
    """Kinds that the provisioning controller reads; the kind ProvisioningRequest is dormant until an autoscaler brings
    it."""
    made_by_us = {"labelSelector": f"{names.MANAGED_LABEL}=true"}
    return Provisioning(
        configs=caches.of(ProvisioningRequestConfig),
        requests=caches.of(ProvisioningRequest, optional=True),
        templates=caches.of(PodTemplate, params=made_by_us, optional=True, metadata_only=True),
        served=lambda: caches.standing(ProvisioningRequest).state is not cache.State.DORMANT,
    )


def _selected(integration: Integration[Any]) -> Mapping[str, str] | None:
    return {"labelSelector": integration.asked.selector} if integration.asked.selector else None


class WebhookCaches:
    """The webhooks' view of the cluster (`turnstile.webhooks.lookups.Lookups`), read from the stores."""

    def __init__(self, caches: Caches, options: JobOptions, registry: Registry, *, engine: EngineOptions) -> None:
        """Use the stores of the controller in the same process; without one, read no more than reviews need. `engine`
        is how quota is counted."""
        self.options = options
        self.registry = registry
        self._local_queues = caches.of(LocalQueue)
        self._namespaces = caches.of(Namespace)
        held: Store[AdmissionCheck] | None = caches.held(AdmissionCheck)
        self._checks = held if held is not None else caches.of(AdmissionCheck, optional=True)
        self._priority_classes = caches.of(WorkloadPriorityClass)
        self._jobs: dict[type[Kind], Store[Any]] = {}
        for each in registry.watched:
            jobs = caches.held(each.kind)
            if jobs is None:
                jobs = caches.of(each.kind, params=_selected(each), optional=True, metadata_only=True)
            self._jobs[each.kind] = jobs
        for each in registry.enabled:
            if (counted := each.counted_pods) is None:
                continue
            for kind in counted.below:
                named = {"labelSelector": counted.label}
                self._jobs[kind] = caches.of(kind, params=named, optional=True, metadata_only=True)
        self._offer = Offer(engine)
        self._offered = [self._follow(caches, kind) for kind in OFFERED]
        cluster_queues = caches.held(ClusterQueue)
        assert cluster_queues is not None
        self._cluster_queues = cluster_queues

    def _follow(self, caches: Caches, kind: type[Kind]) -> Store[Any]:
        """Pass every object of a kind to the offer. Kinds that only warnings need are optional: no review waits for
        it."""
        held: Store[Any] | None = caches.held(kind)
        store = held if held is not None else caches.of(kind, optional=True)

        def changed(key: str, old: Kind | None, new: Kind | None) -> None:
            try:
                if new is None:
                    self._offer.drop(kind, key)
                else:
                    self._offer.put(new)
            except InvalidValue as error:
                _log.warning("offer.unreadable", kind=kind.KIND, key=key, error=str(error))

        store.subscribe(changed, replay=True)
        return store

    @property
    def offer(self) -> Offer | None:
        """The queues, quotas and priority classes; None while the caches lack any of them."""
        return self._offer if all(store.complete for store in self._offered) else None

    def default_local_queue(self, namespace: str) -> bool:
        """Whether the namespace has a LocalQueue named `default`."""
        return f"{namespace}/{names.DEFAULT_LOCAL_QUEUE}" in self._local_queues

    def sends_away(self, namespace: str, queue: str) -> bool:
        """Whether a check of the ClusterQueue sends the jobs of a LocalQueue to other clusters."""
        found = self._local_queues.get(f"{namespace}/{queue}")
        name = found.spec.cluster_queue if found is not None else None
        held = self._cluster_queues.get(name) if name else None
        return held is not None and any(is_multikueue(self._checks.get(each)) for each in checks_in(held))

    def default_priority_class(self) -> bool:
        """Whether a WorkloadPriorityClass named `default` exists."""
        return names.DEFAULT_PRIORITY_CLASS in self._priority_classes

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a namespace, or None if the namespace is not in the store."""
        found = self._namespaces.get(namespace)
        return found.metadata.labels if found is not None else None

    def find(self, kind: type[Kind], key: str) -> Kind | None:
        """An object by its key, or None if it is not in the store."""
        jobs = self._jobs.get(kind)
        return jobs.get(key) if jobs is not None else None


def recorded_pods(cluster: ClusterView) -> Pods:
    """The pods of a leader's cluster, as the flight recorder follows them."""
    return Pods(
        cluster.pods,
        runs=runs,
        workloads_of=partial(workloads_of, cluster=cluster),
        in_use=partial(in_use, cluster=cluster),
    )
