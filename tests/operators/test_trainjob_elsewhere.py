"""A TrainJob that is sent to another cluster, with the real Kubeflow Trainer and JobSet's controller on both."""

from collections.abc import Iterator

import pytest

from testbed import ApiError, ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from testbed.operators import OPERATORS, RunningOperator
from tests.cluster.scenario import GROUP, QUEUE
from tests.cluster.sites import CHECK, Site, Team, a_team, connect
from tests.operators.jobsets import NAME_LABEL, REPLICATED_JOB_LABEL, jobset_path
from tests.operators.pods import wait_no_pods, wait_running

pytestmark = [pytest.mark.operator("jobset", "trainer"), pytest.mark.timeout(1200)]

VERSION = "trainer.kubeflow.org/v1alpha1"


@pytest.fixture(autouse=True)
def operators() -> dict[str, RunningOperator]:
    """None on the session's control plane."""
    return {}


@pytest.fixture(scope="module")
def sites() -> Iterator[tuple[Site, Site]]:
    """A manager and a worker that is connected, both with the operators."""
    with ControlPlane() as first, ControlPlane() as second:
        for cp in (first, second):
            for name in ("jobset", "trainer"):
                RunningOperator(cp, OPERATORS[name]).start()
        manager, worker = Site(first), Site(second)
        connect(manager, {"east": worker})
        yield manager, worker


@pytest.fixture
def team(sites: tuple[Site, Site]) -> Iterator[Team]:
    """An empty namespace on both clusters; the worker has a queue `team` of 4 CPUs."""
    with a_team(sites[0], {"east": sites[1]}) as found:
        yield found


def submit(team: Team, *, queue: str = "team", **spec: object) -> Json:
    """Create a TrainJob of three nodes on the manager."""
    trainer = {"numNodes": 3, "resourcesPerNode": {"requests": {"cpu": "1"}}}
    return team.here.create({
        "apiVersion": VERSION,
        "kind": "TrainJob",
        "metadata": {"name": "train", "namespace": team.here.namespace, "labels": {QUEUE: queue}},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer, **spec},
    })  # fmt: skip


def path(team: Team) -> str:
    """URL path of the TrainJob, on both clusters."""
    return resource_path(VERSION, "trainjobs", "train", namespace=team.here.namespace)


def runs_there(team: Team) -> None:
    """Wait until the copy runs on the worker, and nothing on the manager."""
    wait_running(team.there["east"].api, team.here.namespace, {"node": 3}, by=REPLICATED_JOB_LABEL, timeout=90)
    here = team.here.api
    assert here.get(path(team))["spec"]["suspend"]
    assert here.get(jobset_path(team.here.namespace, "train"))["spec"]["suspend"]
    assert here.items(resource_path("v1", "pods", namespace=team.here.namespace)) == []


def test_a_trainjob_runs_elsewhere_to_its_end(sites: tuple[Site, Site], team: Team) -> None:
    """It stays suspended on the manager until its copy is complete; then it is complete, and nothing is left there."""
    submit(team)
    runs_there(team)
    sites[1].cp.end_pods(team.here.namespace, labels=f"{NAME_LABEL}=train")
    team.here.wait_workload(
        "train", lambda w: condition(w, "Finished").get("reason") == "Succeeded", kind="TrainJob", timeout=90
    )
    team.here.api.wait_for(
        path(team), lambda job: condition(job, "Complete").get("status") == "True", timeout=30, describe="Complete"
    )
    team.there["east"].api.wait_gone(path(team), timeout=60)
    team.wait_clean("east")


def test_a_trainjob_that_fails_elsewhere_has_failed(sites: tuple[Site, Site], team: Team) -> None:
    """Its Workload says so, and nothing is left there. Its runtime does not replace pods."""
    for api in (team.here.api, team.there["east"].api):
        runtime = api.get(resource_path(VERSION, "clustertrainingruntimes", "torch-distributed"))
        for each in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
            each["template"]["spec"]["backoffLimit"] = 0
        meta = {"name": "once", "namespace": team.here.namespace, "labels": runtime["metadata"].get("labels", {})}
        api.create({"apiVersion": VERSION, "kind": "TrainingRuntime", "metadata": meta, "spec": runtime["spec"]})
    submit(team, runtimeRef={"name": "once", "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"})
    runs_there(team)
    sites[1].cp.end_pods(team.here.namespace, labels=f"{NAME_LABEL}=train", exit_code=1)
    team.here.wait_workload(
        "train", lambda w: condition(w, "Finished").get("reason") == "Failed", kind="TrainJob", timeout=120
    )
    assert team.here.api.get(path(team))["spec"]["suspend"]
    team.wait_clean("east")


def test_an_evicted_trainjob_stops_there_and_runs_again(team: Team) -> None:
    """Its Workload is deactivated on the manager, and activated again."""
    submit(team)
    runs_there(team)
    workload = team.here.api.path_of(team.here.workload_of("train", kind="TrainJob"))
    team.here.api.patch(workload, {"spec": {"active": False}})
    wait_no_pods(team.there["east"].api, team.here.namespace)
    team.here.api.wait_for(
        workload, lambda w: condition(w, "QuotaReserved").get("status") == "False", timeout=60, describe="no quota"
    )
    team.here.api.patch(workload, {"spec": {"active": True}})
    runs_there(team)
    team.here.api.delete(path(team))
    team.wait_clean("east")


def test_a_trainjob_that_names_multikueue_is_sent(team: Team) -> None:
    """It gets Trainer's name, so that its JobSet is made; in a queue that sends nothing it is refused."""
    assert submit(team, managedBy=CHECK)["spec"]["managedBy"] == "trainer.kubeflow.org/trainjob-controller"
    runs_there(team)
    team.here.api.delete(path(team))
    team.wait_clean("east")
    team.here.api.wait_gone(path(team), timeout=60)
    team.here.queue("stays", {team.here.flavor("here"): {"cpu": 4}})
    with pytest.raises(ApiError, match=r"spec.managedBy: .* leave it out"):
        submit(team, queue="stays", managedBy=CHECK)
    workloads = resource_path(GROUP, "workloads", namespace=team.here.namespace)
    wait_until(lambda: not team.here.api.items(workloads), timeout=30, describe=lambda: "a Workload is left")
