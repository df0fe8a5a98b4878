"""The kinds of Ray."""

from collections.abc import Callable
from typing import Any, Final

from tests.unit.jobs.samples.sample import NAMED_TEMPLATE, POD_TEMPLATE, Moment, Sample, moments, true

Json = dict[str, Any]


def _ray_pods(cluster: Json) -> int:
    """A head and its workers: at least `minReplicas`, with autoscaling up to `maxReplicas`, each of several hosts."""
    pods = 1
    for group in cluster.get("workerGroupSpecs", []):
        replicas = max(group.get("replicas", 0), group.get("minReplicas", 0))
        if cluster.get("enableInTreeAutoscaling"):
            replicas = max(replicas, group.get("maxReplicas", 0))
        pods += replicas * group.get("numOfHosts", 1)
    return pods


def _rayjob_pods(body: Json) -> int:
    spec = body["spec"]
    if spec.get("clusterSelector"):
        return 0
    return _ray_pods(spec["rayClusterSpec"]) + (spec.get("submissionMode") == "K8sJobMode")


_CLUSTER: Final = {
    "headGroupSpec": {"template": NAMED_TEMPLATE},
    "workerGroupSpecs": [{"groupName": "workers", "replicas": 2, "template": NAMED_TEMPLATE}],
}
_RAY_CLUSTER: Final = moments(
    _CLUSTER,
    ("nothing is written yet", {}, False),
    ("the head runs", {"desiredWorkerReplicas": 2, "readyWorkerReplicas": 0, **true("HeadPodReady")}, False),
    ("all pods run", {"state": "ready", "desiredWorkerReplicas": 2, "readyWorkerReplicas": 2}, True),
    ("it is suspended", {"state": "suspended", **true("RayClusterSuspended")}, False),
)
_RAY_JOB: Final = moments(
    {"rayClusterSpec": _CLUSTER, "entrypoint": "python x"},
    ("nothing is written yet", {}, False),
    ("its cluster begins", {"jobDeploymentStatus": "Initializing", "rayClusterStatus": {}}, False),
    ("the job is submitted", {"jobDeploymentStatus": "Running", "rayClusterStatus": {}}, True),
    ("it waits until a user submits the job", {"jobDeploymentStatus": "Waiting", "rayClusterStatus": {}}, True),
    ("the job runs", {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}}, True),
    ("it is suspended", {"jobDeploymentStatus": "Suspended", "rayClusterStatus": {}}, False),
    ("it begins again with a new cluster", {"jobDeploymentStatus": "Retrying"}, False),
)
_RAY_SERVICE: Final = moments(
    {"rayClusterConfig": _CLUSTER},
    ("nothing is written yet", {}, False),
    ("its cluster runs, and serves nothing yet", {"serviceStatus": "", **true(Ready="False")}, False),
    ("it serves", {"serviceStatus": "Running", **true("Ready")}, True),
)

_RICH: Final[Json] = {
    "enableInTreeAutoscaling": True,
    "autoscalerOptions": {"resources": {"requests": {"cpu": "1"}}},
    "gcsFaultToleranceOptions": {"redisAddress": "redis:6379"},
    "headGroupSpec": {"template": POD_TEMPLATE},
    "workerGroupSpecs": [
        {"groupName": "a", "replicas": 2, "maxReplicas": 4, "numOfHosts": 2, "template": POD_TEMPLATE}
    ],
}


def _sample(kind: str, spec: Json, pods: Callable[[Json], int], found: list[Moment], **gone: str) -> Sample:
    return Sample(
        framework=f"ray.io/{kind.lower()}",
        api_version="ray.io/v1",
        kind=kind,
        spec=spec,
        pods=pods,
        moments=found,
        gone=gone,
    )


SAMPLES: Final = (
    _sample("RayCluster", _RICH, lambda body: _ray_pods(body["spec"]), _RAY_CLUSTER, state="suspended"),
    _sample(
        "RayJob",
        {"rayClusterSpec": _RICH, "submissionMode": "K8sJobMode", "shutdownAfterJobFinishes": True},
        _rayjob_pods,
        _RAY_JOB,
    ),
    _sample(
        "RayService",
        {"rayClusterConfig": _RICH},
        lambda body: _ray_pods(body["spec"]["rayClusterConfig"]),
        _RAY_SERVICE,
    ),
)
