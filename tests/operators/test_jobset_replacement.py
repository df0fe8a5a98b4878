"""A queued JobSet, under its real controller, never has more pods than it is charged for while pods are replaced."""

import pytest

from testbed.client import Json, resource_path, wait_until
from testbed.components import STOP_FOR
from tests.cluster.scenario import Scenario
from tests.operators.jobsets import NAME_LABEL, jobset, replicated_job

pytestmark = pytest.mark.operator("jobset")


def running(scenario: Scenario, name: str) -> set[str]:
    """The names of the JobSet's pods that run."""
    path = resource_path("v1", "pods", namespace=scenario.namespace)
    found: list[Json] = scenario.api.items(path, labels=f"{NAME_LABEL}={name}")
    return {pod["metadata"]["name"] for pod in found if pod["status"].get("phase") == "Running"}


def test_pods_that_stop_slowly_are_not_replaced_beside_themselves(scenario: Scenario) -> None:
    """The pods of Jobs of one pod are deleted, and take longer to stop than the Job controller waits."""
    scenario.queue("team", {scenario.flavor("pool", labels={"pool": "operators"}): {"cpu": 3}})
    made = jobset("slow", replicated_job("workers", replicas=3), namespace=scenario.namespace, queue="team")
    spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec["backoffLimit"] = 6
    spec["template"]["metadata"] = {"annotations": {STOP_FOR: "13s"}}
    scenario.create(made)
    wait_until(
        lambda: len(running(scenario, "slow")) == 3, timeout=40, describe=lambda: f"{running(scenario, 'slow')} run"
    )
    first, most = running(scenario, "slow"), 0
    for name in first:
        scenario.api.delete(resource_path("v1", "pods", name, namespace=scenario.namespace))

    def ended() -> bool:
        nonlocal most
        seen = running(scenario, "slow")
        most = max(most, len(seen))
        return not seen & first

    wait_until(ended, timeout=60, describe=lambda: f"{running(scenario, 'slow')} run")
    assert most == 3
