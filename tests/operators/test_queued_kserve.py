"""What only InferenceServices do, under KServe: an autoscaler that scales them, a predictor that spans nodes.

Each pod is charged for, whatever asks for it."""

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from tests.cluster.scenario import GROUP, QUEUE, Scenario

pytestmark = [pytest.mark.operator("kserve"), pytest.mark.usefixtures("nodes")]

KSERVE = "serving.kserve.io/v1beta1"
CONTAINER = {"image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}


def queued(scenario: Scenario, *, predictor: Json, autoscaler: str) -> None:
    """Create an InferenceService `model` in a queue of two CPUs."""
    flavor = scenario.flavor("plain")
    scenario.queue("main", {flavor: {"cpu": 2, "memory": "1Ti", "nvidia.com/gpu": 8}})
    meta = {
        "name": "model",
        "namespace": scenario.namespace,
        "labels": {QUEUE: "main"},
        "annotations": {"serving.kserve.io/autoscalerClass": autoscaler},
    }
    scenario.create(
        {"apiVersion": KSERVE, "kind": "InferenceService", "metadata": meta, "spec": {"predictor": predictor}}
    )


def reserving(scenario: Scenario) -> list[bool]:
    """For each unfinished Workload whether it has quota."""
    found = scenario.api.items(resource_path(GROUP, "workloads", namespace=scenario.namespace))
    live = [each for each in found if condition(each, "Finished").get("status") != "True"]
    return sorted(condition(each, "QuotaReserved").get("status") == "True" for each in live)


def wait_reserving(scenario: Scenario, wanted: list[bool]) -> None:
    """Until just so many Workloads are there, with and without quota."""
    wait_until(
        lambda: reserving(scenario) == wanted, timeout=40, describe=lambda: f"{reserving(scenario)}, not {wanted}"
    )


def gates(scenario: Scenario) -> list[bool]:
    """For each pod whether it is gated."""
    pods = scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace))
    return sorted(bool(each["spec"].get("schedulingGates")) for each in pods)


def test_what_an_autoscaler_asks_for_waits_for_quota(scenario: Scenario) -> None:
    """KServe makes a HorizontalPodAutoscaler and leaves the replicas to it; the pods beyond the quota stay gated."""
    predictor = {"minReplicas": 1, "maxReplicas": 5, "containers": [{"name": "main", **CONTAINER}]}
    queued(scenario, predictor=predictor, autoscaler="hpa")
    wait_reserving(scenario, [True])
    autoscalers = resource_path("autoscaling/v2", "horizontalpodautoscalers", namespace=scenario.namespace)
    (autoscaler,) = scenario.api.items(autoscalers)
    deployment = resource_path("apps/v1", "deployments", "model-predictor", namespace=scenario.namespace)
    assert autoscaler["spec"]["scaleTargetRef"]["name"] == "model-predictor"
    scenario.api.patch(f"{deployment}/scale", {"spec": {"replicas": 5}})  # as the autoscaler does
    wait_reserving(scenario, [False, False, False, True, True])
    assert gates(scenario) == [False, False, True, True, True]
    scenario.api.patch(f"{deployment}/scale", {"spec": {"replicas": 1}})
    wait_reserving(scenario, [True])


def test_the_workers_of_a_predictor_that_spans_nodes_are_charged_for(scenario: Scenario) -> None:
    """Head and workers are pods of two Deployments; each is queued by itself, and one that has no quota is gated."""
    runtime = {
        "supportedModelFormats": [{"name": "huggingface", "version": "1", "autoSelect": True}],
        "containers": [{"name": "kserve-container", **CONTAINER}],
        "workerSpec": {"pipelineParallelSize": 3, "containers": [{"name": "worker-container", **CONTAINER}]},
    }
    scenario.create(
        {
            "apiVersion": "serving.kserve.io/v1alpha1",
            "kind": "ServingRuntime",
            "metadata": {"name": "spread", "namespace": scenario.namespace},
            "spec": runtime,
        }
    )
    model = {"modelFormat": {"name": "huggingface"}, "runtime": "spread", "storageUri": "pvc://models/model"}
    queued(scenario, predictor={"model": model, "workerSpec": {}}, autoscaler="none")
    wait_reserving(scenario, [False, True, True])
    wait_until(
        lambda: gates(scenario) == [False, False, True], timeout=20, describe=lambda: f"gated are {gates(scenario)}"
    )
