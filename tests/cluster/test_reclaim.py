"""Pods that are done give their quota to Workloads that wait, while the rest of their job runs."""

import pytest

from testbed.client import Json, resource_path
from tests.cluster.every_kind import KINDS
from tests.cluster.scenario import RUN_FOR, Scenario

pytestmark = pytest.mark.cluster


def end_one(scenario: Scenario, pods: list[Json]) -> None:
    """Let the first of these pods succeed."""
    path = resource_path("v1", "pods", pods[0]["metadata"]["name"], namespace=scenario.namespace)
    scenario.api.patch(path, {"metadata": {"annotations": {RUN_FOR: "0s"}}})


@pytest.mark.parametrize("kind", ["job", "pod-group"])
def test_a_job_starts_beside_the_rest_of_another(scenario: Scenario, kind: str) -> None:
    """It waits until one pod of the other, which holds the whole quota, has succeeded."""
    row = KINDS[kind]
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": row.pods}})
    row.create(scenario, "first", "team")
    scenario.api.wait_for(
        resource_path("v1", "pods", namespace=scenario.namespace),
        lambda _: len(row.running(scenario, "first")) == row.pods,
        describe="all pods run",
    )
    scenario.job("second", queue="team")
    scenario.wait_pending("second", reason="WaitingForQuota")
    end_one(scenario, row.running(scenario, "first"))
    scenario.wait_started("second")
    assert len(row.running(scenario, "first")) == row.pods - 1
