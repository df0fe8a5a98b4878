"""Ray's kinds, under KubeRay. No Ray process runs in the pods, so what its head would report is played."""

from collections.abc import Callable
from typing import Any

from testbed.client import Json, resource_path, wait_until
from testbed.components import STOP_FOR
from tests.cluster.scenario import Scenario
from tests.operators.rays import (
    CLUSTER_LABEL,
    VERSION,
    cluster_spec,
    clusters_of,
    group,
    of_cluster_from,
    ray_path,
    workers,
)
from tests.operators.rows.row import Attack, Row, end_pods, labelled, metadata, pod_spec

Act = Callable[[Scenario, str], None]

JOB_LABEL = "batch.kubernetes.io/job-name"


def _raycluster(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    return _made("RayCluster", metadata(scenario, name, queue), cluster_spec(cpu))


def _rayjob(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    spec = {
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "submissionMode": "K8sJobMode",
        "submitterPodTemplate": {"spec": pod_spec(cpu)},
        "rayClusterSpec": cluster_spec(cpu),
    }
    return _made("RayJob", metadata(scenario, name, queue), spec)


def _rayservice(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    return _made("RayService", metadata(scenario, name, queue), {"rayClusterConfig": cluster_spec(cpu)})


def _made(kind: str, meta: Json, spec: Json) -> Json:
    return {"apiVersion": VERSION, "kind": kind, "metadata": meta, "spec": spec}


def _of_rayjob(pod: Json, name: str) -> bool:
    return of_cluster_from(pod, name) or labelled(JOB_LABEL)(pod, name)


def _complete(scenario: Scenario, name: str) -> None:
    """The submitter's pod succeeds, and the head reports that the job has."""
    end_pods(labelled(JOB_LABEL))(scenario, name)
    status = {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "endTime": "2026-01-01T00:00:00Z"}
    path = f"{ray_path(scenario, 'rayjobs', name)}/status"
    scenario.api.patch(path, {"status": status})


def _written(job: Json) -> object:
    """The spec without what KubeRay adds to it, which is empty, and without whether it is suspended."""
    return _filled({**job["spec"], "suspend": None, "rayClusterConfig": {**_config(job), "suspend": None}})


def _config(job: Json) -> Json:
    found: Json = job["spec"].get("rayClusterConfig", {})
    return found


def _filled(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: part for key, each in value.items() if (part := _filled(each)) not in (None, {}, [])}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def _patch(plural: str, *operations: Json) -> Act:
    """A JSON Patch of the job; `~` in a path stands for the path of its RayCluster's spec."""
    at = {"rayclusters": "/spec", "rayjobs": "/spec/rayClusterSpec", "rayservices": "/spec/rayClusterConfig"}[plural]

    def act(scenario: Scenario, name: str) -> None:
        patch = [{**each, "path": at + each["path"]} for each in operations]
        scenario.api.patch(ray_path(scenario, plural, name), patch, kind="json")

    return act


def _set(path: str, value: Any, op: str = "add") -> Json:
    return {"op": op, "path": path, "value": value}


FIRST = "/workerGroupSpecs/0"
AUTOSCALING = (_set("/enableInTreeAutoscaling", True), _set(f"{FIRST}/maxReplicas", 9), _set(f"{FIRST}/minReplicas", 9))
GROWTH: dict[str, tuple[Json, ...]] = {
    "Raise the replicas of a worker group of a {} that runs.": (
        _set(f"{FIRST}/maxReplicas", 9),
        _set(f"{FIRST}/replicas", 9),
    ),
    "Raise minReplicas of a {} that runs, to which KubeRay raises the replicas.": (
        _set(f"{FIRST}/maxReplicas", 9),
        _set(f"{FIRST}/minReplicas", 9),
    ),
    "Give each replica of a worker group of a {} that runs several hosts.": (_set(f"{FIRST}/numOfHosts", 4),),
    "Add a worker group to a {} that runs.": (_set("/workerGroupSpecs/-", workers("more", "1", 9)),),
    "Let a {} that runs scale itself.": AUTOSCALING,
    "Raise the requests of the head of a {} that runs.": (
        _set("/headGroupSpec/template", group("ray-head", "9")["template"]),
    ),
    "Take the nodes of the flavor from the templates of a {} that runs, and ask for more workers.": (
        _set(f"{FIRST}/template", group("ray-worker", "1")["template"]),
        _set(f"{FIRST}/maxReplicas", 9),
        _set(f"{FIRST}/replicas", 9),
    ),
}


def _growth(kind: str, plural: str) -> tuple[Attack, ...]:
    return tuple(
        Attack(sentence.format(kind), _patch(plural, *patch), "refused" if patch is AUTOSCALING else "stopped")
        for sentence, patch in GROWTH.items()
    )


def _child(scenario: Scenario, name: str) -> None:
    """Raise the replicas of the RayCluster itself."""
    for each in clusters_of(scenario, name):
        patch = [_set(f"/spec{FIRST}/maxReplicas", 9), _set(f"/spec{FIRST}/replicas", 9)]
        scenario.api.patch(ray_path(scenario, "rayclusters", each["metadata"]["name"]), patch, kind="json")


def _adopted(owner: str, plural: str) -> Act:
    """Create a RayCluster whose owner is an admitted job, with the labels and templates of its RayCluster."""

    def act(scenario: Scenario, name: str) -> None:
        found = scenario.api.get(ray_path(scenario, plural, name))
        (child,) = clusters_of(scenario, name)
        reference = {
            "apiVersion": VERSION,
            "kind": owner,
            "name": name,
            "uid": found["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        meta = {
            "name": f"{name}-forged",
            "namespace": scenario.namespace,
            "ownerReferences": [reference],
            "labels": child["metadata"]["labels"],
        }
        scenario.api.create(_made("RayCluster", meta, child["spec"]))

    return act


def _resume_waiting(scenario: Scenario, name: str) -> None:
    """Create a second RayCluster, which waits, and resume it."""
    scenario.api.create(_raycluster(scenario, "waiting", "main", "1"))
    scenario.api.patch(ray_path(scenario, "rayclusters", "waiting"), {"spec": {"suspend": False}})


def _older_version(scenario: Scenario, name: str) -> None:
    """Create a second RayCluster, which waits, in a version that KubeRay's CRD serves beside the one that is read."""
    scenario.api.create({**_raycluster(scenario, "older", "main", "1"), "apiVersion": "ray.io/v1alpha1"})


def _retry(scenario: Scenario, name: str) -> None:
    """Have the RayJob retried, while the pods of its first RayCluster take their time to stop."""
    job = ray_path(scenario, "rayjobs", name)
    scenario.api.patch(job, {"spec": {"backoffLimit": 5}})
    pods = resource_path("v1", "pods", namespace=scenario.namespace)
    for pod in scenario.api.items(pods):
        path = f"{pods}/{pod['metadata']['name']}"
        scenario.api.patch(path, {"metadata": {"annotations": {STOP_FOR: "5s"}}})
    (first,) = clusters_of(scenario, name)
    scenario.api.patch(f"{job}/status", {"status": {"jobDeploymentStatus": "Retrying"}})
    wait_until(
        lambda: any(each["metadata"]["uid"] != first["metadata"]["uid"] for each in clusters_of(scenario, name)),
        timeout=40,
        describe=lambda: "no second RayCluster",
    )


ROWS = (
    Row(
        name="raycluster",
        api_version=VERSION,
        kind="RayCluster",
        plural="rayclusters",
        framework="ray.io/raycluster",
        operators=("kuberay",),
        make=_raycluster,
        pods=3,
        select=labelled(CLUSTER_LABEL),
        end=None,
        attacks=(
            *_growth("RayCluster", "rayclusters"),
            Attack("Resume a RayCluster that waits.", _resume_waiting, "refused"),
            Attack("Create a RayCluster in the older version of its CRD, v1alpha1.", _older_version, "charged"),
        ),
    ),
    Row(
        name="rayjob",
        api_version=VERSION,
        kind="RayJob",
        plural="rayjobs",
        framework="ray.io/rayjob",
        operators=("kuberay",),
        make=_rayjob,
        pods=4,
        select=_of_rayjob,
        end=_complete,
        written=_written,
        stand_in="No Ray runs: the status says that the job has succeeded, which KubeRay reads from the head.",
        attacks=(
            *_growth("RayJob", "rayjobs"),
            Attack("Raise the replicas of a RayJob's RayCluster itself.", _child, "refused"),
            Attack(
                "Create a RayCluster that names an admitted RayJob as its owner.",
                _adopted("RayJob", "rayjobs"),
                "stopped",
            ),
            Attack("Let a RayJob be retried whose pods stop slowly.", _retry, "charged"),
        ),
    ),
    Row(
        name="rayservice",
        api_version=VERSION,
        kind="RayService",
        plural="rayservices",
        framework="ray.io/rayservice",
        operators=("kuberay",),
        make=_rayservice,
        pods=3,
        select=of_cluster_from,
        end=None,
        written=_written,
        stand_in="No Ray runs, so no application is served.",
        says_ready=False,
        attacks=(
            *_growth("RayService", "rayservices"),
            Attack(
                "Change the image of a RayService that runs, for which KubeRay would make a second RayCluster.",
                _patch(
                    "rayservices", _set("/headGroupSpec/template/spec/containers/0/image", "registry.example/ray:2")
                ),
                "stopped",
            ),
            Attack("Raise the replicas of a RayService's RayCluster itself.", _child, "refused"),
            Attack(
                "Create a RayCluster that names an admitted RayService as its owner.",
                _adopted("RayService", "rayservices"),
                "stopped",
            ),
        ),
    ),
)
