"""Whether the pods of a job are ready (`waitForPodsReady`), for every kind, by what its real controller writes.

Each status here is what the kind's controller writes at that moment, by its source. A table knows nothing of how an
integration reads it.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import pytest

from tests.unit.jobs.subjects import CONFIGURED, REGISTRY, Json, decode
from turnstile.api.core import Pod
from turnstile.jobs.bases.serving import ServingSet
from turnstile.jobs.kinds.pod.group import PodGroups

NOW: Final = datetime(2026, 1, 1, tzinfo=UTC)
TEMPLATE: Final[dict[str, Json]] = {"spec": {"containers": [{"name": "main", "image": "i"}]}}


class Moment(NamedTuple):
    """A job at one moment, in words, and whether its pods are ready then."""

    words: str
    spec: Json
    status: Json
    ready: bool


def moments(spec: Json, *found: tuple[str, Json, bool]) -> list[Moment]:
    """Several moments of one job."""
    return [Moment(words, spec, status, ready) for words, status, ready in found]


def true(*types: str, **reasons: str) -> Json:
    """A status with these conditions."""
    given = {**dict.fromkeys(types, "True"), **reasons}
    return {"conditions": [{"type": each, "status": status} for each, status in given.items()]}


# ------------------------------------------------------------------------------------------------------- batch Job

_INDEXED: Final = {"completionMode": "Indexed", "parallelism": 3, "completions": 3, "template": TEMPLATE}
JOB: Final = [
    *moments(
        {"parallelism": 3, "completions": 9, "template": TEMPLATE},
        ("nothing is written yet", {}, False),
        ("two of three pods are ready", {"active": 3, "ready": 2}, False),
        ("all pods are ready", {"active": 3, "ready": 3}, True),
        ("one has succeeded, and the next one begins", {"active": 3, "ready": 2, "succeeded": 1}, True),
        ("one was lost before any succeeded", {"active": 3, "ready": 2, "failed": 1}, False),
    ),
    *moments(
        {"parallelism": 5, "completions": 2, "template": TEMPLATE},
        ("no more pods than completions are made", {"active": 2, "ready": 2}, True),
    ),
    *moments(
        _INDEXED,
        ("an index has failed and is made again", {"active": 3, "ready": 2, "failed": 1}, False),
        ("an index has failed for good", {"active": 2, "ready": 2, "failed": 1, "failedIndexes": "1"}, True),
        ("one failed for good, one is not ready", {"active": 2, "ready": 1, "failed": 1, "failedIndexes": "1"}, False),
        (
            "a pod has succeeded that is not counted yet",
            {"ready": 2, "uncountedTerminatedPods": {"succeeded": ["u"]}},
            True,
        ),
    ),
]

# ---------------------------------------------------------------------------------------------------------- JobSet


def _replicated(name: str, replicas: int, **more: Any) -> Json:
    return {"name": name, "replicas": replicas, "template": {"spec": {"template": TEMPLATE}}, **more}


def _counted(**jobs: Json) -> Json:
    return {"replicatedJobsStatus": [{"name": name, **counts} for name, counts in jobs.items()]}


_STAGES: Final = {
    "replicatedJobs": [
        _replicated("prepare", 1),
        _replicated("train", 2, dependsOn=[{"name": "prepare", "status": "Complete"}]),
        _replicated("judge", 1, dependsOn=[{"name": "train", "status": "Complete"}]),
    ]
}
_LEADER_FIRST: Final = {
    "replicatedJobs": [
        _replicated("leader", 1),
        _replicated("workers", 2, dependsOn=[{"name": "leader", "status": "Ready"}]),
    ]
}
JOB_SET: Final = [
    *moments(
        {"replicatedJobs": [_replicated("leader", 1), _replicated("workers", 2)]},
        ("nothing is written yet", {}, False),
        ("one of two workers is ready", _counted(leader={"ready": 1}, workers={"ready": 1, "active": 2}), False),
        ("all are ready", _counted(leader={"ready": 1}, workers={"ready": 2}), True),
        ("a worker has succeeded", _counted(leader={"ready": 1}, workers={"ready": 1, "succeeded": 1}), True),
        ("the leader has failed", _counted(leader={"failed": 1}, workers={"ready": 2}), False),
    ),
    *moments(
        _STAGES,
        ("the first stage begins", _counted(prepare={"active": 1}, train={}, judge={}), False),
        ("the first stage runs, the others have no pods", _counted(prepare={"ready": 1}, train={}, judge={}), True),
        (
            "the second stage begins",
            _counted(prepare={"succeeded": 1}, train={"active": 2, "ready": 1}, judge={}),
            False,
        ),
        ("the second stage runs", _counted(prepare={"succeeded": 1}, train={"ready": 2}, judge={}), True),
        (
            "a pod of it has succeeded",
            _counted(prepare={"succeeded": 1}, train={"ready": 1, "succeeded": 1}, judge={}),
            True,
        ),
        (
            "the last stage begins",
            _counted(prepare={"succeeded": 1}, train={"succeeded": 2}, judge={"active": 1}),
            False,
        ),
        ("the last stage runs", _counted(prepare={"succeeded": 1}, train={"succeeded": 2}, judge={"ready": 1}), True),
    ),
    *moments(
        _LEADER_FIRST,
        ("only the leader is ready: workers are made next", _counted(leader={"ready": 1}, workers={}), False),
        ("all are ready", _counted(leader={"ready": 1}, workers={"ready": 2}), True),
    ),
]

# -------------------------------------------------------------------------------------------------------- Kubeflow


def _replicas(field: str, **counts: int) -> Json:
    return {field: {name: {"replicas": count, "template": TEMPLATE} for name, count in counts.items()}}


def _running(**counts: Json) -> Json:
    return {**true("Created", "Running"), "replicaStatuses": counts}


def _training(field: str, first: str, rest: str) -> list[Moment]:
    return moments(
        _replicas(field, **{first: 1, rest: 2}),
        ("nothing is written yet", {}, False),
        ("the pods are created", {**true("Created"), "replicaStatuses": {first: {}, rest: {}}}, False),
        ("the first pod runs, the workers have no nodes", _running(**{first: {"active": 1}, rest: {}}), False),
        ("one of two workers runs", _running(**{first: {"active": 1}, rest: {"active": 1}}), False),
        ("all run", _running(**{first: {"active": 1}, rest: {"active": 2}}), True),
        ("a worker has succeeded", _running(**{first: {"active": 1}, rest: {"active": 1, "succeeded": 1}}), True),
        ("a worker has failed", _running(**{first: {"active": 1}, rest: {"active": 1, "failed": 1}}), False),
        (
            "it is suspended",
            {**true(Running="False", Suspended="True"), "replicaStatuses": {first: {}, rest: {}}},
            False,
        ),
    )


PYTORCH: Final = [
    *_training("pytorchReplicaSpecs", "Master", "Worker"),
    *moments(
        {**_replicas("pytorchReplicaSpecs", Worker=4), "elasticPolicy": {"minReplicas": 2, "maxReplicas": 6}},
        ("an elastic job has fewer workers than it needs", _running(Worker={"active": 1}), False),
        ("an elastic job has as many as it needs", _running(Worker={"active": 2}), True),
    ),
    *moments(
        _replicas("pytorchReplicaSpecs", worker=1),
        ("the operator writes a type in its own case", _running(Worker={"active": 1}), True),
    ),
]
JAX: Final = moments(
    _replicas("jaxReplicaSpecs", Worker=2),
    ("nothing is written yet", {}, False),
    ("one of two runs", _running(Worker={"active": 1}), False),
    ("all run", _running(Worker={"active": 2}), True),
)

# ------------------------------------------------------------------------------------------------------------- Ray

_CLUSTER: Final = {
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": [{"groupName": "workers", "replicas": 2, "template": TEMPLATE}],
}
RAY_CLUSTER: Final = moments(
    _CLUSTER,
    ("nothing is written yet", {}, False),
    ("the head runs", {"desiredWorkerReplicas": 2, "readyWorkerReplicas": 0, **true("HeadPodReady")}, False),
    ("all pods run", {"state": "ready", "desiredWorkerReplicas": 2, "readyWorkerReplicas": 2}, True),
    ("it is suspended", {"state": "suspended", **true("RayClusterSuspended")}, False),
)
RAY_JOB: Final = moments(
    {"rayClusterSpec": _CLUSTER, "entrypoint": "python x"},
    ("nothing is written yet", {}, False),
    ("its cluster begins", {"jobDeploymentStatus": "Initializing", "rayClusterStatus": {}}, False),
    ("the job is submitted", {"jobDeploymentStatus": "Running", "rayClusterStatus": {}}, True),
    ("it waits until a user submits the job", {"jobDeploymentStatus": "Waiting", "rayClusterStatus": {}}, True),
    ("the job runs", {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}}, True),
    ("it is suspended", {"jobDeploymentStatus": "Suspended", "rayClusterStatus": {}}, False),
    ("it begins again with a new cluster", {"jobDeploymentStatus": "Retrying"}, False),
)
RAY_SERVICE: Final = moments(
    {"rayClusterConfig": _CLUSTER},
    ("nothing is written yet", {}, False),
    ("its cluster runs, and serves nothing yet", {"serviceStatus": "", **true(Ready="False")}, False),
    ("it serves", {"serviceStatus": "Running", **true("Ready")}, True),
)

# ---------------------------------------------------------------------------------------------------------- others

SPARK: Final = moments(
    {"driver": {}, "executor": {"instances": 2}},
    ("nothing is written yet", {}, False),
    ("the driver is submitted", {"applicationState": {"state": "SUBMITTED"}}, False),
    ("the driver runs", {"applicationState": {"state": "RUNNING"}, "executorState": {}}, False),
    (
        "one of two executors runs",
        {"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING", "b": "PENDING"}},
        False,
    ),
    (
        "all run, or have ended",
        {"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING", "b": "COMPLETED"}},
        True,
    ),
    (
        "an executor has failed",
        {"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING", "b": "FAILED"}},
        False,
    ),
)
APP_WRAPPER: Final = moments(
    {"components": []},
    ("nothing is written yet", {}, False),
    ("its components are deployed", {"phase": "Running", **true("QuotaReserved", "ResourcesDeployed")}, False),
    ("its pods run or have succeeded", {"phase": "Running", **true("ResourcesDeployed", "PodsReady")}, True),
    ("it is reset", {"phase": "Resetting", **true("ResourcesDeployed", PodsReady="False")}, False),
)
PIPELINE: Final = moments(
    {},
    ("it is pending", {}, False),
    ("it has begun: its pods come and go with its tasks", {"startTime": "2026-01-01T00:00:00Z"}, True),
)
CONFIGURED_KIND: Final = moments(
    {"run": {"suspend": False}, "groups": [{"name": "a", "template": TEMPLATE, "replicas": 3, "size": 1}]},
    ("nothing is written yet", {}, False),
    ("two of three are counted", {"ready": 2}, False),
    ("all are counted", {"ready": 3}, True),
)
POD: Final = moments(
    TEMPLATE["spec"],
    ("it is created", {"phase": "Pending"}, False),
    ("there is no node for it", {"phase": "Pending", **true(PodScheduled="False")}, False),
    ("its containers start", {"phase": "Pending", **true("PodScheduled")}, False),
    ("it is ready", {"phase": "Running", **true("PodScheduled", "Ready")}, True),
    ("its probe fails", {"phase": "Running", **true("PodScheduled", Ready="False")}, False),
)

TABLE: Final[dict[str, list[Moment]]] = {
    "batch/job": JOB,
    "jobset.x-k8s.io/jobset": JOB_SET,
    "kubeflow.org/jaxjob": JAX,
    "kubeflow.org/mpijob": _training("mpiReplicaSpecs", "Launcher", "Worker"),
    "kubeflow.org/paddlejob": _training("paddleReplicaSpecs", "Master", "Worker"),
    "kubeflow.org/pytorchjob": PYTORCH,
    "kubeflow.org/tfjob": _training("tfReplicaSpecs", "Chief", "PS"),
    "kubeflow.org/xgboostjob": _training("xgbReplicaSpecs", "Master", "Worker"),
    "pod": POD,
    "ray.io/raycluster": RAY_CLUSTER,
    "ray.io/rayjob": RAY_JOB,
    "ray.io/rayservice": RAY_SERVICE,
    "sparkoperator.k8s.io/sparkapplication": SPARK,
    "tekton.dev/pipelinerun": PIPELINE,
    "workload.codeflare.dev/appwrapper": APP_WRAPPER,
    CONFIGURED.framework: CONFIGURED_KIND,
}
OF_A_JOB_SET: Final = "trainer.kubeflow.org/trainjob"


@pytest.mark.parametrize(
    ("framework", "moment"),
    [pytest.param(each, found, id=f"{each}-{found.words}") for each in TABLE for found in TABLE[each]],
)
def test_it_is_ready_when_its_controller_says_so_of_all_pods(framework: str, moment: Moment) -> None:
    """A pod that has succeeded is ready; a pod that is not made yet, or was lost, is not."""
    integration = REGISTRY.by_framework(framework)
    assert integration is not None
    meta = {"name": "train", "namespace": "ns", "uid": "u"}
    job = decode(integration, {"metadata": meta, "spec": moment.spec, "status": moment.status})
    assert integration.pods_ready(job) is moment.ready


@pytest.mark.parametrize("moment", JOB_SET, ids=[each.words for each in JOB_SET])
def test_a_trainjob_is_ready_when_its_job_set_is(moment: Moment) -> None:
    """Trainer copies these numbers to the TrainJob too, without the order of its stages."""
    integration = REGISTRY.by_framework(OF_A_JOB_SET)
    assert integration is not None
    assert integration.templates_in is not None
    meta = {"name": "train", "namespace": "ns", "uid": "u"}
    job = integration.kind.decoder()(_encoded({"metadata": meta, "spec": {}}))
    assert not integration.pods_ready(job)
    made = integration.templates_in.decoder()(
        _encoded({"metadata": meta, "spec": moment.spec, "status": moment.status})
    )
    assert integration.pods_ready(integration.joined(job, made)) is moment.ready


class TestGroup:
    """The pods of a group: those that a user creates, and the gangs of a StatefulSet or a LeaderWorkerSet."""

    @pytest.mark.parametrize(
        ("pods", "ready"),
        [
            (["Ready", "Ready"], False),
            (["Ready", "Ready", "Pending"], False),
            (["Ready", "Ready", "Ready"], True),
            (["Ready", "Ready", "Succeeded"], True),
            (["Ready", "Ready", "Failed"], False),
            (["Ready", "Ready", "Failed", "Pending"], False),
            (["Ready", "Ready", "Failed", "Ready"], True),
            (["Ready", "Ready", "gated"], False),
        ],
    )
    def test_it_is_ready_when_as_many_pods_as_it_announces_are(self, pods: list[str], ready: bool) -> None:
        """Also if a pod of it has failed and was replaced, and if some have not been created yet."""
        integration = PodGroups()
        found = integration.compose("ring", [_member(n, stage) for n, stage in enumerate(pods)], None, now=NOW)
        assert integration.pods_ready(found) is ready


def _encoded(body: Json) -> bytes:
    return json.dumps(body).encode()


def _member(number: int, stage: str) -> Pod:
    status: Json = {
        "phase": stage if stage in ("Succeeded", "Failed") else "Running" if stage == "Ready" else "Pending"
    }
    if stage == "Ready":
        status |= true("Ready")
    meta = {
        "name": f"p{number}",
        "namespace": "ns",
        "uid": f"u{number}",
        "labels": {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": "ring"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"},
        "finalizers": ["kueue.x-k8s.io/managed"],
    }
    gates = [{"name": "kueue.x-k8s.io/admission"}] if stage == "gated" else []
    found: Pod = Pod.decoder()(
        _encoded({"metadata": meta, "spec": {**TEMPLATE["spec"], "schedulingGates": gates}, "status": status})
    )
    return found


def test_every_kind_is_in_the_table() -> None:
    """A kind whose pods are gated is ready by its pods, alone or as groups; Kueue has the same."""
    queued = {each.framework for each in REGISTRY.watched}
    by_pods = {each.framework for each in REGISTRY.watched if isinstance(each, ServingSet)}
    assert by_pods == {"statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"}
    assert TABLE.keys() | {OF_A_JOB_SET} | by_pods == queued
    for found in TABLE.values():
        assert {each.ready for each in found} == {True, False}
