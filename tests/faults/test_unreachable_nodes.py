"""A node goes away for good while pods on it are deleted: those whose owner says that it is safe are ended."""

from collections.abc import Iterator

import pytest

from testbed import ControlPlane
from testbed.client import Json, resource_path, wait_until
from testbed.installation import MANAGED, Installation
from tests.cluster.scenario import Scenario, job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SAFE = "kueue.x-k8s.io/safe-to-forcefully-delete"


@pytest.fixture(scope="module")
def lonely() -> Iterator[ControlPlane]:
    """A cluster with Turnstile, the gate on, and one node, which is played until a test takes it away."""
    with ControlPlane() as cp:
        installation = Installation(cp, gates=("FailureRecoveryPolicy",))
        installation.install()
        installation.start()
        wait_until(installation.ready, timeout=60, describe=lambda: "Turnstile is not ready")
        cp.add_node("lost", cpu=8)
        yield cp


def test_the_pod_with_the_annotation_is_ended(lonely: ControlPlane) -> None:
    """A minute after its grace period, with an event. The other one is left alone, since it may still run."""
    scenario = Scenario(lonely.api, lonely.namespace("away", labels=MANAGED))
    queue = scenario.cluster_queue("shared", {scenario.flavor("plain"): {"cpu": 4}})
    scenario.local_queue("main", queue)
    names = {}
    for name, annotations in (("safe", {SAFE: "true"}), ("careful", {})):
        made = job(name, namespace=scenario.namespace, queue="main", template={"terminationGracePeriodSeconds": 1})
        made["spec"]["template"]["metadata"]["annotations"] |= annotations
        scenario.create(made)
        names[name] = wait_until(
            lambda name=name: running(scenario, name), timeout=60, describe=lambda name=name: f"{name} does not run"
        )

    lonely.kill("kwok")
    lonely.api.wait_for(
        resource_path("v1", "nodes", "lost"), is_unreachable, timeout=120, describe="tainted as unreachable"
    )
    for name in names:
        path = resource_path("batch/v1", "jobs", name, namespace=scenario.namespace)
        lonely.api.delete(path, propagation="Background")
    event = scenario.wait_event(names["safe"], reason="KueueForcefullyDeleted", timeout=120)
    assert event["note"].startswith("Pod forcefully terminated after 1m1s grace period due to unreachable node `lost`")
    (left,) = lonely.api.items(resource_path("v1", "pods", namespace=scenario.namespace))
    assert left["metadata"]["name"] == names["careful"]
    assert left["metadata"]["deletionTimestamp"]


def running(scenario: Scenario, name: str) -> str:
    """The name of the pod of a Job that runs; empty if none does."""
    found = (pod["metadata"]["name"] for pod in scenario.pods_of(name) if pod["status"].get("phase") == "Running")
    return next(found, "")


def is_unreachable(node: Json) -> bool:
    """Whether the node lifecycle controller has tainted a node because nothing is heard of it."""
    return any(each["key"] == "node.kubernetes.io/unreachable" for each in node["spec"].get("taints", ()))
