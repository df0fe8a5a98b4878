"""Replays the recorded calls about devices of dynamic resource allocation: mappings, claims, extended resources.

Kueue works out claims, extended resources and parts of devices in calls of their own; here each is compared with the
part of the engine that does the same.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from tests.conformance import world
from tests.conformance.cases import Case
from tests.conformance.engine_tables import differs
from tests.conformance.workload_calls import gates_of
from turnstile.api.deviceclass import DeviceClass, DeviceSelector
from turnstile.api.quantity import to_int
from turnstile.api.resourceclaim import ResourceClaimSpec, ResourceClaimTemplate
from turnstile.api.resourceslice import CapacityRange, Device, ResourceSlice
from turnstile.api.workload import Workload
from turnstile.engine.devices import extended
from turnstile.engine.devices.charges import UNSETTLED, Charges, Counts, Faults, add
from turnstile.engine.devices.claims import charged_requests
from turnstile.engine.devices.devices import Devices
from turnstile.engine.devices.expressions import Prepared
from turnstile.engine.devices.matching import compile_faults
from turnstile.engine.devices.parts import capacity_charge, counter_charge, next_value, pools, within_range
from turnstile.engine.devices.selectors import Selectors
from turnstile.engine.options import DeviceMapping, DeviceSource, Options
from turnstile.engine.pace import Pace, finish
from turnstile.engine.quota.surroundings import Surroundings

Json = Any
_BY_NAME = "resourceClaimName"


def mappings(given: Json) -> tuple[DeviceMapping, ...]:
    """`deviceClassMappings` as they are recorded."""
    return tuple(
        DeviceMapping(
            resource=each["name"],
            classes=tuple(each.get("deviceClassNames") or ()),
            sources=tuple(_sources(each.get("sources") or ())),
        )
        for each in given or ()
    )


def _sources(given: Json) -> Iterator[DeviceSource]:
    for each in given:
        for kind, source in each.items():
            selector = ((source.get("deviceSelector") or {}).get("cel") or {}).get("expression", "")
            yield DeviceSource(kind=kind, name=source["name"], driver=source.get("driver", ""), selector=selector)


class _Recording:
    """The world of one recorded run so far."""

    def __init__(self, gates: dict[str, bool]) -> None:
        self.options = Options(gates=world.gates(gates))
        self.objects: list[Json] = []
        self.backed: list[tuple[str, str]] = []

    def surroundings(self) -> Surroundings:
        """The world as the engine has it."""
        around = Surroundings(self.options)
        for item in self.objects:
            put(around.devices, item)
        for resource, name in self.backed:
            around.devices.put_class(name, _class(name, resource))
        return around


def put(devices: Devices, item: Json) -> None:
    """An object of the cluster, if devices depend on its kind."""
    match item.get("kind"):
        case "DeviceClass":
            devices.put_class(item["metadata"]["name"], world.load(DeviceClass, item))
        case "ResourceClaimTemplate":
            template = world.load(ResourceClaimTemplate, item)
            devices.put_claim(template.KIND, world.key_of(item), template.spec.spec)
        case "ResourceSlice":
            devices.put_slice(item["metadata"]["name"], world.load(ResourceSlice, item))
        case _:
            pass


def _class(name: str, resource: str) -> DeviceClass:
    given = {"metadata": {"name": name}, "spec": {"extendedResourceName": resource}}
    return msgspec.convert(given, DeviceClass)


def check(case: Case, run: dict[str, Json]) -> list[str] | None:
    """Every recorded call that has a counterpart."""
    recording = _Recording(gates_of(case, run))
    found: list[str] = []
    compared = False
    for step in run.get("trace") or ():
        args, results = step.get("args") or {}, step.get("results") or []
        told = _replay(step["op"].rpartition("/")[2], args, results, recording)
        compared = compared or told is not None
        found += [f"{step['op']}: {text}" for text in told or ()]
    return found if compared else None


def _replay(op: str, args: Json, results: list[Json], recording: _Recording) -> list[str] | None:
    options = recording.options
    match op:
        case "client.build":
            recording.objects += args.get("objects") or ()
        case "dra.ResourceMapper.PopulateFromConfiguration":
            recording.options = replace(options, device_mappings=mappings(args.get("mappings")))
        case "dra.ExtendedResourceCache.Add":
            recording.backed.append((args["resourceName"], args["deviceClassName"]))
        case "dra.ResourceMapper.Lookup":
            resource = Devices(options).mappings.resource(args["deviceClass"])
            return differs("mapped", results[:2], [resource or "", resource is not None])
        case "dra.ResourceMapper.getCounterConfigs":
            sources = Devices(options).mappings.sources(args["deviceClass"], "counter")
            told = [{"counterName": each.name, "driver": each.driver, "quotaResource": name} for name, each in sources]
            wanted = [
                {key: each[key] for key in ("counterName", "driver", "quotaResource")} for each in results[0] or ()
            ]
            return differs("counters", wanted, told)
        case "dra.ResourceMapper.CounterBasedResourceNames":
            counted = {
                each.resource for each in options.device_mappings if any(s.kind == "counter" for s in each.sources)
            }
            return differs("counted by counters", results[0], sorted(counted))
        case "dra.GetResourceRequestsForResourceClaimTemplates":
            return _claims(args["wl"], results, recording)
        case "dra.ResolveExtendedResourceQuota":
            return _extended(args["wl"], results, recording)
        case "dra.countDevicesPerClass":
            return _per_class(args["claimSpec"], results)
        case "dra.computeCounterCharges":
            return _counters(args, results)
        case "dra.computeCapacityCharge":
            return _capacity(args, results)
        case "dra.roundToValidRange" | "dra.roundToValidValues":
            return _rounded(args, results)
        case "dra.groupSlicesByPool":
            return _pools(args, results)
        case "dra.prepareDeviceSelectors":
            selectors = msgspec.convert(args["selectors"], list[DeviceSelector])
            path = f"{args['claimPath']}.devices.requests[{args['reqIdx']}].exactly.selectors"
            faults = compile_faults(selectors, path, Selectors())
            return differs("faults", [_fault(each) for each in results[2] or ()], [_bare(str(each)) for each in faults])
        case "dra.matchDevicesWithSelectors":
            return _unsupported(args, results)
        case "dra.selectedDeviceClass":
            chosen = extended.selected([world.load(DeviceClass, each) for each in args["items"]])
            return differs("selected", results[0]["metadata"]["name"], chosen.metadata.name)
        case "dra.NeedsDRAReconcile":
            return _needed(args["wl"], results, recording)
        case "indexer.IndexDeviceClassExtendedResourceName":
            backing = extended.Backing()
            backing.put(world.load(DeviceClass, args["obj"]), "dc")
            return differs("backed", (results[0] if results else None) or [], list(backing.resources))
        case "resource.IsExtendedResourceName":
            return differs("extended", results[0], extended.is_extended(args["name"]))
        case _:
            return None
    return None


def extended_names(case: Case, run: dict[str, Json]) -> list[str]:
    """The table whose calls were not taken down."""
    body = case.body["case"]
    return differs("extended", body["want"], extended.is_extended(body["resource"]))


def _claims(workload: Json, results: list[Json], recording: _Recording) -> list[str]:
    """The devices of claim templates; claims by name, of which Kueue tells elsewhere, are left out."""
    plain = msgspec.json.decode(msgspec.json.encode(workload))
    for pod_set in plain["spec"]["podSets"]:
        claims = pod_set["template"]["spec"].get("resourceClaims") or []
        pod_set["template"]["spec"]["resourceClaims"] = [each for each in claims if _BY_NAME not in each]
    return _compared(results[0], results[1], _charges(plain, recording))


def _charges(workload: Json, recording: _Recording) -> Charges | None:
    """The charges, once all selectors are evaluated."""
    around, given = recording.surroundings(), world.load(Workload, workload)
    charges = around.charges(given)
    while charges is not None and charges.problem is UNSETTLED:
        finish(around.devices.selectors.evaluating(Pace()))
        charges = around.charges(given)
    return charges


def _counters(args: Json, results: list[Json]) -> list[str]:
    devices = msgspec.convert(args.get("matched") or [], list[Device])
    want = to_int("", (results[0] or {}).get(args["quotaResource"], "0")) if results and results[0] else None
    try:
        have: int | None = counter_charge(args["counterConfig"]["counterName"], devices, args["count"], "")
    except Faults:
        have = None
    return differs("charge", want, have)


def _capacity(args: Json, results: list[Json]) -> list[str]:
    devices = msgspec.convert(args.get("matched") or [], list[Device])
    name, path = args["capCfg"]["resourceName"], args["reqPath"]
    try:
        have = capacity_charge(name, devices, args.get("explicitRequest"), args["count"], path)
    except Faults as faults:
        wanted = "; ".join(map(_fault, results[1] or ()))
        return differs("faults", wanted, "; ".join(map(str, faults.faults)))
    return differs("charge", to_int("", results[0]) if results[0] is not None else None, have)


def _rounded(args: Json, results: list[Json]) -> list[str]:
    fault = (results[1] or {}).get("message") if len(results) > 1 else None
    try:
        if "vr" in args:
            have = within_range(args["base"], msgspec.convert(args["vr"] or {}, CapacityRange))
        else:
            have = next_value(args["base"], args["validValues"])
    except ValueError as error:
        return differs("fault", fault, str(error))
    return differs("rounded", (to_int("", results[0]), fault), (have, None))


def _pools(args: Json, results: list[Json]) -> list[str]:
    slices = [(each["metadata"]["name"], world.load(ResourceSlice, each)) for each in args["slices"] or ()]
    have = {name: (pool.generation, pool.slices) for name, pool in pools(slices, args["driver"]).items()}
    want = {
        name: (each["generation"], [one["metadata"]["name"] for one in each["slices"]])
        for name, each in ((results[0] if results else None) or {}).items()
    }
    return differs("pools", want, have)


def _unsupported(args: Json, results: list[Json]) -> list[str] | None:
    """A device of which no expression can be evaluated; the selectors themselves were not taken down."""
    faults = results[1] if len(results) > 1 else None
    if not faults:
        return None
    given = [
        (args["driver"], device)
        for pool in args["pools"].values()
        for each in pool["slices"]
        for device in each["spec"]["devices"]
    ]
    found = [Prepared(driver, msgspec.convert(device, Device)).fault for driver, device in given]
    return differs("fault", faults[0]["detail"].partition(": ")[2], next(filter(None, found), ""))


def _extended(workload: Json, results: list[Json], recording: _Recording) -> list[str]:
    """Devices of backed extended resources."""
    charges = recording.surroundings().charges(world.load(Workload, workload))
    replaced = charges.replaced if charges is not None else {}
    told = {name: sorted(names) for name, names in replaced.items() if names}
    return [
        *_compared(results[0], results[2], charges),
        *differs("replaced", results[1] or {}, told),
    ]


def _compared(counts: Json, faults: Json, charges: Charges | None) -> list[str]:
    problem = charges.problem.message if charges is not None and charges.problem is not None else ""
    wanted = "; ".join(_fault(each) for each in faults or ())
    have = {name: found for name, found in (charges.counts if charges is not None else {}).items() if found}
    want = {
        name: {resource: to_int(resource, value) for resource, value in found.items()}
        for name, found in (counts or {}).items()
    }
    return [*differs("counts", want, have), *differs("faults", wanted, _bare(problem))]


def _fault(fault: Json) -> str:
    return _bare(fault["message"])


def _bare(text: str) -> str:
    """A sentence without what the compiler of CEL in Go says about an expression."""
    return text.partition("CEL compilation failed: ")[0]


def _per_class(spec: Json, results: list[Json]) -> list[str]:
    found: Counts = {}
    try:
        for request in charged_requests(msgspec.convert(spec, ResourceClaimSpec), lambda _, __: []):
            for _, each in request.alternatives:
                add(found, each.device_class_name, each.count)
    except Faults as faults:
        return differs("faults", "; ".join(map(_fault, results[1] or ())), "; ".join(map(str, faults.faults)))
    return differs("devices", results[0] or {}, found)


def _needed(workload: Json, results: list[Json], recording: _Recording) -> list[str]:
    """Whether a Workload asks for devices; while they are not counted, whether it is held for its claims."""
    charges = recording.surroundings().charges(world.load(Workload, workload))
    return differs("asks for devices", results[0], charges is not None)
