"""A cluster as the worker of a MultiKueue manager: the tests write what a manager writes, and nothing else is there."""

import pytest

from testbed.client import Json, condition, resource_path
from tests.cluster.scenario import GROUP, QUEUE, Scenario, job, job_path

pytestmark = pytest.mark.cluster

ORIGIN = {"kueue.x-k8s.io/multikueue-origin": "multikueue"}
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
NAME = "job-train-1a2b3"


def workload_path(team: Scenario, subresource: str = "") -> str:
    """URL path of the dispatched Workload."""
    return resource_path(GROUP, "workloads", NAME, namespace=team.namespace, subresource=subresource)


def dispatch(team: Scenario, *, cpu: str = "1") -> None:
    """Create the bare Workload that a manager sends to each worker."""
    made = job("train", namespace=team.namespace, queue="team", cpu=cpu)
    path = resource_path("batch/v1", "jobs", namespace=team.namespace)
    created = team.api.request("POST", path, made, params={"dryRun": "All"})  # with defaults, as on the manager
    template = created["spec"]["template"]
    template["metadata"] = {}
    team.create({
        "apiVersion": GROUP,
        "kind": "Workload",
        "metadata": {"name": NAME, "namespace": team.namespace, "labels": ORIGIN},
        "spec": {"queueName": "team", "priority": 0, "podSets": [{"name": "main", "count": 1, "template": template}]},
    })  # fmt: skip


def send_job(team: Scenario, *, cpu: str = "1") -> None:
    """Create the copy of the job that a manager sends to the worker that admitted the Workload."""
    made = job("train", namespace=team.namespace, queue="team", cpu=cpu)
    made["metadata"]["labels"] = {QUEUE: "team", PREBUILT: NAME, **ORIGIN}
    made["spec"]["suspend"] = True
    team.create(made)


def wait(team: Scenario, kind: str, reason: str = "") -> Json:
    """Wait until a condition of the Workload is True, with that reason if one is given; the Workload."""

    def told(workload: Json) -> bool:
        found = condition(workload, kind)
        return found.get("status") == "True" and reason in ("", found.get("reason"))

    return team.api.wait_for(workload_path(team), told, timeout=30, describe=f"{kind} {reason}")


@pytest.fixture
def team(scenario: Scenario) -> Scenario:
    """A namespace with a queue for 2 CPUs."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
    return scenario


def test_a_workload_without_a_job_is_admitted_and_its_job_runs_to_its_end(team: Scenario) -> None:
    """The Workload gets quota before its job exists; the job that comes runs at once, and finishes the Workload."""
    dispatch(team)
    wait(team, "Admitted")
    send_job(team)
    team.wait_started("train")
    owners = team.api.wait_for(
        workload_path(team), lambda w: w["metadata"].get("ownerReferences"), timeout=10, describe="owned by its job"
    )["metadata"]["ownerReferences"]
    assert [each["name"] for each in owners] == ["train"]
    team.finish("train")
    wait(team, "Finished", "Succeeded")


def test_a_deactivation_target_stops_the_job_and_releases_its_quota(team: Scenario) -> None:
    """The manager evicted the Workload: the worker deactivates it, stops its job, and its quota is free."""
    dispatch(team)
    wait(team, "Admitted")
    send_job(team)
    team.wait_started("train")
    target = {
        "type": "DeactivationTarget",
        "status": "True",
        "reason": "EvictedOnManagerCluster",
        "message": "Evicted on manager: preempted",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    found = team.api.get(workload_path(team))
    team.api.patch(workload_path(team, "status"), {"status": {"conditions": [*found["status"]["conditions"], target]}})
    wait(team, "Evicted", "DeactivatedDueToEvictedOnManagerCluster")
    team.wait_suspended("train")
    team.api.wait_for(
        workload_path(team), lambda w: not w["status"].get("admission"), timeout=30, describe="without quota"
    )


def test_copies_that_the_manager_deletes_leave_nothing(team: Scenario) -> None:
    """The job is deleted first, then its Workload; the next Workload gets the quota."""
    dispatch(team, cpu="2")
    wait(team, "Admitted")
    send_job(team, cpu="2")
    team.wait_started("train")
    team.api.delete(job_path(team.namespace, "train"))
    team.api.delete(workload_path(team))
    team.job("next", queue="team", cpu="2")
    team.wait_admitted("next", timeout=30)
    assert team.api.find(workload_path(team)) is None


def test_a_job_that_is_not_that_of_the_workload_ends_it_out_of_sync(team: Scenario) -> None:
    """The copy asks for more than the Workload: the manager reads the reason OutOfSync, and sends it anew."""
    dispatch(team)
    wait(team, "Admitted")
    send_job(team, cpu="2")
    wait(team, "Finished", "OutOfSync")
