"""Which devices of the cluster a claim may get, by the selectors of its requests, and the charge for parts of them.

Kueue's rules and sentences. Free or taken, all devices count: too few of them only mean that the claim can never be
allocated. Must never change anything.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from turnstile.api.deviceclass import DeviceClass, DeviceSelector
from turnstile.api.resourceclaim import ALL, ExactDeviceRequest, ResourceClaimSpec
from turnstile.api.resourceslice import Device, ResourceSlice
from turnstile.api.validation.errors import OMITTED, FieldError, invalid
from turnstile.engine.devices.charges import Counts, Faults, add
from turnstile.engine.devices.claims import Claim, Request, requests_of, within
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


def check_devices(claim: Claim, spec: ResourceClaimSpec, cluster: Cluster) -> None:
    """Raise Faults if too few devices of the cluster match a request that has selectors: each of its alternatives.
    Raises Unsettled."""
    requests = [
        request
        for request in requests_of(spec)
        if all(_expressions(each.selectors) for _, each in request.alternatives)
    ]
    if not requests:
        return
    keys, drivers = _listed([each for request in requests for _, each in request.alternatives], cluster)
    taken: set[Match] = set()
    faults: list[FieldError] = []
    for request in requests:
        found: list[FieldError] = []
        for path, each in request.alternatives:
            short = _shortage(claim, (request.path, path), each, cluster, (keys, drivers), taken)
            if not short:
                break
            found += short
        else:
            faults += found
    if faults:
        says = f"{claim.source}: "
        raise Faults(*(FieldError(each.path, each.type, each.value, says + each.detail) for each in faults))


def _shortage(
    claim: Claim,
    paths: tuple[str, str],
    request: ExactDeviceRequest,
    cluster: Cluster,
    listed: tuple[list[str], tuple[str, tuple[str, ...]]],
    taken: set[Match],
) -> Sequence[FieldError]:
    """Why the devices of a request cannot be found. Devices that are found are added to those that are taken."""
    keys, drivers = listed
    name, path = request.device_class_name, f"{claim.path}.{paths[0]}"
    try:
        wanted = [*_class_expressions(cluster, name, path), *_expressions(request.selectors)]
    except Faults as faults:
        return faults.faults
    at, needed = f"{claim.path}.{paths[1]}.selectors", 1 if request.allocation_mode == ALL else request.count
    found: list[Match] = []
    for match in cluster.selectors.matched((("", tuple(wanted)), drivers), keys):
        if len(found) >= needed:
            break
        if match.fault:
            return [invalid(at, None, f"CEL evaluation failed for DeviceClass {name}: {match.fault}")]
        if match not in taken:
            found.append(match)
    taken.update(found)
    return [_too_few(at, name, len(found), needed)] if len(found) < needed else []


def _too_few(path: str, device_class: str, matched: int, needed: int) -> FieldError:
    detail = (
        f"insufficient matching devices for CEL selector in DeviceClass {device_class}: "
        f"{matched} device(s) match in the cluster but {needed} requested"
    )
    return FieldError(path, "InternalError", OMITTED, detail)


def counted(claim: Claim, request: Request, cluster: Cluster) -> Request:
    """A request with the number of devices in the place of `allocationMode: All`. Raises Faults and Unsettled."""
    if all(each.allocation_mode != ALL for _, each in request.alternatives):
        return request
    try:
        alternatives = [
            (path, structs.replace(each, count=_all_of(claim, path, each, cluster)))
            if each.allocation_mode == ALL
            else (path, each)
            for path, each in request.alternatives
        ]
    except Faults as faults:
        raise within(claim, faults) from None
    return Request(request.path, alternatives)


def _all_of(claim: Claim, path: str, request: ExactDeviceRequest, cluster: Cluster) -> int:
    """The most devices that a pod gets that asks for all: those of one node, and those that are on no node."""
    name = request.device_class_name
    wanted = (*_class_expressions(cluster, name, path), *_expressions(request.selectors))
    newest = {
        key
        for driver in {each.spec.driver for each in cluster.slices.values()}
        for pool in pools(cluster.slices.items(), driver).values()
        for key in pool.slices
    }
    by_node: dict[str, int] = {}
    for match in cluster.selectors.matched((("all", wanted),), sorted(newest)):
        if match.fault:
            raise Faults(
                invalid(f"{path}.selectors", None, f"CEL evaluation failed for DeviceClass {name}: {match.fault}")
            )
        given = cluster.slices[match.key].spec
        node = given.node_name or given.devices[match.place].node_name
        by_node[node] = by_node.get(node, 0) + 1
    anywhere = by_node.pop("", 0)
    found = anywhere + max(by_node.values(), default=0)
    if not found:
        raise Faults(_too_few(f"{path}.selectors", name, 0, 1))
    return found


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


def parts(claim: Claim, at: str, request: ExactDeviceRequest, cluster: Cluster) -> Counts:
    """The charge for a request at a path of a claim, if its devices count by their parts. Raises Faults and
    Unsettled."""
    found: Counts = {}
    name, path = request.device_class_name, f"{claim.path}.{at}"
    counters = cluster.mappings.sources(name, "counter")
    capacities = cluster.mappings.sources(name, "capacity")
    if not counters and not capacities:
        return found
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
