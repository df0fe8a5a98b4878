"""Workload: what one job asks for, and what it was given."""

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Final, Literal

import msgspec

from turnstile.api import names
from turnstile.api.meta import Conditions, Kind, Object, find_condition, is_true, tolerating_nulls
from turnstile.api.pods import PodTemplate, Quantity, Tolerations
from turnstile.api.podshape import containers_digest
from turnstile.api.schema import Column, Field, Label, Rule, Subdomain, Text63, Text256, Time, always
from turnstile.api.shared import Shared
from turnstile.api.topology import TopologyAssignment, TopologyRequest

QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
PODS_READY = "PodsReady"
PODS_SCHEDULED = "PodsScheduled"
FINISHED = "Finished"
EVICTED = "Evicted"
PREEMPTED = "Preempted"
REQUEUED = "Requeued"
WAITING_FOR_REPLACEMENT_PODS = "WaitingForReplacementPods"
DEACTIVATION_TARGET = "DeactivationTarget"
BLOCKED_ON_PREEMPTION_GATES = "BlockedOnPreemptionGates"

ON_HOLD = "OnHold"
"""Reason of QuotaReserved=False of a job that is scaled to zero or otherwise asks for nothing."""

TEMPLATE_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "metadata": {
            "type": "object",
            "properties": {
                "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
                "finalizers": {"type": "array", "items": {"type": "string"}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "name": {"type": "string"},
                "namespace": {"type": "string"},
            },
        },
        "spec": {
            "type": "object",
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}},
                        "x-kubernetes-preserve-unknown-fields": True,
                    },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
            },
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
}
"""A pod template for the API server: lean, because it is checked at every write of every Workload and status.

The API server reports other faults of a template when pods are made from it.
"""


def _main() -> str:
    return names.DEFAULT_PODSET


def _one() -> int:
    return 1


class DigestedTemplate(PodTemplate):
    """A template as `decode` reads it: the view, and a digest of the containers that the view leaves out.

    `whole` is the JSON of the template while the Workload waits for an admission check, whose controller may need it;
    empty otherwise.
    """

    containers_digest: bytes = b""
    whole: bytes = b""


class PodSet(Object):
    """Pods of one template. A `minCount` below `count` allows partial admission."""

    RULES: ClassVar = (
        Rule(
            "!has(self.minCount) || self.minCount <= self.count",
            "minCount should be positive and less or equal to count",
        ),
    )

    name: Annotated[Label, Field("Name within the workload.", defaulted=True)] = always(_main)
    template: Annotated[PodTemplate, Field("What the pods are.", required=True, schema=TEMPLATE_SCHEMA)] = always(
        PodTemplate
    )
    count: Annotated[int, Field("Number of pods.", minimum=0, defaulted=True)] = always(_one)
    min_count: Annotated[int | None, Field("Fewest pods that are of use.", minimum=1)] = None
    topology_request: Annotated[TopologyRequest | None, Field("Where the pods want to be.")] = None

    @property
    def containers_digest(self) -> bytes:
        """The `podshape.containers_digest` of the whole template; empty if this was not made by `decode`."""
        return self.template.containers_digest if isinstance(self.template, DigestedTemplate) else b""

    @property
    def whole_template(self) -> bytes:
        """The JSON of the whole template while the Workload waits for an admission check; empty otherwise."""
        return self.template.whole if isinstance(self.template, DigestedTemplate) else b""


class PriorityClassRef(Object):
    """The class that `spec.priority` came from."""

    RULES: ClassVar = (
        Rule(
            "self.group != 'scheduling.k8s.io' || self.kind == 'PriorityClass'",
            "only the PriorityClass kind is allowed for the scheduling.k8s.io group",
        ),
        Rule(
            "self.group != 'kueue.x-k8s.io' || self.kind == 'WorkloadPriorityClass'",
            "only the WorkloadPriorityClass kind is allowed for the kueue.x-k8s.io group",
        ),
    )

    group: Annotated[Literal["kueue.x-k8s.io", "scheduling.k8s.io"], Field("API group of the class.")]
    kind: Annotated[Literal["WorkloadPriorityClass", "PriorityClass"], Field("Kind of the class.")]
    name: Annotated[Subdomain, Field("Name of the class.", min_length=1)]


class PreemptionGate(Object):
    """A gate that holds back preemptions for this workload."""

    name: Annotated[str, Field("Name of the gate.", min_length=1, max_length=63)]


class WorkloadSpec(Object):
    """The desired state. An absent priority is 0, an absent `active` is true."""

    RULES: ClassVar = (
        Rule(
            "!has(self.priorityClassRef) || has(self.priority)",
            "priority should not be nil when priorityClassRef is set",
        ),
    )

    pod_sets: Annotated[
        Sequence[PodSet], Field("Groups of equal pods.", min_items=1, max_items=18, list_type="map", map_keys=("name",))
    ] = ()
    queue_name: Annotated[Subdomain | None, Field("LocalQueue.")] = None
    priority_class_ref: Annotated[PriorityClassRef | None, Field("Class that the priority came from.")] = None
    priority: Annotated[int | None, Field("Place in the queue, higher first; absent is 0.")] = None
    active: Annotated[bool, Field("False evicts the workload and keeps it out.", defaulted=True)] = True
    maximum_execution_time_seconds: Annotated[int | None, Field("Time it may be admitted.", minimum=1)] = None
    preemption_gates: Annotated[
        Sequence[PreemptionGate],
        Field("Gates that hold back preemption until they open.", max_items=8, list_type="map", map_keys=("name",)),
    ] = ()


class PodSetAssignment(Object):
    """The assignment of a pod set: a flavor a resource, the total usage, and the number of pods."""

    name: Annotated[Label, Field("Pod set.", defaulted=True)] = always(_main)
    flavors: Annotated[dict[str, Subdomain], Field("Flavor a resource.")] = {}
    resource_usage: Annotated[dict[str, Quantity], Field("Total of all its pods.")] = {}
    count: Annotated[int | None, Field("Pods admitted.", minimum=0)] = None
    topology_assignment: Annotated[TopologyAssignment | None, Field("Where the pods go.")] = None
    delayed_topology_request: Annotated[
        Literal["Pending", "Ready"] | None, Field("Whether the place is still to be found.", max_length=7)
    ] = None


class Admission(Object):
    """The reservation; set and unset as a unit."""

    cluster_queue: Annotated[Subdomain, Field("ClusterQueue that gave the quota.")] = ""
    pod_set_assignments: Annotated[
        Sequence[PodSetAssignment], Field("What each pod set got.", max_items=18, list_type="map", map_keys=("name",))
    ] = ()


class RequeueState(Object):
    """Evictions so far and when the next attempt may start."""

    count: Annotated[int | None, Field("Evictions so far.", minimum=0)] = None
    requeue_at: Annotated[Time | None, Field("When the next attempt may start.")] = None


class ReclaimablePod(Object):
    """Pods of a pod set that need their quota no longer."""

    name: Annotated[Label, Field("Pod set.")]
    count: Annotated[int, Field("Number of pods.", minimum=0)]


class PodSetUpdate(Object):
    """The additions of an admission check to the pods of a pod set."""

    name: Annotated[Label, Field("Pod set.")]
    labels: Annotated[dict[str, str], Field("Labels to add.")] = {}
    annotations: Annotated[dict[str, str], Field("Annotations to add.")] = {}
    node_selector: Annotated[dict[str, str], Field("Node selector to add.")] = {}
    tolerations: Annotated[Tolerations, Field("Tolerations to add.")] = ()


CheckState = Literal["Pending", "Ready", "Retry", "Rejected"]


def _pending() -> CheckState:
    return "Pending"


class AdmissionCheckState(Object, kw_only=True):
    """State of one check."""

    name: Annotated[str, Field("AdmissionCheck.", required=True, min_length=1, max_length=316)] = always(str)
    state: Annotated[CheckState, Field("Where it stands.", required=True)] = always(_pending)
    last_transition_time: Annotated[Time, Field("When the state changed last.", required=True)] = always(str)
    message: Annotated[str, Field("A sentence for people.", required=True, max_length=32768)] = always(str)
    requeue_after_seconds: Annotated[int | None, Field("Wait after a Retry.", minimum=0)] = None
    retry_count: Annotated[int | None, Field("Retries so far.", minimum=0)] = None
    pod_set_updates: Annotated[
        Sequence[PodSetUpdate], Field("What it adds to pods.", max_items=18, list_type="atomic")
    ] = ()


class PodSetRequest(Object):
    """Total requests of a pod set that waits."""

    name: Annotated[Label, Field("Pod set.")]
    resources: Annotated[dict[str, Quantity], Field("Total of all its pods.")] = {}


class WorkloadSchedulingStatsEviction(Object):
    """How often a workload was evicted for one reason."""

    reason: Annotated[str, Field("Reason of the Evicted condition.", max_length=316)]
    underlying_cause: Annotated[str, Field("Finer cause; may be empty.", required=True, max_length=316)] = always(str)
    count: Annotated[int, Field("How often.", required=True, minimum=0)] = always(int)


class SchedulingStats(Object):
    """Counters over the life of a workload."""

    evictions: Annotated[
        Sequence[WorkloadSchedulingStatsEviction],
        Field("Evictions by reason.", max_items=256, list_type="map", map_keys=("reason", "underlyingCause")),
    ] = ()


class UnhealthyNode(Object):
    """A failed node that holds pods of the workload."""

    name: Annotated[Text63, Field("Node.")]


class PreemptionGateState(Object):
    """Whether a preemption gate is open."""

    name: Annotated[str, Field("Name of the gate.", min_length=1, max_length=63)]
    position: Annotated[Literal["Closed", "Open"], Field("Whether it holds back.")]
    last_transition_time: Annotated[Time, Field("When it moved last.", required=True)] = always(str)


class WorkloadStatus(Object):
    """The decisions about the Workload, and their effects."""

    RULES: ClassVar = (
        Rule(
            "!has(oldSelf.clusterName) || !has(self.clusterName) || self.clusterName == oldSelf.clusterName",
            "clusterName is immutable once set",
        ),
        Rule(
            "!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
            "clusterName and nominatedClusterNames are mutually exclusive",
        ),
    )

    conditions: Conditions = ()
    admission: Annotated[Admission | None, Field("The reservation; set and unset as a whole.")] = None
    requeue_state: Annotated[RequeueState | None, Field("Back-off after evictions.")] = None
    reclaimable_pods: Annotated[
        Sequence[ReclaimablePod], Field("Pods that are done.", max_items=18, list_type="map", map_keys=("name",))
    ] = ()
    admission_checks: Annotated[
        Sequence[AdmissionCheckState], Field("States of the checks.", max_items=8, list_type="map", map_keys=("name",))
    ] = ()
    resource_requests: Annotated[
        Sequence[PodSetRequest], Field("Requests while it waits.", max_items=18, list_type="map", map_keys=("name",))
    ] = ()
    accumulated_past_execution_time_seconds: Annotated[int | None, Field("Time admitted before this run.")] = None
    scheduling_stats: Annotated[SchedulingStats | None, Field("Counters.")] = None
    nominated_cluster_names: Annotated[
        Sequence[Text256], Field("Clusters that may take it.", max_items=20, list_type="atomic")
    ] = ()
    cluster_name: Annotated[Text256 | None, Field("Cluster that took it.")] = None
    unhealthy_nodes: Annotated[
        Sequence[UnhealthyNode], Field("Failed nodes to replace.", max_items=8, list_type="map", map_keys=("name",))
    ] = ()
    preemption_gates: Annotated[
        Sequence[PreemptionGateState], Field("Gates and their state.", max_items=8, list_type="map", map_keys=("name",))
    ] = ()


# `orValue` would read better here and for queueName, but behind it the API server no longer knows how long a list or a
# string can be, and refuses the rule for its cost.
_RESERVED = (
    "has(self.status) && has(self.status.conditions) && "
    "self.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')"
)
WAS_RESERVED: Final = _RESERVED.replace("self", "oldSelf")
"""CEL: quota was held before the write."""
_ADMITTED = _RESERVED.replace("QuotaReserved", "Admitted")
_WAS_ADMITTED = _ADMITTED.replace("self", "oldSelf")
_QUEUE = "(has(self.spec) && has(self.spec.queueName) ? self.spec.queueName : '')"
_REF = "self.?spec.?priorityClassRef"
_BOTH_REFS = f"{_REF}.hasValue() && {_REF.replace('self', 'oldSelf')}.hasValue()"


def _kept(path: str) -> str:
    """CEL: the field is what it was."""
    return f"self.{path} == oldSelf.{path}"


class Workload(Kind):
    """kueue.x-k8s.io Workload."""

    GROUP: ClassVar = names.GROUP
    VERSION: ClassVar = names.VERSION
    KIND: ClassVar = "Workload"
    PLURAL: ClassVar = "workloads"
    NAMESPACED: ClassVar = True
    SHORT_NAMES: ClassVar = ("kwl", "kueueworkload", "kueueworkloads")
    SELECTABLE_FIELDS: ClassVar = (".status.admission.clusterQueue",)
    COLUMNS: ClassVar = (
        Column("Queue", ".spec.queueName"),
        Column("Reserved in", ".status.admission.clusterQueue"),
        Column("Admitted", ".status.conditions[?(@.type=='Admitted')].status"),
        Column("Finished", ".status.conditions[?(@.type=='Finished')].status"),
        Column("Age", ".metadata.creationTimestamp", type="date"),
    )
    RULES: ClassVar = (
        Rule(
            f"!({_RESERVED}) || !has(self.status.admission) || "
            "(has(self.status.admission.podSetAssignments) ? size(self.status.admission.podSetAssignments) : 0) == "
            "(has(self.spec) && has(self.spec.podSets) ? size(self.spec.podSets) : 0)",
            "podSetAssignments must have the same number of podSets as the spec",
        ),
        Rule(
            f"!({WAS_RESERVED}) || {_REF}.hasValue() == {_REF.replace('self', 'oldSelf')}.hasValue()",
            "priorityClassRef is immutable while workload quota reserved",
        ),
        Rule(
            f"!({WAS_RESERVED} && {_BOTH_REFS}) || {_kept('spec.priorityClassRef.group')}",
            "priorityClassRef.group is immutable while workload quota reserved",
        ),
        Rule(
            f"!({WAS_RESERVED} && {_BOTH_REFS}) || {_kept('spec.priorityClassRef.kind')}",
            "priorityClassRef.kind is immutable while workload quota reserved",
        ),
        Rule(
            f"!({WAS_RESERVED} && {_BOTH_REFS} && self.spec.priorityClassRef.group == 'scheduling.k8s.io' && "
            f"self.spec.priorityClassRef.kind == 'PriorityClass') || {_kept('spec.priorityClassRef.name')}",
            "priorityClassRef.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
        ),
        Rule(
            f"!({WAS_RESERVED} && {_RESERVED}) || {_QUEUE} == {_QUEUE.replace('self', 'oldSelf')}",
            "queueName is immutable while workload quota reserved",
        ),
        Rule(
            f"!({_WAS_ADMITTED} && {_ADMITTED}) || self.?spec.?maximumExecutionTimeSeconds.orValue(0) == "
            "oldSelf.?spec.?maximumExecutionTimeSeconds.orValue(0)",
            "maximumExecutionTimeSeconds is immutable while workload quota reserved",
        ),
    )

    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)

    @classmethod
    def decoder(cls) -> Callable[[bytes | msgspec.Raw], "Workload"]:
        """`decode`: with the digests of the templates."""
        return decode

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

    @property
    def on_hold(self) -> bool:
        """Whether its job asks for nothing for now, and it stays out of every queue."""
        reserved = find_condition(self.status.conditions, QUOTA_RESERVED)
        return reserved is not None and (reserved.status, reserved.reason) == ("False", ON_HOLD)


class _RawPodSet(Object):
    template: msgspec.Raw = msgspec.Raw(b"{}")


class _RawSpec(Object):
    pod_sets: list[_RawPodSet] = []


class _RawWorkload(Object):
    spec: _RawSpec = msgspec.field(default_factory=_RawSpec)


_view: Final = tolerating_nulls(msgspec.json.Decoder(Workload).decode)
_raw: Final = tolerating_nulls(msgspec.json.Decoder(_RawWorkload).decode)
_spec_key: Final = msgspec.json.Encoder().encode
_texts: Final = Shared()
_specs: Final = Shared()


def decode(data: bytes | msgspec.Raw) -> Workload:
    """A Workload from its JSON, with the digest of each pod set's containers. Other fields of the templates are
    dropped, unless the Workload holds quota and waits for an admission check.

    Common parts of many Workloads are held once (`turnstile.api.shared`): callers must not modify any part of the
    result. Raises msgspec.ValidationError if a field has the wrong type.
    """
    workload = _view(data)
    checked = any(check.state != "Ready" for check in workload.status.admission_checks)
    whole = checked and workload.quota_reserved and not workload.finished
    same = _texts.same
    for pod_set, raw in zip(workload.spec.pod_sets, _raw(data).spec.pod_sets, strict=True):
        view = pod_set.template
        pod_set.name = same(pod_set.name)
        pod_set.template = DigestedTemplate(
            metadata=view.metadata,
            spec=_specs.first(_spec_key(view.spec), view.spec),
            containers_digest=same(containers_digest(raw.template)),
            whole=bytes(raw.template) if whole else b"",
        )
    workload.metadata.namespace = same(workload.metadata.namespace)
    if workload.spec.queue_name is not None:
        workload.spec.queue_name = same(workload.spec.queue_name)
    for condition in workload.status.conditions:
        condition.type, condition.reason = same(condition.type), same(condition.reason)
        condition.message = same(condition.message)
        condition.last_transition_time = same(condition.last_transition_time)
    return workload
