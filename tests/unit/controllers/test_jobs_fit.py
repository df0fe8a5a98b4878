"""The one Workload of a Job: what fits, what is brought in line, what is replaced."""

import copy
from typing import Any, ClassVar

import pytest

from tests.unit.controllers.job_cluster import TEMPLATE, Cluster
from turnstile.api.core import Job, PriorityClass
from turnstile.api.workload import Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.runtime.actions import RequeueAfter


@pytest.fixture
def waiting() -> Cluster:
    """A Job with a Workload that waits."""
    cluster = Cluster()
    cluster.flavor(nodeLabels={"pool": "a"})
    cluster.job()
    cluster.settle()
    cluster.writes.clear()
    cluster.events.clear()
    return cluster


def edited(**container: Any) -> dict[str, Any]:
    """The template with a changed container."""
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0].update(container)
    return template


class TestAnEditWhileWaiting:
    """A Job that is edited while its Workload waits."""

    def test_of_what_the_pods_run_rewrites_the_workload_in_place(self, waiting: Cluster) -> None:
        """An image counts although no quota depends on it: the Workload is the copy that is restored."""
        before = waiting.workload["metadata"]["uid"]
        waiting.patch(Job, "team/train", {"spec": {"template": edited(image="trainer:2")}})
        waiting.settle()
        assert waiting.workload["spec"]["podSets"][0]["template"] == edited(image="trainer:2")
        assert waiting.workload["metadata"]["uid"] == before
        assert waiting.writes == ["patch Workload"]
        assert waiting.events == [
            ("UpdatedWorkload", f"Updated not matching Workload for suspended job: {waiting.workload_key}")
        ]

    def test_keeps_a_deactivation(self, waiting: Cluster) -> None:
        """`spec.active` is not the Job's to say."""
        waiting.patch(Workload, waiting.workload_key, {"spec": {"active": False}})
        waiting.patch(Job, "team/train", {"spec": {"parallelism": 2}})
        waiting.settle()
        assert waiting.workload["spec"]["active"] is False
        assert waiting.workload["spec"]["podSets"][0]["count"] == 2

    def test_of_the_time_limit_is_taken_over(self, waiting: Cluster) -> None:
        """And taken back."""
        for value, expected in (("60", 60), (None, None)):
            patch = {"metadata": {"labels": {"kueue.x-k8s.io/max-exec-time-seconds": value}}}
            waiting.patch(Job, "team/train", patch)
            waiting.settle()
            assert waiting.workload["spec"].get("maximumExecutionTimeSeconds") == expected

    def test_of_the_queue_moves_the_workload(self, waiting: Cluster) -> None:
        """Nothing else is written."""
        waiting.patch(Job, "team/train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
        waiting.settle()
        assert waiting.workload["spec"]["queueName"] == "other"
        assert waiting.writes == ["patch Workload"]

    def test_of_admission_gates_is_taken_over(self, waiting: Cluster) -> None:
        """The annotation comes and goes, with Kueue's event."""
        for value in ("example.com/gate", None):
            patch = {"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": value}}}
            waiting.patch(Job, "team/train", patch)
            waiting.settle()
            annotations = waiting.workload["metadata"].get("annotations", {})
            assert annotations.get("kueue.x-k8s.io/admission-gated-by") == value
            assert waiting.events[-1] == ("UpdatedWorkload", f'Updated workload AdmissionGatedBy to "{value or ""}"')

    @pytest.mark.parametrize(
        "change",
        [
            {"resources": {"requests": {"cpu": "1000m"}}},
            {"env": []},
            {"image": "trainer:1", "command": None},
        ],
    )
    def test_that_means_the_same_writes_nothing(self, waiting: Cluster, change: dict[str, Any]) -> None:
        """Quantities by value, empty as absent."""
        waiting.patch(Job, "team/train", {"spec": {"template": edited(**change)}})
        waiting.settle()
        assert waiting.writes == []


class TestAnEditWithQuota:
    """A Job that is edited while its Workload holds quota."""

    def test_of_a_suspended_job_makes_another_workload(self, waiting: Cluster) -> None:
        """A Workload that holds quota cannot change its pods."""
        waiting.set_condition("QuotaReserved")
        waiting.patch(Job, "team/train", {"spec": {"parallelism": 2}})
        waiting.settle()
        assert waiting.writes == ["patch Workload", "delete Workload", "create Workload"]
        assert waiting.workload["spec"]["podSets"][0]["count"] == 2
        assert [reason for reason, _ in waiting.events] == ["DeletedWorkload", "CreatedWorkload"]

    def test_of_a_running_job_stops_it(self, waiting: Cluster) -> None:
        """Its template is restored from the Workload that does not fit any more."""
        waiting.admit()
        waiting.settle()
        waiting.run_pods()
        waiting.patch(Job, "team/train", {"spec": {"parallelism": 2}})
        key = waiting.workload_key
        waiting.settle()
        assert len(waiting.workloads) == 1
        waiting.patch(Job, "team/train", {"status": {"active": 0}})
        waiting.step()
        assert waiting.events[-2:] == [
            ("Stopped", "No matching Workload; restoring pod templates according to existent Workload"),
            ("DeletedWorkload", f"Deleted not matching Workload: {key}"),
        ]
        job = waiting.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is True
        assert not job["spec"]["template"]["spec"].get("nodeSelector")
        assert waiting.workloads == []

    def test_of_the_queue_gives_the_quota_back_and_moves(self, waiting: Cluster) -> None:
        """A Job that does not run follows its label in every state: the API server changes the queue of a Workload only
        without quota, and no cycle may admit the Workload in the old queue meanwhile."""
        waiting.set_condition("QuotaReserved")
        waiting.patch(Job, "team/train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
        waiting.step()
        assert waiting.condition("QuotaReserved") == ("False", "OnHold", "The job is moved to LocalQueue other")
        waiting.step()
        assert waiting.workload["spec"]["queueName"] == "other"
        waiting.settle()
        assert waiting.condition("QuotaReserved") == (
            "False",
            "PendingEvaluation",
            "The workload is not on hold any more",
        )
        assert waiting.writes == ["patch Workload status", "patch Workload", "patch Workload status"]

    def test_of_the_queue_of_a_job_suspended_by_its_owner_moves_it_when_its_pods_are_gone(
        self, waiting: Cluster
    ) -> None:
        """Until then the old queue is charged."""
        waiting.admit()
        waiting.settle()
        waiting.run_pods()
        labels = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}
        waiting.patch(Job, "team/train", {**labels, "spec": {"suspend": True}})
        waiting.settle()
        assert waiting.workload["status"]["admission"] is not None
        assert waiting.workload["spec"]["queueName"] == "main"
        suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": ""}
        waiting.patch(Job, "team/train", {"status": {"active": 0, "conditions": [suspended]}})
        waiting.later(seconds=60)
        waiting.settle()
        assert waiting.workload["spec"]["queueName"] == "other"
        assert waiting.condition("QuotaReserved") is not None
        assert waiting.condition("QuotaReserved")[0] == "False"  # type: ignore[index]

    def test_of_the_queue_of_a_running_job_changes_nothing(self, waiting: Cluster) -> None:
        """The webhook refuses it; a Job that was relabelled past it is not stopped for a label."""
        waiting.admit()
        waiting.settle()
        waiting.run_pods()
        waiting.writes.clear()
        waiting.patch(Job, "team/train", {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}})
        waiting.settle()
        assert waiting.writes == []

    def test_of_the_priority_class_gives_the_quota_back(self, waiting: Cluster) -> None:
        """The API server replaces the PriorityClass of the pods only without quota; a Workload that has a
        WorkloadPriorityClass keeps its quota, and gets the other class."""
        ref = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "pods"}
        waiting.patch(Workload, waiting.workload_key, {"spec": {"priority": 3, "priorityClassRef": ref}})
        waiting.put(WorkloadPriorityClass, {"metadata": {"name": "high"}, "value": 7})
        waiting.put(WorkloadPriorityClass, {"metadata": {"name": "higher"}, "value": 8})
        waiting.set_condition("QuotaReserved")
        waiting.patch(Job, "team/train", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})
        waiting.settle()
        assert waiting.workload["spec"]["priority"] == 7
        assert waiting.condition("QuotaReserved")[0] == "False"  # type: ignore[index]
        waiting.set_condition("QuotaReserved")
        waiting.patch(Job, "team/train", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "higher"}}})
        waiting.settle()
        assert waiting.workload["spec"]["priority"] == 8
        assert waiting.condition("QuotaReserved")[0] == "True"  # type: ignore[index]


def test_a_second_workload_of_a_job_is_deleted(waiting: Cluster) -> None:
    """One is enough; the first by name stays."""
    second = waiting.workload
    first = second["metadata"]["name"]
    second["metadata"] = {**second["metadata"], "name": "zzz", "uid": "second"}
    waiting.put(Workload, second)
    waiting.settle()
    assert waiting.workload["metadata"]["name"] == first


def test_a_workload_of_an_earlier_job_of_that_name_is_replaced(waiting: Cluster) -> None:
    """Owners are told apart by uid."""
    old = waiting.workload["metadata"]["name"]
    waiting.patch(Job, "team/train", {"metadata": {"uid": "another"}})
    waiting.set_condition("Finished", reason="Succeeded")
    waiting.settle()
    assert waiting.workload["metadata"]["name"] != old


def test_a_repeated_variable_is_written_once(waiting: Cluster) -> None:
    """With its last value, at its first place, as Kueue's Workload CRD demands; the Workload still fits the Job."""
    variables = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "A", "value": "3"}]
    template = edited(env=variables)
    template["spec"]["initContainers"] = [{"name": "i", "env": [*variables, {"name": "B"}]}]
    waiting.patch(Job, "team/train", {"spec": {"template": template}})
    waiting.settle()
    spec = waiting.workload["spec"]["podSets"][0]["template"]["spec"]
    assert spec["containers"][0]["env"] == [{"name": "A", "value": "3"}, {"name": "B", "value": "2"}]
    assert spec["initContainers"][0]["env"] == [{"name": "A", "value": "3"}, {"name": "B"}]
    assert waiting.writes == ["patch Workload"]


def run_without_class(cluster: Cluster, *, had: str) -> None:
    """Let the Job run whose label names the class `high`, which does not exist; its Workload is of the class `had`."""
    ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": had}
    cluster.patch(Workload, cluster.workload_key, {"spec": {"priority": 7, "priorityClassRef": ref}})
    cluster.admit()
    cluster.settle()
    cluster.run_pods()
    cluster.patch(Job, "team/train", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})


class TestPriority:
    """Where the priority of a Workload comes from."""

    def test_of_a_class_that_does_not_exist_makes_no_workload(self) -> None:
        """The owner is told; the class may still come, and wakes it, so that nobody asks again and again."""
        cluster = Cluster()
        labels = {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/priority-class": "high"}
        cluster.job(labels=labels)
        assert not any(isinstance(action, RequeueAfter) for action in cluster.step().actions)
        assert cluster.events == [("WorkloadPriorityClassNotFound", 'WorkloadPriorityClass "high" not found')]
        assert cluster.workloads == []
        cluster.put(WorkloadPriorityClass, {"metadata": {"name": "high"}, "value": 7})
        cluster.settle()
        assert cluster.workload["spec"]["priority"] == 7
        assert cluster.workload["spec"]["priorityClassRef"] == {
            "group": "kueue.x-k8s.io",
            "kind": "WorkloadPriorityClass",
            "name": "high",
        }

    def test_of_a_pod_priority_class_that_does_not_exist_makes_no_workload(self) -> None:
        """The event names the kind that is missing; the creation of the class requeues the Job."""
        cluster = Cluster()
        cluster.job(template={"spec": {**TEMPLATE["spec"], "priorityClassName": "pods"}})
        cluster.settle()
        assert cluster.events == [("PriorityClassNotFound", 'PriorityClass "pods" not found')]
        assert cluster.workloads == []
        cluster.put(PriorityClass, {"metadata": {"name": "pods"}, "value": 3})
        cluster.settle()
        assert cluster.workload["spec"]["priority"] == 3

    def test_follows_the_label_while_the_job_waits(self, waiting: Cluster) -> None:
        """Name and value change together."""
        waiting.put(WorkloadPriorityClass, {"metadata": {"name": "high"}, "value": 7})
        waiting.patch(Job, "team/train", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})
        waiting.settle()
        assert waiting.workload["spec"]["priority"] == 7
        assert waiting.events == [("UpdatedWorkload", f"Updated workload priority class: {waiting.workload_key}")]

    @pytest.mark.parametrize("had", ["high", "low"], ids=["that it had", "that it never had"])
    def test_of_a_missing_class_does_not_keep_a_job_from_being_stopped(self, waiting: Cluster, had: str) -> None:
        """The Workload keeps the priority it has; the owner is told if another one is asked for."""
        run_without_class(waiting, had=had)
        waiting.evict()
        waiting.step()
        job = waiting.get(Job, "team/train")
        assert job is not None
        assert job["spec"]["suspend"] is True
        assert waiting.workload["spec"]["priority"] == 7
        told = ("WorkloadPriorityClassNotFound", 'WorkloadPriorityClass "high" not found') in waiting.events
        assert told is (had == "low")

    @pytest.mark.parametrize("had", ["high", "low"], ids=["that it had", "that it never had"])
    def test_of_a_missing_class_does_not_hide_that_a_job_has_ended(self, waiting: Cluster, had: str) -> None:
        """Its quota goes to the next one."""
        run_without_class(waiting, had=had)
        complete = {"type": "Complete", "status": "True", "reason": "CompletionsReached", "message": "Reached"}
        waiting.patch(Job, "team/train", {"status": {"active": 0, "conditions": [complete]}})
        waiting.settle()
        assert waiting.condition("Finished") == ("True", "Succeeded", "Reached")

    @pytest.mark.parametrize("by_default", [True, False])
    def test_of_the_label_comes_before_that_of_the_pods(self, *, by_default: bool) -> None:
        """As in a Job that has the label from the start, whether its pods name a PriorityClass or get the default of
        the cluster."""
        cluster = Cluster()
        cluster.put(PriorityClass, {"metadata": {"name": "pods"}, "value": 3, "globalDefault": by_default})
        cluster.put(WorkloadPriorityClass, {"metadata": {"name": "high"}, "value": 7})
        template = {"spec": {**TEMPLATE["spec"], **({} if by_default else {"priorityClassName": "pods"})}}
        cluster.job(template=template)
        cluster.settle()
        assert cluster.workload["spec"]["priority"] == 3
        cluster.patch(Job, "team/train", {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}})
        cluster.settle()
        assert cluster.workload["spec"]["priority"] == 7
        assert cluster.workload["spec"]["priorityClassRef"]["kind"] == "WorkloadPriorityClass"

    def test_is_the_lowest_global_default_without_any_class(self) -> None:
        """As Kubernetes chooses among several."""
        cluster = Cluster()
        for name, value in (("a", 9), ("b", 4)):
            cluster.put(PriorityClass, {"metadata": {"name": name}, "value": value, "globalDefault": True})
        cluster.job()
        cluster.settle()
        assert (cluster.workload["spec"]["priority"], cluster.workload["spec"]["priorityClassRef"]["name"]) == (4, "b")


class TestAPrebuiltWorkload:
    """A Workload that the user made."""

    LABELS: ClassVar = {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/prebuilt-workload-name": "mine"}

    def body(self, **container: Any) -> dict[str, Any]:
        """A Workload that a user made."""
        pod_sets = [{"name": "main", "count": 1, "template": edited(**container)}]
        return {"metadata": {"name": "mine", "namespace": "team"}, "spec": {"podSets": pod_sets}}

    def test_is_taken_over(self) -> None:
        """It gets the Job as its controller, and no other Workload is made."""
        cluster = Cluster()
        cluster.put(Workload, self.body())
        cluster.job(labels=self.LABELS)
        cluster.settle()
        (owner,) = cluster.workload["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Job", "train", True)

    def test_keeps_its_quota_when_it_is_deleted_while_pods_run(self) -> None:
        """By the finalizer that every Workload of a job has: a manager of other clusters deletes Workloads."""
        cluster = Cluster()
        cluster.put(Workload, self.body())
        cluster.job(labels=self.LABELS)
        cluster.settle()
        assert cluster.workload["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]

    def test_that_does_not_fit_is_finished(self) -> None:
        """The Job has to be sent again."""
        cluster = Cluster()
        cluster.put(Workload, self.body(image="else"))
        cluster.job(labels=self.LABELS)
        cluster.settle()
        assert cluster.condition("Finished") == (
            "True",
            "OutOfSync",
            "The prebuilt workload is out of sync with its user job",
        )

    def test_that_is_missing_keeps_the_job_stopped(self) -> None:
        """It may still come."""
        cluster = Cluster()
        cluster.job(labels=self.LABELS, suspend=False)
        cluster.settle()
        assert cluster.events == [("Stopped", "missing workload")]
        assert cluster.workloads == []
