"""Lifecycles of jobs whose pods do not get ready, or are ready no more, under `waitForPodsReady`."""

from typing import Final

from testbed.client import Json, condition, resource_path, wait_until
from tests.cluster.scenario import GROUP, Scenario
from tests.cluster.serving import stateful_set, template
from tests.faults.steps import WAIT, becomes, create_pod, queue, running, wait_phases

NOWHERE: Final[Json] = {"nodeSelector": {"no": "such-node"}}
"""Of a pod: there is no node for it."""


def pods_not_ready(scenario: Scenario) -> None:
    """A Job without a node is stopped, waits, is tried again, and deactivated."""
    queue(scenario)
    scenario.job("stuck", queue="team", template=NOWHERE)
    becomes(scenario, "stuck", "Evicted", reason="DeactivatedDueToRequeuingLimitExceeded")


def pods_lost(scenario: Scenario) -> None:
    """The pod of a Job is ready no more; the Job is stopped, waits, and runs again with another pod."""
    queue(scenario)
    scenario.job("loses", queue="team")
    becomes(scenario, "loses", "PodsReady", reason="Started")
    pod = _set_ready(scenario, "loses", "False")
    becomes(scenario, "loses", "Requeued", reason="BackoffFinished")
    scenario.api.wait_gone(pod, timeout=WAIT)
    becomes(scenario, "loses", "PodsReady", reason="Started")
    running(scenario, 1)


def pods_recovered(scenario: Scenario) -> None:
    """The pod of a Job is ready no more, and ready again in time."""
    queue(scenario)
    scenario.job("wavers", queue="team")
    becomes(scenario, "wavers", "PodsReady", reason="Started")
    _set_ready(scenario, "wavers", "False")
    becomes(scenario, "wavers", "PodsReady", reason="WaitForRecovery", status="False")
    _set_ready(scenario, "wavers", "True")
    becomes(scenario, "wavers", "PodsReady", reason="Recovered")


def _set_ready(scenario: Scenario, name: str, status: str) -> str:
    """Let the condition Ready of the pod of a Job have that status, as its kubelet does; the URL path of the pod."""
    (pod,) = scenario.pods_of(name)
    path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=scenario.namespace)
    others = [each for each in pod["status"]["conditions"] if each["type"] != "Ready"]
    changed = {**condition(pod, "Ready"), "status": status}
    scenario.api.patch(f"{path}/status", {"status": {"conditions": [*others, changed]}})
    return path


def pod_not_ready(scenario: Scenario) -> None:
    """A Pod without a node is deleted."""
    queue(scenario)
    create_pod(scenario, "stuck", spec=NOWHERE)
    scenario.api.wait_gone(resource_path("v1", "pods", "stuck", namespace=scenario.namespace), timeout=WAIT)
    path = resource_path(GROUP, "workloads", namespace=scenario.namespace)
    wait_until(lambda: not scenario.api.items(path), timeout=WAIT, describe=lambda: "the Workload of the Pod is left")


def set_not_ready(scenario: Scenario) -> None:
    """The pods of a StatefulSet have no node: they are deleted, wait, are tried again, and are given up."""
    queue(scenario)
    stateful_set(scenario, "db", replicas=2, template=template("db", **NOWHERE))
    becomes(scenario, "db", "Evicted", reason="DeactivatedDueToRequeuingLimitExceeded", owner="StatefulSet")
    wait_phases(scenario, "db", (0, 1))  # the second one is created when the first one is ready
