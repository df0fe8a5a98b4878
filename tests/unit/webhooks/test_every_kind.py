"""The rules of the webhooks that all job kinds share, for every kind that is registered."""

import copy
import json
from typing import Any

import pytest

from tests.unit.webhooks.reviews import Cluster, Json, mutated, operations, owned_by, refusal, request
from tests.unit.webhooks.test_any_json import seeds
from turnstile.api import names
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.pod.single import PlainPod
from turnstile.jobs.options import JobOptions, namespaces
from turnstile.jobs.registry import Registry
from turnstile.webhooks.jobreview import mutating, validating

REGISTRY = Registry()
QUEUED = {names.QUEUE_LABEL: "main"}
BY_THEIR_PODS = ("statefulset", "leaderworkerset.x-k8s.io/leaderworkerset")
"""Kinds that are watched and never suspended: their pods are gated, and no pod is ready at first."""
EVERY_KIND = pytest.mark.parametrize("kind", [each.framework for each in REGISTRY.enabled])
QUEUED_KINDS = pytest.mark.parametrize(
    "kind", [each.framework for each in REGISTRY.watched if each.framework not in BY_THEIR_PODS]
)
EVERY_JOB = JobOptions(
    managed_jobs_namespace_selector=namespaces(without=["kube-system"]), manage_jobs_without_queue_name=True
)


def integration_of(framework: str) -> Integration[Any]:
    """The integration of that name."""
    found = REGISTRY.by_framework(framework)
    assert found is not None
    return found


def job(kind: str, **metadata: Any) -> Json:
    """A valid object of a kind that names no queue, and that its webhook would have to hold."""
    integration = integration_of(kind)
    found = copy.deepcopy(seeds()[integration.kind.KIND.lower()])
    found["metadata"] = {"name": "x", "namespace": "team-a", "uid": "uid-of-x", **metadata}
    found.pop("status", None)
    spec = found.get("spec", {})
    for each in (spec, spec.get("runPolicy"), spec.get("rayClusterConfig")):
        if isinstance(each, dict):
            each.pop("suspend", None)
    return found


def held(kind: str, body: Json) -> bool:
    """Whether the pods of an object cannot run."""
    integration = integration_of(kind)
    return integration.suspended(integration.kind.decoder()(json.dumps(body).encode()))


def defaulted(kind: str, body: Json, **cluster: Any) -> Json:
    """The object after the defaulting webhook."""
    return mutated(mutating(integration_of(kind), Cluster(registry=REGISTRY, **cluster)), body)


def refused(kind: str, body: Json, old: Json | None = None, **cluster: Any) -> str:
    """What the validating webhook says of an object."""
    return refusal(validating(integration_of(kind), Cluster(registry=REGISTRY, **cluster)), body, old=old)


def labels(body: Json) -> Json:
    """The labels of an object."""
    found: Json = body["metadata"].get("labels", {})
    return found


@QUEUED_KINDS
def test_a_job_with_a_queue_is_held(kind: str) -> None:
    """And one without a queue runs."""
    assert held(kind, defaulted(kind, job(kind, labels=dict(QUEUED))))
    assert not held(kind, defaulted(kind, job(kind)))


@EVERY_KIND
def test_the_default_queue_is_for_jobs_without_one(kind: str) -> None:
    """It is added in managed namespaces only, and holds the job."""
    after = defaulted(kind, job(kind), default_queue_in=("team-a",))
    assert labels(after)[names.QUEUE_LABEL] == "default"
    assert held(kind, after)
    named = defaulted(kind, job(kind, labels=dict(QUEUED)), default_queue_in=("team-a",))
    assert labels(named)[names.QUEUE_LABEL] == "main"


@EVERY_KIND
def test_the_default_queue_is_not_for_namespaces_that_are_not_managed(kind: str) -> None:
    """Though they have it."""
    cluster = Cluster(registry=REGISTRY, default_queue_in=("kube-system",))
    answer = mutating(integration_of(kind), cluster)(
        request(job(kind, namespace="kube-system"), namespace="kube-system")
    )
    assert names.QUEUE_LABEL not in json.dumps(operations(answer))


@EVERY_KIND
def test_the_default_priority_class_is_for_jobs_without_one(kind: str) -> None:
    """Whether they name a queue or not."""
    after = defaulted(kind, job(kind), has_default_priority_class=True)
    assert labels(after)[names.PRIORITY_CLASS_LABEL] == "default"
    mine = {names.PRIORITY_CLASS_LABEL: "mine"}
    assert labels(defaulted(kind, job(kind, labels=mine), has_default_priority_class=True)) | mine == labels(
        defaulted(kind, job(kind, labels=mine), has_default_priority_class=True)
    )


@QUEUED_KINDS
def test_every_job_is_held_where_jobs_without_a_queue_name_are_managed(kind: str) -> None:
    """In managed namespaces."""
    assert held(kind, defaulted(kind, job(kind), options=EVERY_JOB))
    cluster = Cluster(registry=REGISTRY, options=EVERY_JOB)
    outside = request(job(kind, namespace="kube-system"), namespace="kube-system")
    before = operations(mutating(integration_of(kind), Cluster(registry=REGISTRY))(outside))
    assert operations(mutating(integration_of(kind), cluster)(outside)) == before


@QUEUED_KINDS
def test_a_job_that_is_being_deleted_is_not_held(kind: str) -> None:
    """Its last update must not be refused or changed."""
    leaving = job(kind, labels=dict(QUEUED), deletionTimestamp="2026-01-02T03:04:05Z")
    assert not held(kind, defaulted(kind, leaving))


@EVERY_KIND
def test_the_child_of_an_external_owner_gets_no_defaults(kind: str) -> None:
    """Another controller manages it; without a queue name of its own it is left alone."""
    registry = Registry(external=[("example.com", "Farm")])
    owner = owned_by("Farm", "f", api_version="example.com/v1")
    cluster = Cluster(registry=registry, default_queue_in=("team-a",), has_default_priority_class=True)
    after = mutated(mutating(integration_of(kind), cluster), job(kind, ownerReferences=[owner]))
    assert names.QUEUE_LABEL not in labels(after)
    assert names.PRIORITY_CLASS_LABEL not in labels(after)


@EVERY_KIND
@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"labels": {names.QUEUE_LABEL: "no name!"}}, "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value"),
        (
            {"labels": {**QUEUED, names.MAX_EXEC_TIME_LABEL: "0"}},
            "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: 0: should be greater than 0",
        ),
        (
            {"labels": dict(QUEUED), "annotations": {names.ADMISSION_GATED_BY: "no-domain"}},
            "metadata.annotations[kueue.x-k8s.io/admission-gated-by]",
        ),
    ],
)
def test_metadata_that_no_kind_may_have_is_refused(kind: str, metadata: Json, error: str) -> None:
    """In the same words for all kinds."""
    assert error in refused(kind, job(kind, **metadata))


@EVERY_KIND
def test_a_prebuilt_workload_is_for_kinds_that_take_one(kind: str) -> None:
    """The name itself must be valid for all of them."""
    named = {names.PREBUILT_WORKLOAD: "mine"}
    said = refused(kind, job(kind, labels=dict(QUEUED), annotations=named))
    assert ("Is not supported for" in said) != integration_of(kind).handling.takes_prebuilt
    bad = {names.PREBUILT_WORKLOAD: "no name!"}
    assert "prebuilt-workload-name]: Invalid value" in refused(kind, job(kind, labels=dict(QUEUED), annotations=bad))


@EVERY_KIND
def test_elastic_jobs_are_for_kinds_that_grow(kind: str) -> None:
    """By slices, or pod by pod. The others are refused by name."""
    said = refused(kind, job(kind, labels=dict(QUEUED), annotations={names.ELASTIC_JOB: "true"}))
    integration = integration_of(kind)
    grows = integration.elasticity is not None or (integration.as_set is not None and integration.as_set.grows)
    assert ("elastic job is not supported for" in said) != grows


@QUEUED_KINDS
def test_the_queue_of_a_running_job_is_immutable(kind: str) -> None:
    """A job that is held may be moved, but not out of all queues where a default queue is."""
    before, after = job(kind, labels=dict(QUEUED)), job(kind, labels={names.QUEUE_LABEL: "other"})
    path = "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value"
    assert path in refused(kind, after, before)
    waiting, moved = (defaulted(kind, each) for each in (before, after))
    assert path not in refused(kind, moved, waiting)
    gone = copy.deepcopy(waiting)
    del gone["metadata"]["labels"][names.QUEUE_LABEL]
    assert "must not be empty in namespace with default queue" in refused(
        kind, gone, waiting, default_queue_in=("team-a",)
    )


@QUEUED_KINDS
def test_the_time_limit_changes_only_while_a_job_is_held(kind: str) -> None:
    """Before and after the change."""
    short, long = ({**QUEUED, names.MAX_EXEC_TIME_LABEL: each} for each in ("5", "9"))
    path = "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]"
    assert path in refused(kind, job(kind, labels=long), job(kind, labels=short))
    held_before, held_after = (defaulted(kind, job(kind, labels=each)) for each in (short, long))
    assert path not in refused(kind, held_after, held_before)


@EVERY_KIND
def test_the_priority_class_is_never_taken_off(kind: str) -> None:
    """It may be changed at any time, and added only to a job that is held."""
    first = {**QUEUED, names.PRIORITY_CLASS_LABEL: "low"}
    path = "metadata.labels[kueue.x-k8s.io/priority-class]"
    assert path in refused(kind, job(kind, labels=dict(QUEUED)), job(kind, labels=first))
    other = {**QUEUED, names.PRIORITY_CLASS_LABEL: "high"}
    assert path not in refused(kind, job(kind, labels=other), job(kind, labels=first))


@QUEUED_KINDS
def test_the_priority_class_is_added_only_to_a_job_that_is_held(kind: str) -> None:
    """A running job has been preferred, or not, by the one that it had."""
    first = {**QUEUED, names.PRIORITY_CLASS_LABEL: "low"}
    path = "metadata.labels[kueue.x-k8s.io/priority-class]"
    assert path in refused(kind, job(kind, labels=first), job(kind, labels=dict(QUEUED)))


@EVERY_KIND
def test_admission_gates_are_only_taken_off(kind: str) -> None:
    """By whoever set them."""
    one, two = ({names.ADMISSION_GATED_BY: each} for each in ("a.io/a", "a.io/a,b.io/b"))
    path = "metadata.annotations[kueue.x-k8s.io/admission-gated-by]"
    before, after = (defaulted(kind, job(kind, labels=dict(QUEUED), annotations=each)) for each in (one, two))
    assert path in refused(kind, after, before)
    assert path not in refused(kind, before, after)


@EVERY_KIND
def test_nothing_is_refused_of_a_job_that_is_being_deleted(kind: str) -> None:
    """The removal of its finalizers must not be blocked."""
    before = job(kind, labels=dict(QUEUED))
    after = job(kind, labels={names.QUEUE_LABEL: "no name!"}, deletionTimestamp="2026-01-02T03:04:05Z")
    assert refused(kind, after, before) == ""


def test_every_kind_is_asked() -> None:
    """A new kind needs a valid object in `seeds`."""
    assert {each.kind.KIND.lower() for each in REGISTRY.enabled} <= seeds().keys()
    assert PlainPod.framework in {each.framework for each in REGISTRY.watched}
