"""Whether a Workload asks for devices of dynamic resource allocation, which no quota counts yet.

Such a Workload is held, with Kueue's condition for a manager whose gate KueueDRAIntegration is off: admitted, it would
have its devices for nothing. Must never look at quota.
"""

from collections.abc import Collection, Iterator
from typing import Final

from turnstile.api.pods import PodSpec
from turnstile.api.workload import Workload

NOT_COUNTED: Final = "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled"
"""Message of a Workload that is held, in Kueue's words."""
_IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Beginning of the extended resource that each DeviceClass backs, before the name of the class."""


def asks_for_devices(workload: Workload, backed: Collection[str]) -> bool:
    """Whether a pod of a Workload asks for devices."""
    return any(pod_asks_for_devices(each.template.spec, backed) for each in workload.spec.pod_sets)


def pod_asks_for_devices(spec: PodSpec, backed: Collection[str]) -> bool:
    """Whether a pod has a claim, or requests an extended resource that a DeviceClass backs; `backed` are those that
    DeviceClasses name."""
    if spec.resource_claims:
        return True
    return any(name in backed or name.startswith(_IMPLICIT) for name in _resources(spec))


def _resources(spec: PodSpec) -> Iterator[str]:
    for container in (*spec.containers, *spec.init_containers):
        if container.resources is not None:
            yield from container.resources.requests
            yield from container.resources.limits


class DeviceClasses:
    """The extended resources that DeviceClasses back."""

    __slots__ = ("_by_class", "backed")

    def __init__(self) -> None:
        self._by_class: dict[str, str] = {}
        """The resource that each DeviceClass backs; empty if it names none."""
        self.backed: frozenset[str] = frozenset()
        """Resources that DeviceClasses name."""

    def put(self, name: str, resource: str) -> bool:
        """A DeviceClass exists, and backs a resource, or none if that is empty; whether it did not before."""
        if self._by_class.get(name, "") == resource:
            return False
        self._by_class[name] = resource
        self.backed = frozenset(self._by_class.values()) - {""}
        return True

    def drop(self, name: str) -> bool:
        """A DeviceClass is gone; whether it backed a resource."""
        if not self._by_class.pop(name, ""):
            return False
        self.backed = frozenset(self._by_class.values()) - {""}
        return True
