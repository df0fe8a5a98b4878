"""Words about Ray's kinds: to make them, and to ask about their pods."""

from typing import Any

from testbed.client import Json, resource_path
from tests.cluster.scenario import Scenario

VERSION = "ray.io/v1"
CLUSTER_LABEL = "ray.io/cluster"
ORIGIN_LABEL = "ray.io/originated-from-cr-name"


def group(name: str, cpu: str, **more: Any) -> Json:
    """The template of a group, of pods that run until they are deleted or ended."""
    container = {"name": name, "image": "registry.example/ray:1", "resources": {"requests": {"cpu": cpu}}}
    return {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}, **more}


def workers(name: str, cpu: str, replicas: int, **more: Any) -> Json:
    """A worker group that does not scale itself."""
    return group("ray-worker", cpu, groupName=name, replicas=replicas, minReplicas=0, maxReplicas=replicas, **more)


def cluster_spec(cpu: str) -> Json:
    """A head and two workers."""
    return {
        "rayVersion": "2.52.0",
        "headGroupSpec": group("ray-head", cpu),
        "workerGroupSpecs": [workers("workers", cpu, 2)],
    }


def ray_path(scenario: Scenario, plural: str, name: str) -> str:
    """URL path of an object of Ray's."""
    return resource_path(VERSION, plural, name, namespace=scenario.namespace)


def clusters_of(scenario: Scenario, name: str) -> list[Json]:
    """The RayClusters of a RayJob or RayService."""
    path = resource_path(VERSION, "rayclusters", namespace=scenario.namespace)
    return scenario.api.items(path, labels=f"{ORIGIN_LABEL}={name}")


def of_cluster_from(pod: Json, name: str) -> bool:
    """Whether a pod is of a RayCluster of the RayJob or RayService: KubeRay names it after its owner, and pods do not
    say whose it is."""
    cluster = str(pod["metadata"].get("labels", {}).get(CLUSTER_LABEL, ""))
    return cluster.rpartition("-")[0] == name
