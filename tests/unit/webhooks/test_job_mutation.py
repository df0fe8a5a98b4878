"""A Job that has a queue, or gets one, is suspended; every other Job is left as it came."""

from typing import ClassVar

import pytest

from tests.unit.webhooks.reviews import Cluster, Json, job, meta, mutated, operations, owned_by, request
from turnstile.api import names
from turnstile.api.selectors import LabelSelector
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.kinds.jobset import JobSet
from turnstile.jobs.kinds.trainjob import TrainJobs
from turnstile.jobs.options import JobOptions, namespaces
from turnstile.jobs.registry import Registry
from turnstile.webhooks.jobreview import mutating, validating
from turnstile.webhooks.review import ALLOWED

EARLY = "TerminatingOrFailed"
QUEUED = {names.QUEUE_LABEL: "main"}
PARENT = owned_by("JobSet", "parent", api_version="jobset.x-k8s.io/v1alpha2")


def job_set(*, labels: dict[str, str] | None = None, uid: str = "uid-1") -> JobSet:
    """The JobSet `parent`."""
    return JobSet(metadata=meta(name="parent", uid=uid, labels=labels or {}))


def train_job(managed_by: str) -> Json:
    """A queued TrainJob, as its definition completes it."""
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": "team-a", "labels": QUEUED},
        "spec": {"runtimeRef": {"name": "torch"}, "managedBy": managed_by},
    }


def child(*, labels: dict[str, str] | None = None) -> Json:
    """A Job as the JobSet controller makes it once the JobSet `parent` was started."""
    made = job(labels=labels, owner=PARENT)
    made["spec"]["template"]["metadata"]["labels"] = {names.PODSET_LABEL: "workers"}
    return made


def test_a_job_with_a_queue_is_suspended_by_one_operation() -> None:
    """The patch of a queued Job sets suspend and nothing else."""
    answer = mutating(BatchJob(), Cluster())(request(job(labels=QUEUED)))
    assert operations(answer) == [{"op": "add", "path": "/spec/suspend", "value": True}]


def test_a_running_job_with_a_queue_is_suspended() -> None:
    """An explicit `suspend: false` does not get past the queue."""
    assert mutated(mutating(BatchJob(), Cluster()), job(labels=QUEUED, suspend=False))["spec"]["suspend"] is True


def test_a_suspended_job_with_a_queue_needs_no_patch() -> None:
    """Nothing is sent for an object that is as it should be."""
    assert mutating(BatchJob(), Cluster())(request(job(labels=QUEUED, suspend=True))) is ALLOWED


def test_a_job_without_a_queue_is_left_alone() -> None:
    """Without a queue, a default queue or the option to manage all, a Job runs at once."""
    assert mutating(BatchJob(), Cluster())(request(job())) is ALLOWED


def test_an_empty_queue_name_is_no_queue() -> None:
    """A label without a value names no queue."""
    assert mutating(BatchJob(), Cluster())(request(job(labels={names.QUEUE_LABEL: ""}))) is ALLOWED


class TestJobsForOtherClusters:
    """A queue whose jobs run on other clusters."""

    AWAY = Cluster(sent_away=("team-a/main",))

    def test_are_left_alone_by_their_own_controller(self) -> None:
        """The Job is suspended as well: it needs quota first."""
        spec = mutated(mutating(BatchJob(), self.AWAY), job(labels=QUEUED))["spec"]
        assert (spec["managedBy"], spec["suspend"]) == (names.MULTIKUEUE_CONTROLLER, True)

    def test_of_another_controller_stay_with_it(self) -> None:
        """Somebody else runs them."""
        made = job(labels=QUEUED)
        made["spec"]["managedBy"] = "example.com/mine"
        assert mutated(mutating(BatchJob(), self.AWAY), made)["spec"]["managedBy"] == "example.com/mine"

    def test_that_trainer_has_to_make_pods_of_are_given_back(self) -> None:
        """A TrainJob that names MultiKueue, as Kueue takes it, is left to Trainer, and its user told; so it is sent."""
        made = train_job(names.MULTIKUEUE_CONTROLLER)
        answer = mutating(TrainJobs(), self.AWAY)(request(made))
        own = "trainer.kubeflow.org/trainjob-controller"
        assert {"op": "replace", "path": "/spec/managedBy", "value": own} in operations(answer)
        assert [each.partition(":")[0] for each in answer.warnings] == [
            f"spec.managedBy is {own}, not {names.MULTIKUEUE_CONTROLLER}"
        ]
        assert validating(TrainJobs(), self.AWAY)(request(mutated(mutating(TrainJobs(), self.AWAY), made))).code == 0

    def test_that_trainer_has_to_make_pods_of_are_refused_in_other_queues(self) -> None:
        """No copy would be sent, and Trainer would make no pods."""
        made = mutated(mutating(TrainJobs(), Cluster()), train_job(names.MULTIKUEUE_CONTROLLER))
        assert made["spec"]["managedBy"] == names.MULTIKUEUE_CONTROLLER
        answer = validating(TrainJobs(), Cluster())(request(made))
        assert answer.message.startswith("spec.managedBy: ")
        assert "leave it out: Trainer has to make the JobSet here" in answer.message

    def test_that_name_trainer_stay_with_it(self) -> None:
        """The default of the definition, which needs no patch."""
        answer = mutating(TrainJobs(), self.AWAY)(request(train_job("trainer.kubeflow.org/trainjob-controller")))
        assert not [each for each in operations(answer) if each["path"] == "/spec/managedBy"]
        assert answer.warnings == ()

    def test_in_other_queues_stay_here(self) -> None:
        """Also while the gate is off."""
        assert "managedBy" not in mutated(mutating(BatchJob(), Cluster()), job(labels=QUEUED))["spec"]
        off = Cluster(options=JobOptions(multikueue=None), sent_away=("team-a/main",))
        assert "managedBy" not in mutated(mutating(BatchJob(), off), job(labels=QUEUED))["spec"]


class TestDefaultQueue:
    """A namespace with a LocalQueue named `default` gives it to Jobs that name none."""

    cluster = Cluster(default_queue_in=("team-a", "kube-system"))

    def test_it_is_given_and_the_job_suspended(self) -> None:
        """Label and suspension come in one patch, the label map made if there was none."""
        answer = mutating(BatchJob(), self.cluster)(request(job()))
        assert operations(answer) == [
            {"op": "add", "path": "/metadata/labels", "value": {names.QUEUE_LABEL: "default"}},
            {"op": "add", "path": "/spec/suspend", "value": True},
        ]

    def test_it_does_not_replace_a_named_queue(self) -> None:
        """Who names a queue keeps it."""
        assert mutated(mutating(BatchJob(), self.cluster), job(labels=QUEUED))["metadata"]["labels"] == QUEUED

    def test_other_labels_stay(self) -> None:
        """Only one label is added to those that are there."""
        after = mutated(mutating(BatchJob(), self.cluster), job(labels={"app": "x"}))
        assert after["metadata"]["labels"] == {"app": "x", names.QUEUE_LABEL: "default"}

    def test_not_in_a_namespace_that_is_not_managed(self) -> None:
        """The selector of managed namespaces is the limit of defaulting."""
        assert mutating(BatchJob(), self.cluster)(request(job(), namespace="kube-system")) is ALLOWED

    def test_not_for_the_child_of_a_job_kind(self) -> None:
        """A Job of a JobSet without a queue gets none of its own."""
        cluster = Cluster(default_queue_in=("team-a",), jobs=(job_set(),))
        assert mutating(BatchJob(), cluster)(request(job(owner=PARENT))) is ALLOWED

    def test_not_for_the_child_of_a_job_that_is_not_there(self) -> None:
        """The reference alone must not keep a Job out of the queue."""
        assert mutating(BatchJob(), self.cluster)(request(job(owner=PARENT))).code == 500

    @pytest.mark.parametrize("kind", ["Job", "Pod"])
    def test_for_the_child_of_a_kind_that_makes_no_jobs(self, kind: str) -> None:
        """Such a reference was not written by the kind's controller."""
        owner = owned_by(kind, "parent", api_version="v1" if kind == "Pod" else "batch/v1")
        after = mutated(mutating(BatchJob(), self.cluster), job(owner=owner))
        assert after["metadata"]["labels"] == {names.QUEUE_LABEL: "default"}

    def test_for_the_child_of_another_kind(self) -> None:
        """A Job made by a CronJob stands on its own."""
        after = mutated(mutating(BatchJob(), self.cluster), job(owner=owned_by("CronJob", "nightly")))
        assert after["metadata"]["labels"] == {names.QUEUE_LABEL: "default"}


class TestDefaultPriorityClass:
    """A WorkloadPriorityClass named `default` is given to Jobs that name none."""

    cluster = Cluster(has_default_priority_class=True)

    def test_it_is_given_whether_or_not_the_job_has_a_queue(self) -> None:
        """The label does not depend on a queue."""
        after = mutated(mutating(BatchJob(), self.cluster), job())
        assert after["metadata"]["labels"] == {names.PRIORITY_CLASS_LABEL: "default"}
        assert "suspend" not in after["spec"]

    def test_it_does_not_replace_a_named_class(self) -> None:
        """Who names a class keeps it."""
        labels = {names.PRIORITY_CLASS_LABEL: "high"}
        assert mutated(mutating(BatchJob(), self.cluster), job(labels=labels))["metadata"]["labels"] == labels


class TestWithoutQueueName:
    """With `manageJobsWithoutQueueName` every Job of a managed namespace waits."""

    options = JobOptions(
        manage_jobs_without_queue_name=True, managed_jobs_namespace_selector=namespaces(without=["kube-system"])
    )

    def test_a_job_without_a_queue_is_suspended(self) -> None:
        """It waits until somebody names a queue."""
        after = mutated(mutating(BatchJob(), Cluster(options=self.options)), job())
        assert after["spec"]["suspend"] is True
        assert "labels" not in after["metadata"]

    def test_not_in_a_namespace_that_is_not_managed(self) -> None:
        """Jobs of other namespaces run at once."""
        handler = mutating(BatchJob(), Cluster(options=self.options))
        assert handler(request(job(), namespace="kube-system")) is ALLOWED

    def test_the_child_of_a_job_is_left_alone(self) -> None:
        """Its parent is managed even without a queue."""
        handler = mutating(BatchJob(), Cluster(options=self.options, jobs=(job_set(),)))
        assert handler(request(child())) is ALLOWED


class TestChildren:
    """A Job of a queued JobSet is the JobSet's business."""

    def test_the_child_of_a_queued_job_is_left_alone(self) -> None:
        """Even with a queue label of its own; its pods name a pod set, as the start of the JobSet has it."""
        handler = mutating(BatchJob(), Cluster(jobs=(job_set(labels=QUEUED),)))
        assert handler(request(child(labels=QUEUED))) is ALLOWED

    @pytest.mark.parametrize("labels", [QUEUED, None])
    def test_a_child_whose_pods_name_no_pod_set_is_suspended(self, labels: dict[str, str] | None) -> None:
        """No admission of the JobSet has made it, with a queue or without."""
        handler = mutating(BatchJob(), Cluster(jobs=(job_set(labels=QUEUED),)))
        assert mutated(handler, job(labels=labels, owner=PARENT))["spec"]["suspend"] is True

    def test_the_child_of_a_job_without_a_queue_stands_on_its_own(self) -> None:
        """Nobody else would hold it back."""
        handler = mutating(BatchJob(), Cluster(jobs=(job_set(),)))
        assert mutated(handler, child(labels=QUEUED))["spec"]["suspend"] is True
        assert handler(request(child())) is ALLOWED

    def test_a_forged_owner_does_not_help(self) -> None:
        """A reference whose uid is not the owner's is no reason to run."""
        handler = mutating(BatchJob(), Cluster(jobs=(job_set(labels=QUEUED, uid="another"),)))
        assert mutated(handler, child(labels=QUEUED))["spec"]["suspend"] is True

    def test_an_owner_that_is_not_seen_yet_is_an_error_to_try_again(self) -> None:
        """Neither running nor waiting would be safe to answer."""
        answer = mutating(BatchJob(), Cluster())(request(child(labels=QUEUED)))
        assert (answer.code, answer.outcome) == (500, "error")
        assert "workload owner not found: JobSet team-a/parent" in answer.message

    def test_an_owner_of_a_kind_that_makes_no_jobs_is_none(self) -> None:
        """Two Jobs that own each other, or a Pod that is never seen: the Job needs quota itself, and no error."""
        for owner in (owned_by("Job", "parent"), owned_by("Pod", "unknown", api_version="v1")):
            assert mutated(mutating(BatchJob(), Cluster()), job(labels=QUEUED, owner=owner))["spec"]["suspend"] is True


class TestTheDefaultQueue:
    """It is for every Job of which no owner is known that can be charged for it."""

    @pytest.mark.parametrize("uid", ["another", None])
    def test_of_a_job_that_names_an_owner_which_is_not_there(self, uid: str | None) -> None:
        """Nor with that uid. The Job is suspended as it is: it might run when the reference is gone."""
        cluster = Cluster(default_queue_in=("team-a",), jobs=(job_set(labels=QUEUED, uid=uid),) if uid else ())
        made = child()
        made["spec"]["suspend"] = True
        assert mutated(mutating(BatchJob(), cluster), made)["metadata"]["labels"] == {names.QUEUE_LABEL: "default"}

    def test_of_a_child(self) -> None:
        """Its owner exists, with a queue or without."""
        for labels in (QUEUED, None):
            cluster = Cluster(default_queue_in=("team-a",), jobs=(job_set(labels=labels),))
            assert mutating(BatchJob(), cluster)(request(child())) is ALLOWED

    def test_of_a_job_of_an_owner_that_is_not_charged_for_jobs(self) -> None:
        """Such as a StatefulSet, or a Pod."""
        for owner in (owned_by("StatefulSet", "s", api_version="apps/v1"), owned_by("Pod", "p", api_version="v1")):
            cluster = Cluster(default_queue_in=("team-a",))
            assert mutated(mutating(BatchJob(), cluster), job(owner=owner))["spec"]["suspend"] is True


class TestReplacementOfPods:
    """A queued Job replaces a pod when it has ended, and not while it ends."""

    wanted: ClassVar = [{"op": "replace", "path": "/spec/podReplacementPolicy", "value": "Failed"}]

    @pytest.mark.parametrize("suspend", [True, False])
    def test_of_a_job_with_a_queue(self, *, suspend: bool) -> None:
        """Whether or not it has to be suspended."""
        made = mutated(mutating(BatchJob(), Cluster()), job(labels=QUEUED, suspend=suspend, podReplacementPolicy=EARLY))
        assert (made["spec"]["podReplacementPolicy"], made["spec"]["suspend"]) == ("Failed", True)

    @pytest.mark.parametrize("suspend", [True, False])
    def test_of_the_child_of_a_queued_job(self, *, suspend: bool) -> None:
        """Nothing else of it is changed."""
        made = child()
        made["spec"] |= {"podReplacementPolicy": EARLY, "suspend": suspend}
        answer = mutating(BatchJob(), Cluster(jobs=(job_set(labels=QUEUED),)))(request(made))
        assert operations(answer) == self.wanted

    def test_of_a_suspended_child_whose_owner_is_not_seen_yet(self) -> None:
        """Its owner's controller may resume it before the reconciler sees it."""
        made = child()
        made["spec"] |= {"podReplacementPolicy": EARLY, "suspend": True}
        assert operations(mutating(BatchJob(), Cluster())(request(made))) == self.wanted

    def test_of_other_jobs_is_their_own(self) -> None:
        """Neither without a queue, nor of an owner that is not queued."""
        for each in (job(podReplacementPolicy=EARLY), child()):
            each["spec"]["podReplacementPolicy"] = EARLY
            assert mutating(BatchJob(), Cluster(jobs=(job_set(),)))(request(each)) is ALLOWED


def test_a_child_of_an_owner_that_is_managed_elsewhere_is_left_alone() -> None:
    """It is neither held nor given the default queue, whatever it asks for."""
    cluster = Cluster(default_queue_in=("team-a",), registry=Registry(external=[("tekton.dev", "PipelineRun")]))
    for labels in (QUEUED, None):
        child = job(labels=labels, owner=owned_by("PipelineRun", "run", api_version="tekton.dev/v1"))
        assert mutating(BatchJob(), cluster)(request(child)) is ALLOWED


def test_a_namespace_the_cache_has_not_seen_is_an_error_when_its_labels_matter() -> None:
    """A selector on other labels cannot be decided for a namespace made a moment ago."""
    options = JobOptions(managed_jobs_namespace_selector=LabelSelector(match_labels={"kueue-managed": "true"}))
    answer = mutating(BatchJob(), Cluster(options=options, default_queue_in=("team-a",)))(request(job()))
    assert answer.code == 500
    assert "'team-a' is not known yet" in answer.message


def test_a_job_on_its_way_out_is_not_suspended() -> None:
    """Suspending would be too late, and its ancestors may be gone."""
    leaving = job(labels=QUEUED, owner=PARENT)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert mutating(BatchJob(), Cluster())(request(leaving)) is ALLOWED


@pytest.mark.parametrize("operation", ["UPDATE", "DELETE", "CONNECT", "SOMETHING"])
def test_other_operations_pass(operation: str) -> None:
    """Only creation is changed; rules that send more do no harm."""
    assert mutating(BatchJob(), Cluster())(request(job(labels=QUEUED), operation=operation)) is ALLOWED


def test_sub_resources_pass() -> None:
    """A status write is nobody's business here."""
    assert mutating(BatchJob(), Cluster())(request(job(labels=QUEUED), sub_resource="status")) is ALLOWED


def test_another_kind_on_this_path_is_refused_with_a_reason() -> None:
    """A rule that sends Pods here is a mistake to be seen."""
    stray = {**job(), "kind": "Pod", "apiVersion": "v1"}
    answer = mutating(BatchJob(), Cluster())(request(stray))
    assert (answer.code, answer.reason) == (400, "BadRequest")
    assert "reviews Job" in answer.message


def test_an_object_against_its_schema_is_refused_with_the_field() -> None:
    """What cannot be read is the client's mistake, not a crash."""
    broken = job()
    broken["metadata"]["labels"] = ["not", "a", "map"]
    answer = mutating(BatchJob(), Cluster())(request(broken))
    assert answer.code == 400
    assert "$.metadata.labels" in answer.message
