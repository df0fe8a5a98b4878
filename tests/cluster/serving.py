"""Words about sets of serving pods: to make them, and to count their pods."""

from typing import Any

from testbed.client import Json, resource_path, wait_until
from tests.cluster.scenario import GROUP, QUEUE, Scenario

TIMEOUT = 30.0
PRIORITY = "kueue.x-k8s.io/priority-class"


def template(name: str, cpu: str = "1", **spec: Any) -> Json:
    """A pod template of one container."""
    container = {"name": "main", "image": "registry.example/web:1", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container], **spec}}


def stateful_set(
    scenario: Scenario,
    name: str,
    *,
    replicas: int,
    cpu: str = "1",
    queue: str | None = "team",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """A StatefulSet of pods of `cpu` each."""
    return scenario.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {
                "name": name,
                "namespace": scenario.namespace,
                "labels": {**({QUEUE: queue} if queue else {}), **(labels or {})},
                "annotations": annotations or {},
            },
            "spec": {
                "replicas": replicas,
                "serviceName": name,
                "selector": {"matchLabels": {"app": name}},
                "template": template(name, cpu),
                **spec,
            },
        }
    )


def path(scenario: Scenario, name: str, plural: str = "statefulsets", version: str = "apps/v1") -> str:
    """URL path of a set."""
    return resource_path(version, plural, name, namespace=scenario.namespace)


def pods(scenario: Scenario, name: str) -> list[Json]:
    """The pods of a set."""
    return scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace), labels=f"app={name}")


def phases(scenario: Scenario, name: str) -> tuple[int, int]:
    """How many pods run, and how many are held."""
    found = pods(scenario, name)
    running = sum(pod["status"].get("phase") == "Running" for pod in found)
    return running, sum(bool(pod["spec"].get("schedulingGates")) for pod in found)


def wait_phases(scenario: Scenario, name: str, *, running: int, held: int, timeout: float = TIMEOUT) -> None:
    """Until so many pods run and so many are held."""
    wait_until(
        lambda: phases(scenario, name) == (running, held),
        timeout=timeout,
        describe=lambda: f"running and held: {phases(scenario, name)}, not {(running, held)}",
    )


def workloads(scenario: Scenario) -> list[Json]:
    """All Workloads of the namespace."""
    return scenario.api.items(resource_path(GROUP, "workloads", namespace=scenario.namespace))


def wait_no_workload(scenario: Scenario) -> None:
    """Until no Workload is left; the garbage collector needs its time to learn of a young CRD."""
    wait_until(
        lambda: not workloads(scenario),
        timeout=60,
        describe=lambda: f"Workloads are left: {[each['metadata']['name'] for each in workloads(scenario)]}",
    )
