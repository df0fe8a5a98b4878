"""Steps of lifecycles: what a user does to jobs, and waits for what is visible in the cluster.

Each wait is patient enough for controllers that die in it. Must never judge how a lifecycle ends.
"""

from typing import Final

from testbed.client import Json, condition, resource_path, wait_until
from testbed.components import RUN_FOR
from tests.cluster.scenario import GROUP, QUEUE, Scenario, job_path
from tests.cluster.serving import phases

WAIT: Final = 120.0
"""Seconds for a step, at most: several controllers may have died in it, on a busy machine."""


def queue(scenario: Scenario, cpu: int = 2, **spec: object) -> str:
    """The queue `team` of so many CPUs; the name of its ClusterQueue."""
    return scenario.queue("team", {scenario.flavor("plain"): {"cpu": cpu}}, **spec)


def becomes(
    scenario: Scenario, name: str, kind: str, *, status: str = "True", reason: str = "", owner: str = "Job"
) -> Json:
    """Until the Workload of a job has a condition of that status, whose reason begins so."""

    def told(workload: Json) -> bool:
        found = condition(workload, kind)
        return found.get("status") == status and found["reason"].startswith(reason)

    return scenario.wait_workload(name, told, timeout=WAIT, kind=owner)


def waits(scenario: Scenario, name: str) -> None:
    """Until a Job waits for quota."""
    scenario.wait_pending(name, timeout=WAIT)


def started(scenario: Scenario, name: str) -> None:
    """Until a Job is resumed."""
    scenario.wait_started(name, timeout=WAIT)


def running(scenario: Scenario, count: int) -> None:
    """Until so many pods run."""
    path = resource_path("v1", "pods", namespace=scenario.namespace)
    seen: list[str] = []

    def look() -> bool:
        seen[:] = [each["status"].get("phase", "") for each in scenario.api.items(path)]
        return seen.count("Running") == count

    wait_until(look, timeout=WAIT, describe=lambda: f"pods are {seen}, not {count} Running")


def gone(scenario: Scenario, name: str) -> None:
    """Until a Job is gone, and the garbage collector has deleted its Workload."""
    scenario.api.wait_gone(job_path(scenario.namespace, name), timeout=WAIT)
    path = resource_path(GROUP, "workloads", namespace=scenario.namespace)
    wait_until(
        lambda: not [each for each in scenario.api.items(path) if each["metadata"]["name"].startswith(f"job-{name}-")],
        timeout=WAIT,
        describe=lambda: f"the Workload of {name} is left",
    )


def create_pod(scenario: Scenario, name: str, *, spec: Json | None = None, **annotations: str) -> None:
    """Create a Pod of one CPU; with annotations, as a member of the group `ring`."""
    group = {"kueue.x-k8s.io/pod-group-name": "ring"} if annotations else {}
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    scenario.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": scenario.namespace,
                "labels": {QUEUE: "team", **group},
                "annotations": annotations,
            },
            "spec": {"restartPolicy": "Never", "containers": [container], **(spec or {})},
        }
    )


def end_pod(scenario: Scenario, name: str) -> None:
    """Let a pod succeed."""
    path = resource_path("v1", "pods", name, namespace=scenario.namespace)
    scenario.api.patch(path, {"metadata": {"annotations": {RUN_FOR: "0s"}}})


def wait_phases(scenario: Scenario, name: str, expected: tuple[int, int]) -> None:
    """Until so many pods of a Deployment or a StatefulSet run, and so many are held."""
    wait_until(
        lambda: phases(scenario, name) == expected,
        timeout=WAIT,
        describe=lambda: f"running and held: {phases(scenario, name)}, not {expected}",
    )
