"""Pods that are stopped have the patience of their preemptor to end, and no longer; pods without quota a short time."""

from typing import Any

import pytest

from tests.unit.controllers.group_cluster import GROUP
from tests.unit.controllers.job_cluster import JOB, TEMPLATE, Cluster
from tests.unit.controllers.test_pod_groups import running
from turnstile.api.core import Job, Pod
from turnstile.api.workload import Workload
from turnstile.controllers.charging.patience import SHORT_SECONDS
from turnstile.controllers.runtime.actions import Delete, RequeueAfter
from turnstile.jobs.options import JobOptions

YEAR = 31536000


def deletions(cluster: Cluster, key: str = JOB) -> dict[str, int | None]:
    """The pods that are to be deleted, each with the grace period that it gets instead of its own."""
    return {each.name: each.grace_seconds for each in cluster.decide(key).actions if isinstance(each, Delete)}


def looks(cluster: Cluster, key: str = JOB) -> list[float]:
    """When the job is to be looked at again."""
    return [each.seconds for each in cluster.decide(key).actions if isinstance(each, RequeueAfter)]


def pod_of_a_job(cluster: Cluster, *, grace: int, name: str = "train-1", workload: bool = True) -> None:
    """A running pod of the Job `train`, started by its admission, or not."""
    job = cluster.get(Job, "team/train")
    assert job is not None
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    annotations = {"kueue.x-k8s.io/workload": cluster.workload["metadata"]["name"]} if workload else {}
    labels = {"kueue.x-k8s.io/podset": "main"} if workload else {}
    meta: Any = {"name": name, "namespace": "team", "ownerReferences": [owner], "annotations": annotations}
    meta["labels"] = labels
    meta["finalizers"] = ["batch.kubernetes.io/job-tracking"]
    spec = {**TEMPLATE["spec"], "nodeName": "node", "terminationGracePeriodSeconds": grace}
    cluster.put(Pod, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})


def evicted(*, grace: int, options: JobOptions | None = None) -> Cluster:
    """A Job that was evicted five seconds ago, whose pod the Job controller has deleted."""
    cluster = started(grace=grace, options=options)
    cluster.evict()
    cluster.settle()
    cluster.delete(Pod, "team/train-1")
    return cluster


class TestAnEvictedJob:
    def test_keeps_a_grace_period_within_the_patience(self) -> None:
        """A grace period that is no longer than the patience is never cut: the program may write a checkpoint."""
        cluster = evicted(grace=300)
        cluster.later(seconds=299)
        assert deletions(cluster) == {}
        cluster.later(days=2)
        assert deletions(cluster) == {}

    def test_has_the_patience_and_no_longer(self) -> None:
        """After the patience a pod that terminates is deleted once more, with a short grace period."""
        cluster = evicted(grace=YEAR)
        assert looks(cluster) == [295.0]
        assert deletions(cluster) == {}
        cluster.later(seconds=295)
        assert deletions(cluster) == {"train-1": SHORT_SECONDS}
        cluster.step()
        assert deletions(cluster) == {}
        assert cluster.condition("QuotaReserved") == ("True", "ByTest", "")

    def test_loses_pods_that_nobody_has_deleted(self) -> None:
        """After the patience a pod that holds the quota is deleted, whoever should have deleted it."""
        cluster = evicted(grace=30)
        cluster.patch(
            Pod, "team/train-1", {"metadata": {"deletionTimestamp": None, "deletionGracePeriodSeconds": None}}
        )
        cluster.later(seconds=300)
        assert deletions(cluster) == {"train-1": SHORT_SECONDS}

    def test_has_any_time_without_a_patience(self) -> None:
        """`--victim-patience 0`: a grace period of any length is waited for."""
        cluster = evicted(grace=YEAR, options=JobOptions(victim_patience=None))
        cluster.later(days=9)
        assert deletions(cluster) == {}

    def test_that_was_deleted_too(self) -> None:
        """The job may be gone: its pods have no longer time for that."""
        cluster = evicted(grace=YEAR)
        cluster.patch(Job, "team/train", {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})
        assert looks(cluster) == [295.0]
        cluster.later(seconds=295)
        assert deletions(cluster) == {"train-1": SHORT_SECONDS}


class TestAnEvictedGroup:
    @pytest.mark.parametrize(("grace", "given"), [(30, None), (300, None), (301, 295), (2**63 - 1, 295)])
    def test_gives_its_pods_what_is_left_of_the_patience(self, grace: int, given: int | None) -> None:
        """Turnstile deletes the pods itself, with their own grace period or what is left of the patience."""
        cluster = running(1, 1)
        for name in cluster.pods:
            cluster.patch(Pod, f"team/{name}", {"spec": {"terminationGracePeriodSeconds": grace}})
        cluster.evict()
        assert deletions(cluster, GROUP) == {"p0": given, "p1": given}

    def test_whose_user_has_deleted_it_with_a_year_to_stop(self) -> None:
        """A user's own deletion with a longer grace period is cut like any other."""
        cluster = running(1, 1)
        for name in cluster.pods:
            cluster.patch(Pod, f"team/{name}", {"spec": {"terminationGracePeriodSeconds": YEAR}})
            cluster.delete(Pod, f"team/{name}")
        cluster.evict()
        cluster.later(seconds=294)
        assert deletions(cluster, GROUP) == {}
        cluster.later(seconds=1)
        assert deletions(cluster, GROUP) == {"p0": SHORT_SECONDS, "p1": SHORT_SECONDS}


def test_a_decision_has_so_many_deletions_at_most() -> None:
    """The pods of a large job that have overstayed are deleted a hundred at a time."""
    cluster = evicted(grace=YEAR)
    for number in range(150):
        pod_of_a_job(cluster, grace=YEAR, name=f"more-{number}")
        cluster.delete(Pod, f"team/more-{number}")
    cluster.later(seconds=300)
    assert len(deletions(cluster)) == 100
    cluster.step()
    assert len(deletions(cluster)) == 51
    cluster.step()
    assert deletions(cluster) == {}


class TestPodsThatAreReplacedWhileTheyTerminate:
    @pytest.mark.parametrize(("grace", "cut"), [(300, False), (301, True), (YEAR, True)])
    def test_are_cut_short_beside_the_pods_in_their_place(self, grace: int, *, cut: bool) -> None:
        """A pod that was deleted with longer than the patience has no quota beside the pod that was made instead."""
        cluster = Cluster()
        cluster.flavor()
        cluster.job()
        cluster.settle()
        cluster.admit()
        cluster.settle()
        cluster.run_pods()
        pod_of_a_job(cluster, grace=grace)
        cluster.delete(Pod, "team/train-1")
        assert deletions(cluster) == {}
        pod_of_a_job(cluster, grace=grace, name="train-2")
        assert deletions(cluster) == ({"train-1": SHORT_SECONDS} if cut else {})
        assert looks(cluster) == ([5.0] if cut else [])
        cluster.step()
        assert deletions(cluster) == {}
        assert looks(cluster) == []


def started(*, grace: int, options: JobOptions | None = None) -> Cluster:
    """A Job that runs, with a pod that has so long to stop."""
    cluster = Cluster(options=options)
    cluster.flavor()
    cluster.job()
    cluster.settle()
    cluster.admit()
    cluster.settle()
    cluster.run_pods()
    pod_of_a_job(cluster, grace=grace)
    return cluster


class TestAJobThatNeedsItsPodsNoMore:
    """Its pods have the patience from their own deletion on, also if nobody waits for their quota: others may wait for
    their nodes."""

    @staticmethod
    def end(cluster: Cluster, how: str) -> None:
        """End the Job, and have its pod deleted a minute later."""
        job = cluster.get(Job, "team/train")
        assert job is not None
        cluster.later(seconds=60)
        if how == "ended":
            cluster.patch(Job, "team/train", {"status": {"conditions": [{"type": "Failed", "status": "True"}]}})
        elif how == "kept by a finalizer":
            cluster.patch(Job, "team/train", {"metadata": {"finalizers": ["example.com/keep"]}})
            cluster.delete(Job, "team/train")
        else:
            cluster.delete(Job, "team/train")
        assert looks(cluster) == []
        cluster.delete(Pod, "team/train-1")

    @pytest.mark.parametrize("how", ["gone", "kept by a finalizer", "ended"])
    def test_cuts_what_takes_longer(self, how: str) -> None:
        """Also where the Workload itself is not deleted, and no preemptor waits."""
        cluster = started(grace=YEAR)
        self.end(cluster, how)
        assert deletions(cluster) == {}
        assert looks(cluster) == [300.0]
        cluster.later(seconds=299)
        assert deletions(cluster) == {}
        cluster.later(seconds=1)
        assert deletions(cluster) == {"train-1": SHORT_SECONDS}
        cluster.step()
        assert deletions(cluster) == {}
        assert cluster.condition("QuotaReserved") == ("True", "ByTest", "")

    def test_keeps_a_grace_period_within_the_patience(self) -> None:
        """The program may write a checkpoint."""
        cluster = started(grace=300)
        self.end(cluster, "gone")
        cluster.later(seconds=299)
        assert deletions(cluster) == {}
        assert looks(cluster) == []

    def test_waits_for_ever_without_a_patience(self) -> None:
        """`--victim-patience 0`: a grace period of any length is waited for."""
        cluster = started(grace=YEAR, options=JobOptions(victim_patience=None))
        self.end(cluster, "gone")
        cluster.later(days=9)
        assert deletions(cluster) == {}

    @pytest.mark.parametrize("deletion", ["9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "1900-01-01T00:00:00Z"])
    def test_cuts_at_once_what_is_longer_than_dates_can_hold(self, deletion: str) -> None:
        """The API server adds the grace period to its time, and may come to any date."""
        cluster = started(grace=YEAR)
        self.end(cluster, "gone")
        grace = {"deletionTimestamp": deletion, "deletionGracePeriodSeconds": 10**12}
        cluster.patch(Pod, "team/train-1", {"metadata": grace})
        assert deletions(cluster) == {"train-1": SHORT_SECONDS}

    def test_leaves_pods_that_nobody_has_deleted(self) -> None:
        """A Job that was deleted with orphan propagation leaves its pods running: they are charged as before."""
        cluster = started(grace=YEAR)
        cluster.delete(Job, "team/train")
        cluster.later(days=2)
        assert deletions(cluster) == {}

    def test_leaves_the_pods_of_a_job_that_runs(self) -> None:
        """The pods that a user deletes of a running Job stay charged, and their places are taken: no others run beside
        them, and whoever may preempt the Job gets the quota within the patience."""
        cluster = started(grace=YEAR)
        cluster.delete(Pod, "team/train-1")
        cluster.later(days=2)
        assert deletions(cluster) == {}


class TestAGroupThatWasDeleted:
    @staticmethod
    def group(*deleted: str) -> Cluster:
        """A group of two Pods that run and have a year to stop, of which some were deleted."""
        cluster = running(1, 1)
        for name in cluster.pods:
            cluster.patch(Pod, f"team/{name}", {"spec": {"terminationGracePeriodSeconds": YEAR}})
        for name in deleted:
            cluster.delete(Pod, f"team/{name}")
        return cluster

    def test_has_the_patience_as_a_deleted_job_has(self) -> None:
        """Nobody is preempted, and yet its pods do not hold their nodes for a year."""
        cluster = self.group("p0", "p1")
        assert deletions(cluster, GROUP) == {}
        assert 300.0 in looks(cluster, GROUP)
        cluster.later(seconds=300)
        assert deletions(cluster, GROUP) == {"p0": SHORT_SECONDS, "p1": SHORT_SECONDS}

    def test_but_in_part_runs_on(self) -> None:
        """The pod that was deleted is charged as long as it runs."""
        cluster = self.group("p0")
        cluster.later(days=2)
        assert deletions(cluster, GROUP) == {}


class TestPodsWithoutQuota:
    @pytest.mark.parametrize(("grace", "given"), [(1, None), (10, None), (30, SHORT_SECONDS), (YEAR, SHORT_SECONDS)])
    def test_are_deleted_with_a_short_grace_period(self, grace: int, given: int | None) -> None:
        """A pod that was never admitted has nothing to lose that quota was given for."""
        cluster = running(1, 1)
        cluster.member("late", held=False)
        cluster.patch(Pod, "team/late", {"spec": {"nodeName": "node", "terminationGracePeriodSeconds": grace}})
        assert deletions(cluster, GROUP) == {"late": given}

    @pytest.mark.parametrize("seconds", [SHORT_SECONDS, YEAR])
    def test_that_terminate_are_cut_short(self, seconds: int) -> None:
        """The pods of a Job that was never admitted are deleted by the Job controller; what is too long is cut."""
        cluster = Cluster()
        cluster.job()
        cluster.settle()
        pod_of_a_job(cluster, grace=seconds, workload=False)
        cluster.delete(Pod, "team/train-1")
        assert deletions(cluster) == ({"train-1": SHORT_SECONDS} if seconds > SHORT_SECONDS else {})
        cluster.step()
        assert deletions(cluster) == {}

    def test_of_a_job_that_is_not_queued_are_left_alone(self) -> None:
        """A Job that names no queue is none of Turnstile's business."""
        cluster = Cluster()
        cluster.job(labels={})
        cluster.settle()
        job: Any = cluster.get(Job, "team/train")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job["metadata"]["uid"]}
        meta = {"name": "p", "namespace": "team", "ownerReferences": [{**owner, "controller": True}]}
        meta["finalizers"] = ["batch.kubernetes.io/job-tracking"]
        spec = {**TEMPLATE["spec"], "nodeName": "node", "terminationGracePeriodSeconds": YEAR}
        cluster.put(Pod, {"metadata": meta, "spec": spec, "status": {"phase": "Running"}})
        cluster.delete(Pod, "team/p")
        assert deletions(cluster) == {}

    def test_that_wait_cost_no_look(self) -> None:
        """A pod that its gate holds is not looked at again and again."""
        cluster = Cluster()
        cluster.pod()
        cluster.settle("pod:team/train")
        assert looks(cluster, "pod:team/train") == []
        assert cluster.get(Workload, cluster.workload_key) is not None
