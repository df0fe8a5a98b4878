"""How a running Job gives its quota back, and how little is written for it."""

import pytest

from tests.unit.controllers.job_cluster import POD, TEMPLATE, Body, Cluster
from turnstile.api.core import Job, Pod
from turnstile.api.workload import Workload


@pytest.fixture
def running() -> Cluster:
    """A Job that was admitted to a flavor with a node label and whose pod runs."""
    cluster = Cluster()
    cluster.flavor(nodeLabels={"pool": "a"})
    cluster.job()
    cluster.settle()
    cluster.admit()
    cluster.settle()
    cluster.run_pods()
    cluster.settle()
    cluster.writes.clear()
    cluster.events.clear()
    return cluster


def job_of(cluster: Cluster) -> Body:
    """The Job as it is."""
    job = cluster.get(Job, "team/train")
    assert job is not None
    return job


class TestEviction:
    """A Workload that was evicted."""

    def test_suspends_the_job_and_waits_for_its_pods(self, running: Cluster) -> None:
        """The API server lets no template change while a pod is active."""
        running.evict()
        running.settle()
        assert running.writes == ["patch Job"]
        assert job_of(running)["spec"]["suspend"] is True
        assert running.events == [("Stopped", "Preempted to make room")]

    def test_then_clears_the_start_time_and_restores_the_template(self, running: Cluster) -> None:
        """No trace is left of the run, and the quota goes back in the same look."""
        running.evict()
        running.settle()
        running.writes.clear()
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.step()
        assert running.writes == ["patch Job status", "patch Job", "patch Workload status"]
        job = job_of(running)
        assert job["spec"]["suspend"] is True
        assert "startTime" not in job["status"]
        assert not job["spec"]["template"]["spec"].get("nodeSelector")
        assert job["spec"]["template"]["metadata"]["labels"] == {"app": "train"}
        assert not job["metadata"].get("annotations")
        assert running.events == [("Stopped", "Preempted to make room")]

    @pytest.mark.parametrize("survives", [0, 1, 2, 3])
    def test_goes_on_where_a_dead_process_left_it(self, running: Cluster, survives: int) -> None:
        """Whatever the number of writes that arrived, the Job ends up stopped and restored."""
        running.evict()
        running.step(only=survives)
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.step(only=survives)
        running.settle()
        job = job_of(running)
        assert job["spec"]["suspend"] is True
        assert not job["spec"]["template"]["spec"].get("nodeSelector")
        assert not job["metadata"].get("annotations")

    def test_keeps_the_quota_while_pods_run(self, running: Cluster) -> None:
        """The reservation goes once the Job counts no active pod."""
        running.evict()
        running.settle()
        assert running.condition("QuotaReserved") == ("True", "ByTest", "")
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.settle()
        assert running.condition("QuotaReserved") == ("False", "PendingEvaluation", "Preempted to make room")

    def test_ends_in_one_status_write(self, running: Cluster) -> None:
        """Reservation, admission and the way back to the queue change together."""
        running.evict()
        running.settle()
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.settle()
        assert running.writes.count("patch Workload status") == 1
        assert running.condition("Admitted") == ("False", "NoReservation", "The workload has no reservation")
        assert "admission" not in running.workload["status"]
        assert running.workload["status"]["accumulatedPastExecutionTimeSeconds"] == 5

    def test_adds_its_time_to_that_of_earlier_runs(self, running: Cluster) -> None:
        """So that a limit holds across evictions."""
        running.patch(Workload, running.workload_key, {"status": {"accumulatedPastExecutionTimeSeconds": 100}})
        running.evict()
        running.settle()
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.settle()
        assert running.workload["status"]["accumulatedPastExecutionTimeSeconds"] == 105

    @pytest.mark.parametrize(("cause", "past"), [("MaximumExecutionTimeExceeded", None), ("RequeuingLimitExceeded", 5)])
    def test_at_its_time_limit_does_not_add_that_time(self, running: Cluster, cause: str, past: int | None) -> None:
        """Activated again, it has the whole time: it would be deactivated at its next admission otherwise."""
        running.evict(f"DeactivatedDueTo{cause}", "why")
        running.settle()
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.settle()
        assert running.workload["status"].get("accumulatedPastExecutionTimeSeconds") == past

    @pytest.mark.parametrize(
        ("reason", "requeued"),
        [("Preempted", "True"), ("NodeFailures", "True"), ("ClusterQueueStopped", "False"), ("Deactivated", "False")],
    )
    def test_says_whether_the_workload_queues_again(self, running: Cluster, reason: str, requeued: str) -> None:
        """Only what was pushed out by others comes back by itself."""
        running.evict(reason, "why")
        running.settle()
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.settle()
        assert running.condition("Requeued") == (requeued, reason, "why")

    def test_and_another_queue_move_the_workload(self, running: Cluster) -> None:
        """Who was stopped waits like the others, and may try another queue."""
        running.evict()
        running.settle()
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.settle()
        running.patch(Job, "team/train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
        running.settle()
        assert running.workload["spec"]["queueName"] == "other"

    def test_and_another_admission_start_the_job_again(self, running: Cluster) -> None:
        """What the first flavor added is gone, what the second adds is there."""
        running.flavor("other", nodeLabels={"pool": "b"})
        running.evict()
        running.settle()
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.settle()
        running.admit(flavor="other")
        running.settle()
        assert job_of(running)["spec"]["suspend"] is False
        assert job_of(running)["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "b"}

    def test_of_a_job_that_was_suspended_meanwhile_still_cleans_up(self, running: Cluster) -> None:
        """Nobody is told that it was stopped, for it was not by us."""
        running.patch(Job, "team/train", {"spec": {"suspend": True}})
        running.evict()
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.settle()
        assert running.writes == ["patch Job status", "patch Job", "patch Workload status"]
        assert running.events == []


class TestAnEvictedPod:
    """A plain Pod is stopped by its deletion, which is the end of its Workload too."""

    @pytest.mark.parametrize("phase", ["Failed", "Succeeded", ""])
    def test_gives_its_quota_back_before_its_workload_is_finished(self, phase: str) -> None:
        """Requeued is written, as Kueue does, and nothing is reserved any more: however the Pod ends."""
        cluster = Cluster()
        cluster.flavor()
        cluster.pod()
        cluster.settle(POD)
        cluster.admit()
        cluster.settle(POD)
        cluster.patch(Pod, "team/train", {"spec": {"nodeName": "node"}, "status": {"phase": "Running"}})
        cluster.evict()
        cluster.settle(POD)
        assert cluster.condition("Finished") is None
        assert (cluster.condition("QuotaReserved") or ())[0] == "True"
        ended = {"status": {"phase": phase}} if phase else {"metadata": {"finalizers": []}}
        cluster.patch(Pod, "team/train", ended)
        cluster.settle(POD)
        assert cluster.condition("Requeued") == ("False", "Preempted", "Preempted to make room")
        assert (cluster.condition("QuotaReserved") or ())[:2] == ("False", "PendingEvaluation")
        assert "admission" not in cluster.workload["status"]
        assert (cluster.condition("Finished") or ())[:2] == ("True", "OwnerNotFound")


class TestAJobThatRunsUnadmitted:
    """A Job that was unsuspended by somebody else."""

    def test_is_suspended_in_one_write_if_nothing_ran(self) -> None:
        """There is no start time to clear and nothing to restore."""
        cluster = Cluster()
        cluster.job()
        cluster.settle()
        cluster.patch(Job, "team/train", {"spec": {"suspend": False}})
        cluster.writes.clear()
        cluster.settle()
        assert cluster.writes == ["patch Job"]
        assert cluster.events[-1] == ("Stopped", "Not admitted by cluster queue")

    def test_has_its_start_time_cleared_so_that_it_can_be_started_later(self) -> None:
        """A Job with a start time takes no node selector."""
        cluster = Cluster()
        cluster.flavor(nodeLabels={"pool": "a"})
        cluster.job()
        cluster.settle()
        cluster.patch(Job, "team/train", {"spec": {"suspend": False}})
        cluster.run_pods()
        cluster.step(only=1)
        cluster.settle()
        cluster.patch(Job, "team/train", {"status": {"active": 0}})
        cluster.admit()
        cluster.settle()
        assert job_of(cluster)["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "a"}

    def test_and_was_half_stopped_is_stopped_before_it_starts(self, running: Cluster) -> None:
        """An admission that comes in between does not leave it suspended for ever."""
        running.evict()
        running.step(only=1)
        running.set_condition("Evicted", status="False")
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.settle()
        assert job_of(running)["spec"]["suspend"] is False
        assert not job_of(running)["metadata"].get("annotations")


class TestADeletedWorkload:
    """A Workload that somebody deletes."""

    def test_of_a_running_job_stops_it_and_another_is_made(self, running: Cluster) -> None:
        """Its finalizer holds it until the Job is stopped and restored by it."""
        old = running.workload["metadata"]["uid"]
        running.delete(Workload, running.workload_key)
        running.settle()
        assert running.writes == ["patch Job"]
        assert running.events == [("Stopped", "Workload is deleted")]
        running.patch(Job, "team/train", {"status": {"active": 0}})
        running.step()
        assert running.writes == ["patch Job", "patch Job status", "patch Job", "patch Workload"]
        assert running.workloads == []
        running.settle()
        assert running.workload["metadata"]["uid"] != old

    def test_of_a_job_that_ended_before_its_stop_is_let_go(self, running: Cluster) -> None:
        """Nothing is left to stop, and the API server would refuse to clear the start time of a finished Job."""
        running.delete(Workload, running.workload_key)
        running.settle()
        done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"}
        running.patch(Job, "team/train", {"status": {"active": 0, "succeeded": 1, "conditions": [done]}})
        running.settle()
        assert running.workloads == []
        assert "startTime" in job_of(running)["status"]

    def test_of_a_waiting_job_is_made_again(self) -> None:
        """Nothing is to be stopped."""
        cluster = Cluster()
        cluster.job()
        cluster.settle()
        cluster.delete(Workload, cluster.workload_key)
        cluster.writes.clear()
        cluster.settle()
        assert cluster.writes == ["patch Workload", "create Workload"]


def test_labels_that_kubernetes_gave_the_template_are_kept() -> None:
    """The API server forbids to take them away."""
    cluster = Cluster()
    cluster.flavor(nodeLabels={"pool": "a"})
    given = {"batch.kubernetes.io/job-name": "train", "controller-uid": "u", "app": "train"}
    template = {"metadata": {"labels": given}, "spec": {"containers": [{"name": "c"}]}}
    cluster.job(template=template)
    cluster.settle()
    assert cluster.workload["spec"]["podSets"][0]["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/job-name": "train",
        "app": "train",
    }
    cluster.admit()
    cluster.settle()
    cluster.run_pods()
    cluster.evict()
    cluster.settle()
    cluster.patch(Job, "team/train", {"status": {"active": 0}})
    cluster.settle()
    assert job_of(cluster)["spec"]["template"]["metadata"]["labels"] == given


def test_an_admitted_job_waits_for_the_pods_of_an_earlier_run() -> None:
    """Somebody let it run without quota before: its template is locked until those pods are gone."""
    cluster = Cluster()
    cluster.flavor(nodeLabels={"pool": "a"})
    cluster.job()
    cluster.settle()
    cluster.patch(Job, "team/train", {"spec": {"suspend": False}})
    cluster.run_pods()
    cluster.patch(Job, "team/train", {"spec": {"suspend": True}})
    cluster.admit()
    cluster.settle()
    assert job_of(cluster)["spec"]["suspend"] is True
    cluster.patch(Job, "team/train", {"status": {"active": 0}})
    cluster.settle()
    assert job_of(cluster)["spec"]["suspend"] is False
    assert job_of(cluster)["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "a"}


class TestBeforeTheJobControllerHasSeenItStart:
    """It may have read the Job as running, and creates pods that no status tells of."""

    def evicted(self) -> Cluster:
        """A Job that is evicted right after it was started."""
        cluster = Cluster()
        cluster.flavor()
        cluster.job()
        cluster.settle()
        cluster.job_controller = False
        cluster.admit()
        cluster.settle()
        cluster.writes.clear()
        cluster.evict()
        cluster.settle()
        return cluster

    def test_the_quota_is_kept_until_it_has_seen_the_stop(self) -> None:
        """The condition Suspended, which was True before the start, is reset to become True again."""
        cluster = self.evicted()
        assert cluster.writes == ["patch Job status", "patch Job"]
        (suspended,) = cluster.get(Job, "team/train")["status"]["conditions"]  # type: ignore[index]
        assert (suspended["type"], suspended["status"]) == ("Suspended", "False")
        assert cluster.condition("QuotaReserved") == ("True", "ByTest", "")
        cluster.job_controller = True
        cluster.patch(Job, "team/train", {})
        cluster.settle()
        assert cluster.condition("QuotaReserved")[0] == "False"  # type: ignore[index]
        template = cluster.get(Job, "team/train")["spec"]["template"]  # type: ignore[index]
        assert template["metadata"]["labels"] == TEMPLATE["metadata"]["labels"]

    def test_pods_that_were_created_meanwhile_are_waited_for(self) -> None:
        """The first status after the stop tells of them."""
        cluster = self.evicted()
        status = {"active": 0, "terminating": 3, "conditions": [{"type": "Suspended", "status": "True"}]}
        cluster.patch(Job, "team/train", {"status": status})
        cluster.settle()
        assert cluster.condition("QuotaReserved") == ("True", "ByTest", "")
        cluster.patch(Job, "team/train", {"status": {"terminating": 0}})
        cluster.settle()
        assert cluster.condition("QuotaReserved")[0] == "False"  # type: ignore[index]
