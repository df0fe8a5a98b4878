"""Which devices of the cluster a claim may get, by the selectors of its requests, and the charge for parts of them.

Kueue's rules and sentences. Free or taken, all devices count: too few of them only mean that the claim can never be
allocated. Must never change anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from turnstile.api.deviceclass import DeviceClass, DeviceSelector
from turnstile.api.resourceclaimtemplate import ExactDeviceRequest, ResourceClaimTemplate
from turnstile.api.resourceslice import Device, ResourceSlice
from turnstile.api.validation.errors import OMITTED, FieldError, invalid
from turnstile.engine.devices.charges import Counts, Faults, add
from turnstile.engine.devices.claims import Claim
from turnstile.engine.devices.mappings import Mappings
from turnstile.engine.devices.parts import capacity_charge, counter_charge, pools, shortage
from turnstile.engine.devices.selectors import Match, Selectors
from turnstile.engine.options import DeviceSource


class Cluster(NamedTuple):
    """Objects that decide which devices there are, and how they count."""

    classes: Mapping[str, DeviceClass]
    slices: Mapping[str, ResourceSlice]
    selectors: Selectors
    mappings: Mappings


def _expressions(selectors: Iterable[DeviceSelector]) -> list[str]:
    return [each.cel.expression for each in selectors if each.cel is not None]


def compile_faults(
    selectors: Sequence[DeviceSelector], path: str, known: Selectors, says: str = "CEL compilation failed"
) -> list[FieldError]:
    """The selectors that are not evaluated, and why."""
    return [
        invalid(f"{path}[{index}].cel.expression", each.cel.expression, f"{says}: {fault}")
        for index, each in enumerate(selectors)
        if each.cel is not None and (fault := known.fault(each.cel.expression))
    ]


def _class_expressions(cluster: Cluster, name: str, path: str) -> list[str]:
    """The selectors of a DeviceClass. Raises Faults."""
    if not name:
        return []
    found = cluster.classes.get(name)
    if found is None:
        detail = f'failed to get DeviceClass {name}: deviceclasses.resource.k8s.io "{name}" not found'
        raise Faults(FieldError(path, "InternalError", OMITTED, detail))
    says = f"DeviceClass {name} has invalid CEL selector"
    faults = compile_faults(found.spec.selectors, path, cluster.selectors, says)
    if faults:
        raise Faults(faults[0])
    return _expressions(found.spec.selectors)


def check_devices(claim: Claim, template: ResourceClaimTemplate, cluster: Cluster) -> None:
    """Raise Faults if too few devices of the cluster match a request that has selectors. Raises Unsettled."""
    requests = [
        (index, each.exactly)
        for index, each in enumerate(template.spec.spec.devices.requests)
        if each.exactly is not None and _expressions(each.exactly.selectors)
    ]
    if not requests:
        return
    keys, drivers = _listed([each for _, each in requests], cluster)
    taken: set[Match] = set()
    faults: list[FieldError] = []
    for index, request in requests:
        name, path = request.device_class_name, f"{claim.path}.devices.requests[{index}]"
        try:
            wanted = [*_class_expressions(cluster, name, path), *_expressions(request.selectors)]
        except Faults as found:
            faults += found.faults
            continue
        matched, fault = 0, ""
        for match in cluster.selectors.matched((("", tuple(wanted)), drivers), keys):
            if matched >= request.count:
                break
            if match.fault:
                fault = match.fault
                break
            if match not in taken:
                taken.add(match)
                matched += 1
        at = f"{path}.exactly.selectors"
        if fault:
            faults.append(invalid(at, None, f"CEL evaluation failed for DeviceClass {name}: {fault}"))
        elif matched < request.count:
            detail = (
                f"insufficient matching devices for CEL selector in DeviceClass {name}: "
                f"{matched} device(s) match in the cluster but {request.count} requested"
            )
            faults.append(FieldError(at, "InternalError", OMITTED, detail))
    if faults:
        says = f"ResourceClaimTemplate {claim.template}: "
        raise Faults(*(FieldError(each.path, each.type, each.value, says + each.detail) for each in faults))


def _listed(requests: Sequence[ExactDeviceRequest], cluster: Cluster) -> tuple[list[str], tuple[str, tuple[str, ...]]]:
    """The slices to look at, and a name for them: of all drivers, unless parts of devices alone are asked for, whose
    drivers are known."""
    drivers: set[str] = set()
    for request in requests:
        sources = [
            source
            for kind in ("counter", "capacity")
            for _, source in cluster.mappings.sources(request.device_class_name, kind)
        ]
        if not sources:
            return sorted(cluster.slices), ("", ())
        drivers.update(source.driver for source in sources)
    keys = sorted(key for key, each in cluster.slices.items() if each.spec.driver in drivers)
    return keys, (" ".join(sorted(drivers)), ())


def parts(claim: Claim, requests: Iterable[tuple[int, ExactDeviceRequest]], cluster: Cluster) -> Counts:
    """The charge for the requests of a claim whose devices count by their parts. Raises Faults and Unsettled."""
    found: Counts = {}
    for index, request in requests:
        name, path = request.device_class_name, f"{claim.path}.devices.requests[{index}]"
        counters = cluster.mappings.sources(name, "counter")
        capacities = cluster.mappings.sources(name, "capacity")
        if not counters and not capacities:
            continue
        of_class = _class_expressions(cluster, name, path)
        for resource, source in counters:
            devices = _devices(cluster, source, of_class, request, path)
            if len(devices) < request.count:
                raise Faults(shortage(path, "counter", len(devices), request.count))
            add(found, resource, counter_charge(source.name, devices, request.count, path))
        for resource, source in capacities:
            devices = _devices(cluster, source, of_class, request, path)
            if len(devices) < request.count:
                raise Faults(shortage(path, "capacity", len(devices), request.count))
            asked = request.capacity.requests.get(source.name) if request.capacity is not None else None
            add(found, resource, capacity_charge(source.name, devices, asked, request.count, path))
    return found


def _devices(
    cluster: Cluster, source: DeviceSource, of_class: list[str], request: ExactDeviceRequest, path: str
) -> list[Device]:
    """Devices in complete pools of a source's driver that match the source, the class and the request."""
    if fault := cluster.selectors.fault(source.selector):
        raise Faults(invalid(path, source.selector, f"deviceSelector CEL compilation failed: {fault}"))
    keys = [
        key
        for _, pool in sorted(pools(cluster.slices.items(), source.driver).items())
        if pool.complete
        for key in pool.slices
    ]
    stages = (
        ("deviceSelector", (source.selector,)),
        ("DeviceClass selector", tuple(of_class)),
        ("request selector", tuple(_expressions(request.selectors))),
        (source.driver, ()),
    )
    found = []
    for match in cluster.selectors.matched(stages, keys):
        device = cluster.slices[match.key].spec.devices[match.place]
        if match.fault:
            detail = f"CEL evaluation error in {match.stage} for device {device.name}: {match.fault}"
            raise Faults(FieldError(path, "InternalError", OMITTED, detail))
        found.append(device)
    return found
