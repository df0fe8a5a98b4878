"""The kinds of Kubeflow's training operators."""

from collections.abc import Callable
from typing import Any, Final

from tests.unit.jobs.samples.sample import CONDITION, NAMED_TEMPLATE, POD_TEMPLATE, Moment, Sample, moments, true

Json = dict[str, Any]


def _replica_pods(name: str) -> Callable[[Json], int]:
    """The replicas of all entries of a map; of workers that an autoscaler may add, too."""

    def count(body: Json) -> int:
        pods = 0
        for replica_type, entry in body["spec"].get(name, {}).items():
            elastic = body["spec"].get("elasticPolicy", {}) if replica_type == "worker" else {}
            limit = elastic.get("maxReplicas", elastic.get("minReplicas", 0)) if "metrics" in elastic else 0
            pods += max(entry.get("replicas", 1), limit)
        return pods

    return count


def _replicas(field: str, **counts: int) -> Json:
    return {field: {name: {"replicas": count, "template": NAMED_TEMPLATE} for name, count in counts.items()}}


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


_PYTORCH: Final = [
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
_JAX: Final = moments(
    _replicas("jaxReplicaSpecs", Worker=2),
    ("nothing is written yet", {}, False),
    ("one of two runs", _running(Worker={"active": 1}), False),
    ("all run", _running(Worker={"active": 2}), True),
)


def _sample(kind: str, field: str, found: list[Moment], *, version: str = "v1") -> Sample:
    return Sample(
        framework=f"kubeflow.org/{kind.lower()}",
        api_version=f"kubeflow.org/{version}",
        kind=kind,
        spec={
            "runPolicy": {"suspend": False, "schedulingPolicy": {"priorityClass": "p"}},
            field: {"Worker": {"replicas": 2, "template": POD_TEMPLATE}},
        },
        status={"conditions": [CONDITION], "replicaStatuses": {"Worker": {"active": 1}}},
        pods=_replica_pods(field),
        moments=found,
    )


SAMPLES: Final = (
    _sample("PyTorchJob", "pytorchReplicaSpecs", _PYTORCH),
    _sample("TFJob", "tfReplicaSpecs", _training("tfReplicaSpecs", "Chief", "PS")),
    _sample("XGBoostJob", "xgbReplicaSpecs", _training("xgbReplicaSpecs", "Master", "Worker")),
    _sample("PaddleJob", "paddleReplicaSpecs", _training("paddleReplicaSpecs", "Master", "Worker")),
    _sample("JAXJob", "jaxReplicaSpecs", _JAX),
    _sample("MPIJob", "mpiReplicaSpecs", _training("mpiReplicaSpecs", "Launcher", "Worker"), version="v2beta1"),
)
