"""Jobs that Kueue sends to a cluster with Turnstile, and those that Turnstile sends to a cluster with Kueue.

Two control planes, each of which is manager and worker of the other, with an origin of its own. Each manager uses an
account on the other cluster with the rights that `turnstile worker role` prints for it.
"""

from collections.abc import Iterator

import pytest

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path, wait_until
from testbed.installation import NAMESPACE
from testbed.operators import OPERATORS, RunningOperator
from testbed.peers import configured
from tests.cluster.scenario import GROUP, QUEUE, RUN_FOR, job_path
from tests.cluster.sites import POD, Place, Site, Team, a_team, register, wait_active
from tests.operators.jobsets import jobset, jobset_path, replicated_job

pytestmark = [pytest.mark.cluster, pytest.mark.operator("jobset"), pytest.mark.timeout(1200)]

KUEUE_NAMESPACE = "kueue-system"


class KueueSite(Place):
    """One cluster with Kueue, as a release installs it, which queues Jobs, JobSets and pods."""

    namespace = KUEUE_NAMESPACE

    def __init__(self, cp: ControlPlane) -> None:
        super().__init__(cp)
        peer = configured(
            integrations={"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "pod"]},
            multiKueue={"origin": "by-kueue", "gcInterval": "5s"},
        )
        self.operator = RunningOperator(cp, peer)
        self.operator.start()


@pytest.fixture(scope="module")
def places() -> Iterator[tuple[Site, KueueSite]]:
    """Turnstile and Kueue, each of which knows the other cluster as `other`."""
    with ControlPlane() as first, ControlPlane() as second:
        for each in (first, second):
            RunningOperator(each, OPERATORS["jobset"]).start()
        turnstile, kueue = Site(first, values=["multiKueue.secrets={other}"]), KueueSite(second)
        kueue.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for each in (turnstile, kueue):
            each.cp.add_node("plain", cpu=64, memory="256Gi")
        for manager, worker in ((turnstile, kueue), (kueue, turnstile)):
            register(manager, worker, "other", *(["--for-kueue"] if manager is kueue else []))
        for each in (turnstile, kueue):
            wait_active(each.api, "other", timeout=120)
        yield turnstile, kueue


@pytest.fixture(params=["to-turnstile", "to-kueue"])
def team(request: pytest.FixtureRequest, places: tuple[Site, KueueSite]) -> Iterator[Team]:
    """An empty namespace on both; the queue `team` of the manager sends its Jobs to the queue `team` of the worker."""
    turnstile, kueue = places
    manager, worker = (turnstile, kueue) if request.param == "to-kueue" else (kueue, turnstile)
    with a_team(manager, {"other": worker}) as found:
        yield found


def test_a_job_runs_on_the_other_cluster_to_its_end(team: Team) -> None:
    """It is left to the worker, and runs there alone; status and end come back, and nothing is left there."""
    team.here.job("train", queue="team", cpu="1", pods=2)
    team.wait_on("train", "other")
    team.here.api.wait_for(
        job_path(team.here.namespace, "train"),
        lambda j: j.get("status", {}).get("active") == 2,
        timeout=60,
        describe="2 pods are active",
    )
    assert team.here.pods_of("train") == []
    team.there["other"].finish("train")
    team.here.wait_workload("train", lambda w: condition(w, "Finished").get("reason") == "Succeeded", timeout=60)
    assert team.here.read_job("train")["status"]["succeeded"] == 2
    team.wait_clean("other")


def test_a_job_without_room_there_waits_and_then_runs(team: Team) -> None:
    """The worker's quota decides; the bare Workload waits there without a Job."""
    team.there["other"].job("local", queue="team", cpu="4")
    team.there["other"].wait_admitted("local", timeout=60)
    team.here.job("train", queue="team", cpu="2")
    there = team.there["other"].api
    path = there.path_of(team.here.workload_of("train"))
    there.wait_for(
        path, lambda w: bool(w) and condition(w, "QuotaReserved").get("status") == "False", timeout=60, describe="waits"
    )
    assert there.find(job_path(team.here.namespace, "train")) is None
    team.there["other"].delete_job("local")
    team.wait_on("train", "other")


@pytest.mark.parametrize("team", ["to-kueue"], indirect=True)
def test_a_job_that_the_manager_evicts_stops_there(team: Team) -> None:
    """Its Workload is deactivated on the manager: the quota of both is free, and nothing is left; then it runs anew.

    Not with Kueue 0.15 as the manager: that never hears that the copy of a Job which it evicts has stopped, wherever it
    runs (its issue 9670). `tests/cluster/test_multikueue_worker.py` writes what later releases do.
    """
    team.here.job("train", queue="team", cpu="3")
    team.wait_on("train", "other")
    path = team.here.api.path_of(team.here.workload_of("train"))
    team.here.api.patch(path, {"spec": {"active": False}})
    team.here.wait_workload("train", lambda w: not w.get("status", {}).get("admission"), timeout=90)
    team.wait_clean("other")
    team.here.api.patch(path, {"spec": {"active": True}})
    team.wait_on("train", "other")


def test_a_job_that_the_worker_evicts_is_sent_anew(team: Team) -> None:
    """The worker's queue is drained, and admits again."""
    team.here.job("train", queue="team", cpu="2")
    team.wait_on("train", "other")
    queue = team.there["other"].named("team")
    team.there["other"].patch_queue(queue, {"stopPolicy": "HoldAndDrain"})
    team.there["other"].api.wait_for(
        job_path(team.here.namespace, "train"),
        lambda j: not j or j["spec"]["suspend"],
        timeout=60,
        describe="stopped",
    )
    team.there["other"].patch_queue(queue, {"stopPolicy": "None"})
    team.wait_on("train", "other")


def test_a_job_that_is_deleted_is_deleted_there(team: Team) -> None:
    """The user deletes it on the manager while it runs."""
    team.here.job("train", queue="team", cpu="1")
    team.wait_on("train", "other")
    team.here.delete_job("train")
    team.wait_clean("other")


def test_a_jobset_runs_on_the_other_cluster_to_its_end(team: Team) -> None:
    """The worker finds that the Workload that the other program made is that of the copy."""
    here, there, path = team.here.api, team.there["other"].api, jobset_path(team.here.namespace, "sim")
    jobs = (replicated_job("driver"), replicated_job("workers", replicas=2, pods=2, cpu="500m"))
    team.here.create(jobset("sim", *jobs, namespace=team.here.namespace, queue="team"))
    wait_until(lambda: len(running(team)) == 5, timeout=60, describe=lambda: f"{len(running(team))} of 5 pods run")
    here.wait_for(path, lambda found: ready(found) == {"driver": 1, "workers": 2}, timeout=60, describe="all are ready")
    assert here.items(pods(team)) == []
    for each in running(team):
        there.patch(f"{pods(team)}/{each}", {"metadata": {"annotations": {RUN_FOR: "0s"}}})
    here.wait_for(
        path, lambda found: condition(found, "Completed").get("status") == "True", timeout=60, describe="Completed"
    )
    team.here.wait_workload(
        "sim", lambda w: condition(w, "Finished").get("status") == "True", kind="JobSet", timeout=60
    )
    there.wait_gone(path, timeout=60)
    team.wait_clean("other")


def running(team: Team) -> list[str]:
    """Names of the pods that run on the worker."""
    found = team.there["other"].api.items(pods(team))
    return [each["metadata"]["name"] for each in found if each["status"].get("phase") == "Running"]


def ready(found: Json) -> dict[str, int]:
    """How many Jobs of each replicated Job of a JobSet are ready."""
    return {each["name"]: each["ready"] for each in found.get("status", {}).get("replicatedJobsStatus", ())}


def test_the_pods_of_a_group_run_on_the_other_cluster_to_their_end(team: Team) -> None:
    """They stay at their gates on the manager, with the status of their copies; nothing is left on the worker."""
    names, there = ("a", "b"), team.there["other"].api
    for name in names:
        team.here.create(member(name, team.here.namespace))
    for name in names:
        team.wait_pod(name, lambda p: p.get("status", {}).get("phase") == "Running", on="other")
        team.wait_pod(name, lambda p: p.get("status", {}).get("phase") == "Running")
    assert all(each["spec"]["schedulingGates"] for each in team.here.api.items(pods(team)))
    for name in names:
        there.patch(f"{pods(team)}/{name}", {"metadata": {"annotations": {RUN_FOR: "0s"}}})
        team.wait_pod(name, lambda p: p.get("status", {}).get("phase") == "Succeeded")
    team.here.api.wait_for(
        resource_path(GROUP, "workloads", "gang", namespace=team.here.namespace),
        lambda w: condition(w, "Finished").get("status") == "True",
        timeout=60,
        describe="Finished",
    )
    team.wait_clean("other")


def member(name: str, namespace: str) -> Json:
    """A pod of a group of two."""
    labels = {QUEUE: "team", "kueue.x-k8s.io/pod-group-name": "gang"}
    meta = {"labels": labels, "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **meta},
        "spec": {**POD, "restartPolicy": "Never"},
    }


def pods(team: Team) -> str:
    """URL path of the team's pods, on both clusters."""
    return resource_path("v1", "pods", namespace=team.here.namespace)
