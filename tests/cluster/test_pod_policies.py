"""The policies that guard queued pods do not hold up Kubernetes' own controllers."""

from typing import Any

import pytest

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from testbed.errors import ApiError
from tests.cluster.scenario import QUEUE, Scenario, job, job_path

pytestmark = pytest.mark.cluster

TIMEOUT = 20.0


def queued_job(scenario: Scenario, name: str, *, pods: int = 2, **spec: Any) -> list[Json]:
    """Create a Job in a queue of its own and wait for its pods to run; the pods."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 8}})
    made = job(name, namespace=scenario.namespace, queue="team", pods=pods)
    made["spec"] |= spec
    scenario.create(made)
    return wait_running(scenario, name, count=pods)


def running(scenario: Scenario, name: str) -> list[Json]:
    """The pods of a Job that run and are not being deleted."""
    return [
        pod
        for pod in scenario.pods_of(name)
        if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    ]


def wait_running(scenario: Scenario, name: str, *, count: int, without: list[Json] | None = None) -> list[Json]:
    """Until so many pods of a Job run, none of them one of `without`."""
    gone = {pod["metadata"]["uid"] for pod in without or ()}

    def look() -> list[Json]:
        return [pod for pod in running(scenario, name) if pod["metadata"]["uid"] not in gone]

    wait_until(lambda: len(look()) == count, timeout=TIMEOUT, describe=lambda: f"{len(look())} pods of {name} run")
    return look()


def path_of(pod: Json, subresource: str | None = None) -> str:
    """URL path of a pod."""
    meta = pod["metadata"]
    return resource_path("v1", "pods", meta["name"], namespace=meta["namespace"], subresource=subresource)


@pytest.mark.parametrize("exit_code", [0, 1], ids=["succeeds", "fails"])
def test_a_job_ends(control_plane: ControlPlane, scenario: Scenario, exit_code: int) -> None:
    """With a policy for pod failures; the Job controller takes its finalizer off each pod."""
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    queued_job(scenario, "ends", podFailurePolicy={"rules": [rule]})
    control_plane.finish_job(scenario.namespace, "ends", exit_code=exit_code)
    ended = scenario.api.wait_for(
        job_path(scenario.namespace, "ends"),
        lambda found: condition(found, "Failed" if exit_code else "Complete"),
        timeout=TIMEOUT,
        describe="ended",
    )
    assert "uncountedTerminatedPods" not in ended["status"] or not ended["status"]["uncountedTerminatedPods"]
    assert not any(pod["metadata"].get("finalizers") for pod in scenario.pods_of("ends"))


def test_a_failed_pod_is_replaced(control_plane: ControlPlane, scenario: Scenario) -> None:
    """The Job controller creates the pod of a queued Job again."""
    before = queued_job(scenario, "again", pods=1, backoffLimit=3)
    control_plane.end_pods(scenario.namespace, labels="batch.kubernetes.io/job-name=again", exit_code=1)
    wait_running(scenario, "again", count=1, without=before)


def test_an_evicted_pod_is_replaced(scenario: Scenario) -> None:
    """By the eviction API, as a drain does it."""
    (pod,) = queued_job(scenario, "drained", pods=1, backoffLimit=3)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    scenario.api.request("POST", path_of(pod, "eviction"), eviction)
    wait_running(scenario, "drained", count=1, without=[pod])


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_a_job_is_deleted_with_its_pods(scenario: Scenario, propagation: str) -> None:
    """The garbage collector deletes the pods."""
    queued_job(scenario, "goes")
    scenario.api.delete(job_path(scenario.namespace, "goes"), propagation=propagation)
    scenario.api.wait_gone(job_path(scenario.namespace, "goes"), timeout=TIMEOUT)
    wait_until(lambda: not scenario.pods_of("goes"), timeout=TIMEOUT, describe=lambda: "pods of the Job are there")


def test_a_job_is_deleted_without_its_pods(scenario: Scenario) -> None:
    """The garbage collector takes the Job off the pods, which can then be deleted."""
    pods = queued_job(scenario, "leaves")
    scenario.api.delete(job_path(scenario.namespace, "leaves"), propagation="Orphan")
    scenario.api.wait_gone(job_path(scenario.namespace, "leaves"), timeout=TIMEOUT)

    def orphans() -> list[Json]:
        return [pod for pod in running(scenario, "leaves") if not pod["metadata"].get("ownerReferences")]

    wait_until(lambda: len(orphans()) == len(pods), timeout=TIMEOUT, describe=lambda: f"{len(orphans())} are orphans")
    for pod in pods:
        scenario.api.delete(path_of(pod))
    wait_until(lambda: not scenario.pods_of("leaves"), timeout=TIMEOUT, describe=lambda: "orphans are there")


def test_a_node_tells_the_state_of_its_pods(control_plane: ControlPlane, scenario: Scenario) -> None:
    """The kubelet writes the status of a pod, as the user of its node."""
    (pod,) = queued_job(scenario, "told", pods=1)
    node = f"system:node:{pod['spec']['nodeName']}"
    binding = ("create", "rolebinding", "node", "--clusterrole=system:node", f"--user={node}")
    control_plane.kubectl(*binding, "-n", scenario.namespace)
    kubelet = control_plane.api_as(node, groups=["system:nodes"])
    written = {"type": "ContainersReady", "status": "False", "reason": "ByTest"}

    def told() -> bool:
        try:
            kubelet.patch(path_of(pod, "status"), {"status": {"conditions": [written]}}, kind="strategic")
        except ApiError as error:
            if "cannot patch" not in error.message:  # as long as the binding is not known
                raise
            return False
        return True

    wait_until(told, timeout=TIMEOUT, describe=lambda: f"{node} may not patch the status")
    assert condition(scenario.api.get(path_of(pod)), "ContainersReady")["reason"] == "ByTest"


def test_a_status_does_not_carry_labels(control_plane: ControlPlane, scenario: Scenario) -> None:
    """Whoever may write the status of pods may change their labels there too: not those that are counted by."""
    (pod,) = queued_job(scenario, "status", pods=1)
    control_plane.kubectl(
        "create", "role", "status", "--verb=patch", "--resource=pods/status", "-n", scenario.namespace
    )
    control_plane.kubectl("create", "rolebinding", "status", "--role=status", "--user=sam", "-n", scenario.namespace)
    sam = control_plane.api_as("sam")

    def refused() -> bool:
        try:
            sam.patch(path_of(pod, "status"), {"metadata": {"labels": {"kueue.x-k8s.io/podset": None}}})
        except ApiError as error:
            return "metadata.labels[kueue.x-k8s.io/podset]: Forbidden" in error.message
        return False

    wait_until(refused, timeout=TIMEOUT, describe=lambda: "not refused by the policy")


class TestADeployment:
    """Its ReplicaSets adopt and release pods."""

    def deployment(self, scenario: Scenario, *, replicas: int) -> str:
        """A Deployment with a queue, whose pods run; its path."""
        scenario.queue("team", {scenario.flavor("plain"): {"cpu": 8}})
        container = {"name": "web", "image": "registry.example/web:1", "resources": {"requests": {"cpu": "1"}}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        made = scenario.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web", "namespace": scenario.namespace, "labels": {QUEUE: "team"}},
                "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
            }
        )
        self.wait(scenario, replicas)
        return scenario.api.path_of(made)

    def pods(self, scenario: Scenario) -> list[Json]:
        """The pods of the Deployment that run."""
        path = resource_path("v1", "pods", namespace=scenario.namespace)
        return [pod for pod in scenario.api.items(path, labels="app=web") if pod["status"].get("phase") == "Running"]

    def wait(self, scenario: Scenario, count: int) -> None:
        """Until so many pods run."""
        wait_until(
            lambda: len(self.pods(scenario)) == count,
            timeout=TIMEOUT,
            describe=lambda: f"{len(self.pods(scenario))} pods run, not {count}",
        )

    def test_is_scaled(self, scenario: Scenario) -> None:
        """Up and down."""
        path = self.deployment(scenario, replicas=1)
        for replicas in (3, 1):
            scenario.api.patch(path, {"spec": {"replicas": replicas}})
            self.wait(scenario, replicas)

    def test_lets_go_of_a_pod_and_takes_it_back(self, scenario: Scenario) -> None:
        """A pod without the label of the selector is released, and adopted again with it."""
        self.deployment(scenario, replicas=1)
        (pod,) = self.pods(scenario)

        def controlled() -> bool:
            return bool(scenario.api.get(path_of(pod))["metadata"].get("ownerReferences"))

        scenario.api.patch(path_of(pod), {"metadata": {"labels": {"app": "debug"}}})
        wait_until(lambda: not controlled(), timeout=TIMEOUT, describe=lambda: "the pod is not released")
        scenario.api.patch(path_of(pod), {"metadata": {"labels": {"app": "web"}}})
        wait_until(
            lambda: scenario.api.find(path_of(pod)) is None or controlled(),
            timeout=TIMEOUT,
            describe=lambda: "the pod is neither adopted nor deleted",
        )
