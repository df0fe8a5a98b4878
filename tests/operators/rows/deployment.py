"""Deployment: Kubernetes' own controllers run it, and each of its pods is queued by itself."""

from typing import Final

from testbed.client import Json, resource_path
from tests.cluster.scenario import QUEUE, Scenario
from tests.operators.rows.row import Attack, Row, gate_lifted, labelled, metadata, pod_spec

APPS: Final = "apps/v1"
APP: Final = "app"


def _deployment(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    labels = {APP: name}
    return {
        "apiVersion": APPS,
        "kind": "Deployment",
        "metadata": metadata(scenario, name, queue),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {**pod_spec(cpu), "restartPolicy": "Always"}},
        },
    }


def _path(scenario: Scenario, name: str) -> str:
    return resource_path(APPS, "deployments", name, namespace=scenario.namespace)


def _scaled(scenario: Scenario, name: str) -> None:
    scenario.api.patch(f"{_path(scenario, name)}/scale", {"spec": {"replicas": 9}})


def _replica_sets(scenario: Scenario, name: str) -> list[str]:
    """URL paths of the ReplicaSets of a Deployment."""
    path = resource_path(APPS, "replicasets", namespace=scenario.namespace)
    found = [each["metadata"] for each in scenario.api.items(path)]
    return [f"{path}/{meta['name']}" for meta in found if meta["labels"].get(APP) == name]


def _replica_set_scaled(scenario: Scenario, name: str) -> None:
    for path in _replica_sets(scenario, name):
        scenario.api.patch(f"{path}/scale", {"spec": {"replicas": 9}})


def _replica_set_out_of_the_queue(scenario: Scenario, name: str) -> None:
    """Its next pods would not be gated."""
    for path in _replica_sets(scenario, name):
        marks = {"labels": {QUEUE: None}, "annotations": {"kueue.x-k8s.io/pod-suspending-parent": None}}
        scenario.api.patch(path, {"spec": {"replicas": 9, "template": {"metadata": marks}}})


def _larger(scenario: Scenario, name: str) -> None:
    template = {"spec": {"containers": pod_spec("2")["containers"]}}
    scenario.api.patch(_path(scenario, name), {"spec": {"template": template}})


def _out_of_the_queue(scenario: Scenario, name: str) -> None:
    """The labels by which the webhook knows the pods are taken out of the Deployment's template."""
    keys = (QUEUE, "kueue.x-k8s.io/managed")
    template = {"metadata": {"labels": dict.fromkeys(keys), "annotations": None}}
    scenario.api.patch(_path(scenario, name), {"spec": {"replicas": 9, "template": template}})


ROWS = (
    Row(
        name="deployment",
        api_version=APPS,
        kind="Deployment",
        plural="deployments",
        framework="deployment",
        operators=(),
        make=_deployment,
        pods=2,
        select=labelled(APP),
        end=None,
        workloads=2,
        owner_kind="Pod",
        replaces_pods=True,
        queued_by_pod=True,
        attacks=(
            Attack("Scale a Deployment up.", _scaled, "charged"),
            Attack("Scale the ReplicaSet of a Deployment up.", _replica_set_scaled, "charged"),
            Attack(
                "Take the labels of the queue out of the ReplicaSet of a Deployment, and scale it.",
                _replica_set_out_of_the_queue,
                "refused",
            ),
            Attack("Raise the requests in the template of a Deployment that runs.", _larger, "charged"),
            Attack("Lift the gate of a Pod of a Deployment that waits.", gate_lifted(_deployment, APP), "refused"),
            Attack(
                "Take the labels of the queue out of the template of a Deployment and scale it up.",
                _out_of_the_queue,
                "charged",
            ),
        ),
    ),
)
