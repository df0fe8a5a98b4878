"""resource.k8s.io DeviceClass: which devices it selects, and which extended resource they back."""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from turnstile.api.meta import Kind, Object


class CelSelector(Object):
    """resourcev1.CELDeviceSelector."""

    expression: str = ""


class DeviceSelector(Object):
    """resourcev1.DeviceSelector. One without CEL selects by a way that Kubernetes does not know yet."""

    cel: CelSelector | None = None


class DeviceClassSpec(Object):
    """resourcev1.DeviceClassSpec."""

    selectors: Sequence[DeviceSelector] = ()
    extended_resource_name: str | None = None


class DeviceClass(Kind):
    """resource.k8s.io/v1 DeviceClass. Cluster-scoped; Kubernetes has it from 1.34 on."""

    GROUP: ClassVar = "resource.k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "DeviceClass"
    PLURAL: ClassVar = "deviceclasses"
    NAMESPACED: ClassVar = False

    spec: DeviceClassSpec = msgspec.field(default_factory=DeviceClassSpec)
