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
