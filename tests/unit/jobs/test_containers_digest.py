"""Templates whose containers mean the same have the same digest, others have not."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.api.podshape import containers_digest, each_variable_once
from turnstile.api.workload import decode

BASE: dict[str, Any] = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "initContainers": [{"name": "i", "image": "i:1"}],
        "containers": [
            {
                "name": "c",
                "image": "c:1",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}},
                "securityContext": {"runAsNonRoot": True},
            }
        ],
    },
}


def digest(template: dict[str, Any]) -> bytes:
    """Of the JSON."""
    return containers_digest(json.dumps(template).encode())


def changed(**container: Any) -> dict[str, Any]:
    """The base with a changed container."""
    body = copy.deepcopy(BASE)
    body["spec"]["containers"][0].update(container)
    return body


@pytest.mark.parametrize(
    "same",
    [
        {**BASE, "metadata": {"labels": {"other": "label"}}},
        {**BASE, "spec": {**BASE["spec"], "nodeSelector": {"a": "b"}}},
        changed(resources={"requests": {"memory": "1024Mi", "cpu": 1.5}}),
        changed(args=[], command=None, workingDir=""),
        changed(env=[{"name": "A", "value": "0"}, {"name": "B", "value": "2"}, {"name": "A", "value": "1"}]),
    ],
)
def test_what_means_the_same_is_the_same(same: dict[str, Any]) -> None:
    """Spelling, emptiness, repeated variables, and all that is no container."""
    assert digest(same) == digest(BASE)


@pytest.mark.parametrize(
    "other",
    [
        changed(image="c:2"),
        changed(resources={"requests": {"cpu": "1500m", "memory": "2Gi"}}),
        changed(resources={"limits": {"cpu": "1500m", "memory": "1Gi"}}),
        changed(env=[{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]),
        changed(securityContext={"runAsNonRoot": False}),
        changed(command=["a", ""]),
        {**BASE, "spec": {**BASE["spec"], "initContainers": []}},
        {"spec": {"containers": BASE["spec"]["initContainers"], "initContainers": BASE["spec"]["containers"]}},
    ],
)
def test_what_means_something_else_is_not(other: dict[str, Any]) -> None:
    """Order counts where Kubernetes reads an order."""
    assert digest(other) != digest(BASE)


@given(st.randoms(use_true_random=False))
def test_the_order_of_keys_makes_no_difference(random: Any) -> None:
    """Built-in kinds come in Go's order, custom resources in that of the alphabet."""

    def shuffled(value: Any) -> Any:
        if isinstance(value, dict):
            entries = list(value.items())
            random.shuffle(entries)
            return {key: shuffled(part) for key, part in entries}
        return [shuffled(part) for part in value] if isinstance(value, list) else value

    assert digest(shuffled(BASE)) == digest(BASE)


def test_a_decoded_workload_has_the_digest_of_each_pod_set() -> None:
    """In the order of the pod sets."""
    pod_sets = [{"name": "a", "template": BASE}, {"name": "b", "template": changed(image="c:2")}]
    workload = decode(json.dumps({"spec": {"podSets": pod_sets}}).encode())
    assert [each.containers_digest for each in workload.spec.pod_sets] == [digest(BASE), digest(changed(image="c:2"))]


def test_a_quantity_that_is_none_is_compared_as_it_stands() -> None:
    """A template that the API server will refuse does not stop anybody here."""
    odd = changed(resources={"requests": {"cpu": "many"}})
    assert digest(odd) == digest(odd)
    assert digest(odd) != digest(BASE)


@pytest.mark.parametrize(
    "odd", [None, [], {"spec": None}, {"spec": {"containers": {}}}, {"spec": {"containers": [None, {"env": "A"}]}}]
)
def test_what_is_no_pod_template_keeps_its_variables(odd: Any) -> None:
    """The API server will refuse it."""
    assert each_variable_once(copy.deepcopy(odd)) == odd
