"""The real MPI operator does on the bed what it does on a cluster; nothing of ours runs in these namespaces."""

import pytest

from testbed import Api, ControlPlane
from testbed.client import Json, condition
from testbed.operators import RunningOperator
from tests.operators.pods import wait_no_pods, wait_running

pytestmark = pytest.mark.operator("mpioperator")

ROLE_LABEL = "training.kubeflow.org/job-role"
PODS = {"launcher": 1, "worker": 2}
"""Pods of the job below by role."""


@pytest.fixture
def training(namespace: str) -> Json:
    """A launcher and two workers."""
    container = {"name": "main", "image": "registry.example/mpi:1", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container]}}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": template},
                "Worker": {"replicas": 2, "template": template},
            },
        },
    }


def test_a_job_runs_is_suspended_is_resumed_and_succeeds(
    control_plane: ControlPlane, api: Api, namespace: str, training: Json
) -> None:
    """All its pods run; suspended, they go; resumed, they run again; when the launcher ends, the workers go and the job
    has Succeeded."""
    path = api.path_of(api.create(training))
    wait_running(api, namespace, PODS, by=ROLE_LABEL)
    api.patch(path, {"spec": {"runPolicy": {"suspend": True}}})
    wait_no_pods(api, namespace)
    api.wait_for(path, lambda job: condition(job, "Suspended").get("status") == "True", timeout=30)
    api.patch(path, {"spec": {"runPolicy": {"suspend": False}}})
    wait_running(api, namespace, PODS, by=ROLE_LABEL)
    control_plane.end_pods(namespace, labels=f"{ROLE_LABEL}=launcher")
    api.wait_for(path, lambda job: condition(job, "Succeeded").get("status") == "True", timeout=30)
    wait_running(api, namespace, {}, by=ROLE_LABEL)


def test_it_can_be_killed_and_started_again(
    api: Api, namespace: str, training: Json, operators: dict[str, RunningOperator]
) -> None:
    """The next process leads at once, without waiting for the Lease of the last, and runs what was made in between."""
    operators["mpioperator"].kill()
    api.create(training)
    operators["mpioperator"].start()
    wait_running(api, namespace, PODS, by=ROLE_LABEL, timeout=12)
