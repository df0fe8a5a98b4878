"""The stand-in for the notebook controller makes what that would make; nothing of ours runs in these namespaces."""

from collections.abc import Callable

import pytest

from testbed import Api, resource_path
from testbed.client import Json
from testbed.operators import RunningOperator
from tests.operators.pods import wait_no_pods, wait_running

pytestmark = pytest.mark.operator("notebook")

NAME_LABEL = "notebook-name"


@pytest.fixture
def notebook(namespace: str) -> Json:
    """A Notebook of one container, with a label."""
    container = {"name": "bench", "image": "registry.example/jupyter:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "Notebook",
        "metadata": {"name": "bench", "namespace": namespace, "labels": {"example.com/team": "red"}},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def test_a_notebook_runs_is_stopped_and_started(api: Api, namespace: str, notebook: Json) -> None:
    """Its pod runs and it has a ready replica; stopped by its annotation, the pod goes; without it, the pod is back."""
    path = api.path_of(api.create(notebook))
    wait_running(api, namespace, {"bench": 1}, by=NAME_LABEL)
    api.wait_for(path, lambda found: found.get("status", {}).get("readyReplicas") == 1, timeout=30)
    api.patch(path, {"metadata": {"annotations": {"kubeflow-resource-stopped": "2026-01-01T00:00:00Z"}}})
    wait_no_pods(api, namespace)
    api.patch(path, {"metadata": {"annotations": {"kubeflow-resource-stopped": None}}})
    wait_running(api, namespace, {"bench": 1}, by=NAME_LABEL)


def test_its_labels_are_those_of_its_pods_only(api: Api, namespace: str, notebook: Json) -> None:
    """A label of the Notebook is on its pod, and not on its StatefulSet; a later one reaches neither."""
    path = api.path_of(api.create(notebook))
    wait_running(api, namespace, {"red": 1}, by="example.com/team")
    api.patch(
        path, {"metadata": {"labels": {"example.com/team": "blue"}, "annotations": {"kubeflow-resource-stopped": ""}}}
    )
    wait_no_pods(api, namespace)
    made = api.get(resource_path("apps/v1", "statefulsets", "bench", namespace=namespace))
    assert "labels" not in made["metadata"]
    assert made["spec"]["template"]["metadata"]["labels"]["example.com/team"] == "red"


def test_a_notebook_that_is_deleted_leaves_nothing(api: Api, namespace: str, notebook: Json) -> None:
    """Its StatefulSet, its Service and its pod go with it."""
    path = api.path_of(api.create(notebook))
    wait_running(api, namespace, {"bench": 1}, by=NAME_LABEL)
    api.delete(path)
    wait_no_pods(api, namespace, timeout=60)
    api.wait_gone(resource_path("v1", "services", "bench", namespace=namespace), timeout=60)


def test_its_kind_can_go_and_come_back(
    api: Api, namespace: str, notebook: Json, without_definitions: Callable[[str], RunningOperator]
) -> None:
    """A Notebook under the new CRD runs, and the process is the same."""
    operator = without_definitions("notebook")
    operator.install_definitions()
    api.create(notebook)
    wait_running(api, namespace, {"bench": 1}, by=NAME_LABEL)
    operator.process.require_running()
