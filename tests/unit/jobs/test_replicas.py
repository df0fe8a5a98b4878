"""Jobs of Kubeflow's training operators: a pod set for each replica type, however it is spelled."""

import json
from datetime import UTC, datetime
from typing import Any

import jsonpatch
import pytest

from turnstile.api.names import PODSET_LABEL
from turnstile.api.patch import JsonPatch
from turnstile.api.workload import decode as decode_workload
from turnstile.jobs.integration import Change
from turnstile.jobs.kinds.kubeflow.mpijob import MPI_JOBS
from turnstile.jobs.kinds.kubeflow.training import PYTORCH_JOBS, TF_JOBS
from turnstile.jobs.podsets import PodSetInfo

Json = dict[str, Any]
TEMPLATE = {"spec": {"containers": [{"name": "pytorch", "image": "train:1"}]}}


def pytorch(types: Json, **spec: Any) -> Any:
    """A PyTorchJob with these replicas by type."""
    specs = {name: {"replicas": count, "template": TEMPLATE} for name, count in types.items()}
    body = {"metadata": {"name": "train", "namespace": "ns"}, "spec": {"pytorchReplicaSpecs": specs, **spec}}
    return PYTORCH_JOBS.kind.decoder()(json.dumps(body).encode())


def counts(job: Any) -> list[tuple[str, int]]:
    """Name and count of each pod set."""
    return [(each.name, each.count) for each in PYTORCH_JOBS.pod_sets(job)]


def test_the_pod_sets_are_in_kueues_order() -> None:
    """Not in that of the map, which has none."""
    specs = {name: {"template": TEMPLATE} for name in ("Worker", "PS", "Evaluator", "Master", "Chief")}
    job = TF_JOBS.kind.decoder()(json.dumps({"spec": {"tfReplicaSpecs": specs}}).encode())
    assert [each.name for each in TF_JOBS.pod_sets(job)] == ["chief", "master", "ps", "worker", "evaluator"]


def test_a_replica_type_is_charged_however_it_is_spelled() -> None:
    """The operator reads `worker` as Worker, and makes pods for types that it does not know."""
    assert counts(pytorch({"MASTER": 1, "worker": 5, "Other": 3})) == [("master", 1), ("worker", 5), ("other", 3)]


def test_two_spellings_of_one_type_are_refused() -> None:
    """The operator would drop one of them."""
    errors = PYTORCH_JOBS.create_errors(pytorch({"Worker": 1, "worker": 5}))
    assert [str(error) for error in errors] == ['spec.pytorchReplicaSpecs[worker]: Duplicate value: "worker"']


def test_a_type_that_cannot_name_a_pod_set_is_refused() -> None:
    """Its Workload could not be created."""
    (error,) = PYTORCH_JOBS.create_errors(pytorch({"a_b": 1}))
    assert str(error).startswith('spec.pytorchReplicaSpecs[a_b]: Invalid value: "a_b": cannot name a pod set')


@pytest.mark.parametrize(
    ("policy", "workers"),
    [
        ({"minReplicas": 1, "maxReplicas": 4}, 2),
        ({"minReplicas": 1, "maxReplicas": 4, "metrics": []}, 4),
        ({"minReplicas": 3, "metrics": [{"type": "Resource"}]}, 3),
        ({"maxReplicas": 1, "metrics": [{"type": "Resource"}]}, 2),
    ],
)
def test_an_autoscaled_job_is_charged_for_all_workers_that_it_may_get(policy: Json, workers: int) -> None:
    """The operator makes an autoscaler where the policy has metrics. It never scales the master."""
    job = pytorch({"Master": 1, "Worker": 2}, elasticPolicy=policy)
    assert counts(job) == [("master", 1), ("worker", workers)]


@pytest.mark.parametrize("metadata", [None, {}, {"labels": {"app": "train"}}])
def test_a_stop_leaves_the_template_exactly_as_its_user_wrote_it(metadata: Json | None) -> None:
    """A custom resource is stored as it is written: metadata that was absent is absent again."""
    template = {**({"metadata": metadata} if metadata is not None else {}), **TEMPLATE}
    before = {
        "metadata": {"name": "train", "namespace": "ns", "resourceVersion": "1"},
        "spec": {
            "runPolicy": {"suspend": True},
            "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}},
        },
    }
    job = decoded(before)
    (pod_set,) = PYTORCH_JOBS.pod_sets(job)
    workload = {"metadata": {"name": "w"}, "spec": {"podSets": [pod_set.body(topologies=True)]}}
    pod_sets = decode_workload(json.dumps(workload).encode()).spec.pod_sets
    info = PodSetInfo("worker", 1, labels={PODSET_LABEL: "worker"}, annotations={"a": "b"}, node_selector={"c": "d"})
    started = PYTORCH_JOBS.start(job, [info])
    assert started is not None
    running = applied(before, started)
    stop = PYTORCH_JOBS.stop(decoded(running), pod_sets, reason="", message="", now=datetime.now(UTC))
    (step,) = stop.steps
    assert isinstance(step, Change)
    assert applied(running, step)["spec"] == before["spec"]


def decoded(body: Json) -> Any:
    """A PyTorchJob as Turnstile sees it."""
    return PYTORCH_JOBS.kind.decoder()(json.dumps(body).encode())


def applied(body: Json, change: Change) -> Json:
    """The object after a patch."""
    assert isinstance(change.body, JsonPatch)
    after: Json = jsonpatch.apply_patch(body, json.loads(change.body.encode()))
    return after


def test_a_suspended_job_is_active_until_its_operator_has_seen_that() -> None:
    """The counts say nothing of pods that the operator is about to make."""
    body = {
        "spec": {"runPolicy": {"suspend": True}},
        "status": {"conditions": [{"type": "Suspended", "status": "False"}], "replicaStatuses": {"Launcher": {}}},
    }
    job = MPI_JOBS.kind.decoder()(json.dumps(body).encode())
    assert MPI_JOBS.active(job)
    body["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
    assert not MPI_JOBS.active(MPI_JOBS.kind.decoder()(json.dumps(body).encode()))
