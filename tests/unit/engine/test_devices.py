"""Devices of dynamic resource allocation are counted by no quota, so a Workload that asks for some waits."""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.deviceclass import DeviceClass
from turnstile.engine import Options, State
from turnstile.engine.intake import FEEDING
from turnstile.engine.options import Gates

CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]}


def resources(**amounts: dict[str, str]) -> dict[str, Any]:
    """A pod whose container has these requests and limits."""
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, **amounts}}]}


def backs(state: State, resource: str | None) -> None:
    """DeviceClass `gpus` backs an extended resource."""
    given = {"metadata": {"name": "gpus"}, "spec": {"extendedResourceName": resource}}
    FEEDING[DeviceClass].put(state, msgspec.convert(given, DeviceClass), b.NOW)


def world(options: Options | None = None) -> State:
    """A queue with quota for CPUs and for an extended resource."""
    quota = {"one": {"cpu": 4, "example.com/gpu": 4}}
    return b.world(b.queue("a", quota), options=options, flavors=("one",))


@pytest.mark.parametrize(
    "spec",
    [
        CLAIM,
        {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]},
        resources(limits={"deviceclass.resource.kubernetes.io/gpus": "1"}),
        resources(limits={"example.com/gpu": "1"}),
        {"initContainers": [{"name": "i", "resources": {"requests": {"example.com/gpu": "1"}}}]},
    ],
    ids=["template", "claim", "implicit name", "backed limit", "backed request of an init container"],
)
def test_a_workload_that_asks_for_devices_is_never_admitted(spec: dict[str, Any]) -> None:
    """Whether by a claim, or by an extended resource that a DeviceClass backs, in any container."""
    state = world()
    backs(state, "example.com/gpu")
    state.put_workload(b.workload("w", spec=spec), b.NOW)
    state.put_workload(b.workload("plain"), b.NOW)
    assert {each.key for each in b.settle(state)} == {"team/plain"}


def test_with_its_gate_off_claims_count_for_nothing() -> None:
    """KueueDRARejectWorkloadsWhenDRADisabled off, as in Kueue."""
    state = world(Options(gates=Gates(kueue_dra_reject_workloads_when_dra_disabled=False)))
    state.put_workload(b.workload("w", spec=CLAIM), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_a_device_class_that_comes_or_goes_decides_anew() -> None:
    """About Workloads that wait, in both directions, and about no others."""
    state = world()
    state.put_workload(b.workload("full", cpu=4), b.NOW)
    b.settle(state)
    state.put_workload(b.workload("w", spec=resources(limits={"example.com/gpu": "1"})), b.NOW)
    assert set(state.queues.waiting) == {"team/w"}
    backs(state, "example.com/gpu")
    assert not state.queues.waiting
    backs(state, None)
    assert set(state.queues.waiting) == {"team/w"}
    backs(state, "example.com/gpu")
    FEEDING[DeviceClass].drop(state, "gpus", b.NOW)
    assert set(state.queues.waiting) == {"team/w"}
    assert b.admitted(state) == {"team/full"}
