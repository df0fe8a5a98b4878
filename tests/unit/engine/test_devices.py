"""Devices of dynamic resource allocation: how the pods of a Workload are charged for them, and when they are held."""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.resourceclaim import ResourceClaim, ResourceClaimTemplate
from turnstile.engine import Options, State
from turnstile.engine.intake import FEEDING
from turnstile.engine.options import DeviceMapping, Gates

CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}
MAPPED = (DeviceMapping(resource="gpus", classes=("gpu.example.com",)),)


def resources(**amounts: dict[str, str]) -> dict[str, Any]:
    """A pod whose container has these requests and limits."""
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, **amounts}}]}


def alternative(count: int, device_class: str = "gpu.example.com") -> dict[str, Any]:
    """One of the alternatives of a request."""
    return {"name": "a", "deviceClassName": device_class, "count": count, "allocationMode": "ExactCount"}


def first_available(*alternatives: dict[str, Any]) -> dict[str, Any]:
    """A request that is fulfilled by the first alternative that can be had."""
    return {"firstAvailable": alternatives}


def claim(state: State, *requests: dict[str, Any], name: str = "mine") -> None:
    """ResourceClaim `team/mine`, with these requests."""
    asked = [{"name": str(index), **each} for index, each in enumerate(requests)]
    given = {"metadata": {"name": name, "namespace": "team"}, "spec": {"devices": {"requests": asked}}}
    FEEDING[ResourceClaim].put(state, msgspec.convert(given, ResourceClaim), b.NOW)


def backs(state: State, resource: str | None, name: str = "gpus") -> None:
    """A DeviceClass backs an extended resource."""
    given = {"metadata": {"name": name}, "spec": {"extendedResourceName": resource}}
    FEEDING[DeviceClass].put(state, msgspec.convert(given, DeviceClass), b.NOW)


def template(state: State, *requests: dict[str, Any], name: str = "gpu") -> None:
    """ResourceClaimTemplate `team/gpu`, with a request for each given, or for one device."""
    asked = [{"name": str(index), **each} for index, each in enumerate(requests or (exactly(1),))]
    given = {"metadata": {"name": name, "namespace": "team"}, "spec": {"spec": {"devices": {"requests": asked}}}}
    FEEDING[ResourceClaimTemplate].put(state, msgspec.convert(given, ResourceClaimTemplate), b.NOW)


def exactly(count: int, **more: Any) -> dict[str, Any]:
    """A request for devices of a class."""
    return {"exactly": {"deviceClassName": "gpu.example.com", "count": count, "allocationMode": "ExactCount", **more}}


def world(**options: Any) -> State:
    """A queue with quota for CPUs, for an extended resource and for mapped devices."""
    quota = {"one": {"cpu": 9, "example.com/gpu": 4, "gpus": 4}}
    given = Options(**{"device_mappings": MAPPED, **options})
    return b.world(b.queue("a", quota), options=given, flavors=("one",))


def put(state: State, name: str, spec: dict[str, Any], count: int = 1) -> None:
    """A Workload whose pods have this spec."""
    state.put_workload(b.workload(name, spec=spec, count=count), b.NOW)


def problem(state: State, name: str = "w") -> str:
    """Why a Workload is held; empty if it is not."""
    found = state.queues.held.get(f"team/{name}")
    return found.problem.message if found is not None and found.problem is not None else ""


def usage(state: State, resource: str) -> int:
    """The usage of a resource in the queue."""
    pair = state.surroundings.catalog.pair("one", resource)
    return state.cluster_queues["a"].node.usage.get(pair, 0)


def test_the_devices_of_a_template_are_charged_for_each_pod() -> None:
    """Under the name that the configuration maps their class to; what does not fit waits."""
    state = world()
    template(state, exactly(1), exactly(1))
    put(state, "fits", CLAIM, count=2)
    put(state, "waits", CLAIM)
    b.settle(state)
    assert b.admitted(state) == {"team/fits"}
    assert usage(state, "gpus") == 4


def test_a_template_that_comes_late_wakes_its_workload() -> None:
    """A Workload without its template waits in no queue, and says which it lacks."""
    state = world()
    put(state, "w", CLAIM)
    b.settle(state)
    assert not state.queues.waiting
    assert problem(state).endswith('resourceclaimtemplates.resource.k8s.io "gpu" not found')
    template(state)
    assert state.has_work
    b.settle(state)
    assert b.admitted(state) == {"team/w"}
    assert not state.queues.held


def test_a_template_made_anew_while_its_workload_waits_counts_anew() -> None:
    """The charge is that of the template as it is when quota is reserved, and stays when the template goes."""
    state = world()
    template(state, exactly(4))
    put(state, "first", CLAIM)
    b.settle(state)
    put(state, "w", CLAIM)
    b.settle(state)
    template(state, exactly(9))
    b.settle(state)
    assert state.queues.waiting["team/w"].totals[0].requests["gpus"] == 9
    FEEDING[ResourceClaimTemplate].drop(state, "team/gpu", b.NOW)
    b.settle(state)
    assert "not found" in problem(state)
    assert b.admitted(state) == {"team/first"}
    assert usage(state, "gpus") == 4


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({}, "Exactly must be set if FirstAvailable is nil"),
        (first_available(alternative(1), alternative(1, "other")), "DeviceClass other is not mapped in DRA"),
        (exactly(1, allocationMode="New"), "unsupported allocation mode: New"),
        (exactly(1, deviceClassName="other"), "DeviceClass other is not mapped in DRA configuration for podset main"),
    ],
)  # fmt: skip
def test_claims_that_are_not_counted_hold_their_workload(request_: dict[str, Any], told: str) -> None:
    """With Kueue's sentence; others in the queue are admitted."""
    state = world()
    template(state, request_)
    put(state, "w", CLAIM)
    put(state, "plain", {})
    b.settle(state)
    assert b.admitted(state) == {"team/plain"}
    assert told in problem(state)


def test_access_by_an_administrator_takes_no_device() -> None:
    """Nor does a request without a class."""
    state = world()
    template(state, exactly(9, adminAccess=True), exactly(9, deviceClassName=""))
    put(state, "w", CLAIM)
    b.settle(state)
    assert b.admitted(state) == {"team/w"}
    assert usage(state, "gpus") == 0


def test_alternatives_cost_as_much_as_the_dearest() -> None:
    """Of each resource, as nobody knows which of them kube-scheduler takes."""
    mapped = (*MAPPED, DeviceMapping(resource="example.com/gpu", classes=("small.example.com",)))
    state = world(device_mappings=mapped)
    template(state, first_available(alternative(1), alternative(3, "small.example.com"), alternative(2)), exactly(1))
    put(state, "w", CLAIM)
    b.settle(state)
    assert (usage(state, "gpus"), usage(state, "example.com/gpu")) == (3, 3)


NAMED = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}


def test_a_claim_that_pods_name_is_charged_once_for_all_of_them() -> None:
    """They have its devices together, beside those of claims of their own. A claim that comes late wakes its
    Workload."""
    state = world()
    template(state, exactly(1))
    put(state, "w", {"resourceClaims": [*NAMED["resourceClaims"], *CLAIM["resourceClaims"]]}, count=2)
    b.settle(state)
    assert problem(state).endswith('resourceclaims.resource.k8s.io "mine" not found')
    claim(state, exactly(2))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}
    assert usage(state, "gpus") == 4


def test_a_claim_is_charged_until_the_last_pod_that_names_it_is_gone() -> None:
    """Pods that need quota no more give back what is theirs alone, also of a Workload that is read anew."""
    state = world()
    claim(state, exactly(3))
    given = b.workload("w", spec=NAMED, count=3)
    state.put_workload(given, b.NOW)
    b.settle(state)
    admitted = b.reserved(given, state)
    reclaimable = b.changed(admitted, status={"reclaimablePods": [{"name": "main", "count": 2}]})
    state.put_workload(reclaimable, b.NOW)
    assert (usage(state, "cpu"), usage(state, "gpus")) == (1000, 3)
    state.drop_workload("team/w")
    assert usage(state, "gpus") == 0


def test_a_workload_that_starts_with_fewer_pods_has_the_whole_claim() -> None:
    """Admission in part takes nothing off what the pods have together."""
    state = world()
    claim(state, exactly(4))
    state.put_workload(b.workload("w", spec=NAMED, count=20, min_count=2), b.NOW)
    b.settle(state)
    assert (usage(state, "cpu"), usage(state, "gpus")) == (9000, 4)


@pytest.mark.parametrize("mapped", [True, False])
def test_a_backed_extended_resource_counts_as_its_class_is_mapped(mapped: bool) -> None:
    """Or as itself, where the class is not mapped."""
    state = world()
    backs(state, "example.com/gpu", "gpu.example.com" if mapped else "other")
    put(state, "w", resources(limits={"example.com/gpu": "2"}), count=2)
    b.settle(state)
    assert (usage(state, "gpus"), usage(state, "example.com/gpu")) == ((4, 0) if mapped else (0, 4))


def test_the_resource_that_a_class_backs_by_its_own_name() -> None:
    """`deviceclass.resource.kubernetes.io/` and the name of the class."""
    state = world()
    put(state, "w", resources(limits={"deviceclass.resource.kubernetes.io/gpu.example.com": "2"}))
    b.settle(state)
    assert usage(state, "gpus") == 2


def test_the_latest_of_two_classes_backs_a_resource() -> None:
    """Then the first by name."""
    state = world()
    for name, second in (("gpu.example.com", 10), ("zz", 9), ("aa", 9)):
        meta = {"name": name, "creationTimestamp": f"2026-01-01T00:00:{second:02}Z"}
        given = {"metadata": meta, "spec": {"extendedResourceName": "example.com/gpu"}}
        FEEDING[DeviceClass].put(state, msgspec.convert(given, DeviceClass), b.NOW)
    assert state.surroundings.devices.backing.of("example.com/gpu") == "gpu.example.com"
    FEEDING[DeviceClass].drop(state, "gpu.example.com", b.NOW)
    assert state.surroundings.devices.backing.of("example.com/gpu") == "aa"


def test_fractions_of_a_backed_resource_hold_their_workload() -> None:
    """Each container that asks for one is named."""
    state = world()
    backs(state, "example.com/gpu")
    put(state, "w", resources(requests={"example.com/gpu": "1500m"}))
    b.settle(state)
    path = "spec.podSets[0].template.spec.containers[0].resources.requests.example.com/gpu"
    assert problem(state) == f'{path}: Invalid value: "1500m": extended resource quantity must be an integer'


def test_a_device_class_that_comes_or_goes_counts_waiting_workloads_anew() -> None:
    """In both directions; a Workload that holds quota keeps its charge."""
    state = world()
    put(state, "full", resources(limits={"example.com/gpu": "4"}))
    b.settle(state)
    put(state, "w", resources(limits={"example.com/gpu": "4"}))
    b.settle(state)
    backs(state, "example.com/gpu", "gpu.example.com")
    b.settle(state)
    assert b.admitted(state) == {"team/full", "team/w"}
    assert (usage(state, "gpus"), usage(state, "example.com/gpu")) == (4, 4)


def test_with_the_gate_off_workloads_with_claims_are_held() -> None:
    """With Kueue's message. A backed resource counts under its own name, as one of a device plugin does."""
    state = world(gates=Gates(kueue_dra_integration=False))
    backs(state, "example.com/gpu", "gpu.example.com")
    put(state, "w", CLAIM)
    put(state, "backed", resources(limits={"example.com/gpu": "1"}))
    b.settle(state)
    assert b.admitted(state) == {"team/backed"}
    assert usage(state, "example.com/gpu") == 1
    assert problem(state).startswith("Workload uses DRA resources but")


def test_with_both_gates_off_claims_count_for_nothing() -> None:
    """KueueDRARejectWorkloadsWhenDRADisabled off, as in Kueue."""
    off = Gates(kueue_dra_integration=False, kueue_dra_reject_workloads_when_dra_disabled=False)
    state = world(gates=off)
    put(state, "w", CLAIM)
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_a_node_need_not_have_a_resource_that_devices_fulfil() -> None:
    """Where topology places pods, it looks for nodes with the other requests: no node has an amount of this one."""
    state = world()
    backs(state, "example.com/gpu")
    put(state, "w", resources(limits={"example.com/gpu": "1"}))
    put(state, "plain", resources())
    asks = [info.ask(info.totals[0]) for info in (state.workloads["team/w"], state.workloads["team/plain"])]
    assert asks[0] == asks[1]
