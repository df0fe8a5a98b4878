"""The real training operator does on the bed what it does on a cluster; nothing of ours runs in these namespaces."""

import pytest

from testbed import Api, ApiError, ControlPlane, resource_path
from testbed.client import Json, condition
from tests.operators.pods import wait_no_pods, wait_running

pytestmark = pytest.mark.operator("trainingoperator")

VERSION = "kubeflow.org/v1"
REPLICA_TYPE_LABEL = "training.kubeflow.org/replica-type"

KINDS = {
    "PyTorchJob": ("pytorchjobs", "pytorchReplicaSpecs", "pytorch", {"Master": 1, "Worker": 2}),
    "TFJob": ("tfjobs", "tfReplicaSpecs", "tensorflow", {"Chief": 1, "PS": 1, "Worker": 2}),
    "XGBoostJob": ("xgboostjobs", "xgbReplicaSpecs", "xgboost", {"Master": 1, "Worker": 2}),
    "PaddleJob": ("paddlejobs", "paddleReplicaSpecs", "paddle", {"Master": 1, "Worker": 2}),
    "JAXJob": ("jaxjobs", "jaxReplicaSpecs", "jax", {"Worker": 2}),
}
"""The plural, the field of the replica types, the name that the container must have, and pods by replica type."""


def training_job(kind: str, namespace: str) -> Json:
    """A job of the kind, with the pods of `KINDS`."""
    _, field, container_name, replicas = KINDS[kind]
    container = {"name": container_name, "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    specs = {
        name: {"replicas": count, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
        for name, count in replicas.items()
    }
    metadata = {"name": "train", "namespace": namespace}
    return {"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": {field: specs}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_runs_is_suspended_is_resumed_and_succeeds(
    control_plane: ControlPlane, api: Api, namespace: str, kind: str
) -> None:
    """All its pods run; suspended, they go; resumed, they run again; when they end it has Succeeded."""
    plural, _, _, replicas = KINDS[kind]
    pods = {name.lower(): count for name, count in replicas.items()}
    api.create(training_job(kind, namespace))
    path = resource_path(VERSION, plural, "train", namespace=namespace)
    wait_running(api, namespace, pods, by=REPLICA_TYPE_LABEL)
    api.patch(path, {"spec": {"runPolicy": {"suspend": True}}})
    wait_no_pods(api, namespace)
    api.wait_for(path, lambda job: condition(job, "Suspended").get("status") == "True", timeout=30)
    api.patch(path, {"spec": {"runPolicy": {"suspend": False}}})
    wait_running(api, namespace, pods, by=REPLICA_TYPE_LABEL)
    control_plane.end_pods(namespace, labels="training.kubeflow.org/job-name=train")
    api.wait_for(path, lambda job: condition(job, "Succeeded").get("status") == "True", timeout=30)


@pytest.mark.parametrize("kind", KINDS)
def test_its_webhooks_are_called(api: Api, namespace: str, kind: str) -> None:
    """A job of containers with another name than the operator looks for is refused by the operator's own code."""
    job = training_job(kind, namespace)
    (field,) = job["spec"]
    for spec in job["spec"][field].values():
        spec["template"]["spec"]["containers"][0]["name"] = "main"
    with pytest.raises(ApiError, match=rf"validator\.{kind.lower()}\.training-operator\.kubeflow\.org"):
        api.create(job)
