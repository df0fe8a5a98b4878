"""The input of reconcilers: the stores, the options, and the clock. Read-only.

Any further input of a decision must be added here, so that tests can set it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange, Namespace, Node, Pod, PriorityClass, RuntimeClass
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.pods import PodSpec
from turnstile.api.resourceclaim import ResourceClaim, ResourceClaimTemplate
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.resourceslice import ResourceSlice
from turnstile.api.topology import HOSTNAME, Topology
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.status.draft import StatusDraft
from turnstile.controllers.status.spans import Spans
from turnstile.controllers.view.ends import Ends
from turnstile.controllers.view.multikueue import MultiKueue, dispatching
from turnstile.controllers.view.provisioning import Provisioning
from turnstile.engine.devices.claims import FIELDS
from turnstile.engine.options import Options as EngineOptions
from turnstile.engine.quota.requests import EffectivePod, Exact, effective_pod, pod_requests, summarize
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.jobs import podsets
from turnstile.jobs.options import JobOptions
from turnstile.jobs.podsets import PodSetInfo
from turnstile.jobs.registry import Registry
from turnstile.kube.store import Store

WORKLOADS_BY_JOB = "job"
"""Index of Workloads by the key of each job that owns them (`batch/job:team-a/train`)."""
WORKLOADS_BY_QUEUE = "queue"
"""Index of Workloads by `namespace/queueName`."""
WORKLOADS_BY_CLUSTER_QUEUE = "cluster-queue"
"""Index of Workloads by the ClusterQueue that their admission names."""
WORKLOADS_BY_CLAIM = "claim"
"""Index of Workloads by `namespace/name` of each ResourceClaim and ResourceClaimTemplate that their pods name."""
VARIANTS_BY_PARENT = "variants"
"""Index of the Workloads that compete for another one, by `namespace/name` of that."""
WORKLOADS_BY_CHAIN = "chain"
"""Index of the slices of elastic jobs by `namespace/name` of the first slice of their chain."""
LOCAL_QUEUES_BY_CLUSTER_QUEUE = "cluster-queue"
"""Index of LocalQueues by ClusterQueue."""
WORKLOADS_BY_PRIORITY_CLASS = "priority-class"
"""Index of Workloads by the name of their WorkloadPriorityClass."""
CLUSTER_QUEUES_BY_FLAVOR = "flavor"
"""Index of ClusterQueues by each ResourceFlavor they name."""
CLUSTER_QUEUES_BY_CHECK = "check"
"""Index of ClusterQueues by each AdmissionCheck they name."""
FLAVORS_BY_TOPOLOGY = "topology"
"""Index of ResourceFlavors by the Topology they name."""
NODES_BY_HOST = "host"
"""Index of nodes by their host name."""


class Idle:
    """Since when no pod of a Workload that holds quota has run. Remembered by uid, while the Workload is admitted.

    Measured by this process: a new leader begins anew, so that nothing has to be written about healthy jobs. The times
    are those that `ClusterView.measured` gives, which never go back.
    """

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}

    def __len__(self) -> int:
        return len(self._since)

    def seen(self, uid: str, now: datetime) -> float:
        """No pod of the Workload runs: seconds for which that is so already."""
        return (now - self._since.setdefault(uid, now)).total_seconds()

    def ended(self, uid: str, now: datetime) -> None:
        """A pod of the Workload, which was idle, has run since, and does not run any more."""
        if uid in self._since:
            self._since[uid] = now

    def forget(self, uid: str) -> None:
        """The Workload holds no quota, or a pod of it runs."""
        self._since.pop(uid, None)


class NotRead(Exception):
    """A decision has to wait until all objects of a kind were read."""


Clock = Callable[[], datetime]
"""The time now, in UTC: the only source of wall-clock time."""


@dataclass(slots=True, kw_only=True)
class ClusterView:
    """Stores of everything that decisions read. `options` may be replaced when the configuration changes."""

    clock: Clock
    options: JobOptions
    registry: Registry
    workloads: Store[Workload]
    cluster_queues: Store[ClusterQueue]
    local_queues: Store[LocalQueue]
    cohorts: Store[Cohort]
    flavors: Store[ResourceFlavor]
    admission_checks: Store[AdmissionCheck]
    topologies: Store[Topology]
    namespaces: Store[Namespace]
    limit_ranges: Store[LimitRange]
    runtime_classes: Store[RuntimeClass]
    priority_classes: Store[PriorityClass]
    workload_priority_classes: Store[WorkloadPriorityClass]
    jobs: Mapping[type[Kind], Store[Kind]]
    pods: Store[Pod]
    """Pods that may be charged to a Workload, of any job kind."""
    device_classes: Store[DeviceClass] = field(default_factory=Store)
    claim_templates: Store[ResourceClaimTemplate] = field(default_factory=Store)
    claims: Store[ResourceClaim] = field(default_factory=Store)
    resource_slices: Store[ResourceSlice] = field(default_factory=Store)
    counting: Surroundings = field(default_factory=lambda: Surroundings(EngineOptions()))
    """How the ledger counts requests; that of the term's ledger while this process leads."""
    nodes: Store[Node] = field(default_factory=lambda: indexed_nodes(Store()))
    """Read only while there is a Topology."""
    provisioning: Provisioning = field(default_factory=Provisioning)
    multikueue: MultiKueue = field(default_factory=MultiKueue)
    ends: Ends = field(default_factory=Ends)
    """Noted by `charges.follow_ends`."""
    idle: Idle = field(default_factory=Idle)
    """Noted by `unused.follow_idle`."""
    spans: Spans = field(default_factory=Spans)
    """How time is measured."""

    @property
    def now(self) -> datetime:
        """One reading of the clock, in UTC."""
        return self.clock()

    @property
    def measured(self) -> datetime:
        """A time that never goes back, to measure this process's own spans with."""
        return self.spans.measured(self.now)

    def left(self, since: datetime | None, seconds: float) -> float:
        """Seconds that are left of a span which began at a time that is written in an object: 0 if it is over, or has
        no beginning; never more than the whole span."""
        return max(0.0, self.spans.left(since, seconds, self.now)) if since is not None else 0.0

    def require(self, kinds: Iterable[type[Kind]]) -> None:
        """Raise NotRead if an object of one of these kinds of jobs may be missing or stale in its store. Once that is
        over, the jobs that the kind concerns are reconciled."""
        for kind in kinds:
            store = self.jobs.get(kind)
            if store is not None and not store.complete:
                raise NotRead(f"{kind.PLURAL} are not read yet")

    def draft(self, workload: Workload) -> StatusDraft:
        """An empty draft of changes to the status of a Workload, as of now."""
        return StatusDraft(workload, self.now, granular=self.options.granular_reasons)

    def find_job(self, kind: type[Kind], key: str) -> Kind | None:
        """A job of a kind by `namespace/name`. Raises NotRead."""
        self.require([kind])
        store = self.jobs.get(kind)
        return store.get(key) if store is not None else None

    def infos_of(self, workload: Workload, *, instead: ResourceFlavor | None = None) -> list[PodSetInfo]:
        """The additions of a Workload's admission to its pods, with `instead` in the place of flavors that are gone.
        A job whose copy runs on another cluster gets none: that cluster adds its own. Raises as `podsets.infos_of`
        does."""
        if dispatching(workload, self.admission_checks) is not None:
            return [PodSetInfo(name=each.name, count=each.count) for each in workload.spec.pod_sets]
        return podsets.infos_of(
            workload,
            lambda name: self.flavors.get(name) or instead,
            queue_labels=self.options.queue_labels_on_pods,
            topologies=self.options.topologies,
        )

    def requests_in(self, namespace: str) -> Callable[[PodSpec], Exact]:
        """The requests that a pod of a template will have in a namespace. The function raises InvalidValue."""
        completed = self.completed_in(namespace)
        return lambda template: pod_requests(completed(template))

    def completed_in(self, namespace: str) -> Callable[[PodSpec], EffectivePod]:
        """The pod that the API server makes of a template in a namespace, with what LimitRange and RuntimeClass add.
        The function raises InvalidValue. Not for pods that exist, which are complete."""
        limits = summarize(each for each in self.limit_ranges.values() if each.metadata.namespace == namespace)
        overheads = {
            each.metadata.name: each.overhead.pod_fixed
            for each in self.runtime_classes.values()
            if each.overhead is not None
        }
        return lambda template: effective_pod(template, overheads=overheads, limits=limits)

    def local_queue_of(self, workload: Workload) -> LocalQueue | None:
        """The LocalQueue that a Workload names, if it exists."""
        return self.local_queues.get(f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}")

    def cluster_queue_of(self, queue: LocalQueue | None) -> ClusterQueue | None:
        """The ClusterQueue of a LocalQueue, if both exist."""
        name = queue.spec.cluster_queue if queue is not None else None
        return self.cluster_queues.get(name) if name else None


def index_stores(
    workloads: Store[Workload],
    local_queues: Store[LocalQueue],
    cluster_queues: Store[ClusterQueue],
    flavors: Store[ResourceFlavor],
) -> None:
    """Declare the indexes that reconcilers use."""
    workloads.add_index(WORKLOADS_BY_QUEUE, lambda w: [f"{w.metadata.namespace}/{w.spec.queue_name or ''}"])
    workloads.add_index(
        WORKLOADS_BY_CLUSTER_QUEUE, lambda w: [w.status.admission.cluster_queue] if w.status.admission else []
    )
    workloads.add_index(
        WORKLOADS_BY_PRIORITY_CLASS,
        lambda w: (
            [w.spec.priority_class_ref.name]
            if w.spec.priority_class_ref and w.spec.priority_class_ref.kind == "WorkloadPriorityClass"
            else []
        ),
    )
    workloads.add_index(WORKLOADS_BY_CLAIM, claims_in)
    workloads.add_index(VARIANTS_BY_PARENT, parents_of)
    local_queues.add_index(
        LOCAL_QUEUES_BY_CLUSTER_QUEUE, lambda q: [q.spec.cluster_queue] if q.spec.cluster_queue else []
    )
    cluster_queues.add_index(CLUSTER_QUEUES_BY_FLAVOR, flavors_in)
    cluster_queues.add_index(CLUSTER_QUEUES_BY_CHECK, checks_in)
    flavors.add_index(FLAVORS_BY_TOPOLOGY, topologies_in)


def indexed_nodes(nodes: Store[Node]) -> Store[Node]:
    """The store of nodes, with the index that reconcilers use."""
    nodes.add_index(NODES_BY_HOST, lambda node: [node.metadata.labels.get(HOSTNAME, node.metadata.name)])
    return nodes


def flavors_in(queue: ClusterQueue) -> list[str]:
    """Names of the ResourceFlavors that a ClusterQueue refers to."""
    return sorted({flavor.name for group in queue.spec.resource_groups for flavor in group.flavors})


def parents_of(workload: Workload) -> list[str]:
    """The Workload that a variant of it competes for (concurrent admission), as `namespace/name`."""
    owner = workload.metadata.controller
    return [f"{workload.metadata.namespace}/{owner.name}"] if owner is not None and owner.kind == Workload.KIND else []


def claims_in(workload: Workload) -> list[str]:
    """The ResourceClaims and ResourceClaimTemplates that the pods of a Workload name, as `namespace/name`."""
    names = {
        claim.get(field)
        for pod_set in workload.spec.pod_sets
        for claim in pod_set.template.spec.resource_claims
        for field in FIELDS
    }
    return sorted(f"{workload.metadata.namespace}/{name}" for name in names if name)


def checks_in(queue: ClusterQueue) -> list[str]:
    """Names of the AdmissionChecks that a ClusterQueue refers to."""
    strategy = queue.spec.admission_checks_strategy
    return [check.name for check in strategy.admission_checks] if strategy is not None else []


def topologies_in(flavor: ResourceFlavor) -> list[str]:
    """Name of the Topology that a ResourceFlavor refers to, if any."""
    return [flavor.spec.topology_name] if flavor.spec.topology_name else []
