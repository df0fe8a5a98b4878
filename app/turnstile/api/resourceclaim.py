"""resource.k8s.io ResourceClaim, with devices for all pods that name it, and ResourceClaimTemplate, by which each pod
gets a claim of its own."""

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
    """resourcev1.ExactDeviceRequest, and resourcev1.DeviceSubRequest, an alternative of `firstAvailable`, which has no
    `adminAccess`. The API server sets the allocation mode, and the count of ExactCount."""

    device_class_name: str = ""
    selectors: Sequence[DeviceSelector] = ()
    allocation_mode: str = EXACT_COUNT
    count: int = 0
    admin_access: bool | None = None
    capacity: CapacityRequirements | None = None


class DeviceRequest(Object):
    """resourcev1.DeviceRequest: one of the two."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: Sequence[ExactDeviceRequest] | None = None


class DeviceClaim(Object):
    """resourcev1.DeviceClaim. Constraints and configuration decide which devices are taken, never how many."""

    requests: Sequence[DeviceRequest] = ()


class ResourceClaimSpec(Object):
    """resourcev1.ResourceClaimSpec."""

    devices: DeviceClaim = msgspec.field(default_factory=DeviceClaim)


class ResourceClaim(Kind):
    """resource.k8s.io/v1 ResourceClaim. Its spec is immutable; Kubernetes has v1 from 1.34 on."""

    GROUP: ClassVar = "resource.k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "ResourceClaim"
    PLURAL: ClassVar = "resourceclaims"
    NAMESPACED: ClassVar = True

    spec: ResourceClaimSpec = msgspec.field(default_factory=ResourceClaimSpec)


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
