"""A Pod that breaks a rule of groups or of the managed label is refused; one that claims too much is warned."""

import pytest

from tests.unit.webhooks.reviews import Cluster, Json, owned_by, pod, refusal, request
from turnstile.api import names
from turnstile.jobs.kinds.pod.single import MANAGED_OWNER_WARNING, PlainPod
from turnstile.webhooks.jobreview import validating

HANDLER = validating(PlainPod(), Cluster())
GROUP = {names.POD_GROUP_NAME: "g"}
COUNT = {names.POD_GROUP_TOTAL_COUNT: "2"}


@pytest.mark.parametrize(
    ("labels", "annotations", "reason"),
    [
        ({names.MANAGED_LABEL: "false"}, {}, "Forbidden: managed label value can only be 'true'"),
        (GROUP, {}, "annotation and the 'kueue.x-k8s.io/pod-group-name' label should be set"),
        ({}, COUNT, "should be set"),
        ({}, GROUP, "annotation and the 'kueue.x-k8s.io/pod-group-name' annotation should be set"),
        (GROUP, {names.POD_GROUP_TOTAL_COUNT: "two"}, 'strconv.Atoi: parsing "two": invalid syntax'),
        (GROUP, {names.POD_GROUP_TOTAL_COUNT: "0"}, "group total count should be greater than zero"),
        ({names.POD_GROUP_NAME: "A"}, COUNT, "RFC 1123 subdomain"),
        ({**GROUP, names.PREBUILT_WORKLOAD: "w"}, COUNT, "prebuilt workload and pod group should be equal"),
    ],
)
def test_a_rule_that_is_broken_is_named(labels: Json, annotations: Json, reason: str) -> None:
    """On create, on an update that brings it, and when a Pod that was not managed becomes so."""
    broken = pod(labels=labels, annotations=annotations)
    assert reason in refusal(HANDLER, broken)
    assert reason in refusal(HANDLER, broken, old=pod())
    if names.MANAGED_LABEL not in labels:
        managed = pod(labels={**labels, names.MANAGED_LABEL: "true"}, annotations=annotations)
        assert reason in refusal(HANDLER, managed, old=broken)


def test_a_group_that_is_whole_is_allowed() -> None:
    """Name and count belong together."""
    assert refusal(HANDLER, pod(labels=GROUP, annotations=COUNT)) == ""


def test_the_group_of_a_pod_cannot_be_changed() -> None:
    """It can be given later, not exchanged."""
    other = pod(labels={names.POD_GROUP_NAME: "h"}, annotations=COUNT)
    assert "field is immutable" in refusal(HANDLER, other, old=pod(labels=GROUP, annotations=COUNT))
    assert refusal(HANDLER, other, old=pod()) == ""


def test_a_group_that_is_not_retriable_stays_so() -> None:
    """Taking the annotation back would promise what is over."""
    final = pod(labels=GROUP, annotations={**COUNT, names.RETRIABLE_IN_GROUP: "false"})
    assert "can't be converted to retriable" in refusal(HANDLER, pod(labels=GROUP, annotations=COUNT), old=final)


def test_the_queue_of_an_ungated_pod_is_immutable() -> None:
    """While it is gated it may move."""
    gate = [{"name": names.ADMISSION_GATE}]
    one, two = {names.QUEUE_LABEL: "a"}, {names.QUEUE_LABEL: "b"}
    assert "field is immutable" in refusal(HANDLER, pod(labels=two), old=pod(labels=one))
    assert refusal(HANDLER, pod(labels=two, schedulingGates=gate), old=pod(labels=one, schedulingGates=gate)) == ""


def test_a_managed_pod_of_a_managed_owner_is_warned_about() -> None:
    """It is allowed all the same."""
    claimed = pod(labels={names.MANAGED_LABEL: "true"}, owner=owned_by("Job", "parent"))
    answer = HANDLER(request(claimed))
    assert (answer.code, answer.warnings) == (0, (MANAGED_OWNER_WARNING,))
