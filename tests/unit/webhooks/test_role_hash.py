"""Pods of one group with the same role hash are interchangeable for quota and placement."""

import json

import pytest

from app.jobs.bases.roles import role_hash
from tests.unit.webhooks.reviews import Json


def shape(**spec: object) -> str:
    """The hash of a pod of one container."""
    container = {"name": "c", "image": "registry.k8s.io/pause", "resources": {}}
    return role_hash(json.dumps({"restartPolicy": "Never", "containers": [container], **spec}).encode())


def test_a_bare_container_has_the_hash_that_kueue_gives_it() -> None:
    """The known value of a pod that asks for nothing."""
    assert shape() == "a9f06f3a"


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
