"""JobSet's real controller does on the bed what it does on a cluster; nothing of ours runs in these namespaces."""

from collections.abc import Callable

import pytest

from testbed import Api, ApiError, ControlPlane, resource_path
from testbed.client import Json, condition, wait_until
from testbed.operators import RunningOperator
from tests.operators.jobsets import NAME_LABEL, REPLICATED_JOB_LABEL, jobset, jobset_path, replicated_job
from tests.operators.pods import wait_no_pods, wait_running

pytestmark = pytest.mark.operator("jobset")

WORKERS = {"leader": 1, "workers": 4}
"""Pods of the JobSet below by replicated job."""


@pytest.fixture
def training(namespace: str) -> Json:
    """A leader of one pod, and two Jobs of two workers each."""
    return jobset(
        "training",
        replicated_job("leader"),
        replicated_job("workers", replicas=2, pods=2),
        namespace=namespace,
    )


def wait_workers(api: Api, namespace: str, *, of: str = "training") -> None:
    """Until all pods of the JobSet run."""
    wait_running(api, namespace, WORKERS, by=REPLICATED_JOB_LABEL, labels=f"{NAME_LABEL}={of}")


def test_a_jobset_runs_its_pods_and_completes(
    control_plane: ControlPlane, api: Api, namespace: str, training: Json
) -> None:
    """The pods of both replicated jobs run, and when they end the JobSet is Completed."""
    api.create(training)
    wait_workers(api, namespace)
    control_plane.end_pods(namespace, labels=f"{NAME_LABEL}=training")
    path = jobset_path(namespace, "training")
    done = api.wait_for(path, lambda js: condition(js, "Completed").get("status") == "True", timeout=30)
    assert done["status"]["terminalState"] == "Completed"


def test_a_suspended_jobset_makes_no_pods_until_it_is_resumed(api: Api, namespace: str, training: Json) -> None:
    """Its Jobs are there, each of them Suspended, and there is no pod; resumed, all pods run."""
    training["spec"]["suspend"] = True
    api.create(training)
    jobs = resource_path("batch/v1", "jobs", namespace=namespace)
    wait_until(
        lambda: [condition(job, "Suspended").get("status") for job in api.items(jobs)] == ["True"] * 3,
        timeout=30,
        describe=lambda: f"not three suspended Jobs: {api.items(jobs)}",
    )
    assert api.items(resource_path("v1", "pods", namespace=namespace)) == []
    api.patch(jobset_path(namespace, "training"), {"spec": {"suspend": False}})
    wait_workers(api, namespace)


def test_a_running_jobset_that_is_suspended_stops_its_pods(api: Api, namespace: str, training: Json) -> None:
    """All pods go, and the JobSet says that it is suspended."""
    api.create(training)
    wait_workers(api, namespace)
    path = jobset_path(namespace, "training")
    api.patch(path, {"spec": {"suspend": True}})
    api.wait_for(path, lambda js: condition(js, "Suspended").get("status") == "True", timeout=30)
    wait_no_pods(api, namespace)


def test_its_webhooks_are_called(api: Api, namespace: str, training: Json) -> None:
    """What a user leaves out is filled in, and what is wrong is refused, by the operator's own code."""
    made = api.create(training)
    spec = made["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert made["spec"]["network"] == {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
    with pytest.raises(ApiError, match=r"vjobset\.kb\.io"):
        api.patch(
            jobset_path(namespace, "training"), {"spec": {"replicatedJobs": training["spec"]["replicatedJobs"][:1]}}
        )


def test_it_has_the_rights_of_its_service_account_only(control_plane: ControlPlane) -> None:
    """What its manifests do not allow, it cannot do here either."""
    answer = control_plane.kubectl(
        "auth", "can-i", "--list", "--as=system:serviceaccount:jobset-system:jobset-controller-manager"
    )
    assert "jobsets.jobset.x-k8s.io" in answer
    assert "*.*" not in answer


def test_its_kind_can_go_and_come_back(
    api: Api, namespace: str, training: Json, without_definitions: Callable[[str], RunningOperator]
) -> None:
    """With its CRD a JobSet goes; one that is made under the new CRD runs, and the process is the same."""
    api.create(training)
    wait_workers(api, namespace)
    operator = without_definitions("jobset")
    assert api.find(jobset_path(namespace, "training")) is None
    operator.install_definitions()
    training["metadata"]["name"] = "again"
    api.create(training)
    wait_workers(api, namespace, of="again")
    operator.process.require_running()


def test_it_can_be_killed_and_started_again(
    api: Api, namespace: str, training: Json, operators: dict[str, RunningOperator]
) -> None:
    """While nobody answers its webhooks a JobSet cannot be changed; with the next process it can, and runs."""
    training["spec"]["suspend"] = True
    path = api.path_of(api.create(training))
    operators["jobset"].kill()
    with pytest.raises(ApiError, match="failed calling webhook"):
        api.patch(path, {"spec": {"suspend": False}})
    operators["jobset"].start()
    api.patch(path, {"spec": {"suspend": False}})
    wait_workers(api, namespace)
