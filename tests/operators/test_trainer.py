"""The real Kubeflow Trainer, with JobSet's controller, does on the bed what it does on a cluster; nothing of ours runs
in these namespaces."""

from collections.abc import Callable

import pytest

from testbed import Api, ApiError, ControlPlane, resource_path
from testbed.client import Json, condition
from testbed.operators import RunningOperator
from tests.operators.jobsets import NAME_LABEL, REPLICATED_JOB_LABEL, jobset_path
from tests.operators.pods import wait_no_pods, wait_running

pytestmark = pytest.mark.operator("jobset", "trainer")

VERSION = "trainer.kubeflow.org/v1alpha1"


@pytest.fixture
def training(namespace: str) -> Json:
    """Three nodes of the runtime torch-distributed, which the Trainer brings along."""
    return {
        "apiVersion": VERSION,
        "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": 3, "resourcesPerNode": {"requests": {"cpu": "1"}}},
        },
    }


def test_a_trainjob_runs_is_suspended_is_resumed_and_completes(
    control_plane: ControlPlane, api: Api, namespace: str, training: Json
) -> None:
    """All nodes run; suspended, they go; resumed, they run again; when their pods end it is Complete."""
    path = api.path_of(api.create(training))
    wait_running(api, namespace, {"node": 3}, by=REPLICATED_JOB_LABEL)
    api.patch(path, {"spec": {"suspend": True}})
    wait_no_pods(api, namespace)
    api.wait_for(path, lambda job: condition(job, "Suspended").get("status") == "True", timeout=30)
    api.patch(path, {"spec": {"suspend": False}})
    wait_running(api, namespace, {"node": 3}, by=REPLICATED_JOB_LABEL)
    control_plane.end_pods(namespace, labels=f"{NAME_LABEL}=train")
    api.wait_for(path, lambda job: condition(job, "Complete").get("status") == "True", timeout=30)


def test_a_suspended_trainjob_makes_a_suspended_jobset(api: Api, namespace: str, training: Json) -> None:
    """The JobSet is there, suspended, and no pod."""
    training["spec"]["suspend"] = True
    api.create(training)
    made = api.wait_for(jobset_path(namespace, "train"), lambda js: condition(js, "Suspended"), timeout=30)
    assert made["spec"]["suspend"]
    assert api.items(resource_path("v1", "pods", namespace=namespace)) == []


def test_its_webhooks_are_called(api: Api, training: Json) -> None:
    """A TrainJob gets its defaults, and one of a runtime that does not exist is refused by the operator's own code."""
    assert api.create(training)["spec"]["managedBy"] == "trainer.kubeflow.org/trainjob-controller"
    training["metadata"]["name"] = "astray"
    training["spec"]["runtimeRef"]["name"] = "no-such-runtime"
    with pytest.raises(ApiError, match=r"validator\.trainjob\.trainer\.kubeflow\.org"):
        api.create(training)


def test_its_kinds_can_go_and_come_back(
    api: Api, namespace: str, training: Json, without_definitions: Callable[[str], RunningOperator]
) -> None:
    """With the CRDs its runtimes go; they are back with the CRDs, and a TrainJob of them runs."""
    operator = without_definitions("trainer")
    operator.install_definitions()
    api.create_when_known(training, refusal="")  # the runtime came back with the CRDs
    wait_running(api, namespace, {"node": 3}, by=REPLICATED_JOB_LABEL, timeout=60)
