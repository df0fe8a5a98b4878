"""Pods of jobs whose templates carry gates of Kueue's topologies or elastic jobs run, as many as are charged for."""

import pytest

from testbed.client import Json, resource_path, wait_until
from tests.cluster.scenario import Scenario, job

pytestmark = pytest.mark.cluster

LEFT = ["kueue.x-k8s.io/topology", "kueue.x-k8s.io/elastic-job"]
FOREIGN = "example.com/mine"


def template(*gates: str) -> Json:
    """A pod template with these scheduling gates."""
    main = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    return {"containers": [main], "schedulingGates": [{"name": gate} for gate in gates]}


@pytest.mark.parametrize("gate", LEFT)
def test_pods_of_such_a_template_are_not_gated_for_ever(scenario: Scenario, gate: str) -> None:
    """The gates that Kueue leaves in the template of a job that runs are lifted from each of its pods, also from one
    that replaces another."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
    body = job("runs", namespace=scenario.namespace, queue="team", pods=2, template=template(gate))
    scenario.create({**body, "spec": {**body["spec"], "backoffLimit": 9}})
    scenario.wait_started("runs")

    def bound() -> list[str]:
        return [each["metadata"]["name"] for each in scenario.pods_of("runs") if each["spec"].get("nodeName")]

    wait_until(lambda: len(bound()) == 2, timeout=20, describe=lambda: f"pods stay gated: {scenario.pods_of('runs')}")
    first, *_ = bound()
    scenario.api.delete(resource_path("v1", "pods", first, namespace=scenario.namespace), grace_seconds=0)
    wait_until(
        lambda: len(bound()) == 2 and first not in bound(),
        timeout=20,
        describe=lambda: f"the new pod stays gated: {scenario.pods_of('runs')}",
    )


def test_gates_of_others_stay(scenario: Scenario) -> None:
    """A gate that somebody else put into the template is for somebody else to lift."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}})
    scenario.job("runs", queue="team", template=template(*LEFT, FOREIGN))
    scenario.wait_started("runs")

    def gates() -> list[str]:
        return [gate["name"] for each in scenario.pods_of("runs") for gate in each["spec"].get("schedulingGates", ())]

    wait_until(lambda: gates() == [FOREIGN], timeout=20, describe=lambda: f"gates are {gates()}")
