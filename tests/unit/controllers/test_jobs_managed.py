"""Which jobs are queued at all, and which are left alone."""

import orjson
import pytest

from tests.unit.controllers.job_cluster import JOB, Cluster
from tests.unit.jobs.samples import SAMPLES
from tests.unit.jobs.subjects import REGISTRY
from turnstile.api.core import Job, Namespace, Pod
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.wakes import job_concerned
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.options import JobOptions, namespaces
from turnstile.jobs.registry import Registry
from turnstile.kube import answers
from turnstile.kube.raws import Keep, stripped


def test_a_job_without_a_queue_name_is_left_alone() -> None:
    """Running or not."""
    cluster = Cluster()
    cluster.job(labels={}, suspend=False)
    cluster.settle()
    assert (cluster.writes, cluster.events) == ([], [])


def test_a_job_without_a_queue_name_is_managed_if_so_configured() -> None:
    """It waits with a Workload of no queue."""
    cluster = Cluster(options=JobOptions(manage_jobs_without_queue_name=True))
    cluster.job(labels={}, suspend=False)
    cluster.settle()
    assert cluster.writes == ["patch Job", "create Workload"]
    assert "queueName" not in cluster.workload["spec"]


def test_a_job_in_a_namespace_that_is_not_managed_is_left_alone() -> None:
    """Whatever queue it names."""
    cluster = Cluster(options=JobOptions(managed_jobs_namespace_selector=namespaces(without=["team"])))
    cluster.job(suspend=False)
    cluster.settle()
    assert cluster.writes == []


def test_a_job_whose_namespace_is_gone_is_left_alone() -> None:
    """Nothing can be made there."""
    cluster = Cluster()
    cluster.job()
    cluster.delete(Namespace, "team")
    cluster.settle()
    assert cluster.writes == []


class TestAKindThatIsNotRead:
    """What is not seen of it may be there all the same."""

    def test_a_job_that_is_not_seen_keeps_its_workload(self) -> None:
        """Its Workload ends only once it is known that the job is gone."""
        cluster = Cluster()
        cluster.job()
        cluster.settle()
        jobs = cluster.world.jobs[Job]
        jobs.doubt()
        cluster.delete(Job, "team/train")
        cluster.settle()
        assert not Workload.decoder()(orjson.dumps(cluster.workload)).finished
        jobs.believe()
        cluster.settle()
        assert Workload.decoder()(orjson.dumps(cluster.workload)).finished

    def test_nothing_is_decided_about_a_job_that_is_seen(self) -> None:
        """It may have changed since."""
        cluster = Cluster()
        cluster.world.jobs[Job].doubt()
        cluster.job()
        cluster.settle()
        assert cluster.writes == []


def test_a_job_whose_templates_were_not_kept_waits_until_it_is_read_again() -> None:
    """Its namespace was not managed until now. That it is whole wakes it, though its version is the same."""
    cluster = Cluster()
    cluster.job()
    jobs = cluster.world.jobs[Job]
    whole = jobs.get("team/train")
    assert whole is not None
    light, _ = answers.selecting_decoder(Job, lambda job: Keep.STRIPPED)(orjson.dumps(cluster.get(Job, "team/train")))
    woken: list[bool] = []
    jobs.subscribe(
        lambda _, old, new: woken.append(job_concerned(old, new, integration=BatchJob(), options=cluster.world.options))
    )
    jobs.observe(light, again=True)
    cluster.settle()
    assert cluster.writes == []
    jobs.observe(whole, again=True)
    cluster.settle()
    assert cluster.writes == ["create Workload"]
    assert woken == [True, True]


def without_templates(framework: str) -> Kind:
    """A job of a kind as it is kept while its namespace is not managed."""
    body = SAMPLES[framework].manifest()
    body["metadata"] |= {"namespace": "team", "uid": "uid-x"}
    light, _ = answers.selecting_decoder(REGISTRY.known[framework].kind, lambda _: Keep.STRIPPED)(orjson.dumps(body))
    return light


WITH_TEMPLATES = [
    each.framework for each in REGISTRY.watched if each.kind is not Pod and stripped(without_templates(each.framework))
]
"""Kinds whose objects have templates; Pods are kept whole, or not at all."""


@pytest.mark.parametrize("managed", [False, True], ids=["left alone", "managed since"])
@pytest.mark.parametrize("framework", WITH_TEMPLATES)
def test_of_every_kind_nothing_is_decided_without_templates(framework: str, managed: bool) -> None:
    """The namespaces of the system, for example, are not managed."""
    options = JobOptions() if managed else JobOptions(managed_jobs_namespace_selector=namespaces(without=["team"]))
    cluster = Cluster(options=options, registry=REGISTRY)
    job = without_templates(framework)
    cluster.world.jobs[type(job)].observe(job)
    cluster.settle(REGISTRY.key_of(job))
    assert (cluster.writes, cluster.events) == ([], [])


class TestAPod:
    """A Pod that is queued by itself."""

    KEY = "pod:team/train"

    def test_waits_with_a_workload_and_is_started_by_one_patch(self) -> None:
        """The gate goes and the node selector comes; other gates stay."""
        cluster = Cluster()
        cluster.flavor(nodeLabels={"pool": "a"})
        cluster.pod(gates=("kueue.x-k8s.io/admission", "example.com/mine"))
        cluster.settle(self.KEY)
        assert cluster.workload["metadata"]["name"].startswith("pod-train-")
        cluster.admit()
        cluster.settle(self.KEY)
        pod = cluster.get(Pod, "team/train")
        assert pod is not None
        assert pod["spec"]["schedulingGates"] == [{"name": "example.com/mine"}]
        assert pod["spec"]["nodeSelector"] == {"pool": "a"}
        assert pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "main"
        assert cluster.writes == ["create Workload", "patch Pod"]

    def test_that_is_evicted_is_marked_and_deleted(self) -> None:
        """Its Workload keeps the quota until the pod has ended, and does not queue again: a pod cannot come back."""
        cluster = Cluster()
        cluster.flavor()
        cluster.pod()
        cluster.settle(self.KEY)
        cluster.admit()
        cluster.settle(self.KEY)
        cluster.patch(Pod, "team/train", {"spec": {"nodeName": "node"}, "status": {"phase": "Running"}})
        cluster.writes.clear()
        cluster.evict()
        cluster.settle(self.KEY)
        assert cluster.writes == ["patch Pod status", "delete Pod"]
        assert cluster.condition("Finished") is None
        pod = cluster.get(Pod, "team/train")
        assert pod is not None
        (target,) = pod["status"]["conditions"]
        assert (target["type"], target["reason"], target["message"]) == (
            "TerminationTarget",
            "WorkloadEvictedDueToPreempted",
            "Preempted to make room",
        )
        cluster.patch(Pod, "team/train", {"status": {"phase": "Failed"}})
        cluster.settle(self.KEY)
        assert cluster.condition("Finished") is not None
        assert cluster.get(Pod, "team/train") is None

    def test_that_ends_frees_its_quota_and_its_finalizer(self) -> None:
        """The phase says how it ended."""
        cluster = Cluster()
        cluster.flavor()
        cluster.pod()
        cluster.settle(self.KEY)
        cluster.admit()
        cluster.settle(self.KEY)
        cluster.patch(Pod, "team/train", {"status": {"phase": "Failed", "message": "out of memory"}})
        cluster.settle(self.KEY)
        assert cluster.condition("Finished") == ("True", "Failed", "out of memory")
        pod = cluster.get(Pod, "team/train")
        assert pod is not None
        assert not pod["metadata"]["finalizers"]

    def test_that_runs_unadmitted_is_deleted(self) -> None:
        """It cannot be held back any more."""
        cluster = Cluster()
        cluster.pod(gates=())
        cluster.settle(self.KEY)
        assert "delete Pod" in cluster.writes
        assert cluster.get(Pod, "team/train") is None

    def test_that_is_deleted_while_it_waits_goes(self) -> None:
        """With its finalizer goes the Workload's."""
        cluster = Cluster()
        cluster.pod()
        cluster.settle(self.KEY)
        cluster.delete(Pod, "team/train")
        cluster.settle(self.KEY)
        assert cluster.get(Pod, "team/train") is None
        assert cluster.workload["metadata"]["finalizers"] == []

    def test_that_is_not_ours_is_left_alone(self) -> None:
        """The label and the finalizer of the webhook are missing."""
        cluster = Cluster()
        cluster.pod(labels={"kueue.x-k8s.io/managed": "false"}, finalizers=[])
        cluster.settle(self.KEY)
        assert cluster.writes == []


def test_admission_checks_that_wait_are_told() -> None:
    """In one event."""
    cluster = Cluster()
    cluster.job()
    cluster.settle()
    cluster.set_condition("QuotaReserved")
    checks = [{"name": n, "state": "Pending", "message": f"{n} waits", "lastTransitionTime": ""} for n in ("a", "b")]
    workload = cluster.workload
    workload["status"]["admissionChecks"] = checks
    cluster.put(Workload, workload)
    cluster.settle(JOB)
    assert cluster.events[-1] == ("UpdatedAdmissionCheck", "a: a waits; b: b waits")


@pytest.mark.parametrize("kind", ["PipelineRun", "CronJob"])
def test_a_child_of_an_owner_that_is_managed_elsewhere_is_left_alone(kind: str) -> None:
    """Nobody here knows when that owner may run; owners of other kinds are of no interest."""
    registry = Registry(external=[("tekton.dev", "PipelineRun")])
    owner = {"apiVersion": "tekton.dev/v1", "kind": kind, "name": "run", "uid": "u", "controller": True}
    cluster = Cluster(registry=registry)
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    meta = {"name": "train", "namespace": "team", "labels": labels, "ownerReferences": [owner]}
    template = {"spec": {"containers": [{"name": "c"}]}}
    cluster.put(Job, {"metadata": meta, "spec": {"suspend": False, "template": template}})
    decision = cluster.step()
    if kind == "PipelineRun":
        assert (cluster.writes, decision.why) == ([], "managed elsewhere with PipelineRun run")
    else:
        assert cluster.writes == ["patch Job", "create Workload"]
