"""Selectors of devices in CEL: which devices match, what parts of devices cost, and that no expression takes long."""

import time
from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from tests.unit.engine.test_devices import CLAIM, exactly, problem, put, template, usage
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.resourceslice import Device, DeviceCapacity, ResourceSlice
from turnstile.engine import Options, State
from turnstile.engine.devices.expressions import Expression, Prepared, Unfit
from turnstile.engine.devices.selectors import Selectors
from turnstile.engine.intake import FEEDING
from turnstile.engine.options import DeviceMapping, DeviceSource, Gates
from turnstile.engine.pace import STRETCH, Pace, finish

GPU = "gpu.example.com"
CLASS_SELECTOR = f'device.driver == "{GPU}"'
DEVICE = Prepared(
    GPU,
    Device(
        attributes={"model": {"string": "H100"}, "index": {"int": 3}, "firmware": {"version": "1.20.3-rc.1"}},
        capacity={"memory": DeviceCapacity(value="80Gi"), "other.example.com/cores": DeviceCapacity(value="16")},
    ),
)


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        (CLASS_SELECTOR, True),
        ('device.attributes["gpu.example.com"].model == "A100"', False),
        ('device.attributes["gpu.example.com"].index in [1, 3]', True),
        ('device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) > 0', True),
        ('device.capacity["gpu.example.com"].memory == quantity("81920Mi")', True),
        ('device.capacity["other.example.com"]["cores"].isLessThan(quantity("16"))', False),
        ('device.attributes["gpu.example.com"].firmware.isGreaterThan(semver("1.9.0"))', True),
        ('device.attributes["gpu.example.com"].firmware.compareTo(semver("1.20.3")) < 0', True),
        ('"gpu.example.com" in device.attributes && !("none" in device.attributes)', True),
        ('device.attributes["gpu.example.com"].exists(name, name == "model")', True),
        ('has(device.attributes["none"].model)', False),
        ('device.attributes["gpu.example.com"].model.matches("^H[0-9]+$")', True),
        ("device.allowMultipleAllocations", False),
    ],
)
def test_expressions_see_a_device_as_in_kubernetes(expression: str, matches: bool) -> None:
    """Its driver, attributes and capacities by domain, with quantities and versions."""
    found = Expression(expression)
    assert found.matches(DEVICE.variables(found.entries)) is matches


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        ('device.attributes["none"].model == "H100"', "no such key: model"),
        ('device.attributes["gpu.example.com"].model', "not bool"),
        ('quantity("much") == quantity("1")', "write a Kubernetes quantity"),
    ],
)
def test_an_expression_that_fails_says_why(expression: str, told: str) -> None:
    """A device then neither matches nor does not."""
    found = Expression(expression)
    assert told in str(found.matches(DEVICE.variables(found.entries)))


LONG = "[" + ",".join(["1"] * 200) + "]"


@pytest.mark.parametrize(
    ("expression", "told"),
    [
        (f"{LONG}.all(x, {LONG}.all(y, x == y))", "steps for one device"),
        ('[["a"]]' + "".join(f".map(x{n}, x{n} + x{n})" for n in range(20)) + ".size() > 0", "steps for one device"),
        ('"aaaa".matches("(((a{100}){100}){10})")', "steps for one device"),
        ("device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, a == c)))", "steps for one"),
        ("true" + " || true" * 2000, "characters"),
        ("(" * 200 + "true" + ")" * 200, "nested too deeply"),
        ("device.driver ==", "mismatched input"),
        ("cel.bind(a, 1, a == 1)", "undeclared reference"),
        ("device.colour == 1", "undefined field"),
        ("now() > 1", "undeclared reference to 'now'"),
    ],
)
def test_an_expression_that_may_take_long_is_not_evaluated(expression: str, told: str) -> None:
    """Nor is one that is no CEL. This takes no time itself."""
    began = time.process_time()
    with pytest.raises(Unfit, match=told):
        Expression(expression)
    assert time.process_time() - began < 0.5


def test_the_longest_expression_that_is_evaluated_is_short() -> None:
    """A chain of operators as long as may be does not exhaust the stack, and takes some milliseconds."""
    found = Expression("true" + " && true" * 1100)
    began = time.process_time()
    assert found.matches(DEVICE.variables(found.entries)) is True
    assert time.process_time() - began < 0.1


# In the cluster


def world(*sources: DeviceSource, gates: Gates | None = None) -> State:
    """A queue with quota for mapped devices, and the DeviceClass."""
    mapped = (DeviceMapping(resource="gpus", classes=(GPU,), sources=sources),)
    options = Options(device_mappings=mapped, gates=gates or Gates())
    state = b.world(b.queue("a", {"one": {"cpu": 9, "gpus": "1Ti"}}), options=options, flavors=("one",))
    given = {"metadata": {"name": GPU}, "spec": {"selectors": [{"cel": {"expression": CLASS_SELECTOR}}]}}
    FEEDING[DeviceClass].put(state, msgspec.convert(given, DeviceClass), b.NOW)
    return state


def publish(
    state: State,
    *devices: dict[str, Any],
    name: str = "s",
    slices: int = 1,
    generation: int = 1,
    node: str = "",
    pool: str = "node",
) -> None:
    """A slice of a pool of that driver."""
    named = [{"name": f"gpu-{index}", **each} for index, each in enumerate(devices)]
    of = {"name": pool, "generation": generation, "resourceSliceCount": slices}
    given = {"metadata": {"name": name}, "spec": {"driver": GPU, "nodeName": node, "pool": of, "devices": named}}
    FEEDING[ResourceSlice].put(state, msgspec.convert(given, ResourceSlice), b.NOW)


def model(name: str) -> dict[str, Any]:
    """A device."""
    return {"attributes": {"model": {"string": name}}}


def selecting(expression: str) -> list[dict[str, Any]]:
    """Selectors of a request."""
    return [{"cel": {"expression": expression}}]


H100 = selecting(f'device.attributes["{GPU}"].model == "H100"')


def test_all_devices_are_as_many_as_one_node_has() -> None:
    """With those that are on no node; a slice of an older generation does not count."""
    state = world()
    for node, name, count in (("one", "a", 2), ("two", "b", 3), ("", "c", 1)):
        publish(state, *[model("H100")] * count, model("A100"), name=name, node=node, pool=name)
    publish(state, *[model("H100")] * 9, name="old", node="two", pool="b", generation=0)
    template(state, exactly(0, allocationMode="All", selectors=H100))
    put(state, "w", CLAIM)
    b.settle(state)
    assert usage(state, "gpus") == 4


def test_a_workload_that_asks_for_all_devices_waits_for_the_first() -> None:
    """Without any it is not known what to charge for."""
    state = world()
    template(state, exactly(0, allocationMode="All"))
    put(state, "w", CLAIM)
    b.settle(state)
    assert problem(state).endswith("0 device(s) match in the cluster but 1 requested")
    publish(state, model("H100"))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_one_alternative_that_the_cluster_has_is_enough() -> None:
    """The others may be published later, so they are charged for as well."""
    state = world()
    publish(state, model("A100"))
    given = {"name": "a", "deviceClassName": GPU, "allocationMode": "ExactCount"}
    a100 = selecting(f'device.attributes["{GPU}"].model == "A100"')
    choice = [{**given, "count": 2, "selectors": H100}, {**given, "count": 1, "selectors": a100}]
    template(state, {"firstAvailable": choice})
    put(state, "w", CLAIM)
    b.settle(state)
    assert usage(state, "gpus") == 2


def test_a_workload_waits_until_there_are_enough_devices() -> None:
    """With Kueue's sentence; a slice that is published wakes it."""
    state = world()
    publish(state, model("H100"), model("A100"))
    template(state, exactly(1, selectors=H100), exactly(1, selectors=H100))
    put(state, "w", CLAIM)
    b.settle(state)
    assert problem(state).endswith(
        f"insufficient matching devices for CEL selector in DeviceClass {GPU}: "
        "0 device(s) match in the cluster but 1 requested"
    )
    publish(state, model("H100"), model("H100"))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}
    assert usage(state, "gpus") == 2


def test_a_selector_that_is_not_evaluated_holds_its_workload() -> None:
    """With the place of the expression."""
    state = world()
    template(state, exactly(1, selectors=selecting("this is no CEL")))
    put(state, "w", CLAIM)
    b.settle(state)
    assert 'selectors[0].cel.expression: Invalid value: "this is no CEL": CEL compilation failed' in problem(state)


MEMORY = DeviceSource(kind="counter", name="memory", driver=GPU, selector="true")


def consuming(memory: str, profile: str) -> dict[str, Any]:
    """A partition of a GPU."""
    counters = [{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}]
    return {"attributes": {"profile": {"string": profile}}, "consumesCounters": counters}


def test_a_partition_is_charged_by_its_counter() -> None:
    """The largest of those that match; a pool that is not complete has no devices."""
    state = world(MEMORY)
    publish(state, consuming("10Gi", "small"), consuming("20Gi", "small"), consuming("40Gi", "large"), slices=2)
    template(state, exactly(2, selectors=selecting(f'device.attributes["{GPU}"].profile == "small"')))
    put(state, "w", CLAIM)
    b.settle(state)
    assert problem(state).endswith(
        "insufficient matching devices for counter driver: 0 device(s) match but 2 requested"
    )
    publish(state, name="second", slices=2)
    b.settle(state)
    assert usage(state, "gpus") == 40 << 30


def test_a_share_of_a_device_is_charged_by_the_policy_of_its_capacity() -> None:
    """The request, or the default, raised to a value that the device allows."""
    source = DeviceSource(kind="capacity", name="memory", driver=GPU, selector="true")
    state = world(source, gates=Gates(kueue_dra_integration_consumable_capacity=True))
    policy = {"default": "10Gi", "validRange": {"min": "5Gi", "step": "5Gi", "max": "40Gi"}}
    publish(state, {"capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}}})
    template(state, exactly(1), name="gpu")
    put(state, "default", CLAIM)
    b.settle(state)
    assert usage(state, "gpus") == 10 << 30
    template(state, exactly(1, capacity={"requests": {"memory": "11Gi"}}))
    put(state, "asks", CLAIM)
    b.settle(state)
    assert usage(state, "gpus") == 25 << 30
    template(state, exactly(1, capacity={"requests": {"memory": "41Gi"}}))
    put(state, "w", CLAIM)
    b.settle(state)
    assert "capacity request cannot be satisfied" in problem(state)


def test_ten_thousand_devices_and_a_hundred_claims_take_less_than_a_second() -> None:
    """Of CPU, in slices: each expression is evaluated once for devices that it cannot tell apart."""
    selectors = Selectors()
    for node in range(100):
        devices = [
            {"name": f"gpu-{index}", "attributes": {**model(f"m{index % 4}")["attributes"], "id": {"int": index}}}
            for index in range(100)
        ]
        spec = {"driver": GPU, "pool": {"name": f"n{node}"}, "devices": devices}
        selectors.put(f"s{node}", msgspec.convert({"metadata": {"name": f"s{node}"}, "spec": spec}, ResourceSlice))
    for index in range(10):
        selectors.fault(f'device.driver == "{GPU}" && device.attributes["{GPU}"].model == "m{index}"')
    selectors.due = True
    began = time.process_time()
    pieces = sum(1 for _ in selectors.evaluating(Pace(STRETCH)))
    assert time.process_time() - began < 1
    assert pieces > 100


def test_an_expression_is_given_up_that_takes_too_long_for_all_devices() -> None:
    """It would be evaluated for each device, as it goes through their attributes."""
    selectors = Selectors()
    devices = [{"name": f"{index}", "attributes": {"uuid": {"string": f"{index}"}}} for index in range(100)]
    for node in range(20):
        given = {"metadata": {"name": f"s{node}"}, "spec": {"driver": f"d{node}", "devices": devices}}
        selectors.put(f"s{node}", msgspec.convert(given, ResourceSlice))
    costly = f'device.attributes.all(a, a != "x") && {LONG}.all(x, [1, 2, 3, 4, 5, 6].all(y, x == y || y > 0))'
    assert selectors.fault(costly) == ""
    selectors.due = True
    finish(selectors.evaluating(Pace()))
    assert "steps for the cluster's devices" in selectors.fault(costly)
