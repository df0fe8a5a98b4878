"""The real controller of AppWrapper does on the bed what it does on a cluster; nothing of ours runs in these
namespaces."""

from typing import Any

import pytest

from testbed import Api, ApiError, ControlPlane, resource_path
from testbed.client import Json
from tests.operators.pods import wait_no_pods, wait_running

pytestmark = pytest.mark.operator("appwrapper")

JOB_LABEL = "batch.kubernetes.io/job-name"


def job(name: str, *, pods: int) -> Json:
    """A Job as a component of an AppWrapper."""
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {
        "template": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"parallelism": pods, "completions": pods, "template": {"spec": spec}},
        }
    }


@pytest.fixture
def wrapped(namespace: str) -> Json:
    """A Job of one pod and a Job of two."""
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": "wrapped", "namespace": namespace},
        "spec": {"components": [job("leader", pods=1), job("workers", pods=2)]},
    }


def in_phase(phase: str) -> Any:
    """Holds when the AppWrapper is in that phase."""
    return lambda wrapper: wrapper.get("status", {}).get("phase") == phase


def test_an_appwrapper_runs_is_suspended_is_resumed_and_succeeds(
    control_plane: ControlPlane, api: Api, namespace: str, wrapped: Json
) -> None:
    """Both Jobs run; suspended, they are gone; resumed, they run again; when their pods end it has Succeeded."""
    path = api.path_of(api.create(wrapped))
    wait_running(api, namespace, {"leader": 1, "workers": 2}, by=JOB_LABEL)
    api.patch(path, {"spec": {"suspend": True}})
    wait_no_pods(api, namespace)
    api.wait_for(path, in_phase("Suspended"), timeout=30)
    assert api.items(resource_path("batch/v1", "jobs", namespace=namespace)) == []
    api.patch(path, {"spec": {"suspend": False}})
    wait_running(api, namespace, {"leader": 1, "workers": 2}, by=JOB_LABEL)
    control_plane.end_pods(namespace, labels=JOB_LABEL)
    api.wait_for(path, in_phase("Succeeded"), timeout=30)


def test_its_webhooks_are_called(api: Api, control_plane: ControlPlane, namespace: str, wrapped: Json) -> None:
    """It is labeled with its user, and nobody can have made what they may not make themselves."""
    assert api.create(wrapped)["metadata"]["labels"]["workload.codeflare.dev/user"] == "admin"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "wrap", "namespace": namespace},
        "rules": [{"apiGroups": ["workload.codeflare.dev"], "resources": ["appwrappers"], "verbs": ["create"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "wrap", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "wrap"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "wrapper"}],
    }
    api.create(role)
    api.create(binding)
    wrapped["metadata"]["name"] = "not-mine"
    with pytest.raises(ApiError, match="User wrapper is not authorized to create jobs"):
        control_plane.api_as("wrapper").create(wrapped)
