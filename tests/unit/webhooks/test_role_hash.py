"""Pods of one group with the same role hash are interchangeable for quota and placement."""

import json
from hashlib import sha256

import pytest

from tests.unit.webhooks.reviews import Json
from turnstile.jobs.roles import role_hash


def shape(**spec: object) -> str:
    """The hash of a pod of one container."""
    container = {"name": "c", "image": "registry.k8s.io/pause", "resources": {}}
    return role_hash(json.dumps({"restartPolicy": "Never", "containers": [container], **spec}).encode())


def test_an_empty_map_of_requests_has_the_hash_that_kueue_gives_it() -> None:
    """The value that Kueue's own tests record of a pod that was never sent to an API server."""
    assert shape(containers=[{"resources": {"requests": {}}}]) == "a9f06f3a"


@pytest.mark.parametrize("container", [{}, {"resources": {}}, {"resources": {"limits": {"cpu": "1"}}}])
def test_absent_requests_are_null_as_in_kueue(container: Json) -> None:
    """The API server leaves an empty map out, and Go encodes a map that was never made as null."""
    spec = {
        "affinity": None,
        "containers": [{"ports": None, "resources": {"requests": None}}],
        "initContainers": None,
        "nodeSelector": None,
        "overhead": None,
        "priority": 0,
        "resourceClaims": None,
        "runtimeClassName": None,
        "tolerations": None,
        "topologySpreadConstraints": None,
    }
    text = json.dumps({"spec": spec}, separators=(",", ":"))
    assert shape(containers=[container], priority=0) == sha256(text.encode()).hexdigest()[:8]


@pytest.mark.parametrize(
    "spec",
    [
        {"volumes": [{"name": "scratch", "emptyDir": {}}]},
        {"restartPolicy": "OnFailure"},
        {
            "containers": [
                {"name": "other", "image": "busybox", "command": ["true"], "resources": {"limits": {"cpu": "1"}}}
            ]
        },
        {"nodeSelector": {}},
        {"tolerations": []},
    ],
)
def test_what_does_not_matter_for_quota_or_placement_makes_no_role(spec: Json) -> None:
    """Images, commands, volumes, limits and empty fields are no part of the shape."""
    assert shape(**spec) == shape()


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
        {"containers": [{"ports": [{"containerPort": 80}], "resources": {}}]},
        {"containers": [{}, {}]},
        {"initContainers": [{}]},
        {"nodeSelector": {"zone": "a"}},
        {"tolerations": [{"operator": "Exists"}]},
        {"affinity": {"nodeAffinity": {}}},
        {"priority": 1},
        {"runtimeClassName": "gvisor"},
        {"overhead": {"cpu": "1"}},
        {"resourceClaims": [{"name": "gpu"}]},
        {"topologySpreadConstraints": [{"maxSkew": 1}]},
        {"resources": {"requests": {"cpu": "1"}}},
    ],
)
def test_what_matters_makes_another_role(spec: Json) -> None:
    """Everything that quota or placement depends on is part of the shape."""
    assert shape(**spec) != shape()
