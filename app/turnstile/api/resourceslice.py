"""resource.k8s.io ResourceSlice: devices of a driver, with what selectors ask them for and what of them is counted."""

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from turnstile.api.meta import Kind, Object
from turnstile.api.pods import Quantity


class Counter(Object):
    """resourcev1.Counter."""

    value: Quantity = 0


class DeviceCounterConsumption(Object):
    """resourcev1.DeviceCounterConsumption."""

    counters: dict[str, Counter] = {}


class CapacityRange(Object):
    """resourcev1.CapacityRequestPolicyRange."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Object):
    """resourcev1.CapacityRequestPolicy."""

    default: Quantity | None = None
    valid_values: Sequence[Quantity] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Object):
    """resourcev1.DeviceCapacity."""

    value: Quantity = 0
    request_policy: CapacityRequestPolicy | None = None


class Device(Object):
    """resourcev1.Device. An attribute has one of `int`, `bool`, `string` and `version`."""

    name: str = ""
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: Sequence[DeviceCounterConsumption] = ()
    allow_multiple_allocations: bool | None = None
    node_name: str = ""
    """The node that it is on, where each device of the slice has a node of its own."""


class ResourcePool(Object):
    """resourcev1.ResourcePool."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Object):
    """resourcev1.ResourceSliceSpec."""

    driver: str = ""
    node_name: str = ""
    """Empty if its devices are not on one node."""
    pool: ResourcePool = msgspec.field(default_factory=ResourcePool)
    devices: Sequence[Device] = ()


class ResourceSlice(Kind):
    """resource.k8s.io/v1 ResourceSlice. Cluster-scoped; drivers publish them. Kubernetes has v1 from 1.34 on."""

    GROUP: ClassVar = "resource.k8s.io"
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "ResourceSlice"
    PLURAL: ClassVar = "resourceslices"
    NAMESPACED: ClassVar = False

    spec: ResourceSliceSpec = msgspec.field(default_factory=ResourceSliceSpec)
