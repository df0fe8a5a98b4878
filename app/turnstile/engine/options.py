"""Configuration that changes decisions: feature gates, fair sharing, transformations.

Values with Kueue's defaults (0.20 line). Must never hold state.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

FairSharingStrategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
QuotaCheckStrategy = Literal["BlockUndeclared", "IgnoreUndeclared"]
RequeuingTimestamp = Literal["Eviction", "Creation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """Feature gates that change a decision, by Kueue's names in snake case."""

    partial_admission: bool = True
    flavor_fungibility: bool = True
    flavor_fungibility_preserve_scan_progress: bool = True
    priority_sorting_within_cohort: bool = True
    fair_sharing_preempt_within_nominal: bool = True
    fair_sharing_prioritize_non_borrowing: bool = True
    recompute_assignment_upon_preemption_targets_overlap: bool = True
    scheduling_equivalence_hashing: bool = True
    reclaimable_pods: bool = True
    admission_fair_sharing: bool = True
    admission_gated_by: bool = True
    quota_check_strategy: bool = True
    unadmitted_workloads_observability: bool = True
    topology_aware_scheduling: bool = True
    priority_boost: bool = False
    prioritize_preemptor_workloads: bool = False
    kueue_dra_integration: bool = True
    kueue_dra_integration_extended_resource: bool = True
    kueue_dra_integration_partitionable_devices: bool = True
    kueue_dra_integration_consumable_capacity: bool = False
    kueue_dra_reject_workloads_when_dra_disabled: bool = True
    concurrent_admission: bool = False
    dynamic_quota_orchestration: bool = False
    multi_kueue_orchestrated_preemption: bool = False
    elastic_jobs_via_workload_slices: bool = True
    tas_assignments_encoding_by_hostname_prefix: bool = True
    tas_profile_mixed: bool = True
    tas_handle_overlapping_flavors: bool = True
    tas_recompute_assignment_within_scheduling_cycle: bool = True
    tas_multi_layer_topology: bool = True
    tas_balanced_placement: bool = False
    tas_respect_node_affinity_preferred: bool = False
    tas_failed_node_replacement_fail_fast: bool = True
    skip_reassignment_for_pod_owned_workloads: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FairSharing:
    """Fair sharing between ClusterQueues and Cohorts; the strategies of its preemption, in order."""

    strategies: tuple[FairSharingStrategy, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFairSharing:
    """Order among the LocalQueues of a ClusterQueue by decayed usage. Times in seconds."""

    usage_half_life: float
    usage_sampling_interval: float = 300.0
    resource_weights: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitForPodsReady:
    """How a workload whose pods do not become ready touches the others."""

    block_admission: bool = False
    requeuing_timestamp: RequeuingTimestamp = "Eviction"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformation:
    """One resource counted as others: `outputs` are factors by resource name."""

    input: str
    outputs: dict[str, Fraction] = field(default_factory=dict)
    strategy: Literal["Retain", "Replace"] = "Retain"
    multiply_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSource:
    """A part of a device that counts instead of the device: a counter that it consumes, or a capacity of it.
    `selector` is CEL."""

    kind: Literal["counter", "capacity"]
    name: str
    driver: str
    selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMapping:
    """DeviceClasses whose devices count as a quota resource: whole devices, or their sources if there are any."""

    resource: str
    classes: tuple[str, ...]
    sources: tuple[DeviceSource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that is configured for the engine."""

    gates: Gates = field(default_factory=Gates)
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    wait_for_pods_ready: WaitForPodsReady = field(default_factory=WaitForPodsReady)
    transformations: tuple[Transformation, ...] = ()
    exclude_resource_prefixes: tuple[str, ...] = ()
    device_mappings: tuple[DeviceMapping, ...] = ()
    quota_check_strategy: QuotaCheckStrategy = "BlockUndeclared"
    node_failure_conditions: frozenset[str] = frozenset()
    """Types of conditions that are True of a node which does not work, though it may be ready."""
    wait_for_room: bool = False
    """Whether ClusterQueues that do not say otherwise admit Workloads only while nodes have room for their pods."""
    victim_patience: float | None = 300.0
    """Seconds after its eviction in which a preemptor waits for the quota of a victim; None for ever, as in Kueue."""

    longest_minimum_run_time: float = 86_400.0
    """Seconds for which a minimum run time protects at most from preemption, whatever ClusterQueues and priority
    classes say."""

    @property
    def usage_sharing(self) -> AdmissionFairSharing | None:
        """Admission fair sharing, if it is on."""
        return self.admission_fair_sharing if self.gates.admission_fair_sharing else None
