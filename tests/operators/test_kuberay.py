"""The real KubeRay operator does on the bed what it does on a cluster, as far as no Ray process has to answer; nothing
of ours runs in these namespaces."""

from typing import Any

import pytest

from testbed import Api, resource_path
from testbed.client import Json, wait_until
from tests.operators.pods import wait_no_pods, wait_running

pytestmark = pytest.mark.operator("kuberay")

NODE_TYPE_LABEL = "ray.io/node-type"


def group(name: str, **more: Any) -> Json:
    """A group's template, of pods of one cpu."""
    container = {"name": name, "image": "registry.example/ray:1", "resources": {"requests": {"cpu": "1"}}}
    return {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}, **more}


CLUSTER: Json = {
    "rayVersion": "2.52.0",
    "headGroupSpec": group("ray-head"),
    "workerGroupSpecs": [group("ray-worker", groupName="workers", replicas=2, minReplicas=0, maxReplicas=2)],
}


def test_a_raycluster_runs_is_suspended_and_resumed(api: Api, namespace: str) -> None:
    """Its head and workers run and it is ready; suspended, its pods go; resumed, they run again."""
    metadata = {"name": "ray", "namespace": namespace}
    made = api.create({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": CLUSTER})
    path = api.path_of(made)
    wait_running(api, namespace, {"head": 1, "worker": 2}, by=NODE_TYPE_LABEL)
    api.wait_for(path, lambda ray: ray["status"].get("state") == "ready", timeout=30)
    api.patch(path, {"spec": {"suspend": True}})
    wait_no_pods(api, namespace)
    api.wait_for(path, lambda ray: ray["status"].get("state") == "suspended", timeout=30)
    api.patch(path, {"spec": {"suspend": False}})
    wait_running(api, namespace, {"head": 1, "worker": 2}, by=NODE_TYPE_LABEL)


def test_a_suspended_rayjob_makes_no_raycluster_until_it_is_resumed(api: Api, namespace: str) -> None:
    """It says Suspended; resumed, the pods of its RayCluster run."""
    spec = {
        "entrypoint": "python train.py",
        "suspend": True,
        "shutdownAfterJobFinishes": True,  # the operator suspends no RayJob without
        "rayClusterSpec": CLUSTER,
    }
    metadata = {"name": "train", "namespace": namespace}
    made = api.create({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": spec})
    path = api.path_of(made)
    api.wait_for(path, lambda job: job.get("status", {}).get("jobDeploymentStatus") == "Suspended", timeout=30)
    clusters = resource_path("ray.io/v1", "rayclusters", namespace=namespace)
    assert api.items(clusters) == []
    api.patch(path, {"spec": {"suspend": False}})
    wait_until(lambda: api.items(clusters), timeout=30, describe=lambda: "no RayCluster")
    wait_running(api, namespace, {"head": 1, "worker": 2}, by=NODE_TYPE_LABEL)
