"""Of a large pod template only what decides is held: it is read again for what has to be written whole."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.controllers.job_cluster import Body, Cluster
from turnstile.api.core import Job
from turnstile.api.meta import Kind
from turnstile.api.podshape import LARGE
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.kinds.kubeflow.mpijob import MPI_JOBS
from turnstile.jobs.kinds.kubeflow.training import PYTORCH_JOBS
from turnstile.jobs.kinds.leaderworkerset import LeaderWorkerSet
from turnstile.jobs.kinds.statefulset import StatefulSet
from turnstile.kube.answers import decoder

QUEUE = {"kueue.x-k8s.io/queue-name": "main"}
MEGABYTE = 1 << 20


def template(*, value: str = "x", cpu: str = "1", size: int = 2 * LARGE) -> Body:
    """A pod template whose environment is large."""
    env = [{"name": f"V{number}", "value": value * 1000} for number in range(size // 1000 + 1)]
    container = {
        "name": "c",
        "image": "trainer:1",
        "env": env,
        "command": ["train"],
        "resources": {"requests": {"cpu": cpu}},
        "ports": [{"containerPort": 80}],
    }
    volumes = [{"name": "v", "emptyDir": {}}]
    spec = {"containers": [container], "volumes": volumes, "restartPolicy": "Never", "nodeSelector": {"a": "b"}}
    return {"metadata": {"labels": {"app": "train"}, "annotations": {"a/b": "c"}}, "spec": spec}


def of_job(made: Body) -> Body:
    """The spec of a Job."""
    return {"parallelism": 2, "suspend": True, "template": made}


SPECS: dict[type[Kind], Any] = {
    Job: of_job,
    JobSet: lambda made: {
        "suspend": True,
        "replicatedJobs": [{"name": "a", "replicas": 2, "template": {"spec": of_job(made)}}],
    },
    PYTORCH_JOBS.kind: lambda made: {
        "runPolicy": {"suspend": True},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": made}},
    },
    MPI_JOBS.kind: lambda made: {
        "runPolicy": {"suspend": True},
        "mpiReplicaSpecs": {"Worker": {"replicas": 2, "template": made}},
    },
    StatefulSet: lambda made: {"replicas": 2, "template": made},
    LeaderWorkerSet: lambda made: {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": made}},
}
"""The spec of each kind that is held reduced, with a template."""
KINDS = pytest.mark.parametrize("kind", SPECS, ids=lambda kind: kind.KIND)


def put(cluster: Cluster, kind: type[Kind], made: Body) -> str:
    """A job of the kind in a queue; returns its key."""
    meta = {"name": "train", "namespace": "team", "uid": "uid-train", "labels": QUEUE}
    cluster.put(kind, {"metadata": meta, "spec": SPECS[kind](made)})
    registry = cluster.world.registry
    [integration] = [each for each in registry.known.values() if each.kind is kind]
    return f"{integration.framework}:team/train"


def values(body: Any) -> Iterator[str]:
    """The values of all environment variables anywhere in an object."""
    for part in body.values() if isinstance(body, dict) else body if isinstance(body, list) else ():
        yield from values(part)
    if isinstance(body, dict):
        yield from (each["value"] for each in body.get("env", ()))


@KINDS
def test_a_workload_has_the_whole_template(kind: type[Kind]) -> None:
    """It is made of the job as it is read again, and then fits its job, which is not read any more."""
    cluster = Cluster()
    key = put(cluster, kind, template())
    cluster.settle(key)
    [pod_set] = cluster.workload["spec"]["podSets"]
    assert set(values(pod_set["template"])) == {"x" * 1000}
    assert "volumes" in pod_set["template"]["spec"]
    assert cluster.read_again == 1
    assert len(json.dumps(cluster.workload)) > 2 * LARGE
    assert cluster.writes == ["create Workload"]


@KINDS
def test_little_of_the_job_is_held(kind: type[Kind]) -> None:
    """However large the template is that the API server has."""
    cluster = Cluster()
    put(cluster, kind, template(size=MEGABYTE))
    [job] = cluster.world.jobs[kind].values()
    integration = cluster.world.registry.of(job)
    assert sum(len(each.template) for each in integration.pod_sets(job)) < 2000


@KINDS
def test_a_change_of_what_is_not_held_is_seen(kind: type[Kind]) -> None:
    """The Workload of a job that waits is rewritten when an environment variable changes."""
    cluster = Cluster()
    key = put(cluster, kind, template())
    cluster.settle(key)
    put(cluster, kind, template(value="y"))
    cluster.settle(key)
    if kind not in (StatefulSet, LeaderWorkerSet):  # whose Workloads charge for what pods request alone
        assert set(values(cluster.workload["spec"])) == {"y" * 1000}
    put(cluster, kind, template(value="z", cpu="2"))
    cluster.settle(key)
    assert set(values(cluster.workload["spec"])) == {"z" * 1000}


@pytest.mark.parametrize("kind", [Job, JobSet, PYTORCH_JOBS.kind], ids=lambda kind: kind.KIND)
def test_a_start_and_a_stop_leave_the_template_whole(kind: type[Kind]) -> None:
    """Both change its directives alone, and a stop restores these."""
    cluster = Cluster()
    cluster.flavor(nodeLabels={"pool": "gpu"})
    key = put(cluster, kind, template())
    before = cluster.get(kind, "team/train")
    cluster.settle(key)
    cluster.admit()
    cluster.settle(key)
    assert cluster.workload["status"]["admission"]
    started = cluster.get(kind, "team/train")
    assert started is not None
    assert before is not None
    assert '"pool": "gpu"' in json.dumps(started)
    assert list(values(started)) == list(values(before))
    cluster.evict()
    cluster.settle(key)
    stopped = cluster.get(kind, "team/train")
    assert stopped is not None
    assert stopped["spec"] == before["spec"]
    assert cluster.read_again == 1


def test_a_small_template_is_held_whole() -> None:
    """And needs no second request."""
    cluster = Cluster()
    cluster.job()
    cluster.settle()
    assert cluster.read_again == 0


def test_marks_of_others_are_nothing() -> None:
    """A field of a template that looks like the mark of a reduced one is a field like any other."""
    made = template(size=0)
    made["spec"]["reduced-00000000000000000000000000000000"] = "00" * 16
    body = {"metadata": {"name": "train", "namespace": "team"}, "spec": of_job(made)}
    job = decoder(Job)(json.dumps(body).encode())
    cluster = Cluster()
    [pod_set] = cluster.world.registry.of(job).pod_sets(job)
    assert not pod_set.reduced
