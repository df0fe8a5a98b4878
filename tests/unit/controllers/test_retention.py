"""How long finished Workloads and deactivated jobs are kept, under `objectRetentionPolicies`."""

from datetime import timedelta

import pytest

from tests.unit.controllers import worlds as w
from tests.unit.controllers.job_cluster import Cluster
from turnstile.api.core import Job
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Action, Delete, Emit, Patch, RequeueAfter
from turnstile.controllers.workloads.workload import decide
from turnstile.jobs.options import JobOptions

FINISHED = w.condition("Finished", "True", "Succeeded", since="2026-01-02T03:03:05Z")


def decided(workload: Workload, *, keep: float | None) -> list[Action]:
    """What is decided about a Workload 60 seconds after its end."""
    return decide("ns/wl", w.world(workload, options=JobOptions(keep_finished=keep))).actions


class TestAFinishedWorkload:
    """Its job has nothing to do with the deletion, and stays."""

    def test_is_kept_without_a_policy(self) -> None:
        """For as long as its job is there."""
        assert decided(w.workload(FINISHED), keep=None) == []

    def test_is_looked_at_again_when_its_time_is_over(self) -> None:
        """To the second."""
        assert decided(w.workload(FINISHED), keep=90) == [RequeueAfter(30)]

    @pytest.mark.parametrize("keep", [0, 45, 60])
    def test_is_deleted_then(self, keep: float) -> None:
        """With its finalizer, and an event."""
        release, delete, event = decided(w.workload(FINISHED), keep=keep)
        assert isinstance(release, Patch)
        assert b'"finalizers":[]' in release.body
        assert isinstance(delete, Delete)
        assert (delete.kind, delete.namespace, delete.name, delete.uid) == (Workload, "ns", "wl", "wl-uid")
        assert isinstance(event, Emit)
        assert (event.reason, event.note) == ("Deleted", "Deleted finished workload due to elapsed retention")

    def test_that_is_being_deleted_loses_its_finalizer(self) -> None:
        """Another finalizer stays."""
        leaving = w.workload(
            FINISHED, deletionTimestamp=w.EARLIER, finalizers=["a/b", "kueue.x-k8s.io/resource-in-use"]
        )
        (release,) = decided(leaving, keep=45)
        assert isinstance(release, Patch)
        assert b'"finalizers":["a/b"]' in release.body

    @pytest.mark.parametrize("labels", [{}, {"kueue.x-k8s.io/job-uid": "job-uid"}])
    def test_whose_job_is_gone_is_deleted_as_any_other(self, labels: dict[str, str]) -> None:
        """`kubectl delete job --cascade=orphan` leaves it without an owner; the time that it is kept runs on."""
        orphan = w.workload(FINISHED, ownerReferences=[], labels=labels)
        *_, again = decided(orphan, keep=90)
        assert again == RequeueAfter(30)
        assert [each.name for each in decided(orphan, keep=60) if isinstance(each, Delete)] == ["wl"]

    def test_whose_job_is_gone_loses_its_finalizer_at_once(self) -> None:
        """No job is left whose reconciler would remove it, with a policy and without."""
        orphan = w.workload(FINISHED, ownerReferences=[], labels={"kueue.x-k8s.io/job-uid": "job-uid"})
        for keep in (None, 90):
            release = decided(orphan, keep=keep)[0]
            assert isinstance(release, Patch)
            assert b'"finalizers":[]' in release.body

    def test_that_has_not_finished_is_never_deleted(self) -> None:
        """However old it is."""
        assert not any(isinstance(each, Delete) for each in decided(w.workload(w.RESERVED, w.ADMITTED), keep=0))


class TestADeactivatedJob:
    """The job itself is deleted, and with it its Workload."""

    def deactivated(self, cluster: Cluster, *, cause: str = "DueToRequeuingLimitExceeded") -> None:
        """A Job that ran is deactivated, and has no pod any more."""
        cluster.flavor()
        cluster.job()
        cluster.settle()
        cluster.admit()
        cluster.settle()
        since = cluster.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        evicted = w.condition("Evicted", "True", f"Deactivated{cause}", "The workload is deactivated", since)
        conditions = [*cluster.workload["status"]["conditions"], evicted]
        cluster.patch(Workload, cluster.workload_key, {"spec": {"active": False}, "status": {"conditions": conditions}})
        cluster.settle()

    def test_is_deleted_when_its_time_is_over(self) -> None:
        """Not before."""
        cluster = Cluster(options=JobOptions(keep_deactivated=120))
        self.deactivated(cluster)
        cluster.now += timedelta(seconds=119)
        cluster.settle()
        assert cluster.get(Job, "team/train") is not None
        cluster.now += timedelta(seconds=1)
        cluster.settle()
        assert cluster.get(Job, "team/train") is None
        assert ("Deleted", "Deleted job: deactivation retention period expired") in cluster.events

    def test_is_kept_without_a_policy(self) -> None:
        """For ever."""
        cluster = Cluster()
        self.deactivated(cluster)
        cluster.now += timedelta(days=365)
        cluster.settle()
        assert cluster.get(Job, "team/train") is not None

    def test_is_kept_if_its_user_deactivated_it(self) -> None:
        """Turnstile deletes only what it deactivated itself, as Kueue."""
        cluster = Cluster(options=JobOptions(keep_deactivated=0))
        self.deactivated(cluster, cause="")
        assert cluster.get(Job, "team/train") is not None

    def test_is_kept_if_it_is_active_again(self) -> None:
        """The eviction stands in the status until the next admission."""
        cluster = Cluster(options=JobOptions(keep_deactivated=60))
        self.deactivated(cluster)
        cluster.patch(Workload, cluster.workload_key, {"spec": {"active": True}})
        cluster.now += timedelta(seconds=61)
        cluster.settle()
        assert cluster.get(Job, "team/train") is not None
