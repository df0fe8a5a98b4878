"""A Deployment with a queue: each of its pods is held, admitted by itself, and its quota is free when it is gone."""

import pytest

from testbed import ControlPlane
from testbed.client import Json, resource_path, wait_until
from tests.cluster.scenario import GROUP, QUEUE, Scenario

pytestmark = pytest.mark.cluster

TIMEOUT = 30.0


def deployment(scenario: Scenario, name: str, *, replicas: int, queue: str | None = "team", **spec: object) -> Json:
    """A Deployment of pods of 1 cpu each."""
    container = {"name": "web", "image": "registry.example/web:1", "resources": {"requests": {"cpu": "1"}}}
    return scenario.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": scenario.namespace, "labels": {QUEUE: queue} if queue else {}},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
                **spec,
            },
        }
    )


def pods(scenario: Scenario, name: str) -> list[Json]:
    """The pods of a Deployment."""
    return scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace), labels=f"app={name}")


def phases(scenario: Scenario, name: str) -> tuple[int, int]:
    """How many pods run, and how many are held."""
    found = pods(scenario, name)
    running = sum(pod["status"].get("phase") == "Running" for pod in found)
    return running, sum(bool(pod["spec"].get("schedulingGates")) for pod in found)


def wait_phases(scenario: Scenario, name: str, *, running: int, held: int) -> None:
    """Until so many pods run and so many are held."""
    wait_until(
        lambda: phases(scenario, name) == (running, held),
        timeout=TIMEOUT,
        describe=lambda: f"running and held: {phases(scenario, name)}, not {(running, held)}",
    )


def scale(scenario: Scenario, name: str, replicas: int) -> None:
    """Set the number of replicas."""
    path = resource_path("apps/v1", "deployments", name, namespace=scenario.namespace)
    scenario.api.patch(path, {"spec": {"replicas": replicas}})


def test_pods_beyond_the_quota_are_held_until_others_go(scenario: Scenario, control_plane: ControlPlane) -> None:
    """Three replicas on a quota of two: two run on the flavor's nodes; another queue's quota is not touched."""
    flavor = scenario.flavor("plain", labels={"pool": "web"})
    control_plane.add_node(f"a-{scenario.namespace}", labels={"pool": "web"})
    scenario.queue("team", {flavor: {"cpu": 2}})
    deployment(scenario, "web", replicas=3)
    wait_phases(scenario, "web", running=2, held=1)
    admitted = [pod for pod in pods(scenario, "web") if not pod["spec"].get("schedulingGates")]
    assert {pod["spec"]["nodeSelector"]["pool"] for pod in admitted} == {"web"}
    scale(scenario, "web", 2)
    wait_phases(scenario, "web", running=2, held=0)
    scale(scenario, "web", 0)
    wait_phases(scenario, "web", running=0, held=0)
    workloads = resource_path(GROUP, "workloads", namespace=scenario.namespace)
    wait_until(
        lambda: not scenario.api.items(workloads),
        timeout=TIMEOUT,
        describe=lambda: f"Workloads are left: {[w['metadata']['name'] for w in scenario.api.items(workloads)]}",
    )


def test_a_deployment_without_a_queue_is_left_alone(scenario: Scenario) -> None:
    """Neither its template nor its pods are changed."""
    made = deployment(scenario, "web", replicas=1, queue=None)
    assert made["spec"]["template"]["metadata"]["labels"] == {"app": "web"}
    wait_phases(scenario, "web", running=1, held=0)


def test_a_label_that_comes_later_rolls_the_pods_into_the_queue(scenario: Scenario) -> None:
    """The template changes with the label, so new pods come, and they are admitted one by one."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 3}})
    deployment(scenario, "web", replicas=1, queue=None)
    wait_phases(scenario, "web", running=1, held=0)
    path = resource_path("apps/v1", "deployments", "web", namespace=scenario.namespace)
    scenario.api.patch(path, {"metadata": {"labels": {QUEUE: "team"}}})
    wait_until(
        lambda: [pod["metadata"]["labels"].get(QUEUE) for pod in pods(scenario, "web")] == ["team"],
        timeout=TIMEOUT,
        describe=lambda: f"not one queued pod: {[p['metadata']['labels'] for p in pods(scenario, 'web')]}",
    )
    wait_phases(scenario, "web", running=1, held=0)
