"""The built-in kinds of Kubernetes that Turnstile watches, reduced to what it reads.

Templates keep their raw bytes, because a Workload is made from them unchanged.
"""

from collections.abc import Collection, Sequence
from sys import intern
from typing import ClassVar

import msgspec

from turnstile.api.meta import Kind, Object
from turnstile.api.pods import Quantity, Taint


class Namespace(Kind):
    """v1 Namespace."""

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Namespace"
    PLURAL: ClassVar = "namespaces"
    NAMESPACED: ClassVar = False


class NodeSpec(Object):
    """corev1.NodeSpec: what keeps pods from the node."""

    taints: Sequence[Taint] = ()
    unschedulable: bool = False


class NodeCondition(Object):
    """corev1.NodeCondition, without the time of the last heartbeat."""

    type: str
    status: str
    last_transition_time: str | None = None


class NodeStatus(Object):
    """corev1.NodeStatus: what pods may request of the node together, and whether it works."""

    allocatable: dict[str, Quantity] = {}
    conditions: Sequence[NodeCondition] = ()


class Node(Kind):
    """v1 Node."""

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Node"
    PLURAL: ClassVar = "nodes"
    NAMESPACED: ClassVar = False

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    def __post_init__(self) -> None:
        """Drop the annotations: Turnstile reads none of a node, and they are a large part of it."""
        meta = self.metadata
        meta.annotations = {}
        meta.labels = {intern(key): intern(value) for key, value in meta.labels.items()}

    def is_broken(self, conditions: Collection[str]) -> bool:
        """Whether one of these conditions says that it does not work."""
        return any(each.type in conditions and each.status == "True" for each in self.status.conditions)

    @property
    def takes_pods(self) -> bool:
        """Whether it is ready, and not cordoned."""
        return not self.spec.unschedulable and self.is_ready

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet says that it is ready."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions)


class PriorityClass(Kind):
    """scheduling.k8s.io/v1 PriorityClass."""

    GROUP: ClassVar = "scheduling.k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "PriorityClass"
    PLURAL: ClassVar = "priorityclasses"
    NAMESPACED: ClassVar = False

    value: int = 0
    global_default: bool = False


class LimitRangeItem(Object):
    """corev1.LimitRangeItem. Types: Container, Pod, PersistentVolumeClaim."""

    type: str
    default: dict[str, Quantity] = {}
    default_request: dict[str, Quantity] = {}
    max: dict[str, Quantity] = {}
    min: dict[str, Quantity] = {}
    max_limit_request_ratio: dict[str, Quantity] = {}


class LimitRangeSpec(Object):
    """corev1.LimitRangeSpec."""

    limits: list[LimitRangeItem] = []


class LimitRange(Kind):
    """v1 LimitRange."""

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "LimitRange"
    PLURAL: ClassVar = "limitranges"
    NAMESPACED: ClassVar = True

    spec: LimitRangeSpec = msgspec.field(default_factory=LimitRangeSpec)


class RuntimeClassOverhead(Object):
    """nodev1.Overhead."""

    pod_fixed: dict[str, Quantity] = {}


class RuntimeClass(Kind):
    """node.k8s.io/v1 RuntimeClass."""

    GROUP: ClassVar = "node.k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "RuntimeClass"
    PLURAL: ClassVar = "runtimeclasses"
    NAMESPACED: ClassVar = False

    overhead: RuntimeClassOverhead | None = None


class UncountedTerminatedPods(Object):
    """batchv1.UncountedTerminatedPods."""

    succeeded: list[str] = []
    failed: list[str] = []


class JobCondition(Object):
    """batchv1.JobCondition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class JobSpec(Object):
    """batchv1.JobSpec; `template` is the raw PodTemplateSpec."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    pod_replacement_policy: str | None = None
    suspend: bool | None = None
    managed_by: str | None = None
    template: msgspec.Raw = msgspec.Raw(b"{}")


class JobStatus(Object):
    """batchv1.JobStatus."""

    conditions: list[JobCondition] = []
    start_time: str | None = None
    active: int = 0
    terminating: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str = ""
    uncounted_terminated_pods: UncountedTerminatedPods | None = None


class Job(Kind):
    """batch/v1 Job."""

    GROUP: ClassVar = "batch"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Job"
    PLURAL: ClassVar = "jobs"
    NAMESPACED: ClassVar = True
    HAS_TEMPLATES: ClassVar = True

    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


class PodCondition(JobCondition):
    """corev1.PodCondition."""

    last_transition_time: str | None = None


class ContainerRunning(Object):
    """corev1.ContainerStateRunning; only its presence is read."""


class ContainerState(Object):
    """corev1.ContainerState."""

    running: ContainerRunning | None = None


class ContainerStatus(Object):
    """corev1.ContainerStatus."""

    state: ContainerState = msgspec.field(default_factory=ContainerState)


class PodStatus(Object):
    """corev1.PodStatus."""

    phase: str = ""
    message: str = ""
    reason: str = ""
    conditions: list[PodCondition] = []
    init_container_statuses: list[ContainerStatus] = []


class Pod(Kind):
    """v1 Pod; `spec` is the raw PodSpec."""

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Pod"
    PLURAL: ClassVar = "pods"
    NAMESPACED: ClassVar = True

    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class ReplicaSet(Kind):
    """apps/v1 ReplicaSet; only its owners are read."""

    GROUP: ClassVar = "apps"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "ReplicaSet"
    PLURAL: ClassVar = "replicasets"
    NAMESPACED: ClassVar = True


class PodTemplate(Kind):
    """v1 PodTemplate; only its metadata is read."""

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "PodTemplate"
    PLURAL: ClassVar = "podtemplates"
    NAMESPACED: ClassVar = True


class Secret(Kind):
    """v1 Secret; values are decoded."""

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Secret"
    PLURAL: ClassVar = "secrets"
    NAMESPACED: ClassVar = True

    type: str = ""
    data: dict[str, bytes] = {}


class ConfigMap(Kind):
    """v1 ConfigMap."""

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "ConfigMap"
    PLURAL: ClassVar = "configmaps"
    NAMESPACED: ClassVar = True

    data: dict[str, str] = {}
