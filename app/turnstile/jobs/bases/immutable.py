"""Which parts of a pod template may not change while its pods are queued as one group: those that determine the role.

The Workload of a group charges for pods of one shape; pods of another shape would have no place in it. Images, commands
and the environment may change. Texts and paths are Kueue's (`jobframework`, the immutable pod spec of groups). Must
never read anything but the spec.
"""

from typing import Any, Final

import msgspec

from turnstile.api.errors import InvalidValue
from turnstile.api.quantity import parse
from turnstile.api.validation.errors import IMMUTABLE, FieldError, invalid
from turnstile.jobs.roles import PodShape, pod_shape

_WHOLE: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priority",
    "resourceClaims",
    "runtimeClassName",
    "tolerations",
    "topologySpreadConstraints",
)
_CONTAINERS: Final = ("containers", "initContainers")


def immutable_errors(new: bytes | msgspec.Raw, old: bytes | msgspec.Raw, path: str) -> list[FieldError]:
    """An error for each part of a pod's spec (JSON) at `path` that determines its role and has changed."""
    after, before = pod_shape(new), pod_shape(old)
    errors: list[FieldError] = []
    for name in _CONTAINERS:
        errors += _container_errors(after, before, name, path)
    for name in _WHOLE:
        value, was = getattr(after, name) or None, getattr(before, name) or None
        same = _amounts(value) == _amounts(was) if name == "overhead" else value == was
        if not same:
            errors.append(invalid(f"{path}.{name}", value, IMMUTABLE))
    requests, were = (shape.resources.requests if shape.resources else None for shape in (after, before))
    if _amounts(requests) != _amounts(were):
        errors.append(invalid(f"{path}.resources.requests", requests, IMMUTABLE))
    return errors


def _container_errors(after: PodShape, before: PodShape, name: str, path: str) -> list[FieldError]:
    containers = [_plain(getattr(shape, name)) for shape in (after, before)]
    if len(containers[0]) != len(containers[1]):
        return [invalid(f"{path}.{name}", containers[0] or None, IMMUTABLE)]
    errors = []
    for index, (now, was) in enumerate(zip(*containers, strict=True)):
        place = f"{path}.{name}[{index}]"
        if now["ports"] != was["ports"]:
            errors.append(invalid(f"{place}.ports", now["ports"], IMMUTABLE))
        if _amounts(now["resources"]["requests"]) != _amounts(was["resources"]["requests"]):
            errors.append(invalid(f"{place}.resources.requests", now["resources"]["requests"], IMMUTABLE))
    return errors


def _plain(containers: Any) -> list[dict[str, Any]]:
    return [
        {
            "ports": each.ports or None,
            "resources": {"requests": (each.resources.requests if each.resources else None) or None},
        }
        for each in containers or ()
    ]


def _amounts(quantities: Any) -> Any:
    """Quantities as numbers, so that `1` and `1000m` are equal."""
    if not isinstance(quantities, dict):
        return quantities or None
    return {name: _amount(value) for name, value in quantities.items()} or None


def _amount(quantity: Any) -> Any:
    try:
        return parse(quantity)
    except InvalidValue:
        return quantity
