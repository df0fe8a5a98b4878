"""The life of a Job under quota: made, admitted, ended; and how few writes it takes."""

import json

import pytest

from tests.unit.controllers.job_cluster import JOB, Cluster
from turnstile.api.core import Job
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Patch, RequeueAfter
from turnstile.jobs.options import JobOptions

QUEUED = {"kueue.x-k8s.io/queue-name": "main"}


@pytest.fixture
def cluster() -> Cluster:
    """One flavor with a label and a toleration."""
    made = Cluster()
    made.flavor(nodeLabels={"pool": "a"}, tolerations=[{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}])
    return made


class TestANewJob:
    """What a Job gets when it is first seen."""

    def test_gets_a_workload_that_asks_for_its_pods(self, cluster: Cluster) -> None:
        """Name, owner, finalizer, queue and pod set are Kueue's."""
        cluster.job(parallelism=3, completions=10)
        cluster.settle()
        workload, job = cluster.workload, cluster.get(Job, "team/train")
        assert job is not None
        uid = job["metadata"]["uid"]
        assert workload["metadata"]["name"].startswith("job-train-")
        assert workload["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
        assert workload["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": uid}
        assert workload["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "train",
                "uid": uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        assert workload["spec"]["queueName"] == "main"
        assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [("main", 3)]
        assert cluster.writes == ["create Workload"]
        assert cluster.events == [("CreatedWorkload", f"Created Workload: {cluster.workload_key}")]

    def test_gives_its_workload_the_labels_that_the_configuration_names(self) -> None:
        """When it is created; never the label by which the Workload is found."""
        uid_label = "kueue.x-k8s.io/job-uid"
        cluster = Cluster(options=JobOptions(label_keys_to_copy=("team", "absent", uid_label)))
        cluster.job(labels={**QUEUED, "team": "vision", "other": "a", uid_label: "forged"})
        cluster.settle()
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert cluster.workload["metadata"]["labels"] == {"team": "vision", uid_label: job["metadata"]["uid"]}

    def test_that_the_webhook_missed_is_suspended_first(self, cluster: Cluster) -> None:
        """One patch suffices as nothing ran yet, and the Workload follows in the same look."""
        cluster.job(suspend=False)
        cluster.step()
        assert cluster.writes == ["patch Job", "create Workload"]
        assert cluster.events[0] == ("Stopped", "Missing Workload; unable to restore pod templates")

    def test_that_the_webhook_missed_waits_until_its_pods_are_gone(self, cluster: Cluster) -> None:
        """No Workload, thus no quota, while pods run that nobody admitted."""
        cluster.job(suspend=False)
        cluster.run_pods()
        cluster.settle()
        assert cluster.workloads == []
        cluster.patch(Job, "team/train", {"status": {"active": 0}})
        cluster.settle()
        assert len(cluster.workloads) == 1


class TestAdmission:
    """What an admitted Workload does to its Job."""

    def test_starts_the_job_on_nodes_of_its_flavor_in_one_write(self, cluster: Cluster) -> None:
        """Suspension, node selector, tolerations and labels go together."""
        cluster.job()
        cluster.settle()
        cluster.writes.clear()
        cluster.admit()
        cluster.settle()
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is False
        assert job["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "a"}
        assert job["spec"]["template"]["spec"]["tolerations"] == [
            {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
        ]
        assert job["spec"]["template"]["metadata"]["labels"] == {
            "app": "train",
            "kueue.x-k8s.io/podset": "main",
            "kueue.x-k8s.io/local-queue-name": "main",
            "kueue.x-k8s.io/cluster-queue-name": "cq",
        }
        assert cluster.writes == ["patch Job"]
        assert cluster.events[-1] == ("Started", "Admitted by clusterQueue cq")

    def test_of_fewer_pods_lowers_the_parallelism(self, cluster: Cluster) -> None:
        """Partial admission, completions following where asked."""
        cluster.job(
            parallelism=10,
            completions=10,
            annotations={
                "kueue.x-k8s.io/job-min-parallelism": "2",
                "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
            },
        )
        cluster.settle()
        cluster.admit(count=4)
        cluster.settle()
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (4, 4)

    def test_that_contradicts_the_template_fails_the_workload(self, cluster: Cluster) -> None:
        """The conflict names the key and both values; the Job stays suspended."""
        template = {"spec": {"containers": [{"name": "c"}], "nodeSelector": {"pool": "b"}}}
        cluster.job(template=template)
        cluster.settle()
        cluster.admit()
        cluster.settle()
        assert cluster.condition("Finished") == (
            "True",
            "FailedToStart",
            (
                "invalid admission check PodSetUpdate: conflict for nodeSelector: "
                "conflict for key=pool, value1=b, value2=a"
            ),
        )
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is True
        assert cluster.events[-1] == ("FinishedWorkload", f"Workload '{cluster.workload_key}' is declared finished")

    def test_with_a_flavor_not_yet_seen_waits_for_it(self, cluster: Cluster) -> None:
        """Neither failed nor started."""
        cluster.job()
        cluster.settle()
        cluster.admit(flavor="unseen")
        cluster.settle()
        assert cluster.condition("Finished") is None
        cluster.flavor("unseen")
        cluster.settle()
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is False


class TestTheEnd:
    """What the end of a Job does to its Workload."""

    @pytest.mark.parametrize(("condition", "reason"), [("Complete", "Succeeded"), ("Failed", "Failed")])
    def test_of_a_job_is_the_end_of_its_workload(self, cluster: Cluster, condition: str, reason: str) -> None:
        """The Job's message goes along; the finalizer is housekeeping that may wait."""
        cluster.job()
        cluster.settle()
        cluster.admit()
        cluster.settle()
        cluster.patch(
            Job, "team/train", {"status": {"conditions": [{"type": condition, "status": "True", "message": "over"}]}}
        )
        cluster.step()
        assert cluster.condition("Finished") == ("True", reason, "over")
        (release,) = cluster.decide().actions
        assert isinstance(release, Patch)
        assert release.deferrable
        assert json.loads(release.body)["metadata"]["finalizers"] == []
        cluster.settle()
        assert cluster.events[-1] == ("FinishedWorkload", f"Workload '{cluster.workload_key}' is declared finished")

    def test_comes_after_four_writes_and_one_that_may_wait(self, cluster: Cluster) -> None:
        """Workload made, admitted (by the scheduler), Job started, Workload finished; then the finalizer."""
        cluster.job()
        cluster.settle()
        cluster.admit()
        cluster.settle()
        cluster.run_pods()
        cluster.settle()
        done = {"active": 0, "succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}
        cluster.patch(Job, "team/train", {"status": done})
        cluster.settle()
        assert cluster.writes == ["create Workload", "patch Job", "patch Workload status", "patch Workload"]

    def test_of_a_job_that_is_deleted_while_it_waits_frees_its_workload(self, cluster: Cluster) -> None:
        """Quota goes back at once by Finished, then the finalizer goes, and garbage collection does the rest."""
        cluster.job()
        cluster.settle()
        cluster.delete(Job, "team/train")
        cluster.settle()
        assert cluster.condition("Finished") == ("True", "OwnerNotFound", "The workload's owner no longer exists")
        assert cluster.workload["metadata"]["finalizers"] == []

    def test_of_a_finished_workload_that_is_deleted_does_not_wait_for_quiet(self, cluster: Cluster) -> None:
        """Whoever deletes it waits for our finalizer."""
        cluster.job()
        cluster.settle()
        cluster.set_condition("Finished", reason="Succeeded")
        cluster.delete(Workload, cluster.workload_key)
        assert [a.deferrable for a in cluster.decide().actions if isinstance(a, Patch)] == [False]


def test_pods_that_will_not_be_made_again_give_their_quota_back() -> None:
    """Fewer completions are left than may run at a time."""
    cluster = Cluster()
    cluster.flavor()
    cluster.job(parallelism=3, completions=5)
    cluster.settle()
    cluster.admit()
    cluster.settle()
    cluster.patch(Job, "team/train", {"status": {"active": 1, "succeeded": 4}})
    cluster.settle()
    assert cluster.workload["status"]["reclaimablePods"] == [{"name": "main", "count": 2}]


def test_a_look_at_what_is_gone_does_nothing() -> None:
    """A key may outlive its Job and its Workload."""
    assert Cluster().decide(JOB).actions == []


def test_a_job_that_is_gone_keeps_its_quota_while_its_copy_stops_on_another_cluster() -> None:
    """No pod of it is here: the other cluster says when it has released its own."""
    cluster, elsewhere = Cluster(), True
    cluster.world.multikueue.elsewhere.holds = lambda workload: elsewhere
    cluster.job()
    cluster.settle()
    cluster.flavor()
    cluster.admit()
    cluster.settle()
    cluster.delete(Job, "team/train")
    cluster.later(minutes=1)  # no pod of it was seen
    cluster.settle()
    assert cluster.condition("Finished") is None
    elsewhere = False
    cluster.settle()
    found = cluster.condition("Finished")
    assert found is not None
    assert found[1] == "OwnerNotFound"


class TestAJobOnAnotherCluster:
    """Its status says what the job of that name there says of itself, which a tenant there decides."""

    @pytest.fixture
    def sent(self) -> Cluster:
        """The cluster has quota for it, and has released none."""
        cluster = Cluster()
        cluster.world.multikueue.elsewhere.holds = lambda workload: True
        cluster.world.multikueue.elsewhere.released = lambda workload: {}
        cluster.job(parallelism=2, completions=2)
        cluster.settle()
        cluster.flavor()
        cluster.admit()
        cluster.settle()
        return cluster

    def released(self, cluster: Cluster) -> None:
        """The other cluster has released its quota."""
        cluster.world.multikueue.elsewhere.holds = lambda workload: False
        cluster.settle()

    def test_keeps_its_quota_when_it_has_ended(self, sent: Cluster) -> None:
        """Until that cluster has released its own."""
        done = {"type": "Complete", "status": "True", "reason": "Done", "message": ""}
        sent.patch(Job, "team/train", {"status": {"active": 0, "succeeded": 2, "conditions": [done]}})
        sent.settle()
        assert sent.condition("Finished") is None
        assert any(isinstance(each, RequeueAfter) for each in sent.decide(JOB).actions)
        self.released(sent)
        assert sent.condition("Finished") is not None

    def test_keeps_its_quota_when_it_is_evicted(self, sent: Cluster) -> None:
        """Likewise, though no pod is active by its status."""
        sent.evict()
        sent.later(minutes=1)
        sent.settle()
        assert sent.workload["status"].get("admission")
        self.released(sent)
        assert not sent.workload["status"].get("admission")

    def test_gives_back_what_that_cluster_has(self, sent: Cluster) -> None:
        """Quota of pods that are done."""
        sent.patch(Job, "team/train", {"status": {"active": 1, "succeeded": 1}})
        sent.settle()
        assert not sent.workload["status"].get("reclaimablePods")
        sent.world.multikueue.elsewhere.released = lambda workload: {"main": 1}
        sent.settle()
        assert sent.workload["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
