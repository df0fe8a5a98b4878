"""Differences of the schemas of v1beta1 from those of v1beta2, struct by struct.

Everything not named here is the same in both, so that a limit is written once. Must never be imported by what runs: it
is read by the generators of CRDs and of the reference.
"""

from typing import Annotated, Final, Literal

from turnstile.api.admissioncheck import AdmissionCheckParametersReference, AdmissionCheckSpec, AdmissionCheckStatus
from turnstile.api.clusterqueue import (
    AdmissionChecksStrategy,
    AdmissionCheckStrategyRule,
    AdmissionScope,
    ClusterQueue,
    ClusterQueueSpec,
    ClusterQueueStatus,
    FlavorFungibility,
)
from turnstile.api.localqueue import AdmissionFairSharingStatus, LocalQueueStatus
from turnstile.api.meta import Object
from turnstile.api.multikueue import (
    ClusterProfileReference,
    MultiKueueClusterSpec,
    MultiKueueClusterStatus,
    MultiKueueConfigSpec,
)
from turnstile.api.pods import Taint
from turnstile.api.provisioningrequestconfig import ProvisioningRequestConfigSpec, ProvisioningRequestPodSetUpdates
from turnstile.api.quota import FairSharingStatus, ResourceGroup
from turnstile.api.schema import Column, Field, Int64, Rule, Subdomain, Time, View, Views
from turnstile.api.topology import LEVEL_RULES, TopologyRequest, TopologySpec
from turnstile.api.workload import (
    WAS_RESERVED,
    Admission,
    AdmissionCheckState,
    PodSet,
    PodSetAssignment,
    PodSetUpdate,
    SchedulingStats,
    UnhealthyNode,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass

_PLAIN_LIST: Final = ("list_type", "map_keys")
_ANY_CONDITIONS: Final = {"conditions": ("max_items",)}
_REQUIRED: Final = Field(required=True)


class ClusterQueuePendingWorkload(Object):
    """A workload that waits."""

    name: str
    namespace: str


class ClusterQueuePendingWorkloadsStatus(Object, kw_only=True):
    """Heads of the queue. Nothing writes it."""

    cluster_queue_pending_workload: Annotated[
        list[ClusterQueuePendingWorkload], Field("The first workloads that wait.", list_type="atomic")
    ] = []
    last_change_time: Annotated[Time, Field("When it changed last.")]


class TopologyInfo(Object):
    """The topology of a flavor."""

    name: Annotated[Subdomain, Field("Topology.")]
    levels: Annotated[list[str], Field("Node labels, the widest first.", min_items=1, list_type="atomic")]


class LocalQueueFlavorStatus(Object):
    """A flavor of the queue. Nothing writes it."""

    name: Annotated[Subdomain, Field("ResourceFlavor.")]
    resources: Annotated[list[str], Field("Resources of the flavor.", max_items=64, list_type="set")] = []
    node_labels: Annotated[dict[str, str], Field("Labels of the nodes.", max_properties=8, map_type="atomic")] = {}
    node_taints: Annotated[list[Taint], Field("Taints of the nodes.", max_items=8, list_type="atomic")] = []
    topology: Annotated[TopologyInfo | None, Field("Topology of the nodes.")] = None


class KubeConfig(Object):
    """A kubeconfig, in a Secret of our own namespace (key `kubeconfig`) or in a file."""

    location: Annotated[str, Field("Name of the Secret, or path of the file.")]
    location_type: Annotated[Literal["Secret", "Path"], Field("Where it is.", required=True, default="Secret")]


class TopologyDomainAssignment(Object):
    """A domain and its pods."""

    values: Annotated[list[str], Field("Its value of each level.", min_items=1, max_items=16, list_type="atomic")]
    count: Annotated[int, Field("Pods it gets.", minimum=1)]


class TopologyAssignment(Object):
    """Domains and how many pods each gets."""

    levels: Annotated[list[str], Field("Node labels, the widest first.", min_items=1, max_items=16, list_type="atomic")]
    domains: Annotated[list[TopologyDomainAssignment], Field("Domains.", max_items=100_000, list_type="atomic")]


_POD_CLASS = "scheduling.k8s.io/priorityclass"
_QUEUE_CLASS = "kueue.x-k8s.io/workloadpriorityclass"
_SOURCE = "priorityClassSource"
_KEPT = "is immutable while workload quota reserved"


def _both(name: str) -> str:
    """CEL: old and new spec have the field."""
    return f"has(self.spec.{name}) && has(oldSelf.spec.{name})"


_SPECS = "has(self.spec) && has(oldSelf.spec)"
_PRIORITY_RULES: Final = (
    Rule(
        f"!({WAS_RESERVED} && {_SPECS} && {_both(_SOURCE)}) || self.spec.{_SOURCE} == oldSelf.spec.{_SOURCE}",
        f"{_SOURCE} {_KEPT}",
    ),
    Rule(
        f"!({WAS_RESERVED} && {_SPECS} && {_both(_SOURCE)} && self.spec.{_SOURCE} != '{_QUEUE_CLASS}' && "
        f"{_both('priorityClassName')}) || self.spec.priorityClassName == oldSelf.spec.priorityClassName",
        f"priorityClassName {_KEPT} and {_SOURCE} is not equal to {_QUEUE_CLASS}",
    ),
)

VIEWS: Final[Views] = {
    AdmissionCheckParametersReference: View(silent=dict.fromkeys(("apiGroup", "kind", "name"), ("min_length",))),
    AdmissionCheckSpec: View(
        silent={"controllerName": ("min_length",)},
        other={"retryDelayMinutes": Annotated[Int64, Field("Not used.", default=15)]},
    ),
    AdmissionCheckStatus: View(silent=_ANY_CONDITIONS),
    ClusterQueue: View(columns=(Column("Cohort", ".spec.cohort"), *ClusterQueue.COLUMNS[1:])),
    ClusterQueueSpec: View(
        renamed={"cohortName": "cohort"},
        dropped=("concurrentAdmissionPolicy",),
        other={
            "admissionChecks": Annotated[
                list[Annotated[str, Field(max_length=316)]],
                Field("Checks that must pass, for all flavors; replaces `admissionChecksStrategy`."),
            ]
        },
        rules=tuple(Rule(rule.rule.replace("cohortName", "cohort"), rule.message) for rule in ClusterQueueSpec.RULES),
    ),
    ResourceGroup: View(silent={"coveredResources": ("list_type",)}),
    AdmissionChecksStrategy: View(
        silent={"admissionChecks": ("min_items", "max_items", *_PLAIN_LIST)},
        said={"admissionChecks": Field(required=False)},
    ),
    AdmissionCheckStrategyRule: View(silent={"name": ("min_length",), "onFlavors": ("max_items", "list_type")}),
    FlavorFungibility: View(
        other={
            "whenCanBorrow": Annotated[
                Literal["MayStopSearch", "TryNextFlavor", "Borrow"],
                Field("At a flavor that fits by borrowing; Borrow means MayStopSearch.", default="MayStopSearch"),
            ],
            "whenCanPreempt": Annotated[
                Literal["MayStopSearch", "TryNextFlavor", "Preempt"],
                Field("At a flavor that fits by preempting; Preempt means MayStopSearch.", default="TryNextFlavor"),
            ],
        }
    ),
    AdmissionScope: View(
        other={"admissionMode": Annotated[str, Field("How LocalQueues are ordered.", required=True)]},
    ),
    ClusterQueueStatus: View(
        silent=_ANY_CONDITIONS,
        other={
            "pendingWorkloadsStatus": Annotated[
                ClusterQueuePendingWorkloadsStatus, Field("Heads of the queue. Not used.")
            ]
        },
    ),
    FairSharingStatus: View(
        other={"admissionFairSharingStatus": Annotated[AdmissionFairSharingStatus, Field("Not used.")]}
    ),
    LocalQueueStatus: View(
        renamed={"flavorsUsage": "flavorUsage"},
        silent=_ANY_CONDITIONS,
        other={
            "flavors": Annotated[
                list[LocalQueueFlavorStatus],
                Field("Flavors of the queue. Not used.", max_items=64, list_type="map", map_keys=("name",)),
            ]
        },
    ),
    MultiKueueClusterSpec: View(
        dropped=("clusterSource",),
        other={
            "kubeConfig": Annotated[KubeConfig, Field("By a kubeconfig.", required=True)],
            "clusterProfileRef": Annotated[ClusterProfileReference, Field("By a ClusterProfile.")],
        },
    ),
    MultiKueueClusterStatus: View(silent=_ANY_CONDITIONS),
    MultiKueueConfigSpec: View(
        dropped=("quotaManagement",),
        other={
            "clusters": Annotated[
                list[str], Field("MultiKueueClusters.", required=True, min_items=1, max_items=20, list_type="set")
            ]
        },
    ),
    ProvisioningRequestConfigSpec: View(silent={"provisioningClassName": ("min_length",)}),
    ProvisioningRequestPodSetUpdates: View(silent={"nodeSelector": _PLAIN_LIST}),
    TopologySpec: View(said={"levels": Field(rules=(Rule("self == oldSelf", "field is immutable"), *LEVEL_RULES))}),
    WorkloadPriorityClass: View(silent={"description": ("max_length",)}),
    Workload: View(
        selectable_fields=(),
        rules=tuple(
            rule
            for rule in (*Workload.RULES[:1], *_PRIORITY_RULES, *Workload.RULES[1:])
            if "priorityClassRef" not in rule.rule
        ),
    ),
    WorkloadSpec: View(
        dropped=("priorityClassRef", "preemptionGates"),
        said={"podSets": _REQUIRED},
        other={
            "priorityClassName": Annotated[Subdomain, Field("Class that the priority came from.")],
            "priorityClassSource": Annotated[
                Literal["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""],
                Field("What sort of class that is.", default=""),
            ],
        },
        rules=(
            Rule(
                "!has(self.priorityClassName) || has(self.priority)",
                "priority should not be nil when priorityClassName is set",
            ),
        ),
    ),
    PodSet: View(said={"count": _REQUIRED}),
    TopologyRequest: View(
        dropped=("podsetSliceRequiredTopologyConstraints",),
        silent={
            "subGroupCount": ("minimum",),
            **dict.fromkeys(
                (
                    "required",
                    "preferred",
                    "podIndexLabel",
                    "subGroupIndexLabel",
                    "podSetGroupName",
                    "podSetSliceRequiredTopology",
                ),
                ("max_length",),
            ),
        },
    ),
    WorkloadStatus: View(
        renamed={"accumulatedPastExecutionTimeSeconds": "accumulatedPastExexcutionTimeSeconds"},
        dropped=("preemptionGates",),
        silent={
            **_ANY_CONDITIONS,
            "unhealthyNodes": ("max_items", *_PLAIN_LIST),
            "clusterName": ("max_length",),
        },
        other={
            "nominatedClusterNames": Annotated[
                list[str], Field("Clusters that may take it.", max_items=20, list_type="atomic")
            ]
        },
    ),
    Admission: View(said={"clusterQueue": _REQUIRED, "podSetAssignments": _REQUIRED}),
    PodSetAssignment: View(
        said={"name": _REQUIRED},
        other={
            "topologyAssignment": Annotated[TopologyAssignment, Field("Where the pods go.")],
            "delayedTopologyRequest": Annotated[str, Field("Whether the place is still to be found.")],
        },
    ),
    AdmissionCheckState: View(silent={"name": ("min_length",)}),
    PodSetUpdate: View(silent={"tolerations": ("list_type",)}),
    SchedulingStats: View(silent={"evictions": ("max_items",)}),
    UnhealthyNode: View(silent={"name": ("max_length",)}),
}
