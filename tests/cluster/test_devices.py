"""Jobs whose pods claim devices wait with Kueue's conditions: no quota counts devices yet."""

import pytest

from testbed.client import condition, wait_until
from tests.cluster.scenario import Scenario

pytestmark = pytest.mark.cluster

HELD = "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled"


def wait_held(scenario: Scenario, name: str) -> None:
    """Until the Workload of a Job has both of Kueue's conditions."""

    def held() -> bool:
        workload = scenario.workload_of(name)
        told = [
            (each.get("reason"), each.get("message"))
            for each in (condition(workload, kind) for kind in ("QuotaReserved", "Requeued"))
        ]
        return told == [("Misconfigured", HELD), ("Inadmissible", HELD)]

    wait_until(held, timeout=20, describe=lambda: f"not held: {scenario.workload_of(name).get('status')}")


def test_jobs_that_ask_for_devices_are_held(scenario: Scenario) -> None:
    """A claim, and an extended resource that a DeviceClass backs, as long as it does; others in the queue start."""
    resource = f"{scenario.namespace}.example.com/gpu"
    devices = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": scenario.named("gpu")}}
    scenario.create({**devices, "spec": {"extendedResourceName": resource}})
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 9, resource: 9}})
    main = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    claiming = {**main, "resources": {**main["resources"], "claims": [{"name": "gpu"}]}}
    scenario.job("claims", queue="team", template={"containers": [claiming], "resourceClaims": claims})
    wait_held(scenario, "claims")
    extended = {**main, "resources": {"requests": {"cpu": "1", resource: "1"}, "limits": {resource: "1"}}}
    scenario.job("extended", queue="team", template={"containers": [extended]})
    wait_held(scenario, "extended")
    scenario.job("plain", queue="team")
    scenario.wait_started("plain")
    assert scenario.suspended("claims")
    assert scenario.suspended("extended")
    scenario.api.delete(scenario.api.path_of(devices))
    scenario.wait_started("extended")
    wait_held(scenario, "claims")
