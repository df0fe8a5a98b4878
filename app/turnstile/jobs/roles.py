"""The role of a pod in its group: pods with the same role ask for the same resources and placement.

The pods of one role form one pod set. Must never read images, commands, environment or volumes: quota and placement do
not depend on them. A pod's role annotation is a hint that is always checked. Source: Kueue's
pkg/controller/jobs/pod, role hash, which trusts the annotation.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from turnstile.api.errors import InvalidValue
from turnstile.api.pods import Container, PodSpec, Quantity, ResourceRequirements, Toleration
from turnstile.api.quantity import parse


class _Resources(msgspec.Struct):
    requests: Any = None


class _Container(msgspec.Struct):
    ports: Any = None
    resources: _Resources | None = None


class PodShape(msgspec.Struct):
    """The part of a pod's spec that determines its role, with names and order as in the JSON."""

    affinity: Any = None
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None  # noqa: N815
    nodeSelector: Any = None  # noqa: N815
    overhead: Any = None
    priority: Any = None
    resourceClaims: Any = None  # noqa: N815
    runtimeClassName: Any = None  # noqa: N815
    tolerations: Any = None
    topologySpreadConstraints: Any = None  # noqa: N815
    resources: _Resources | None = None


_decode: Final = msgspec.json.Decoder(PodShape).decode
_encode: Final = msgspec.json.Encoder().encode
_HTML: Final = ((b"&", rb"\u0026"), (b"<", rb"\u003c"), (b">", rb"\u003e"))


def pod_shape(spec: bytes | msgspec.Raw) -> PodShape:
    """The parts of a pod's spec (JSON) that determine its role, as they are spelled."""
    return _decode(spec)


def role_hash(spec: bytes | msgspec.Raw) -> str:
    """The role of a pod in its group: 8 hexadecimal digits over the shape of its spec (JSON).

    The shape is what quota and placement depend on, without images, commands and volumes. It is encoded as in Kueue, so
    that both compute the same role for a pod: keys sorted, absent parts null, Go's escapes of `<`, `>`, `&`.
    Raises `msgspec.MsgspecError` if the spec is not a pod's.
    """
    decoded = _decode(spec)
    shape: dict[str, Any] = {
        "affinity": decoded.affinity,
        "containers": _containers(decoded.containers),
        "initContainers": _containers(decoded.initContainers),
        "nodeSelector": decoded.nodeSelector or None,
        "overhead": decoded.overhead or None,
        "priority": decoded.priority,
        "resourceClaims": decoded.resourceClaims or None,
    }
    if decoded.resources and decoded.resources.requests:
        shape["resources"] = {"requests": decoded.resources.requests}
    shape["runtimeClassName"] = decoded.runtimeClassName
    shape["tolerations"] = decoded.tolerations or None
    shape["topologySpreadConstraints"] = decoded.topologySpreadConstraints or None
    text = _encode({"spec": shape})
    for plain, escaped in _HTML:
        text = text.replace(plain, escaped)
    return hashlib.sha256(text).hexdigest()[:8]


def _containers(containers: list[_Container] | None) -> list[dict[str, Any]] | None:
    """Absent requests are null, as a Go map that was never made; the API server leaves empty requests out."""
    if not containers:
        return None
    return [
        {
            "ports": container.ports or None,
            "resources": {"requests": container.resources.requests if container.resources else None},
        }
        for container in containers
    ]


@dataclass(frozen=True, slots=True)
class Shape:
    """The demands of a pod: the directives that an admission may extend, and all other demands."""

    node_selector: Mapping[str, str]
    tolerations: frozenset[tuple[object, ...]]
    demands: tuple[object, ...]
    placement: tuple[object, ...]
    """The part of the demands that decides where the pod may run."""

    def is_placed(self, wanted: "Shape") -> bool:
        """Whether this pod may run where a pod of `wanted` may, or admission narrowed that; whatever both request."""
        return (
            wanted.placement == self.placement
            and wanted.tolerations <= self.tolerations
            and wanted.node_selector.items() <= self.node_selector.items()
        )

    def fits(self, wanted: "Shape") -> bool:
        """Whether this pod asks for exactly `wanted`, or for `wanted` plus directives that an admission added."""
        return wanted.demands == self.demands and self.is_placed(wanted)


def shape_of(spec: PodSpec) -> Shape:
    """The shape of a pod or of a pod set's template."""
    tolerations = frozenset(_toleration(each) for each in spec.tolerations)
    return Shape(spec.node_selector, tolerations, _demands(spec), _placement(spec))


def role_in(pod_sets: Mapping[str, Shape], pod: Shape, hints: Iterable[str]) -> str:
    """The first name in `hints` whose pod set matches what the pod asks for; empty if none does."""
    return next((name for name in hints if name in pod_sets and pod.fits(pod_sets[name])), "")


def _demands(spec: PodSpec) -> tuple[object, ...]:
    """The parts of a spec that quota and placement depend on and that no admission changes."""
    return (
        [_demand(each) for each in spec.containers],
        [(_demand(each), each.restart_policy) for each in spec.init_containers],
        _requests(spec.resources),
        _amounts(spec.overhead),
        _placement(spec),
    )


def _placement(spec: PodSpec) -> tuple[object, ...]:
    return spec.affinity, spec.runtime_class_name or None, spec.resource_claims, spec.topology_spread_constraints


def _demand(container: Container) -> tuple[object, ...]:
    return _requests(container.resources), container.ports


def _requests(resources: ResourceRequirements | None) -> dict[str, str]:
    """Requests, with the limit as request where only a limit is given."""
    return _amounts({**resources.limits, **resources.requests}) if resources is not None else {}


def _amounts(quantities: Mapping[str, Quantity]) -> dict[str, str]:
    return {resource: _amount(quantity) for resource, quantity in quantities.items()}


def _amount(quantity: Quantity) -> str:
    try:
        return str(parse(quantity))
    except InvalidValue:
        return str(quantity)


def _toleration(toleration: Toleration) -> tuple[object, ...]:
    seconds = toleration.toleration_seconds
    return toleration.key, toleration.operator or "Equal", toleration.value or "", toleration.effect or "", seconds
