"""A Workload says why kube-scheduler finds no node for its pods, in the words of kube-scheduler."""

from collections.abc import Callable

import pytest

from testbed.client import condition, resource_path
from tests.cluster.scenario import Scenario

pytestmark = pytest.mark.cluster


def test_an_admitted_workload_says_that_its_pods_have_no_node(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """Until there is such a node; a queued pod by itself says so as a Job does. `waitForPodsReady` is not needed."""
    pool = {"pool": scenario.named("pool")}
    scenario.queue("team", {scenario.flavor("pool", labels=pool): {"cpu": 4}})
    scenario.job("train", queue="team", pods=2)
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    meta = {"name": "alone", "namespace": scenario.namespace, "labels": labels}
    scenario.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}})
    for name, kind, count in (("train", "Job", 2), ("alone", "Pod", 1)):
        found = scenario.wait_workload(name, lambda w: condition(w, "PodsScheduled"), timeout=30, kind=kind)
        told = condition(found, "PodsScheduled")
        assert (told["status"], told["reason"]) == ("False", "WaitForScheduling")
        path = resource_path("v1", "pods", "alone", namespace=scenario.namespace)
        pod = scenario.pods_of(name)[0] if kind == "Job" else scenario.api.get(path)
        said = condition(pod, "PodScheduled")["message"]
        assert "nodes are available" in said
        assert told["message"] == f"{count} pod(s) cannot be scheduled: {said}"
    add_node(scenario.named("node"), labels=pool, cpu=8, memory="16Gi")
    for name, kind in (("train", "Job"), ("alone", "Pod")):
        scenario.wait_workload(name, lambda w: not condition(w, "PodsScheduled"), timeout=30, kind=kind)
