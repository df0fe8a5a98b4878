"""A job that ran before it had a Workload, as `turnstile import` leaves it: marked and followed, and not stopped."""

import copy
from collections.abc import Sequence
from typing import Any

from tests.unit.controllers.job_cluster import JOB, POD, TEMPLATE, Cluster
from turnstile.api.core import Job, Pod
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.kinds.kubeflow.mpijob import MPI_JOBS
from turnstile.jobs.kinds.kubeflow.training import PYTORCH_JOBS
from turnstile.jobs.kinds.ray.cluster import RayCluster
from turnstile.jobs.kinds.ray.job import RayJob
from turnstile.jobs.kinds.trainjob import TrainJob

QUEUE = "kueue.x-k8s.io/queue-name"


def imported(
    cluster: Cluster,
    owner: dict[str, Any],
    template: dict[str, Any],
    *,
    pod_set: str = "main",
    count: int = 1,
    more: Sequence[str] = (),
) -> None:
    """The Workload of a job, which holds quota for it: pods of one pod set, and one of each of `more`."""
    counts = {pod_set: count, **dict.fromkeys(more, 1)}
    admission = {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {"name": name, "flavors": {"cpu": "default"}, "count": pods} for name, pods in counts.items()
        ],
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
            "spec": {
                "queueName": "main",
                "podSets": [{"name": name, "count": pods, "template": template} for name, pods in counts.items()],
            },
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


SET = "jobset.x-k8s.io/jobset:team/train"


class Brood(Cluster):
    """A JobSet of two pods that runs without a queue, and is imported onto a flavor whose labels its templates lack."""

    def __init__(self) -> None:
        super().__init__()
        self.flavor(nodeLabels={"pool": "plain"})
        replicated = {"name": "Workers", "replicas": 2, "template": {"spec": {"template": TEMPLATE}}}
        self.put(JobSet, {"metadata": {"name": "train", "namespace": "team"}, "spec": {"replicatedJobs": [replicated]}})
        made = self.get(JobSet, "team/train")
        assert made is not None
        self.owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "uid": made["metadata"]["uid"]}
        for name in ("one", "two"):
            self.child(name)
        imported(self, self.owner, TEMPLATE, pod_set="workers", count=2)

    def child(self, name: str, *, replicated: str = "Workers", created: str = "2026-01-02T02:00:00Z") -> None:
        """A Job as the JobSet controller makes it of a template without marks, and its pod."""
        meta = {
            "name": name,
            "namespace": "team",
            "creationTimestamp": created,
            "labels": {"jobset.sigs.k8s.io/replicatedjob-name": replicated},
            "ownerReferences": [{"name": "train", "controller": True, **self.owner}],
        }
        self.put(Job, {"metadata": meta, "spec": {"parallelism": 1, "suspend": False, "template": TEMPLATE}})
        self.pod_of(name)

    def pod_of(self, job: str) -> None:
        """A pod that runs."""
        made = self.get(Job, f"team/{job}")
        assert made is not None
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": made["metadata"]["uid"]}
        meta = {"name": f"{job}-0", "namespace": "team", "ownerReferences": [{**owner, "controller": True}]}
        spec = {"nodeName": "n", **TEMPLATE["spec"]}
        self.put(Pod, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})

    def settle_all(self, *jobs: str) -> None:
        """Reconcile the JobSet, and its Jobs."""
        self.settle(SET)
        for name in jobs:
            self.settle(f"batch/job:team/{name}")

    def runs(self, job: str) -> bool:
        """Whether a Job is not suspended."""
        made = self.get(Job, f"team/{job}")
        assert made is not None
        return not made["spec"]["suspend"]

    def marks(self, pod: str) -> tuple[str | None, str | None]:
        """The pod set and the Workload that a pod names."""
        made = self.get(Pod, f"team/{pod}")
        assert made is not None
        meta = made["metadata"]
        labels, annotations = meta.get("labels", {}), meta.get("annotations", {})
        return labels.get("kueue.x-k8s.io/podset"), annotations.get("kueue.x-k8s.io/workload")


def test_the_jobs_of_a_jobset_run_on_and_their_pods_are_marked() -> None:
    """Though the templates, which cannot change while the JobSet runs, name no pod set. So is a pod that is made
    later."""
    cluster = Brood()
    before = cluster.get(JobSet, "team/train")
    cluster.settle_all("one", "two")
    after = cluster.get(JobSet, "team/train")
    assert before is not None
    assert after is not None
    assert after["metadata"]["labels"] == {QUEUE: "main"}
    assert after["spec"] == before["spec"]
    assert cluster.runs("one")
    assert cluster.runs("two")
    assert cluster.marks("one-0") == cluster.marks("two-0") == ("workers", "w")
    cluster.delete(Pod, "team/one-0", grace_seconds=0)
    cluster.pod_of("one")
    cluster.settle_all("one")
    assert cluster.marks("one-0") == ("workers", "w")


def test_a_job_that_the_jobset_controller_makes_again_runs_within_the_charge() -> None:
    """It restarts a JobSet of which a Job has failed; the webhook holds the new Job, and that controller resumes it."""
    cluster = Brood()
    cluster.settle_all("one", "two")
    cluster.patch(Job, "team/one", {"status": {"conditions": [{"type": "Failed", "status": "True"}]}})
    cluster.child("again", created="2026-01-02T03:04:30Z")
    cluster.settle_all("two", "again")
    assert cluster.runs("two")
    assert cluster.runs("again")
    assert cluster.marks("again-0") == ("workers", "w")


def test_a_job_beyond_the_charge_or_of_no_pod_set_is_suspended() -> None:
    """As the child of any other job: what it says of itself is worth nothing."""
    cluster = Brood()
    cluster.settle_all("one", "two")
    cluster.child("third", created="2026-01-02T03:04:30Z")
    cluster.child("other", replicated="none", created="2026-01-02T03:04:30Z")
    cluster.settle_all("one", "third", "other")
    assert [cluster.runs(each) for each in ("one", "two", "third", "other")] == [True, True, False, False]
    assert cluster.marks("other-0") == (None, None)


def test_a_stopped_jobset_keeps_its_quota_until_the_pods_of_its_jobs_have_ended() -> None:
    """They are charged like those of any other job; when it starts again its templates are marked."""
    cluster = Brood()
    cluster.settle_all("one", "two")
    cluster.evict()
    cluster.settle(SET)
    stopped = cluster.get(JobSet, "team/train")
    assert stopped is not None
    assert stopped["spec"]["suspend"]
    for name in ("one", "two"):
        cluster.patch(Job, f"team/{name}", {"spec": {"suspend": True}})
    said = [{"type": "Suspended", "status": "True"}]
    cluster.patch(JobSet, "team/train", {"status": {"conditions": said}})
    assert cluster.step(SET).why == "evicted, but pods still run"
    assert cluster.condition("QuotaReserved") == ("True", "Imported", "")
    cluster.settle_all("one", "two")
    assert cluster.condition("QuotaReserved") == ("False", "PendingEvaluation", "Preempted to make room")
    cluster.admit()
    cluster.settle(SET)
    started = cluster.get(JobSet, "team/train")
    assert started is not None
    template = started["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "workers"
    assert template["spec"]["nodeSelector"] == {"pool": "plain"}


def test_the_launcher_of_an_mpijob_runs_on() -> None:
    """Its Job was made of a template without marks. The templates of the MPIJob get them, for pods that are made
    later; the workers' pods are the MPIJob's own, and are charged without marks."""
    kind, key = MPI_JOBS.kind, "kubeflow.org/mpijob:team/train"
    cluster = Cluster()
    cluster.flavor()
    spec = {"mpiReplicaSpecs": {"Launcher": {"template": TEMPLATE}}}
    cluster.put(kind, {"metadata": {"name": "train", "namespace": "team"}, "spec": spec})
    job = cluster.get(kind, "team/train")
    assert job is not None
    owner = {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "uid": job["metadata"]["uid"]}
    cluster.put(
        Job,
        {
            "metadata": {
                "name": "train-launcher",
                "namespace": "team",
                "ownerReferences": [{"name": "train", "controller": True, **owner}],
            },
            "spec": {"parallelism": 1, "suspend": False, "template": TEMPLATE},
        },
    )
    launcher = cluster.get(Job, "team/train-launcher")
    assert launcher is not None
    made_by = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-launcher", "uid": launcher["metadata"]["uid"]}
    meta = {"name": "p", "namespace": "team", "ownerReferences": [{**made_by, "controller": True}]}
    running = {"metadata": meta, "spec": {"nodeName": "n", **TEMPLATE["spec"]}, "status": {"phase": "Running"}}
    cluster.put(Pod, running)
    imported(cluster, owner, TEMPLATE, pod_set="launcher")
    cluster.settle(key)
    cluster.settle("batch/job:team/train-launcher")
    assert cluster.writes == ["patch MPIJob", "patch MPIJob", "patch Pod"]
    pod = cluster.get(Pod, "team/p")
    assert pod is not None
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "launcher"


def test_the_raycluster_and_the_submitter_of_a_rayjob_run_on() -> None:
    """The templates of the RayCluster are marked, for pods that KubeRay makes later, and each pod by the labels of
    KubeRay; the template of the submitter's Job cannot change."""
    cluster = Cluster()
    cluster.flavor(nodeLabels={"pool": "plain"})
    head, worker = copy.deepcopy(TEMPLATE), copy.deepcopy(TEMPLATE)
    groups = {"headGroupSpec": {"template": head}, "workerGroupSpecs": [{"groupName": "Big", "template": worker}]}
    spec = {"submissionMode": "K8sJobMode", "submitterPodTemplate": TEMPLATE, "rayClusterSpec": groups}
    status = {"jobDeploymentStatus": "Running", "rayClusterName": "train-x"}
    cluster.put(RayJob, {"metadata": {"name": "train", "namespace": "team"}, "spec": spec, "status": status})
    job = cluster.get(RayJob, "team/train")
    assert job is not None
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": job["metadata"]["uid"]}
    owned = {"namespace": "team", "ownerReferences": [{**owner, "controller": True}]}
    cluster.put(RayCluster, {"metadata": {"name": "train-x", **owned}, "spec": groups})
    cluster.put(Job, {"metadata": {"name": "train", **owned}, "spec": {"parallelism": 1, "template": TEMPLATE}})
    controllers: list[tuple[type[Kind], str, dict[str, str]]] = [
        (RayCluster, "train-x", {"ray.io/node-type": "head", "ray.io/group": "headgroup"}),
        (RayCluster, "train-x", {"ray.io/node-type": "worker", "ray.io/group": "Big"}),
        (Job, "train", {}),
    ]
    for kind, key, labels in controllers:
        made = cluster.get(kind, f"team/{key}")
        assert made is not None
        by = {"apiVersion": f"{kind.GROUP}/{kind.VERSION}", "kind": kind.KIND, "name": key, "controller": True}
        references = [{**by, "uid": made["metadata"]["uid"]}]
        name = labels.get("ray.io/node-type", "submitter")
        meta = {"name": name, "namespace": "team", "labels": labels, "ownerReferences": references}
        running = {"metadata": meta, "spec": {"nodeName": "n", **TEMPLATE["spec"]}, "status": {"phase": "Running"}}
        cluster.put(Pod, running)
    imported(cluster, owner, TEMPLATE, pod_set="head", more=("big", "submitter"))
    before = cluster.get(Job, "team/train")
    for key in ("ray.io/rayjob:team/train", "ray.io/raycluster:team/train-x", "batch/job:team/train"):
        cluster.settle(key)
    assert cluster.get(Job, "team/train") == before
    found = cluster.get(RayCluster, "team/train-x")
    assert found is not None
    assert "suspend" not in found["spec"]
    template = found["spec"]["workerGroupSpecs"][0]["template"]
    assert template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "big"
    assert template["spec"]["nodeSelector"] == {"pool": "plain"}
    pod_sets = {
        name: pod["metadata"]["labels"]["kueue.x-k8s.io/podset"]
        for name in ("head", "worker", "submitter")
        if (pod := cluster.get(Pod, f"team/{name}")) is not None
    }
    assert pod_sets == {"head": "head", "worker": "big", "submitter": "submitter"}


def test_what_is_below_a_trainjob_runs_on() -> None:
    """Its JobSet, the Jobs of that, and their pods, which are marked; nothing but the queue is written into it."""
    cluster = Cluster()
    cluster.flavor()
    cluster.put(TrainJob, {"metadata": {"name": "train", "namespace": "team"}, "spec": {}})
    replicated = {"name": "Node", "replicas": 1, "template": {"spec": {"template": TEMPLATE}}}
    marks = {"jobset.sigs.k8s.io/replicatedjob-name": "Node"}
    above: type[Kind] = TrainJob
    made: list[tuple[type[Kind], str, dict[str, Any]]] = [
        (JobSet, "train", {"replicatedJobs": [replicated]}),
        (Job, "train-node-0", {"parallelism": 1, "template": TEMPLATE}),
        (Pod, "p", {"nodeName": "n", **TEMPLATE["spec"]}),
    ]
    for kind, name, spec in made:
        found = cluster.get(above, "team/train" if above is not Job else "team/train-node-0")
        assert found is not None
        owner = {"apiVersion": f"{above.GROUP}/{above.VERSION}", "kind": above.KIND, "uid": found["metadata"]["uid"]}
        references = [{**owner, "name": found["metadata"]["name"], "controller": True}]
        meta = {"name": name, "namespace": "team", "labels": marks, "ownerReferences": references}
        cluster.put(kind, {"metadata": meta, "spec": spec})
        above = kind
    job = cluster.get(TrainJob, "team/train")
    assert job is not None
    owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "uid": job["metadata"]["uid"]}
    imported(cluster, owner, TEMPLATE, pod_set="node")
    for key in ("trainer.kubeflow.org/trainjob:team/train", SET, "batch/job:team/train-node-0"):
        cluster.settle(key)
    assert cluster.writes == ["patch TrainJob", "patch Pod"]
    pod = cluster.get(Pod, "team/p")
    assert pod is not None
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "node"
