"""A Job that breaks a rule is refused with all its errors at once, in Kueue's words."""

import json
from typing import Any

import pytest

from tests.unit.webhooks.reviews import Cluster, Json, job, meta, owned_by, refusal, request
from turnstile.api import names
from turnstile.jobs.kinds.appwrapper.wrapper import AppWrapper
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.kinds.leaderworkerset import LeaderWorkerSet, LeaderWorkerSets
from turnstile.jobs.kinds.statefulset import StatefulSets
from turnstile.jobs.kinds.trainjob import TrainJobs
from turnstile.jobs.options import JobOptions
from turnstile.webhooks.job_rules import create_errors
from turnstile.webhooks.jobreview import validating
from turnstile.webhooks.review import ALLOWED, GroupVersionKind

QUEUE = f"metadata.labels[{names.QUEUE_LABEL}]"
PRIORITY = f"metadata.labels[{names.PRIORITY_CLASS_LABEL}]"
MAX_TIME = f"metadata.labels[{names.MAX_EXEC_TIME_LABEL}]"
MINIMUM = f"metadata.annotations[{names.JOB_MIN_PARALLELISM}]"
SYNC = f"metadata.annotations[{names.JOB_COMPLETIONS_EQUAL_PARALLELISM}]"
GATED_BY = f"metadata.annotations[{names.ADMISSION_GATED_BY}]"


def labelled(**labels: str) -> Json:
    """Labels by the last part of Kueue's key: `queue_name="main"`."""
    return {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in labels.items()}


def check(new: Json, old: Json | None = None, **cluster: Any) -> str:
    """Why a Job is refused."""
    return refusal(validating(BatchJob(), Cluster(**cluster)), new, old=old)


@pytest.mark.parametrize(
    "fine",
    [
        job(),
        job(labels=labelled(queue_name="team.main", priority_class="high", max_exec_time_seconds="60")),
        job(annotations=labelled(job_min_parallelism="1"), parallelism=2, completions=4),
        job(annotations=labelled(job_completions_equal_parallelism="true"), completionMode="Indexed"),
        job(annotations=labelled(admission_gated_by="acme.io/a, acme.io/b")),
        job(annotations=labelled(prebuilt_workload_name="w")),
    ],
)
def test_what_keeps_the_rules_is_allowed(fine: Json) -> None:
    """On create, and on an update that changes nothing."""
    assert check(fine) == ""
    assert check(fine, fine) == ""


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (labelled(max_exec_time_seconds="0"), f"{MAX_TIME}: Invalid value: 0: should be greater than 0"),
        (
            labelled(max_exec_time_seconds="1_0"),
            f'{MAX_TIME}: Invalid value: "1_0": strconv.Atoi: parsing "1_0": invalid syntax',
        ),
        (
            labelled(max_exec_time_seconds="9" * 20),
            f'{MAX_TIME}: Invalid value: "{"9" * 20}": strconv.Atoi: parsing "{"9" * 20}": value out of range',
        ),
    ],
)
def test_labels_are_checked(labels: Json, reason: str) -> None:
    """The text names the label, its value and what is wrong."""
    assert check(job(labels=labels)) == reason


FOUR = {"parallelism": 4, "completions": 4}


@pytest.mark.parametrize(
    ("annotations", "spec", "reason"),
    [
        (labelled(job_min_parallelism="4"), FOUR, f"{MINIMUM}: Invalid value: 4: should be between 0 and 3"),
        (labelled(job_min_parallelism="0"), FOUR, f"{MINIMUM}: Invalid value: 0: should be between 0 and 3"),
        (
            labelled(job_completions_equal_parallelism="true"),
            {},
            f'{SYNC}: Invalid value: "true": should not be enabled for NonIndexed jobs',
        ),
        (
            labelled(job_completions_equal_parallelism="true"),
            {"completionMode": "Indexed", "parallelism": 2, "completions": 3},
            (
                "spec.completions: Invalid value: 3: should be equal to parallelism when "
                f"{names.JOB_COMPLETIONS_EQUAL_PARALLELISM} annotation is true"
            ),
        ),
        (
            labelled(admission_gated_by="acme.io/a,,acme.io/b"),
            {},
            f'{GATED_BY}: Invalid value: "acme.io/a,,acme.io/b": cannot contain empty gate names',
        ),
    ],
)
def test_annotations_are_checked(annotations: Json, spec: Json, reason: str) -> None:
    """The text names the annotation, its value and what is wrong."""
    assert check(job(annotations=annotations, **spec)) == reason


def test_all_errors_come_together() -> None:
    """Nobody has to try twice to learn of the second mistake."""
    message = check(
        job(
            labels=labelled(queue_name="No_Name", max_exec_time_seconds="-1"),
            annotations=labelled(job_min_parallelism="x"),
        )
    )
    assert message.startswith("[")
    assert [message.index(path) for path in (QUEUE, MAX_TIME, MINIMUM)] == sorted(
        message.index(path) for path in (QUEUE, MAX_TIME, MINIMUM)
    )


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (labelled(queue_name="a"), labelled(queue_name="b"), f'{QUEUE}: Invalid value: "b": field is immutable'),
        (labelled(queue_name="a"), {}, f'{QUEUE}: Invalid value: "": field is immutable'),
        (
            labelled(max_exec_time_seconds="1"),
            labelled(max_exec_time_seconds="2"),
            f'{MAX_TIME}: Invalid value: "2": field is immutable',
        ),
        (
            {},
            labelled(priority_class="high"),
            f'{PRIORITY}: Invalid value: "high": WorkloadPriorityClass cannot be added to a non-suspended workload',
        ),
        (
            labelled(priority_class="high"),
            {},
            f'{PRIORITY}: Invalid value: "": WorkloadPriorityClass cannot be removed from a workload',
        ),
    ],
)
def test_a_running_job_keeps_its_labels(before: Json, after: Json, reason: str) -> None:
    """What decided its admission cannot be changed under it."""
    assert check(job(labels=after), job(labels=before)) == reason


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (labelled(queue_name="a"), labelled(queue_name="b")),
        (labelled(queue_name="a"), {}),
        (labelled(max_exec_time_seconds="1"), labelled(max_exec_time_seconds="2")),
        ({}, labelled(priority_class="high")),
    ],
)
def test_a_waiting_job_may_change_its_labels(before: Json, after: Json) -> None:
    """As long as it is suspended before and after."""
    assert check(job(labels=after, suspend=True), job(labels=before, suspend=True)) == ""


def test_a_priority_class_may_always_be_changed_for_another() -> None:
    """Even of a running Job."""
    assert check(job(labels=labelled(priority_class="low")), job(labels=labelled(priority_class="high"))) == ""


def test_a_queue_may_not_be_taken_where_there_is_a_default_one() -> None:
    """The next Job like it would get the default queue."""
    before, after = job(labels=labelled(queue_name="a"), suspend=True), job(suspend=True)
    message = check(after, before, default_queue_in=("team-a",))
    assert message == f'{QUEUE}: Invalid value: "": queue-name must not be empty in namespace with default queue'


def test_parallelism_is_kept_while_a_job_with_a_minimum_runs() -> None:
    """Its pods are what was admitted; a stop under way may put them back."""
    partial = labelled(job_min_parallelism="1")
    running = job(annotations=partial, parallelism=2, completions=4, suspend=False)
    changed = job(annotations=partial, parallelism=3, completions=4, suspend=False)
    assert "spec.parallelism: Forbidden" in check(changed, running)
    stopping = job(annotations={**partial, names.JOB_STOPPING: "true"}, parallelism=2, completions=4, suspend=True)
    restored = job(annotations=partial, parallelism=3, completions=4, suspend=True)
    assert check(restored, stopping) == ""


def test_gates_may_only_go() -> None:
    """After creation nobody can add one."""
    one, two = labelled(admission_gated_by="acme.io/a"), labelled(admission_gated_by="acme.io/a,acme.io/b")
    assert check(job(annotations=one), job(annotations=two)) == ""
    assert "can only remove gates" in check(job(annotations=two), job(annotations=one))
    assert "cannot add admission gate after creation" in check(job(annotations=one), job())


def test_what_is_being_deleted_passes() -> None:
    """Nothing may stand in the way of taking a finalizer off."""
    leaving = job(labels=labelled(queue_name="No_Name"))
    leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert check(leaving, job(labels=labelled(queue_name="a"))) == ""


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT", "SOMETHING"])
def test_other_operations_pass(operation: str) -> None:
    """Only creation and updates are checked."""
    wrong = job(labels=labelled(queue_name="No_Name"))
    assert validating(BatchJob(), Cluster())(request(wrong, operation=operation)) is ALLOWED


def template(**annotations: str) -> Json:
    """A Job of four pods with annotations on its template, by the last part of their key."""
    some = job(parallelism=4, completions=4)
    some["spec"]["template"]["metadata"]["annotations"] = labelled(**annotations)
    return some


TEMPLATE = "spec.template.metadata.annotations"


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({"podset_required_topology": "a/b", "podset_preferred_topology": "a/b"}, "more than one topology annotation"),
        ({"podset_required_topology": "a b"}, "podset-required-topology]: Invalid value"),
        ({"podset_unconstrained_topology": "maybe"}, "must be a boolean value"),
        ({"podset_slice_required_topology": "a/b"}, "podset-slice-size]: Required value"),
        ({"podset_slice_size": "1"}, "podset-slice-size]: Forbidden"),
        ({"podset_slice_required_topology": "a/b", "podset_slice_size": "0"}, "greater than or equal to 1"),
        ({"podset_slice_required_topology": "a/b", "podset_slice_size": "1_0"}, "must be a numeric value"),
        (
            {"podset_slice_required_topology": "a/b", "podset_slice_size": "5"},
            "must not be greater than pod set count 4",
        ),
        ({"podset_group_name": "7", "podset_required_topology": "a/b"}, "must not be a number"),
        ({"podset_group_name": "g"}, "may not be set when neither"),
        ({"podset_slice_required_topology_constraints": "{"}, "must be a valid JSON array"),
        ({"podset_slice_required_topology_constraints": "[]"}, "between 1 and 3 entries"),
        (
            {"podset_slice_required_topology_constraints": '[{"topology":"a/b","size":4},{"topology":"a/b","size":3}]'},
            "must evenly divide the parent layer size 4",
        ),
    ],
)
def test_topology_annotations_are_checked(annotations: dict[str, str], reason: str) -> None:
    """On the template, before any Topology is known."""
    message = check(template(**annotations))
    assert TEMPLATE in message
    assert reason in message


def test_a_topology_request_that_makes_sense_is_allowed() -> None:
    """Slices of a size that fits, below a required level."""
    fine = template(
        podset_required_topology="cloud/block", podset_slice_required_topology="cloud/rack", podset_slice_size="2"
    )
    assert check(fine) == ""


@pytest.mark.parametrize("on", [True, False])
def test_an_elastic_job_is_refused_only_with_the_gate(on: bool) -> None:
    """Without ElasticJobsViaWorkloadSlices the annotation says nothing, as in Kueue."""
    kind = GroupVersionKind(group="trainer.kubeflow.org", version="v1alpha1", kind="TrainJob")
    errors = create_errors(
        meta(annotations=labelled(elastic_job="true")), kind, TrainJobs(), JobOptions(elastic_jobs=on)
    )
    assert bool(errors) is on


def stateful_set(replicas: int, *, held: bool = False) -> Json:
    """A queued StatefulSet that an AppWrapper made."""
    owner = owned_by("AppWrapper", "wrapper", uid="uid-wrapper", api_version="workload.codeflare.dev/v1beta2")
    template: Json = {"metadata": {}, "spec": {"containers": []}}
    if held:
        template["metadata"]["annotations"] = {names.POD_SUSPENDING_PARENT: "statefulset"}
    body = job(labels=labelled(queue_name="main"), owner=owner)
    return {
        **body,
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "spec": {"replicas": replicas, "template": template},
    }


@pytest.mark.parametrize(
    ("queued", "held", "refused"),
    [(True, False, False), (False, False, True), (True, True, True)],
    ids=["made by a queued job", "made by a job without a queue", "held for its own Workload"],
)
def test_a_set_of_a_queued_job_may_be_scaled(queued: bool, held: bool, refused: bool) -> None:
    """The number of pods is fixed where a Workload of the set's own charges for them, not where its owner's does."""
    labels = labelled(queue_name="main") if queued else {}
    made = {"name": "wrapper", "namespace": "team-a", "uid": "uid-wrapper", "labels": labels}
    cluster = Cluster(jobs=(AppWrapper.decoder()(json.dumps({"metadata": made}).encode()),))
    why = refusal(validating(StatefulSets(), cluster), stateful_set(3, held=held), old=stateful_set(2, held=held))
    assert ("spec.replicas" in why) is refused


@pytest.mark.parametrize(("replicas", "refused"), [(-1, True), (0, False)])
def test_a_negative_number_of_groups_is_refused(replicas: int, refused: bool) -> None:
    """A LeaderWorkerSet, before its own webhook is asked."""
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": 1, "workerTemplate": {"spec": {"containers": []}}}}
    errors = LeaderWorkerSets().create_errors(LeaderWorkerSet.decoder()(json.dumps({"spec": spec}).encode()))
    assert ["must be >= 0, got -1" in str(each) for each in errors] == [True] * refused


class TestAJobThatRunsOnAnotherCluster:
    """Its `managedBy` names MultiKueue."""

    THERE, HERE = {"managedBy": names.MULTIKUEUE_CONTROLLER}, {"managedBy": "kubernetes.io/job-controller"}

    @pytest.mark.parametrize("stopped", [False, True])
    def test_stays_with_it(self, *, stopped: bool) -> None:
        """Another controller would run it here besides; nor is a job of this cluster sent later."""
        labels = labelled(queue_name="a")
        for before, after, value in ((self.THERE, self.HERE, f'"{self.HERE["managedBy"]}"'), (self.THERE, {}, "null")):
            old, new = (job(labels=labels, suspend=stopped, **each) for each in (before, after))
            assert check(new, old) == f"spec.managedBy: Invalid value: {value}: field is immutable"
            assert "spec.managedBy" in check(old, new)

    def test_may_be_changed_otherwise(self) -> None:
        """And a job of this cluster may change its controller here."""
        old, new = (job(labels=labelled(queue_name="a"), suspend=True, **each) for each in (self.THERE, self.THERE))
        assert check({**new, "metadata": {**new["metadata"], "annotations": {"a": "b"}}}, old) == ""
        assert check(job(suspend=True, **self.HERE), job(suspend=True)) == ""
