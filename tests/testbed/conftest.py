"""Words for the tests of the bed itself."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from testbed import ControlPlane


@pytest.fixture
def node(control_plane: ControlPlane) -> Iterator[str]:
    """A node of its own, taken away after the test."""
    name = f"node-{uuid.uuid4().hex[:6]}"
    control_plane.add_node(name, labels={"pool": name})
    yield name
    control_plane.remove_node(name)


def pod_spec(node: str, **more: Any) -> dict[str, Any]:
    """A pod spec that only fits the test's own node."""
    return {
        "restartPolicy": "Never",
        "nodeSelector": {"pool": node},
        "containers": [{"name": "main", "image": "none"}],
        **more,
    }


@pytest.fixture
def make_pod(namespace: str, node: str) -> Any:
    """`make_pod("a", annotations)` describes a pod for the test's node."""

    def make(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace, "annotations": annotations or {}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(node, **spec)}

    return make


@pytest.fixture
def make_job(namespace: str, node: str) -> Any:
    """`make_job("a", annotations)` describes a Job of one pod for the test's node."""

    def make(name: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
        template = {"metadata": {"annotations": annotations or {}}, "spec": pod_spec(node)}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"backoffLimit": 0, "template": template, **spec},
        }

    return make
