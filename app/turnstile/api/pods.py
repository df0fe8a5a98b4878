"""The part of a pod template that decides where pods may run and what they ask for.

A view: images, commands, volumes and the like are not read. Templates that must be written back keep their raw bytes
elsewhere.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from turnstile.api.meta import Object, ObjectMeta
from turnstile.api.schema import Field, Int64, Rule, Time, always

Quantity = str | int | float
"""A quantity as JSON carries it. `turnstile.api.quantity` turns it into an exact integer."""

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Taint(Object, kw_only=True):
    """corev1.Taint."""

    key: Annotated[str, Field("Key of the taint.")]
    value: Annotated[str | None, Field("Value that goes with the key.")] = None
    effect: Annotated[str, Field("What happens to pods that do not tolerate it.")]
    time_added: Annotated[Time | None, Field("When it was added.")] = None


class Toleration(Object):
    """corev1.Toleration. An absent operator means Equal, an absent key with Exists means all, an absent effect all."""

    key: Annotated[str | None, Field("Key of the taint; absent means any, with operator Exists.")] = None
    operator: Annotated[str | None, Field("Equal (the default) or Exists.")] = None
    value: Annotated[str | None, Field("Value the taint must have, with operator Equal.")] = None
    effect: Annotated[str | None, Field("Effect of the taint; absent means any.")] = None
    toleration_seconds: Annotated[Int64 | None, Field("How long a NoExecute taint is tolerated.")] = None


_EFFECTS = "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'"

Taints = Annotated[
    Sequence[Taint],
    Field(
        max_items=8,
        list_type="atomic",
        rules=(Rule("self.all(x, x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])", _EFFECTS),),
    ),
]
Tolerations = Annotated[
    Sequence[Toleration],
    Field(
        max_items=8,
        list_type="atomic",
        rules=(
            Rule(
                "self.all(x, has(x.key) || (has(x.operator) && x.operator == 'Exists'))",
                "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
            ),
            Rule(
                "self.all(x, !has(x.tolerationSeconds) || (has(x.effect) && x.effect == 'NoExecute'))",
                "effect must be 'NoExecute' when 'tolerationSeconds' is set",
            ),
            Rule(
                "self.all(x, !has(x.operator) || x.operator in ['Equal', 'Exists'])",
                "supported toleration values: 'Equal'(default), 'Exists'",
            ),
            Rule(
                "self.all(x, !has(x.operator) || x.operator != 'Exists' || !has(x.value))",
                "a value must be empty when 'operator' is 'Exists'",
            ),
            Rule(
                "self.all(x, !has(x.effect) || x.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])", _EFFECTS
            ),
        ),
    ),
]


class SchedulingGate(Object):
    """corev1.PodSchedulingGate."""

    name: str


class ResourceRequirements(Object):
    """corev1.ResourceRequirements."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    claims: Sequence[dict[str, Any]] = ()


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
    ports: Sequence[ContainerPort] = ()
    restart_policy: str | None = None


class NodeSelectorRequirement(Object):
    """corev1.NodeSelectorRequirement. Operators: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: Sequence[str] = ()


class NodeSelectorTerm(Object):
    """corev1.NodeSelectorTerm. Requirements are ANDed."""

    match_expressions: Sequence[NodeSelectorRequirement] = ()
    match_fields: Sequence[NodeSelectorRequirement] = ()


class NodeSelector(Object):
    """corev1.NodeSelector. Terms are ORed."""

    node_selector_terms: Sequence[NodeSelectorTerm] = ()


class PreferredSchedulingTerm(Object):
    """corev1.PreferredSchedulingTerm."""

    weight: int = always(int)
    preference: NodeSelectorTerm = always(NodeSelectorTerm)


class NodeAffinity(Object):
    """corev1.NodeAffinity."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: Sequence[PreferredSchedulingTerm] = ()


class Affinity(Object):
    """corev1.Affinity, the node part typed, the pod parts as they come."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class PodSpec(Object):
    """corev1.PodSpec, the part that matters for quota and placement."""

    containers: Sequence[Container] = ()
    init_containers: Sequence[Container] = ()
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: Sequence[Toleration] = ()
    scheduling_gates: Sequence[SchedulingGate] = ()
    priority_class_name: str | None = None
    priority: int | None = None
    runtime_class_name: str | None = None
    overhead: dict[str, Quantity] = {}
    resources: ResourceRequirements | None = None
    resource_claims: Sequence[dict[str, Any]] = ()
    topology_spread_constraints: Sequence[dict[str, Any]] = ()
    node_name: str | None = None


class PodTemplate(Object):
    """corev1.PodTemplateSpec."""

    metadata: ObjectMeta | None = None
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
