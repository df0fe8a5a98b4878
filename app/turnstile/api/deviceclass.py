"""resource.k8s.io DeviceClass: as far as it says which extended resource its devices back."""

from typing import ClassVar

import msgspec

from turnstile.api.meta import Kind, Object


class DeviceClassSpec(Object):
    """resourcev1.DeviceClassSpec."""

    extended_resource_name: str | None = None


class DeviceClass(Kind):
    """resource.k8s.io/v1 DeviceClass. Cluster-scoped; Kubernetes has it from 1.34 on."""

    GROUP: ClassVar = "resource.k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "DeviceClass"
    PLURAL: ClassVar = "deviceclasses"
    NAMESPACED: ClassVar = False

    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)
