"""A job that ran before it had a Workload, as `turnstile import` leaves it: marked and followed, and not stopped."""

from typing import Any

from tests.unit.controllers.job_cluster import JOB, POD, TEMPLATE, Cluster
from turnstile.api.core import Job, Pod
from turnstile.api.workload import Workload
from turnstile.jobs.kinds.kubeflow.training import PYTORCH_JOBS

QUEUE = "kueue.x-k8s.io/queue-name"


def imported(cluster: Cluster, owner: dict[str, Any], template: dict[str, Any], *, pod_set: str = "main") -> None:
    """The Workload of a job, which holds quota for it."""
    admission = {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": pod_set, "flavors": {"cpu": "default"}, "count": 1}],
    }
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": "Imported",
            "message": "",
            "lastTransitionTime": "2026-01-02T03:04:00Z",
        }
        for kind in ("QuotaReserved", "Admitted")
    ]
    cluster.put(
        Workload,
        {
            "metadata": {
                "name": "w",
                "namespace": "team",
                "ownerReferences": [{"name": "train", "controller": True, **owner}],
                "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            },
            "spec": {"queueName": "main", "podSets": [{"name": pod_set, "count": 1, "template": template}]},
            "status": {"admission": admission, "conditions": conditions},
        },
    )


def running_job(cluster: Cluster) -> None:
    """A Job that runs without a queue, imported onto a flavor whose labels its template does not have."""
    cluster.flavor(nodeLabels={"pool": "plain"})
    cluster.job(suspend=False, labels={"app": "train"})
    cluster.run_pods()
    job = cluster.get(Job, "team/train")
    assert job is not None
    imported(cluster, {"apiVersion": "batch/v1", "kind": "Job", "uid": job["metadata"]["uid"]}, TEMPLATE)


def test_a_running_job_gets_its_queue_and_runs_on() -> None:
    """Marked by one patch; its template, which cannot change while it runs, is as it was."""
    cluster = Cluster()
    running_job(cluster)
    before = cluster.get(Job, "team/train")
    cluster.settle()
    after = cluster.get(Job, "team/train")
    assert before is not None
    assert after is not None
    assert after["metadata"]["labels"] == {"app": "train", QUEUE: "main"}
    assert (after["spec"]["suspend"], after["spec"]["template"]) == (False, before["spec"]["template"])
    assert [reason for reason, _ in cluster.events] == ["Imported"]


def test_an_evicted_job_is_stopped_and_is_no_imported_one_afterwards() -> None:
    """It waits like any other, and starts with what its admission adds."""
    cluster = Cluster()
    running_job(cluster)
    cluster.settle()
    cluster.evict()
    cluster.step()
    cluster.patch(Job, "team/train", {"status": {"active": 0}})
    cluster.settle()
    assert cluster.condition("QuotaReserved") == ("False", "PendingEvaluation", "Preempted to make room")
    cluster.admit()
    cluster.settle()
    job = cluster.get(Job, "team/train")
    assert job is not None
    assert job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "plain"}


def test_a_running_pod_gets_all_marks_of_a_queued_one_before_anything_is_decided() -> None:
    """Its spec may be cached in part until then, and would not fit the Workload."""
    cluster = Cluster()
    cluster.flavor()
    meta = {"name": "train", "namespace": "team", "labels": {"app": "x"}, "finalizers": ["example.com/mine"]}
    reduced = {"containers": [{"resources": {"requests": {"cpu": "1000m"}}}]}
    cluster.put(Pod, {"metadata": meta, "spec": {"nodeName": "n", **reduced}, "status": {"phase": "Running"}})
    pod = cluster.get(Pod, "team/train")
    assert pod is not None
    imported(cluster, {"apiVersion": "v1", "kind": "Pod", "uid": pod["metadata"]["uid"]}, {"spec": TEMPLATE["spec"]})
    cluster.step(POD)
    marked = cluster.get(Pod, "team/train")
    assert marked is not None
    assert marked["metadata"]["labels"] == {"app": "x", QUEUE: "main", "kueue.x-k8s.io/managed": "true"}
    assert marked["metadata"]["finalizers"] == ["example.com/mine", "kueue.x-k8s.io/managed"]
    cluster.put(Pod, {**marked, "spec": {"nodeName": "n", **TEMPLATE["spec"]}})
    cluster.settle(POD)
    assert cluster.get(Pod, "team/train") is not None
    assert cluster.writes == ["patch Pod"]


def test_the_templates_of_a_training_job_are_marked_before_it_is_queued() -> None:
    """The webhook lets a pod of a queued job run whose template says which pod set it is of; suspended it never is."""
    kind, key = PYTORCH_JOBS.kind, "kubeflow.org/pytorchjob:team/train"
    cluster = Cluster()
    cluster.flavor(nodeLabels={"pool": "plain"})
    spec = {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": TEMPLATE}}}
    status = {"replicaStatuses": {"Worker": {"active": 1}}}
    cluster.put(kind, {"metadata": {"name": "train", "namespace": "team"}, "spec": spec, "status": status})
    job = cluster.get(kind, "team/train")
    assert job is not None
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "uid": job["metadata"]["uid"]}
    imported(cluster, owner, TEMPLATE, pod_set="worker")
    cluster.step(key)
    marked = cluster.get(kind, "team/train")
    assert marked is not None
    template = marked["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    assert template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "worker"
    assert template["metadata"]["annotations"] == {"kueue.x-k8s.io/workload": "w"}
    assert template["spec"]["nodeSelector"] == {"pool": "plain"}
    assert "labels" not in marked["metadata"]
    cluster.settle(key)
    queued = cluster.get(kind, "team/train")
    assert queued is not None
    assert queued["metadata"]["labels"] == {QUEUE: "main"}
    assert queued["spec"] == marked["spec"]
    assert cluster.writes == ["patch PyTorchJob", "patch PyTorchJob"]


def test_a_workload_that_another_reason_admitted_marks_nothing() -> None:
    """Its job lost the label since: such a job is followed as it is."""
    cluster = Cluster()
    running_job(cluster)
    for kind in ("QuotaReserved", "Admitted"):
        cluster.set_condition(kind, reason="Admitted")
    assert "it is imported" not in cluster.decide(JOB).why
