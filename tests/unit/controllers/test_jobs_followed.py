"""A job that was queued is followed to its end, whatever is configured and labelled since; one whose Workload is
finished does not run."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.controllers.group_cluster import GROUP, GroupCluster
from tests.unit.controllers.job_cluster import POD, TEMPLATE, Cluster
from turnstile.api.core import Job, Pod
from turnstile.api.workload import Workload
from turnstile.jobs.options import JobOptions, namespaces
from turnstile.jobs.registry import Registry

QUEUE = "kueue.x-k8s.io/queue-name"
PODSET = "kueue.x-k8s.io/podset"

Change = Callable[[Cluster], None]


def waiting() -> Cluster:
    """A Job that waits with a Workload."""
    cluster = Cluster()
    cluster.flavor(nodeLabels={"pool": "a"})
    cluster.job()
    cluster.settle()
    return cluster


def running(**spec: Any) -> Cluster:
    """A Job that was admitted and has a pod."""
    cluster = Cluster()
    cluster.flavor(nodeLabels={"pool": "a"})
    cluster.job(**spec)
    cluster.settle()
    cluster.admit(count=1)
    cluster.settle()
    cluster.run_pods()
    cluster.settle()
    cluster.writes.clear()
    cluster.events.clear()
    return cluster


def no_longer_managed(cluster: Cluster) -> None:
    """The configuration excludes the namespace."""
    cluster.world.options = JobOptions(managed_jobs_namespace_selector=namespaces(without=["team"]))


def framework_off(cluster: Cluster) -> None:
    """The framework of the Job is not enabled any more."""
    cluster.world.registry = Registry(["jobset.x-k8s.io/jobset"])


def without_queue_name(cluster: Cluster) -> None:
    """The label is taken off the Job."""
    cluster.patch(Job, "team/train", {"metadata": {"labels": {QUEUE: None}}})


ANY = pytest.mark.parametrize("change", [no_longer_managed, framework_off, without_queue_name])
NOT_MANAGED = pytest.mark.parametrize("change", [no_longer_managed, framework_off])


class TestAJobThatRuns:
    """Its Workload holds quota."""

    @ANY
    def test_runs_on(self, change: Change) -> None:
        """Nothing is written."""
        cluster = running()
        change(cluster)
        cluster.settle()
        assert cluster.writes == []

    @ANY
    def test_frees_its_quota_when_it_ends(self, change: Change) -> None:
        """Its Workload is finished."""
        cluster = running()
        change(cluster)
        complete = [{"type": "Complete", "status": "True", "message": "done"}]
        cluster.patch(Job, "team/train", {"status": {"active": 0, "conditions": complete}})
        cluster.settle()
        assert cluster.condition("Finished") == ("True", "Succeeded", "done")

    @ANY
    def test_frees_its_quota_when_it_is_deleted(self, change: Change) -> None:
        """Its Workload is finished."""
        cluster = running()
        change(cluster)
        cluster.delete(Job, "team/train")
        cluster.later(minutes=1)  # no pod of it was seen
        cluster.settle()
        found = cluster.condition("Finished")
        assert found is not None
        assert found[1] == "OwnerNotFound"

    @NOT_MANAGED
    def test_is_stopped_when_it_is_evicted_and_leaves_its_queue(self, change: Change) -> None:
        """Its template is as it was sent, and it has no Workload."""
        cluster = running()
        change(cluster)
        cluster.evict()
        cluster.settle()
        assert cluster.condition("QuotaReserved") == ("True", "ByTest", "")  # its pod is still there
        cluster.patch(Job, "team/train", {"status": {"active": 0}})
        cluster.settle()
        assert cluster.workloads == []
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is True
        assert not job["spec"]["template"]["spec"]["nodeSelector"]
        assert {name: value for name, value in job["spec"]["template"]["metadata"].items() if value} == TEMPLATE[
            "metadata"
        ]


class TestAJobThatWaits:
    """Its Workload holds no quota."""

    @NOT_MANAGED
    def test_leaves_its_queue(self, change: Change) -> None:
        """Its Workload is deleted, the Job stays as it is, and may be resumed by its user."""
        cluster = waiting()
        change(cluster)
        cluster.settle()
        assert cluster.workloads == []
        cluster.patch(Job, "team/train", {"spec": {"suspend": False}})
        cluster.writes.clear()
        cluster.settle()
        assert cluster.writes == []

    def test_keeps_its_queue_without_its_label(self) -> None:
        """It is admitted and started as before."""
        cluster = waiting()
        without_queue_name(cluster)
        cluster.settle()
        assert cluster.workload["spec"]["queueName"] == "main"
        cluster.admit()
        cluster.settle()
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is False

    def test_is_stopped_when_it_is_resumed_without_its_label(self) -> None:
        """By whoever took the label off."""
        cluster = waiting()
        without_queue_name(cluster)
        cluster.patch(Job, "team/train", {"spec": {"suspend": False}})
        cluster.settle()
        assert cluster.events[-1] == ("Stopped", "Not admitted by cluster queue")

    def test_leaves_if_it_never_had_a_queue_and_needs_none_any_more(self) -> None:
        """Jobs without a queue name were managed until now."""
        cluster = Cluster(options=JobOptions(manage_jobs_without_queue_name=True))
        cluster.job(labels={})
        cluster.settle()
        assert cluster.workload["metadata"]["name"]
        cluster.world.options = JobOptions()
        cluster.settle()
        assert cluster.workloads == []


class TestAPod:
    """Of a framework that is switched off."""

    def admitted(self) -> Cluster:
        """A Pod that runs."""
        cluster = Cluster()
        cluster.flavor()
        cluster.pod()
        cluster.settle(POD)
        cluster.admit()
        cluster.settle(POD)
        cluster.world.registry = Registry(["batch/job"])
        cluster.writes.clear()
        return cluster

    def test_keeps_its_quota_to_its_end(self) -> None:
        """Then its finalizer and its quota are given back."""
        cluster = self.admitted()
        cluster.settle(POD)
        assert cluster.writes == []
        cluster.patch(Pod, "team/train", {"status": {"phase": "Succeeded"}})
        cluster.settle(POD)
        pod = cluster.get(Pod, "team/train")
        assert pod is not None
        assert not pod["metadata"]["finalizers"]
        assert (cluster.condition("Finished") or ("",))[0] == "True"

    def test_whose_parents_alone_are_enabled_too(self) -> None:
        """`deployment` without `pod`: plain Pods are not queued any more, and those that run are followed."""
        cluster = self.admitted()
        cluster.world.registry = Registry(["deployment"])
        cluster.patch(Pod, "team/train", {"status": {"phase": "Succeeded"}})
        cluster.settle(POD)
        assert (cluster.condition("Finished") or ("",))[0] == "True"

    def test_that_waited_goes_without_its_finalizer(self) -> None:
        """Nothing is left of it when it is deleted."""
        cluster = Cluster()
        cluster.pod()
        cluster.settle(POD)
        cluster.world.registry = Registry(["batch/job"])
        cluster.settle(POD)
        assert cluster.workloads == []
        cluster.delete(Pod, "team/train")
        cluster.settle(POD)
        assert cluster.get(Pod, "team/train") is None

    def test_of_a_kind_that_is_off_gets_no_workload(self) -> None:
        """New ones are left alone."""
        cluster = Cluster(registry=Registry(["batch/job"]))
        cluster.pod()
        cluster.settle(POD)
        assert cluster.writes == []


class TestFinalizersOfAKindThatIsSwitchedOff:
    """Finished is written before the finalizers are removed; the process may end, or a patch be refused, in between."""

    def test_of_a_pod_whose_workload_is_finished(self) -> None:
        """Both go: that of the Pod, and that of its Workload."""
        cluster = Cluster()
        cluster.flavor()
        cluster.pod()
        cluster.settle(POD)
        cluster.set_condition("Finished", reason="Succeeded")
        cluster.world.registry = Registry(["batch/job"])
        cluster.settle(POD)
        pod = cluster.get(Pod, "team/train")
        assert pod is not None
        assert pod["metadata"]["finalizers"] == []
        assert cluster.workload["metadata"]["finalizers"] == []

    @pytest.mark.parametrize("there", [True, False], ids=["finished", "gone"])
    def test_of_what_is_left_of_a_group(self, there: bool) -> None:
        """One of its Pods is gone already; its Workload is finished, or gone too."""
        cluster = GroupCluster(total=2)
        cluster.member("a")
        cluster.member("b")
        cluster.settle(GROUP)
        cluster.patch(Pod, "team/a", {"metadata": {"finalizers": []}})
        cluster.delete(Pod, "team/a")
        cluster.delete(Pod, "team/b")
        cluster.set_condition("Finished", reason="OwnerNotFound")
        if not there:
            cluster.patch(Workload, cluster.workload_key, {"metadata": {"finalizers": []}})
            cluster.delete(Workload, cluster.workload_key)
        cluster.world.registry = Registry(["batch/job"])
        cluster.settle(GROUP)
        assert cluster.pods == {}


class TestAFinishedWorkload:
    """Of a Job that has not ended."""

    def failed(self) -> Cluster:
        """A Job that could not be started, because of a label in its template."""
        cluster = Cluster()
        cluster.flavor()
        template = {**TEMPLATE, "metadata": {"labels": {PODSET: "other"}}}
        cluster.job(template=template)
        cluster.settle()
        cluster.admit()
        cluster.settle()
        assert (cluster.condition("Finished") or ("", ""))[1] == "FailedToStart"
        cluster.writes.clear()
        cluster.events.clear()
        return cluster

    def test_lets_it_not_run(self) -> None:
        """Whoever resumes the Job: an event says why it is stopped."""
        cluster = self.failed()
        cluster.patch(Job, "team/train", {"spec": {"suspend": False}})
        cluster.settle()
        assert cluster.writes == ["patch Job"]
        ((reason, note),) = cluster.events
        assert reason == "Stopped"
        assert "is finished, FailedToStart: " in note
        assert "value1=other" in note

    def test_is_kept_while_the_job_is_as_it_was(self) -> None:
        """Nothing is tried again and again."""
        cluster = self.failed()
        cluster.patch(Job, "team/train", {"metadata": {"annotations": {"example.com/seen": "true"}}})
        cluster.settle()
        assert cluster.writes == []

    def test_is_replaced_once_the_job_can_start(self) -> None:
        """The Job is queued again."""
        cluster = self.failed()
        cluster.patch(Job, "team/train", {"spec": {"template": {"metadata": {"labels": {PODSET: None}}}}})
        cluster.settle()
        assert cluster.condition("Finished") is None
        cluster.admit()
        cluster.settle()
        job = cluster.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is False


def test_a_prebuilt_workload_that_does_not_fit_ends_after_its_job_has_stopped() -> None:
    """Its quota is not free while the Job's pods run."""
    cluster = running()
    key = cluster.workload_key
    name = cluster.workload["metadata"]["name"]
    annotations = {"kueue.x-k8s.io/prebuilt-workload-name": name}
    cluster.patch(Job, "team/train", {"metadata": {"annotations": annotations}, "spec": {"parallelism": 5}})
    cluster.settle()
    assert cluster.condition("Finished") is None
    job = cluster.get(Job, "team/train")
    assert job is not None
    assert job["spec"]["suspend"] is True
    cluster.patch(Job, "team/train", {"status": {"active": 0}})
    cluster.settle()
    assert (cluster.condition("Finished") or ("", ""))[1] == "OutOfSync"
    assert cluster.workload_key == key


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_outlives_its_flavor(parallelism: int) -> None:
    """Admitted in part or in full: what was admitted is known without the flavor."""
    annotations = {"kueue.x-k8s.io/job-min-parallelism": "1"} if parallelism > 1 else {}
    cluster = running(parallelism=parallelism, annotations=annotations)
    cluster.world.flavors.delete("default")
    assert cluster.world.flavors.get("default") is None
    cluster.settle()
    assert cluster.writes == []


def test_pods_that_request_more_by_their_runtime_class_do_not_fit() -> None:
    """Its overhead would not be charged."""
    cluster = waiting()
    cluster.admit()
    spec = {**TEMPLATE["spec"], "runtimeClassName": "heavy"}
    cluster.patch(Job, "team/train", {"spec": {"template": {"spec": spec}}})
    cluster.settle()
    job = cluster.get(Job, "team/train")
    assert job is not None
    assert job["spec"]["suspend"] is True
    assert cluster.condition("QuotaReserved") is None
