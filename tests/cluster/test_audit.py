"""The audit of the leader finds pods that run without quota, and reports each of them until it is gone."""

import pytest

from testbed.client import Json, resource_path, wait_until
from testbed.controlplane import ControlPlane
from testbed.errors import ApiError
from testbed.installation import MANAGED
from tests.cluster.scenario import QUEUE, Scenario
from tests.cluster.test_process_metrics import scraped
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

WORKLOAD = "kueue.x-k8s.io/workload"


def test_pods_behind_the_back_of_turnstile_are_reported(
    control_plane: ControlPlane, scenario: Scenario, turnstile: Turnstile
) -> None:
    """While Turnstile is stopped an administrator starts two pods in a namespace that is not managed for a moment: one
    that names no Workload, and one that names an admitted Workload. Once Turnstile runs, events and a metric name them;
    the figures return to 0 when the pods are gone."""
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
    scenario.job("train", queue="team", cpu="2")
    scenario.wait_admitted("train")
    workload = scenario.workload_of("train")["metadata"]["name"]
    wait_until(lambda: scenario.pods_of("train"), timeout=15, describe=lambda: "the Job has no pod")
    turnstile.stop()
    namespace = resource_path("v1", "namespaces", scenario.namespace)
    scenario.api.patch(namespace, {"metadata": {"labels": dict.fromkeys(MANAGED)}})
    for made in (
        pod("behind", scenario, labels={QUEUE: "team"}),
        pod("rider", scenario, annotations={WORKLOAD: workload}),
    ):
        # Until the API server has read that the namespace has changed, it calls the webhook, which nobody answers.
        wait_until(lambda: accepted(scenario, made), timeout=15, describe=lambda: "the webhook is called")  # noqa: B023
        scenario.create(made)
        scenario.api.wait_for(
            scenario.api.path_of(made), lambda seen: seen["spec"].get("nodeName"), timeout=15, describe="bound"
        )
    scenario.api.patch(namespace, {"metadata": {"labels": MANAGED}})
    try:
        turnstile.process = turnstile.installation.start(arguments=("--audit-interval", "0.5"))
        turnstile.installation.wait_ready(turnstile.process)
        not_admitted = scenario.wait_event("behind", reason="NotAdmitted", timeout=20)
        assert not_admitted["type"] == "Warning"
        assert "no admitted Workload is charged for it" in not_admitted["note"]
        more = scenario.wait_event(workload, reason="MoreThanAdmitted")
        assert f"pods of Workload {scenario.namespace}/{workload} request 3 CPUs" in more["note"]
        assert f"{scenario.namespace}/rider" in more["note"]
        wait_figures(turnstile, queue, {"NotAdmitted": 1, "MoreThanAdmitted": 1, "OverQuota": 1})
        for name in ("behind", "rider"):
            scenario.api.delete(resource_path("v1", "pods", name, namespace=scenario.namespace), grace_seconds=0)
        wait_figures(turnstile, queue, {})
    finally:
        turnstile.stop()
        turnstile.start()


def accepted(scenario: Scenario, made: Json) -> bool:
    """Whether the API server would take an object now."""
    try:
        scenario.api.create(made, dry_run=True)
    except ApiError:
        return False
    return True


def wait_figures(turnstile: Turnstile, queue: str, wanted: dict[str, int]) -> None:
    """Wait until the metric of findings has these figures for a ClusterQueue, and no others."""
    seen: dict[str, float] = {}

    def reached() -> bool:
        nonlocal seen
        found = {
            dict(labels)["finding"]: value
            for (name, labels), value in scraped(turnstile).items()
            if name == "turnstile_audit_findings" and dict(labels)["cluster_queue"] == queue
        }
        seen = {finding: value for finding, value in found.items() if value}
        return seen == wanted

    wait_until(reached, timeout=15, describe=lambda: f"findings of {queue} are {seen}, not {wanted}")


def pod(name: str, scenario: Scenario, **metadata: Json) -> Json:
    """A pod of 1 CPU."""
    resources = {"requests": {"cpu": "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": scenario.namespace, **metadata},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "registry.example/main:1", "resources": resources}],
        },
    }
