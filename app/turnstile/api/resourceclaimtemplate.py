"""resource.k8s.io ResourceClaimTemplate: the devices that each pod with a claim of it gets."""

from collections.abc import Sequence
from typing import ClassVar, Final

import msgspec

from turnstile.api.deviceclass import DeviceSelector
from turnstile.api.meta import Kind, Object
from turnstile.api.pods import Quantity

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"


class CapacityRequirements(Object):
    """resourcev1.CapacityRequirements."""

    requests: dict[str, Quantity] = {}


class ExactDeviceRequest(Object):
    """resourcev1.ExactDeviceRequest. The API server sets the allocation mode, and the count of ExactCount."""

    device_class_name: str = ""
    selectors: Sequence[DeviceSelector] = ()
    allocation_mode: str = EXACT_COUNT
    count: int = 0
    admin_access: bool | None = None
    capacity: CapacityRequirements | None = None


class DeviceSubRequest(Object):
    """resourcev1.DeviceSubRequest: an alternative of `firstAvailable`."""

    name: str = ""


class DeviceRequest(Object):
    """resourcev1.DeviceRequest: one of the two."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: Sequence[DeviceSubRequest] | None = None


class DeviceClaim(Object):
    """resourcev1.DeviceClaim. Constraints and configuration decide which devices are taken, never how many."""

    requests: Sequence[DeviceRequest] = ()


class ResourceClaimSpec(Object):
    """resourcev1.ResourceClaimSpec."""

    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class ResourceClaimTemplateSpec(Object):
    """resourcev1.ResourceClaimTemplateSpec."""

    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)


class ResourceClaimTemplate(Kind):
    """resource.k8s.io/v1 ResourceClaimTemplate. Its spec is immutable; Kubernetes has v1 from 1.34 on."""

    GROUP: ClassVar = "resource.k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "ResourceClaimTemplate"
    PLURAL: ClassVar = "resourceclaimtemplates"
    NAMESPACED: ClassVar = True

    spec: ResourceClaimTemplateSpec = msgspec.field(default_factory=ResourceClaimTemplateSpec)
