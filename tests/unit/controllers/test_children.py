"""A job follows its owner only if the owner's Workload charges for its pods; otherwise it needs quota itself."""

from typing import Any

import pytest

from tests.unit.controllers.job_cluster import Cluster
from tests.unit.controllers.worlds import decode
from turnstile.api import names
from turnstile.api.core import Job, Pod
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.options import JobOptions

SET = "jobset.x-k8s.io/jobset:team/set"
NOT_CHARGED = "NotCharged"
QUEUED = {names.QUEUE_LABEL: "main"}
Body = dict[str, Any]


def template(*, cpu: str = "1", pod_set: str = "") -> Body:
    """A pod template; with `pod_set`, as a start leaves it."""
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"labels": {names.PODSET_LABEL: pod_set}} if pod_set else {},
        "spec": {"containers": [container]},
    }


class Nursery(Cluster):
    """A JobSet of four pods of 1 CPU in the pod set `workers`, and Jobs that name it as their controller."""

    def __init__(self, *, admitted: bool = True, labels: Body | None = None, options: JobOptions | None = None) -> None:
        super().__init__(options=options)
        self.flavor()
        jobs = {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template()}}}
        meta = {"name": "set", "namespace": "team", "labels": QUEUED if labels is None else labels}
        self.put(JobSet, {"metadata": meta, "spec": {"suspend": True, "replicatedJobs": [jobs]}})
        self.settle(SET)
        if admitted:
            self.admit()
            self.settle(SET)
        self.clear()

    def clear(self) -> None:
        """Forget what was written and told."""
        self.writes.clear()
        self.events.clear()

    def owner(self, **other: Any) -> Body:
        """A reference to the JobSet."""
        found = self.get(JobSet, "team/set")
        uid = found["metadata"]["uid"] if found is not None else "uid-of-none"
        api = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set"}
        return {**api, "uid": uid, "controller": True, **other}

    def child(
        self,
        name: str = "child",
        *,
        pods: int = 2,
        cpu: str = "1",
        pod_set: str = "workers",
        labels: Body | None = None,
        created: str = "2026-01-02T03:04:10Z",
        suspend: bool = False,
        owner: Body | None = None,
    ) -> None:
        """A Job, made by the JobSet controller unless told otherwise."""
        meta = {
            "name": name,
            "namespace": "team",
            "labels": labels or {},
            "creationTimestamp": created,
            "ownerReferences": [self.owner() if owner is None else owner],
        }
        spec = {"suspend": suspend, "parallelism": pods, "template": template(cpu=cpu, pod_set=pod_set)}
        self.put(Job, {"metadata": meta, "spec": spec})

    def look(self, name: str = "child") -> str:
        """Reconcile a child until nothing is written; the last reason."""
        self.settle(f"batch/job:team/{name}")
        return self.decide(f"batch/job:team/{name}").why

    def runs(self, name: str = "child") -> bool:
        """Whether a child is not suspended."""
        found = self.get(Job, f"team/{name}")
        assert found is not None
        return not found["spec"]["suspend"]

    def workloads_of(self, name: str = "child") -> list[Body]:
        """The Workloads that a child owns."""
        return [each for each in self.workloads if each["metadata"]["ownerReferences"][0]["name"] == name]


def test_a_child_that_is_charged_for_runs() -> None:
    """Quota was reserved for its owner, and the template is as the owner's start left it."""
    cluster = Nursery()
    cluster.child("one")
    cluster.child("two")
    assert cluster.look("one") == cluster.look("two") == "queued with JobSet set"
    assert (cluster.writes, cluster.events) == ([], [])


def test_a_child_of_a_job_that_waits_waits_too() -> None:
    """It gets no Workload of its own, though it names a queue."""
    cluster = Nursery(admitted=False)
    cluster.child(labels=QUEUED)
    cluster.look()
    assert cluster.writes == ["patch Job"]
    assert cluster.events == [("Suspended", "Kueue managed child job suspended")]
    assert cluster.workloads_of() == []


@pytest.mark.parametrize(
    ("different", "problem"),
    [
        ({"pod_set": ""}, "name no pod set"),
        ({"pod_set": "other"}, "name pod set 'other' of the Workload of JobSet set"),
        ({"cpu": "1001m"}, "request more cpu than the Workload of JobSet set charges for a pod of pod set 'workers'"),
        ({"pods": 5}, "it has 5 pods of pod set 'workers', and the Workload of JobSet set charges for 4"),
    ],
)
class TestAChildThatIsNotChargedFor:
    """Its reference is worth nothing."""

    def test_is_suspended_if_it_names_no_queue(self, different: Body, problem: str) -> None:
        """A warning says why, and what would help."""
        cluster = Nursery()
        cluster.child(**different)
        assert problem in cluster.look()
        assert not cluster.runs()
        reason, note = cluster.events[-1]
        assert reason == NOT_CHARGED
        assert problem in note
        assert "set the label kueue.x-k8s.io/queue-name" in note
        assert cluster.workloads_of() == []

    def test_is_queued_by_itself_if_it_names_one(self, different: Body, problem: str) -> None:
        """Like every other job."""
        cluster = Nursery()
        cluster.child(labels=QUEUED, **different)
        cluster.look()
        assert not cluster.runs()
        assert len(cluster.workloads_of()) == 1
        assert any(reason == "QueuedByItself" and problem in note for reason, note in cluster.events)

    def test_is_queued_by_itself_where_all_jobs_are_managed(self, different: Body, problem: str) -> None:
        """It then waits for a queue name, with a Workload."""
        cluster = Nursery(options=JobOptions(manage_jobs_without_queue_name=True))
        cluster.child(**different)
        cluster.look()
        assert not cluster.runs()
        assert len(cluster.workloads_of()) == 1


class TestChildrenTogether:
    """The pods of all unfinished children count, the oldest child first."""

    def test_the_youngest_is_suspended_where_they_exceed(self) -> None:
        """Two that fit alone do not fit together; the older one is the owner's own."""
        cluster = Nursery()
        cluster.child("old", pods=3)
        cluster.child("young", pods=2, created="2026-01-02T03:04:11Z")
        cluster.look("young")
        cluster.look("old")
        assert (cluster.runs("old"), cluster.runs("young")) == (True, False)

    def test_a_sibling_is_suspended_when_an_older_one_grows(self) -> None:
        """The older one is the only one that is reconciled."""
        cluster = Nursery()
        cluster.child("old", pods=1)
        cluster.child("young", pods=3, created="2026-01-02T03:04:11Z")
        cluster.look("young")
        assert cluster.runs("young")
        cluster.patch(Job, "team/old", {"spec": {"parallelism": 4}})
        cluster.look("old")
        assert (cluster.runs("old"), cluster.runs("young")) == (True, False)
        assert cluster.events[-1][0] == NOT_CHARGED

    def test_one_that_grows_alone_is_suspended(self) -> None:
        """Beyond what its owner is charged for."""
        cluster = Nursery()
        cluster.child(pods=4)
        cluster.look()
        assert cluster.runs()
        cluster.patch(Job, "team/child", {"spec": {"parallelism": 5}})
        cluster.look()
        assert not cluster.runs()

    def test_finished_children_make_place(self) -> None:
        """A restarted JobSet makes its Jobs again."""
        cluster = Nursery()
        cluster.child("old", pods=4)
        cluster.patch(Job, "team/old", {"status": {"conditions": [{"type": "Failed", "status": "True"}]}})
        cluster.child("young", pods=4, created="2026-01-02T03:04:11Z")
        cluster.look("young")
        assert cluster.runs("young")

    def test_a_deleted_child_counts_while_its_pods_run(self) -> None:
        """A finalizer of somebody's keeps it, and its pods run on."""
        cluster = Nursery()
        cluster.child("old", pods=4)
        deleted = {"deletionTimestamp": "2026-01-02T03:04:12Z", "finalizers": ["example.com/keep"]}
        cluster.patch(Job, "team/old", {"metadata": deleted, "status": {"active": 4}})
        cluster.child("young", pods=4, created="2026-01-02T03:04:11Z")
        cluster.look("young")
        assert not cluster.runs("young")
        cluster.patch(Job, "team/old", {"status": {"active": 0}})
        cluster.patch(Job, "team/young", {"spec": {"suspend": False}})
        cluster.look("young")
        assert cluster.runs("young")

    def test_pods_given_back_are_not_charged_for(self) -> None:
        """The quota of a replica that succeeded is another's."""
        cluster = Nursery()
        cluster.patch(
            Workload, cluster.workload_key, {"status": {"reclaimablePods": [{"name": "workers", "count": 2}]}}
        )
        cluster.child(pods=3)
        cluster.look()
        assert not cluster.runs()

    def test_a_sibling_with_a_workload_of_its_own_is_left_alone(self) -> None:
        """It does not use what its owner is charged for, and runs by its own admission."""
        cluster = Nursery()
        cluster.child("own", pods=9, labels=QUEUED)
        cluster.look("own")
        cluster.patch(Job, "team/own", {"spec": {"suspend": False}})
        cluster.child("child", pods=4, created="2026-01-02T03:04:20Z")
        cluster.look("child")
        assert cluster.runs("child")
        assert cluster.runs("own")  # nobody but its own reconcile decides about it


class TestAnOwnerThatDoesNotCount:
    """The job is as if it had none."""

    @pytest.mark.parametrize("labels", [QUEUED, None])
    def test_because_its_kind_makes_no_such_objects(self, labels: Body | None) -> None:
        """A Job makes Pods, not Jobs: the other Job is queued by itself, or suspended if it names no queue."""
        cluster = Nursery(labels={}, admitted=False)
        cluster.job()
        cluster.settle()
        cluster.admit()
        cluster.settle()
        parent = cluster.get(Job, "team/train")
        assert parent is not None
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": parent["metadata"]["uid"]}
        cluster.child(pods=9, labels=labels, owner={**owner, "controller": True}, pod_set="main")
        cluster.look()
        assert not cluster.runs()
        assert len(cluster.workloads_of()) == (1 if labels else 0)

    def test_because_two_own_each_other(self) -> None:
        """Neither is anybody's child."""
        cluster = Nursery()
        for name, other in (("a", "b"), ("b", "a")):
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": other, "uid": f"uid-{other}", "controller": True}
            cluster.child(name, labels=QUEUED, owner=owner, pod_set="")
        for name in "ab":
            cluster.look(name)
        for name in "ab":
            assert not cluster.runs(name)
            assert len(cluster.workloads_of(name)) == 1

    def test_because_it_is_a_pod(self) -> None:
        """A Pod that is not managed is never seen; waiting for it would never end."""
        cluster = Nursery()
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
        cluster.child(labels=QUEUED, owner=owner, pod_set="")
        cluster.look()
        assert cluster.get(Pod, "team/p") is None
        assert len(cluster.workloads_of()) == 1

    def test_because_its_uid_is_another(self) -> None:
        """The owner of that name was made again since, or the reference is forged."""
        cluster = Nursery()
        cluster.child(labels=QUEUED, owner=cluster.owner(uid="forged"))
        cluster.look()
        assert not cluster.runs()
        assert len(cluster.workloads_of()) == 1

    def test_because_it_is_not_the_controller(self) -> None:
        """Other references only keep the object alive."""
        cluster = Nursery()
        cluster.child(labels=QUEUED, owner=cluster.owner(controller=False), pod_set="")
        cluster.look()
        assert len(cluster.workloads_of()) == 1

    def test_because_it_is_not_there(self) -> None:
        """A job that was created just now waits for its owner to be seen, for a few seconds."""
        cluster = Nursery()
        owner = cluster.owner(name="none")
        cluster.child(labels=QUEUED, owner=owner, created="2026-01-02T03:04:05Z", pod_set="")
        assert cluster.decide("batch/job:team/child").why == "workload owner not found: JobSet team/none"
        assert cluster.runs()
        cluster.later(seconds=10)
        cluster.look()
        assert not cluster.runs()
        assert len(cluster.workloads_of()) == 1

    def test_because_it_was_deleted_and_left_its_children(self) -> None:
        """What runs by an admission that is over needs one."""
        cluster = Nursery()
        cluster.child()
        cluster.look()
        assert cluster.runs()
        cluster.delete(JobSet, "team/set")
        cluster.patch(Job, "team/child", {"metadata": {"ownerReferences": None}})
        assert "no owner whose Workload charges for them" in cluster.look()
        assert not cluster.runs()
        assert cluster.events[-1][0] == NOT_CHARGED


def test_a_child_of_a_job_that_is_not_managed_is_not_managed() -> None:
    """Neither names a queue: the two run as in a cluster without queues."""
    cluster = Nursery(labels={}, admitted=False)
    cluster.child(pod_set="")
    assert cluster.look() == "no queue name"
    assert cluster.runs()


def test_a_suspended_child_may_wait_for_its_owners_controller() -> None:
    """It is older than the admission; its label comes when it is resumed."""
    cluster = Nursery()
    cluster.child(labels=QUEUED, suspend=True, pod_set="", created="2026-01-02T03:03:00Z")
    assert cluster.look() == "queued with JobSet set"
    assert (cluster.writes, cluster.events) == ([], [])


class TestTheDefaultQueue:
    """A job that followed an owner when it was created, and follows none any more, is put into it."""

    def cluster(self, *, since: str = "2026-01-02T03:04:00Z") -> Nursery:
        """A namespace with a default queue."""
        cluster = Nursery()
        meta = {"name": "default", "namespace": "team", "creationTimestamp": since, "resourceVersion": "1"}
        cluster.world.local_queues.observe(decode(LocalQueue, {"metadata": meta, "spec": {"clusterQueue": "cq"}}))
        return cluster

    def queue(self, cluster: Nursery) -> str | None:
        """The queue that the child names."""
        found = cluster.get(Job, "team/child")
        assert found is not None
        return found["metadata"]["labels"].get(names.QUEUE_LABEL)

    def test_when_the_reference_is_gone(self) -> None:
        """The job runs, and is suspended in the same write."""
        cluster = self.cluster()
        cluster.child(pod_set="", suspend=False)
        cluster.patch(Job, "team/child", {"metadata": {"ownerReferences": None}})
        cluster.step("batch/job:team/child", only=1)
        assert (self.queue(cluster), cluster.runs()) == ("default", False)
        cluster.look()
        (workload,) = cluster.workloads_of()
        assert workload["spec"]["queueName"] == "default"

    def test_when_the_owner_has_not_come_in_time(self) -> None:
        """It may have been created a moment ago."""
        cluster = self.cluster()
        cluster.child(pod_set="", suspend=True, owner={**cluster.owner(), "name": "none"})
        cluster.look()
        assert self.queue(cluster) is None
        cluster.later(seconds=60)
        cluster.look()
        assert self.queue(cluster) == "default"

    def test_not_while_its_owner_is_there(self) -> None:
        """Whether that is queued or not."""
        cluster = self.cluster()
        cluster.child(pod_set="", suspend=False)
        cluster.patch(JobSet, "team/set", {"metadata": {"labels": {names.QUEUE_LABEL: None}}})
        cluster.look()
        assert self.queue(cluster) is None

    def test_not_if_it_is_older_than_the_queue(self) -> None:
        """Then it was never in it."""
        cluster = self.cluster(since="2026-01-02T03:05:00Z")
        cluster.child(pod_set="", suspend=False)
        cluster.patch(Job, "team/child", {"metadata": {"ownerReferences": None}})
        cluster.look()
        assert (self.queue(cluster), cluster.runs()) == (None, True)
