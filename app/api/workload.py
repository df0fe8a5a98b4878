"""Workload: what one job asks for, and what it was given."""

from typing import ClassVar, Literal

import msgspec

from app.api import names
from app.api.meta import Condition, Kind, Object, is_true
from app.api.pods import PodTemplate, Quantity, Toleration

QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
PODS_READY = "PodsReady"
FINISHED = "Finished"
EVICTED = "Evicted"
PREEMPTED = "Preempted"
REQUEUED = "Requeued"
DEACTIVATION_TARGET = "DeactivationTarget"
BLOCKED_ON_PREEMPTION_GATES = "BlockedOnPreemptionGates"


class SliceConstraint(Object):
    """One layer of a multi-layer topology request."""

    topology: str
    size: int


class TopologyRequest(Object):
    """Where the pods of a pod set want to be, relative to each other."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    pod_index_label: str | None = None
    sub_group_index_label: str | None = None
    sub_group_count: int | None = None
    pod_set_group_name: str | None = None
    pod_set_slice_required_topology: str | None = None
    pod_set_slice_size: int | None = None
    podset_slice_required_topology_constraints: list[SliceConstraint] = []


class PodSet(Object):
    """Pods of one template. A `minCount` below `count` allows partial admission."""

    name: str = names.DEFAULT_PODSET
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)
    count: int = 1
    min_count: int | None = None
    topology_request: TopologyRequest | None = None


class PriorityClassRef(Object):
    """The class that `spec.priority` came from."""

    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    name: str


class PreemptionGate(Object):
    """A gate that holds back preemptions for this workload."""

    name: str


class WorkloadSpec(Object):
    """What is asked for. An absent priority is 0, an absent `active` is true."""

    pod_sets: list[PodSet] = []
    queue_name: str | None = None
    priority_class_ref: PriorityClassRef | None = None
    priority: int | None = None
    active: bool = True
    maximum_execution_time_seconds: int | None = None
    preemption_gates: list[PreemptionGate] = []


class IndividualValues(Object):
    """Values that differ by domain: prefix + root + suffix."""

    roots: list[str] = []
    prefix: str | None = None
    suffix: str | None = None


class LevelValues(Object):
    """Value of one level, for all domains of the slice or one by one."""

    universal: str | None = None
    individual: IndividualValues | None = None


class SlicePodCounts(Object):
    """Pods a domain, the same for all or one by one."""

    universal: int | None = None
    individual: list[int] = []


class TopologyAssignmentSlice(Object):
    """A run of domains."""

    domain_count: int
    values_per_level: list[LevelValues] = []
    pod_counts: SlicePodCounts = msgspec.field(default_factory=SlicePodCounts)


class TopologyAssignment(Object):
    """Domains and how many pods each gets."""

    levels: list[str] = []
    slices: list[TopologyAssignmentSlice] = []


class PodSetAssignment(Object):
    """What a pod set was given: a flavor a resource, the total usage, and the number of pods."""

    name: str = names.DEFAULT_PODSET
    flavors: dict[str, str] = {}
    resource_usage: dict[str, Quantity] = {}
    count: int | None = None
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: Literal["Pending", "Ready"] | None = None


class Admission(Object):
    """The reservation; set and unset as a unit."""

    cluster_queue: str = ""
    pod_set_assignments: list[PodSetAssignment] = []


class RequeueState(Object):
    """Evictions so far and when the next attempt may start."""

    count: int | None = None
    requeue_at: str | None = None


class ReclaimablePod(Object):
    """Pods of a pod set that need their quota no longer."""

    name: str
    count: int


class PodSetUpdate(Object):
    """What an admission check adds to the pods of a pod set."""

    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []


class AdmissionCheckState(Object):
    """State of one check."""

    name: str
    state: Literal["Pending", "Ready", "Retry", "Rejected"]
    last_transition_time: str = ""
    message: str = ""
    requeue_after_seconds: int | None = None
    retry_count: int | None = None
    pod_set_updates: list[PodSetUpdate] = []


class PodSetRequest(Object):
    """Total requests of a pod set that waits."""

    name: str
    resources: dict[str, Quantity] = {}


class WorkloadSchedulingStatsEviction(Object):
    """How often a workload was evicted for one reason."""

    reason: str
    underlying_cause: str = ""
    count: int = 0


class SchedulingStats(Object):
    """Counters over the life of a workload."""

    evictions: list[WorkloadSchedulingStatsEviction] = []


class UnhealthyNode(Object):
    """A failed node that holds pods of the workload."""

    name: str


class PreemptionGateState(Object):
    """Whether a preemption gate is open."""

    name: str
    position: Literal["Closed", "Open"]
    last_transition_time: str = ""


class WorkloadStatus(Object):
    """What was decided and what came of it."""

    conditions: list[Condition] = []
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: list[ReclaimablePod] = []
    admission_checks: list[AdmissionCheckState] = []
    resource_requests: list[PodSetRequest] = []
    accumulated_past_execution_time_seconds: int | None = None
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: list[str] = []
    cluster_name: str | None = None
    unhealthy_nodes: list[UnhealthyNode] = []
    preemption_gates: list[PreemptionGateState] = []


class Workload(Kind):
    """kueue.x-k8s.io Workload."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "Workload"
    PLURAL: ClassVar = "workloads"
    NAMESPACED: ClassVar = True

    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)

    @property
    def finished(self) -> bool:
        """Whether the job ended."""
        return is_true(self.status.conditions, FINISHED)

    @property
    def quota_reserved(self) -> bool:
        """Whether quota is held in a ClusterQueue."""
        return is_true(self.status.conditions, QUOTA_RESERVED)

    @property
    def admitted(self) -> bool:
        """Whether the job may run."""
        return is_true(self.status.conditions, ADMITTED)

    @property
    def evicted(self) -> bool:
        """Whether the last run was taken back."""
        return is_true(self.status.conditions, EVICTED)
