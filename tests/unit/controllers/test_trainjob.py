"""A TrainJob is charged for the JobSet that Trainer makes of it; meanwhile, and without Trainer, nothing is lost."""

from typing import Any

from tests.unit.controllers.job_cluster import Cluster
from tests.unit.controllers.test_multikueue_kinds import dispatch
from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.kinds.trainjob import MANAGER, TrainJob, TrainJobs

KEY = "trainer.kubeflow.org/trainjob:team/train"
SET = "jobset.x-k8s.io/jobset:team/train"
Body = dict[str, Any]


class Training(Cluster):
    """TrainJob `train` of two nodes, and a Trainer that makes and renders its JobSet when it is asked to."""

    def __init__(self, *, rendered: bool = True) -> None:
        super().__init__()
        self.flavor()
        meta = {"name": "train", "namespace": "team", "labels": {names.QUEUE_LABEL: "main"}}
        self.put(TrainJob, {"metadata": meta, "spec": {"suspend": True, "runtimePatches": [{"manager": MANAGER}]}})
        if rendered:
            self.render()

    @property
    def train_job(self) -> Body:
        """The TrainJob as it is now."""
        found = self.get(TrainJob, "team/train")
        assert found is not None
        return found

    def drop_patches(self) -> None:
        """As the API server does where the definition of TrainJob has no such field."""
        self.patch(TrainJob, "team/train", {"spec": {"runtimePatches": None}})

    def render(
        self, *, nodes: int = 2, cpu: str = "1", active: int = 0, ready: int = 0, uid: str = "", read: bool = True
    ) -> None:
        """Trainer makes the JobSet of the TrainJob as it is now, and the JobSet controller has `read` a suspension."""
        train_job = self.train_job
        spec = {"suspend": train_job["spec"]["suspend"], "replicatedJobs": [self._nodes(train_job, nodes, cpu)]}
        owner = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "train"}
        reference = {**owner, "uid": uid or train_job["metadata"]["uid"], "controller": True}
        meta = {"name": "train", "namespace": "team", "ownerReferences": [reference]}
        if (old := self.get(JobSet, "team/train")) is not None:
            meta["uid"] = old["metadata"]["uid"]
        said = [{"type": "Suspended", "status": "True"}] if read and spec["suspend"] else []
        status = {"replicatedJobsStatus": [{"name": "node", "active": active, "ready": ready}], "conditions": said}
        self.put(JobSet, {"metadata": meta, "spec": spec, "status": status})

    @staticmethod
    def _nodes(train_job: Body, nodes: int, cpu: str) -> Body:
        container = {"name": "node", "image": "trainer:1", "resources": {"requests": {"cpu": cpu}}}
        template: Body = {"metadata": {}, "spec": {"containers": [container], "tolerations": [{"key": "own"}]}}
        for patch in train_job["spec"].get("runtimePatches", ()):
            for job in (
                patch.get("trainingRuntimeSpec", {}).get("template", {}).get("spec", {}).get("replicatedJobs", ())
            ):
                given = job["template"]["spec"]["template"]
                template["metadata"] |= given["metadata"]
                template["spec"] |= given.get("spec", {})
        return {
            "name": "node",
            "template": {"spec": {"parallelism": nodes, "completions": nodes, "template": template}},
        }

    def started(self) -> None:
        """The TrainJob was admitted and runs."""
        self.settle(KEY)
        self.admit()
        self.settle(KEY)
        self.render(active=1)
        self.writes.clear()
        self.events.clear()


def test_it_waits_for_the_job_set_of_trainer() -> None:
    """Before, nobody knows what it asks for."""
    cluster = Training(rendered=False)
    assert cluster.step(KEY).why == "Trainer has not made the JobSet yet"
    assert cluster.workloads == []
    cluster.render()
    cluster.settle(KEY)
    (pod_set,) = cluster.workload["spec"]["podSets"]
    assert (pod_set["name"], pod_set["count"]) == ("node", 2)


def test_a_job_set_of_another_owner_says_nothing() -> None:
    """Somebody made a small one by hand, under the name that Trainer will use."""
    cluster = Training(rendered=False)
    cluster.render(nodes=1, uid="uid-of-none")
    cluster.settle(KEY)
    assert cluster.workloads == []


def test_its_start_is_one_write() -> None:
    """Resumed, with what the flavor gives the pods beside the tolerations that they have."""
    cluster = Training()
    cluster.flavor(nodeLabels={"pool": "a"}, tolerations=[{"key": "spot", "operator": "Exists"}])
    cluster.settle(KEY)
    cluster.writes.clear()
    cluster.admit()
    cluster.settle(KEY)
    assert cluster.writes == ["patch TrainJob"]
    spec = cluster.train_job["spec"]
    (patch,) = spec["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert spec["suspend"] is False
    assert job["name"] == "node"
    assert job["template"]["spec"]["template"]["spec"] == {
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "own"}, {"key": "spot", "operator": "Exists"}],
    }


def test_without_its_runtime_patch_it_is_not_started() -> None:
    """The API server drops it where Trainer is older than runtime patches, and so would what a start adds: the pods
    would run on any nodes."""
    cluster = Training()
    cluster.drop_patches()
    cluster.settle(KEY)
    cluster.writes.clear()
    cluster.admit()
    cluster.settle(KEY)
    assert cluster.train_job["spec"]["suspend"] is True
    status, reason, message = cluster.condition("Finished") or ("", "", "")
    assert (status, reason) == ("True", "FailedToStart")
    assert "does not know runtimePatches and has to be upgraded" in message
    cluster.settle(KEY)
    assert cluster.writes.count("create Workload") == 0
    cluster.patch(TrainJob, "team/train", {"spec": {"runtimePatches": [{"manager": MANAGER}]}})
    cluster.settle(KEY)
    assert cluster.condition("Finished") is None


def test_one_that_the_webhook_missed_gets_its_runtime_patch_when_it_is_suspended() -> None:
    """Without it the TrainJob could not be started."""
    cluster = Training(rendered=False)
    cluster.drop_patches()
    cluster.patch(TrainJob, "team/train", {"spec": {"suspend": False}})
    cluster.render()
    cluster.settle(KEY)
    assert cluster.train_job["spec"]["suspend"] is True
    assert [each["manager"] for each in cluster.train_job["spec"]["runtimePatches"]] == [MANAGER]


def test_quota_is_kept_until_trainer_has_suspended_the_job_set() -> None:
    """Also when Trainer counts no active Job yet, and until the JobSet controller has read it. Then what
    the admission gave the pods is taken off, but for a label and an annotation: without them Trainer could not render
    the JobSet again."""
    cluster = Training()
    cluster.started()
    cluster.render(active=0)
    cluster.evict()
    cluster.settle(KEY)
    assert cluster.train_job["spec"]["suspend"] is True
    assert cluster.condition("QuotaReserved") == ("True", "ByTest", "")
    cluster.render(read=False)
    cluster.settle(KEY)
    assert cluster.condition("QuotaReserved") == ("True", "ByTest", "")
    cluster.render()
    cluster.settle(KEY)
    (patch,) = cluster.train_job["spec"]["runtimePatches"]
    (job,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    marks = {names.PODSET_LABEL: "node"}
    assert job["template"]["spec"]["template"] == {"metadata": {"labels": marks, "annotations": marks}}
    condition = cluster.condition("QuotaReserved")
    assert condition is not None
    assert condition[0] == "False"


def test_it_is_not_started_from_a_job_set_of_its_last_run() -> None:
    """Which still has the node selector of that run: Trainer renders the JobSet again first."""
    cluster = Training()
    cluster.flavor(nodeLabels={"pool": "a"})
    cluster.flavor("other", nodeLabels={"pool": "b"})
    cluster.started()
    cluster.evict()
    cluster.settle(KEY)
    cluster.render()
    cluster.settle(KEY)
    cluster.admit(flavor="other")
    cluster.settle(KEY)
    assert cluster.train_job["spec"]["suspend"] is True
    cluster.render()
    cluster.settle(KEY)
    assert cluster.train_job["spec"]["suspend"] is False
    assert cluster.condition("Finished") is None


def test_a_workload_is_kept_while_the_job_set_of_its_last_run_is_rendered_again() -> None:
    """The JobSet has tolerations of the flavor, which the Workload must not ask for."""
    cluster = Training()
    cluster.flavor(tolerations=[{"key": "spot", "operator": "Exists"}])
    cluster.started()
    cluster.evict()
    cluster.settle(KEY)
    cluster.render()
    cluster.settle(KEY)
    cluster.settle(KEY)
    (pod_set,) = cluster.workload["spec"]["podSets"]
    assert pod_set["template"]["spec"]["tolerations"] == [{"key": "own"}]


def test_it_can_be_stopped_without_its_job_set() -> None:
    """Somebody deleted the JobSet while Trainer does not run: there are no pods, and the quota is free."""
    cluster = Training()
    cluster.started()
    cluster.delete(JobSet, "team/train")
    cluster.evict()
    cluster.settle(KEY)
    condition = cluster.condition("QuotaReserved")
    assert condition is not None
    assert condition[0] == "False"
    assert len(cluster.workloads) == 1


def test_more_nodes_than_were_admitted_stop_it() -> None:
    """Trainer rendered the JobSet again, from a TrainJob that was suspended and changed meanwhile."""
    cluster = Training()
    cluster.started()
    cluster.render(nodes=8, active=1)
    cluster.settle(KEY)
    assert cluster.train_job["spec"]["suspend"] is True
    cluster.render(nodes=8)
    cluster.settle(KEY)
    cluster.render(nodes=8)
    cluster.settle(KEY)
    (pod_set,) = cluster.workload["spec"]["podSets"]
    assert pod_set["count"] == 8


def test_larger_pods_than_were_admitted_do_not_run() -> None:
    """The runtime was changed after the admission, before Trainer rendered the JobSet: the JobSet is suspended."""
    cluster = Training()
    cluster.settle(KEY)
    cluster.admit()
    cluster.settle(KEY)
    cluster.render(cpu="16")
    cluster.settle(SET)
    found = cluster.get(JobSet, "team/train")
    assert found is not None
    assert found["spec"]["suspend"] is True
    assert cluster.events[-1][0] == "NotCharged"


def test_a_job_set_that_is_as_admitted_is_left_to_trainer() -> None:
    """It has no Workload of its own."""
    cluster = Training()
    cluster.started()
    cluster.settle(SET)
    assert cluster.writes == []
    assert cluster.events == []


def test_a_deleted_one_keeps_its_quota_while_its_pods_run() -> None:
    """The pods are made by Jobs of the JobSet, and name the Workload. The JobSet could make more while it exists."""
    cluster = Training()
    cluster.started()
    workload = cluster.workload["metadata"]["name"]
    meta: Body = {"name": "p", "namespace": "team", "annotations": {names.WORKLOAD: workload}}
    meta["labels"] = {names.PODSET_LABEL: "node"}
    cluster.put(Pod, {"metadata": meta, "spec": {"nodeName": "n", "containers": []}, "status": {"phase": "Running"}})
    cluster.delete(TrainJob, "team/train")
    cluster.settle(KEY)
    cluster.delete(JobSet, "team/train")
    cluster.later(seconds=60)
    cluster.settle(KEY)
    assert cluster.condition("Finished") is None
    cluster.patch(Pod, "team/p", {"status": {"phase": "Succeeded"}})
    cluster.settle(KEY)
    assert cluster.condition("Finished") is not None


class TestOnAnotherCluster:
    """A copy of it runs there."""

    def test_it_stays_suspended_here(self) -> None:
        """Though it is admitted; Trainer made its JobSet, which is charged for."""
        cluster = Training()
        cluster.settle(KEY)
        dispatch(cluster)
        cluster.admit()
        cluster.settle(KEY)
        assert cluster.train_job["spec"]["suspend"]
        assert cluster.workload["status"]["admission"]

    def test_only_its_end_comes_back(self) -> None:
        """Trainer goes on writing the status of the TrainJob, and takes a failure out of it."""
        returned = TrainJobs.copies.returned
        assert returned is not None
        complete, failed = ({"type": each, "status": "True"} for each in ("Complete", "Failed"))
        suspended = {"type": "Suspended", "status": "False"}
        assert returned(TrainJob(), {"conditions": [suspended, complete]}) == {"conditions": [complete]}
        assert returned(TrainJob(), {"conditions": [suspended, failed], "jobsStatus": [{"name": "node"}]}) is None
        assert returned(TrainJob(), {}) is None
