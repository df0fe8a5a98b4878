"""The part of a pod template that decides where pods may run and what they ask for.

A view: images, commands, volumes and the like are not read. What must be written back keeps its raw bytes elsewhere.
"""

from typing import Any, Literal

import msgspec

from app.api.meta import Object, ObjectMeta

Quantity = str | int | float
"""A quantity as JSON carries it. `app.api.quantity` turns it into an exact integer."""

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Taint(Object):
    """corev1.Taint."""

    key: str
    effect: str
    value: str | None = None
    time_added: str | None = None


class Toleration(Object):
    """corev1.Toleration. An absent operator means Equal, an absent key with Exists means all, an absent effect all."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class SchedulingGate(Object):
    """corev1.PodSchedulingGate."""

    name: str


class ResourceRequirements(Object):
    """corev1.ResourceRequirements."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: list[dict[str, Any]] = []


class ContainerPort(Object):
    """corev1.ContainerPort."""

    container_port: int
    name: str | None = None
    protocol: str | None = None
    host_port: int | None = None
    host_ip: str | None = None


class Container(Object):
    """corev1.Container: name, resources, ports, and the restart policy that makes an init container a sidecar."""

    name: str = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] = []
    restart_policy: str | None = None


class NodeSelectorRequirement(Object):
    """corev1.NodeSelectorRequirement. Operators: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: list[str] = []


class NodeSelectorTerm(Object):
    """corev1.NodeSelectorTerm. Requirements are ANDed."""

    match_expressions: list[NodeSelectorRequirement] = []
    match_fields: list[NodeSelectorRequirement] = []


class NodeSelector(Object):
    """corev1.NodeSelector. Terms are ORed."""

    node_selector_terms: list[NodeSelectorTerm] = []


class NodeAffinity(Object):
    """corev1.NodeAffinity, the required part."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[dict[str, Any]] = []


class Affinity(Object):
    """corev1.Affinity, the node part typed, the pod parts as they come."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class PodSpec(Object):
    """corev1.PodSpec, the part that matters for quota and placement."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    scheduling_gates: list[SchedulingGate] = []
    priority_class_name: str | None = None
    priority: int | None = None
    runtime_class_name: str | None = None
    overhead: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None
    resource_claims: list[dict[str, Any]] = []
    topology_spread_constraints: list[dict[str, Any]] = []
    node_name: str | None = None


class PodTemplate(Object):
    """corev1.PodTemplateSpec."""

    metadata: ObjectMeta | None = None
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
