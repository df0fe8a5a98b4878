"""What a feature gate that is switched off leaves out of the life of a Workload."""

from typing import Any

import pytest

from tests.unit.config.files import loaded
from tests.unit.controllers.job_cluster import Cluster
from tests.unit.controllers.worlds import RESERVED, cluster_queue, condition, local_queue, workload, world
from tests.unit.controllers.written import conditions
from tests.unit.webhooks import reviews
from turnstile.api.core import Job
from turnstile.controllers.workloads.workload import decide
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.options import JobOptions
from turnstile.process import configured
from turnstile.webhooks.jobreview import mutating, validating
from turnstile.webhooks.review import ALLOWED

GATED = {"kueue.x-k8s.io/admission-gated-by": "example.com/a"}


def without(gate: str) -> JobOptions:
    """The options of a file that switches one gate off."""
    return configured.job_options(loaded(f"featureGates: {{{gate}: false}}"))


def started(options: JobOptions) -> Cluster:
    """A Job of three pods at a time that runs."""
    cluster = Cluster(options=options)
    cluster.flavor()
    cluster.job(parallelism=3, completions=5)
    cluster.settle()
    cluster.admit()
    cluster.settle()
    return cluster


class TestAdmissionGatedBy:
    OFF = without("AdmissionGatedBy")

    def test_the_annotation_of_a_workload_keeps_it_from_nothing(self) -> None:
        """It is not said to be gated, and keeps a reservation; one that was said to be is evaluated again."""
        objects = (local_queue(), cluster_queue())
        assert decide("ns/wl", world(workload(annotations=GATED), *objects, options=self.OFF)).actions == []
        held = workload(RESERVED, admission=True, annotations=GATED)
        assert conditions(decide("ns/wl", world(held, *objects, options=self.OFF)))["QuotaReserved"][0] == "True"
        said = condition("QuotaReserved", "False", "AdmissionGated", "Admission is gated by: example.com/a")
        decision = decide("ns/wl", world(workload(said, annotations=GATED), *objects, options=self.OFF))
        assert conditions(decision)["QuotaReserved"][1] == "PendingEvaluation"

    def test_the_annotation_of_a_job_is_neither_validated_nor_copied(self) -> None:
        """Any value is accepted."""
        body = reviews.job(annotations={"kueue.x-k8s.io/admission-gated-by": "nonsense"}, labels={})
        asked = reviews.Cluster(options=self.OFF)
        assert validating(BatchJob(), asked)(reviews.request(body)) == ALLOWED
        assert validating(BatchJob(), reviews.Cluster())(reviews.request(body)) != ALLOWED
        cluster = Cluster(options=self.OFF)
        cluster.job(annotations=GATED)
        cluster.settle()
        assert "annotations" not in cluster.workload["metadata"]
        cluster.patch(Job, "team/train", {"metadata": {"annotations": dict.fromkeys(GATED, "example.com/b")}})
        cluster.settle()
        assert "annotations" not in cluster.workload["metadata"]


@pytest.mark.parametrize(("on", "released"), [(True, [{"name": "main", "count": 2}]), (False, None)])
def test_reclaimable_pods_are_reported_with_their_gate(on: bool, released: Any) -> None:
    """Without ReclaimablePods nothing is written."""
    cluster = started(JobOptions() if on else without("ReclaimablePods"))
    cluster.patch(Job, "team/train", {"status": {"active": 1, "succeeded": 4}})
    cluster.settle()
    assert cluster.workload["status"].get("reclaimablePods") == released


def test_pods_get_no_names_of_queues_without_assign_queue_labels_for_pods() -> None:
    """The name of the pod set stays: by it pods are charged."""
    for options, more in (
        (JobOptions(), {"local-queue-name", "cluster-queue-name"}),
        (without("AssignQueueLabelsForPods"), set()),
    ):
        job = started(options).get(Job, "team/train")
        assert job is not None
        ours = {key.removeprefix("kueue.x-k8s.io/") for key in job["spec"]["template"]["metadata"]["labels"]}
        assert ours - {"app"} == {"podset", *more}


def test_a_job_without_a_class_gets_none_without_workload_priority_class_defaulting() -> None:
    """Though a class `default` is there."""
    for options, classes in ((JobOptions(), ["default"]), (without("WorkloadPriorityClassDefaulting"), [])):
        asked = reviews.Cluster(options=options, has_default_priority_class=True)
        after = reviews.mutated(mutating(BatchJob(), asked), reviews.job(labels={}))
        found = after["metadata"].get("labels", {})
        assert [value for key, value in found.items() if key.endswith("priority-class")] == classes
