"""Kinds whose controllers copy labels and annotations to pods: what gates the pods is added to their own metadata."""

from typing import Any

import pytest

from tests.unit.webhooks.reviews import Cluster, Json, mutated, refusal, request
from turnstile.api import names
from turnstile.jobs.integration import Integration
from turnstile.jobs.kinds.inferenceservice import InferenceServices
from turnstile.jobs.kinds.notebook import Notebooks
from turnstile.jobs.kinds.pipelinerun.run import PipelineRuns
from turnstile.webhooks.jobreview import mutating, validating
from turnstile.webhooks.review import ALLOWED

QUEUED = {names.QUEUE_LABEL: "main"}
REQUESTS = "kueue.konflux-ci.dev/requests-"
PARENTS = pytest.mark.parametrize("integration", [InferenceServices(), Notebooks()])
EACH = pytest.mark.parametrize("integration", [InferenceServices(), Notebooks(), PipelineRuns()])


def made(integration: Integration[Any], *, labels: Json | None = None, annotations: Json | None = None) -> Json:
    """An object of the kind, queued unless its labels say otherwise."""
    kind = integration.kind
    meta = {"name": "x", "namespace": "team-a", "labels": QUEUED if labels is None else labels}
    if annotations is not None:
        meta["annotations"] = annotations
    return {"apiVersion": f"{kind.GROUP}/{kind.VERSION}", "kind": kind.KIND, "metadata": meta, "spec": {}}


@PARENTS
def test_label_and_annotation_that_gate_the_pods_are_added(integration: Integration[Any]) -> None:
    """To the object itself, and nothing else changes."""
    after = mutated(mutating(integration, Cluster()), made(integration))
    assert after["metadata"]["labels"] == {**QUEUED, names.MANAGED_LABEL: "true"}
    assert after["metadata"]["annotations"] == {names.POD_SUSPENDING_PARENT: integration.framework}
    assert after["spec"] == {}


@PARENTS
def test_what_a_tenant_takes_away_is_added_again(integration: Integration[Any]) -> None:
    """On each update."""
    old = mutated(mutating(integration, Cluster()), made(integration))
    after = mutated(mutating(integration, Cluster()), made(integration), old=old)
    assert after["metadata"]["annotations"] == old["metadata"]["annotations"]


@EACH
def test_the_default_queue_is_given(integration: Integration[Any]) -> None:
    """Where the namespace has one."""
    after = mutated(mutating(integration, Cluster(default_queue_in=("team-a",))), made(integration, labels={}))
    assert after["metadata"]["labels"][names.QUEUE_LABEL] == "default"
    assert after["metadata"]["annotations"][names.POD_SUSPENDING_PARENT] == integration.framework


@EACH
def test_without_a_queue_it_is_left_alone(integration: Integration[Any]) -> None:
    """Its pods run as they come."""
    assert mutating(integration, Cluster())(request(made(integration, labels={}))) is ALLOWED


@PARENTS
@pytest.mark.parametrize("queue", ["", "other"])
def test_the_queue_of_one_that_runs_does_not_change(integration: Integration[Any], queue: str) -> None:
    """Nor is the name of the queue taken away while nothing runs."""
    status = {"readyReplicas": 1, "conditions": [{"type": "PredictorReady", "status": "True"}]}
    old = {**made(integration), "status": status}
    labels = {names.QUEUE_LABEL: queue} if queue else {}
    new = {**made(integration, labels=labels), "status": status}
    validate = validating(integration, Cluster())
    assert "field is immutable" in refusal(validate, new, old=old)
    idle = ({**new, "status": {}}, {**old, "status": {}})
    assert bool(refusal(validate, idle[0], old=idle[1])) == (not queue)


def test_a_run_is_made_pending() -> None:
    """And one that is pending already gets the annotation all the same."""
    for spec in ({}, {"status": "PipelineRunPending"}):
        after = mutated(mutating(PipelineRuns(), Cluster()), {**made(PipelineRuns()), "spec": spec})
        assert after["spec"] == {"status": "PipelineRunPending"}
        assert after["metadata"]["annotations"] == {names.POD_SUSPENDING_PARENT: "tekton.dev/pipelinerun"}


def test_requests_of_a_run_have_to_be_quantities() -> None:
    """In its annotations."""
    body = made(PipelineRuns(), annotations={f"{REQUESTS}cpu": "many"})
    message = refusal(validating(PipelineRuns(), Cluster()), body)
    assert 'metadata.annotations[kueue.konflux-ci.dev/requests-cpu]: Invalid value: "many"' in message


@pytest.mark.parametrize(
    "annotations", [{f"{REQUESTS}cpu": "2"}, {f"{REQUESTS}memory": "1Gi", f"{REQUESTS}cpu": "1"}, {}]
)
def test_what_a_run_needs_does_not_change_once_it_has_begun(annotations: Json) -> None:
    """While it is pending it may."""
    old = made(PipelineRuns(), annotations={f"{REQUESTS}cpu": "1"})
    new = made(PipelineRuns(), annotations=annotations)
    pending = {"spec": {"status": "PipelineRunPending"}}
    validate = validating(PipelineRuns(), Cluster())
    assert "field is immutable" in refusal(validate, new, old=old)
    assert refusal(validate, {**new, **pending}, old={**old, **pending}) == ""


def test_a_run_that_has_begun_keeps_the_annotation_that_gates_its_pods() -> None:
    """One that never had it is left alone."""
    held = made(PipelineRuns(), annotations={names.POD_SUSPENDING_PARENT: "tekton.dev/pipelinerun"})
    free = made(PipelineRuns(), annotations={})
    validate = validating(PipelineRuns(), Cluster())
    assert "field is immutable" in refusal(validate, free, old=held)
    assert refusal(validate, free, old=free) == ""
