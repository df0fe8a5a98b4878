"""A job that is deleted or stopped before all of its pods were seen keeps its quota for some seconds: pods may be on
their way."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.controllers.job_cluster import NOW, TEMPLATE, Cluster
from tests.unit.controllers.test_children import SET, Nursery
from turnstile.api import names
from turnstile.api.core import Job, Pod
from turnstile.controllers.runtime.actions import RequeueAfter
from turnstile.controllers.view.ends import Ends
from turnstile.jobs.kinds.jobset import JobSet

SEEN = "kueue.x-k8s.io/workload"


class LateChildren(Nursery):
    """A JobSet of four pods that was admitted a minute ago, of whose children and pods nothing was heard yet."""

    def __init__(self) -> None:
        super().__init__()
        self.later(minutes=1)

    def run(self, *pods: str) -> None:
        """Pods of the JobSet run, and are seen."""
        for name in pods:
            pod_set = {names.PODSET_LABEL: self.workload["spec"]["podSets"][0]["name"]}
            marks = {"annotations": {SEEN: self.workload["metadata"]["name"]}, "labels": pod_set}
            meta = {"name": name, "namespace": "team", **marks}
            self.put(Pod, {"metadata": meta, "spec": {**TEMPLATE["spec"], "nodeName": "n"}, "status": {}})

    @property
    def reserved(self) -> bool:
        """Whether the Workload has its quota."""
        return self.condition("Finished") is None


def test_until_pods_that_its_controller_was_about_to_make_are_seen() -> None:
    """A controller that took its time makes a child right before the JobSet is deleted, and the deletion is heard of
    first. The pods of that child are charged for."""
    cluster = LateChildren()
    owner = cluster.owner()
    cluster.delete(JobSet, "team/set")
    cluster.settle(SET)
    assert cluster.reserved
    assert RequeueAfter(5.0) in cluster.decide(SET).actions
    cluster.later(seconds=1)
    cluster.child(owner=owner)
    cluster.run("a")
    cluster.delete(Job, "team/child")
    cluster.later(seconds=30)
    cluster.settle(SET)
    assert cluster.reserved
    cluster.patch(Pod, "team/a", {"status": {"phase": "Failed"}})
    cluster.settle(SET)
    assert not cluster.reserved


def test_for_no_longer_than_some_seconds() -> None:
    """Nothing else may come."""
    cluster = LateChildren()
    cluster.delete(JobSet, "team/set")
    cluster.later(seconds=5)
    cluster.settle(SET)
    assert not cluster.reserved


@pytest.mark.parametrize(("pods", "reserved"), [(("a", "b", "c"), True), (("a", "b", "c", "d"), False)])
def test_not_if_all_its_pods_were_seen(pods: tuple[str, ...], *, reserved: bool) -> None:
    """Then none is on its way, and others get the quota as soon as these pods have ended."""
    cluster = LateChildren()
    cluster.run(*pods)
    cluster.delete(JobSet, "team/set")
    for name in pods:
        cluster.patch(Pod, f"team/{name}", {"status": {"phase": "Failed"}})
    cluster.settle(SET)
    assert cluster.reserved is reserved


def test_from_the_moment_at_which_it_is_being_deleted() -> None:
    """No controller makes pods of a job that is being deleted, however long a finalizer keeps it."""
    cluster = LateChildren()
    cluster.patch(JobSet, "team/set", {"metadata": {"finalizers": ["example.com/keep"]}})
    cluster.delete(JobSet, "team/set")
    cluster.later(seconds=6)
    cluster.patch(JobSet, "team/set", {"metadata": {"finalizers": None}})
    cluster.settle(SET)
    assert not cluster.reserved


@pytest.mark.parametrize("kind", [Job, Pod])
def test_while_the_watch_of_what_it_made_fails(kind: Any) -> None:
    """The API server was away, and one kind is heard of sooner than the other."""
    cluster = LateChildren()
    store = cluster.world.pods if kind is Pod else cluster.world.jobs[Job]
    store.followed = False
    cluster.delete(JobSet, "team/set")
    cluster.later(minutes=1)
    cluster.settle(SET)
    assert cluster.reserved
    store.followed = True
    cluster.settle(SET)
    assert not cluster.reserved


class Wrapped(Cluster):
    """An AppWrapper of a Pod that was admitted a minute ago, and of whose pods nothing was heard yet."""

    KEY = "workload.codeflare.dev/appwrapper:team/train"

    def __init__(self) -> None:
        super().__init__()
        self.flavor()
        self.kind = self.world.registry.known["workload.codeflare.dev/appwrapper"].kind
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, "spec": TEMPLATE["spec"]}
        meta = {"name": "train", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
        self.put(self.kind, {"metadata": meta, "spec": {"suspend": True, "components": [{"template": pod}]}})
        self.settle(self.KEY)
        self.admit()
        self.settle(self.KEY)
        self.later(minutes=1)

    def deployed(self, status: str) -> None:
        """Its controller says whether what it wraps is there."""
        self.patch(self.kind, "team/train", {"status": {"conditions": [{"type": "QuotaReserved", "status": status}]}})
        self.settle(self.KEY)

    @property
    def reserved(self) -> bool:
        """Whether the Workload has its quota."""
        return (self.condition("QuotaReserved") or ("",))[0] == "True"


def test_a_stopped_job_whose_operator_has_said_nothing_yet() -> None:
    """The operator took its time, and may make the pods right when the job is evicted. It does not say when it has read
    that the job is suspended."""
    cluster = Wrapped()
    cluster.evict()
    cluster.settle(cluster.KEY)
    assert cluster.reserved
    cluster.later(seconds=5)
    cluster.settle(cluster.KEY)
    assert not cluster.reserved


def test_a_stopped_job_of_which_the_operator_says_that_it_has_no_pods_any_more() -> None:
    """It has read that the job is suspended, and makes none."""
    cluster = Wrapped()
    cluster.deployed("True")
    cluster.evict()
    cluster.settle(cluster.KEY)
    assert cluster.reserved
    cluster.deployed("False")
    assert not cluster.reserved


def test_ends_are_forgotten() -> None:
    """What is remembered does not grow with the jobs that a process has seen."""
    ends = Ends()
    for second in range(1000):
        ends.note(f"uid-{second}", NOW + timedelta(seconds=second))
    assert len(ends) <= 7


def test_of_jobs_that_were_gone_before_the_process_began() -> None:
    """It cannot know what became of their pods in the last seconds."""
    ends = Ends()
    ends.begin(NOW)
    assert ends.seconds_left(["unknown"], NOW + timedelta(seconds=2)) == 3.0
    assert ends.seconds_left(["unknown"], NOW + timedelta(seconds=6)) <= 0.0
