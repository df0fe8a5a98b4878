"""A Deployment with a queue: each of its pods is held, admitted by itself, and its quota is free when it is gone."""

import pytest

from testbed import ControlPlane
from testbed.client import Json, resource_path, wait_until
from testbed.errors import ApiError
from tests.cluster.scenario import GROUP, QUEUE, Scenario
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

PRIORITY = "kueue.x-k8s.io/priority-class"
TIMEOUT = 30.0


def deployment(
    scenario: Scenario, name: str, *, replicas: int, queue: str | None = "team", labels: dict[str, str] | None = None
) -> Json:
    """A Deployment of pods of 1 cpu each."""
    container = {"name": "web", "image": "registry.example/web:1", "resources": {"requests": {"cpu": "1"}}}
    return scenario.create(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": name,
                "namespace": scenario.namespace,
                "labels": {**({QUEUE: queue} if queue else {}), **(labels or {})},
            },
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
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


def test_a_preempted_pod_is_deleted_and_its_successor_waits(scenario: Scenario) -> None:
    """Work of a higher priority takes the quota of one pod; the new pod is held until that work is gone."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}}, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
    deployment(scenario, "web", replicas=2, labels={PRIORITY: low})
    wait_phases(scenario, "web", running=2, held=0)
    scenario.job("urgent", queue="team", labels={PRIORITY: high})
    scenario.wait_started("urgent", timeout=TIMEOUT)
    wait_phases(scenario, "web", running=1, held=1)
    scenario.delete_job("urgent")
    wait_phases(scenario, "web", running=2, held=0)


def test_a_deactivated_pod_is_deleted_and_its_successor_gets_the_quota(scenario: Scenario) -> None:
    """The quota of the deleted pod is free for the pod that the ReplicaSet makes in its place."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 1}})
    deployment(scenario, "web", replicas=1)
    wait_phases(scenario, "web", running=1, held=0)
    (first,) = pods(scenario, "web")
    name = scenario.workload_of(first["metadata"]["name"], kind="Pod")["metadata"]["name"]
    path = resource_path(GROUP, "workloads", name, namespace=scenario.namespace)
    scenario.api.patch(path, {"spec": {"active": False}})
    wait_until(
        lambda: first["metadata"]["name"] not in {pod["metadata"]["name"] for pod in pods(scenario, "web")},
        timeout=TIMEOUT,
        describe=lambda: "the deactivated pod is still there",
    )
    wait_phases(scenario, "web", running=1, held=0)


def test_a_killed_controller_changes_nothing_of_it(scenario: Scenario, turnstile: Turnstile) -> None:
    """Killed while a pod is held and others run, Turnstile admits what fits and no more."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
    deployment(scenario, "web", replicas=3)
    wait_phases(scenario, "web", running=2, held=1)
    turnstile.crash()
    turnstile.start()
    wait_phases(scenario, "web", running=2, held=1)
    scale(scenario, "web", 2)
    wait_phases(scenario, "web", running=2, held=0)


def test_a_deployment_without_a_queue_is_left_alone(scenario: Scenario) -> None:
    """Neither its template nor its pods are changed."""
    made = deployment(scenario, "web", replicas=1, queue=None)
    assert made["spec"]["template"]["metadata"]["labels"] == {"app": "web"}
    wait_phases(scenario, "web", running=1, held=0)


def test_a_deployment_joins_a_queue_while_no_pod_is_ready(scenario: Scenario) -> None:
    """The queue name may not change while pods are ready; scaled to zero and labelled, the next pods are queued."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 3}})
    deployment(scenario, "web", replicas=1, queue=None)
    path = resource_path("apps/v1", "deployments", "web", namespace=scenario.namespace)
    scenario.api.wait_for(path, lambda found: found["status"].get("readyReplicas") == 1, describe="one pod ready")
    with pytest.raises(ApiError, match="field is immutable"):
        scenario.api.patch(path, {"metadata": {"labels": {QUEUE: "team"}}})
    scale(scenario, "web", 0)
    scenario.api.wait_for(path, lambda found: not found["status"].get("readyReplicas"), describe="no pod ready")
    scenario.api.patch(path, {"metadata": {"labels": {QUEUE: "team"}}})
    scale(scenario, "web", 1)
    wait_phases(scenario, "web", running=1, held=0)
    assert [pod["metadata"]["labels"].get(QUEUE) for pod in pods(scenario, "web")] == ["team"]


def test_a_rollout_under_a_full_quota_ends_at_nobody_elses_cost(scenario: Scenario) -> None:
    """The surge pod takes the quota of an old pod, not that of a Job of a lower priority; so does each after it."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 3}}, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
    deployment(scenario, "web", replicas=2, labels={PRIORITY: high})
    wait_phases(scenario, "web", running=2, held=0)
    scenario.job("other", queue="team", labels={PRIORITY: low})
    scenario.wait_started("other", timeout=TIMEOUT)
    path = resource_path("apps/v1", "deployments", "web", namespace=scenario.namespace)
    container = {"name": "web", "image": "registry.example/web:2"}
    scenario.api.patch(path, {"spec": {"template": {"spec": {"containers": [container]}}}}, kind="strategic")

    def rolled_out() -> bool:
        assert not scenario.suspended("other")
        images = [pod["spec"]["containers"][0]["image"] for pod in pods(scenario, "web")]
        return images == ["registry.example/web:2"] * 2 and phases(scenario, "web") == (2, 0)

    wait_until(rolled_out, timeout=TIMEOUT, describe=lambda: f"running and held: {phases(scenario, 'web')}")
    status = scenario.api.get(path)["status"]
    assert (status["updatedReplicas"], status["readyReplicas"]) == (2, 2)
