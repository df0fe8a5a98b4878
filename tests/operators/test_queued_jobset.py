"""What the table of kinds (test_kinds.py) has no row for: the garbage collector after a CRD was away, and replicas that
have succeeded while others run."""

from collections.abc import Callable
from typing import Any

import pytest

from testbed import ControlPlane, resource_path
from testbed.client import Json, condition
from testbed.operators import RunningOperator
from tests.cluster.scenario import GROUP, Scenario
from tests.operators.jobsets import NAME_LABEL, REPLICATED_JOB_LABEL, jobset, jobset_path, replicated_job
from tests.operators.pods import wait_running
from tests.operators.rows.jobset import ROWS
from tests.operators.trial import COLLECTED, trial_of
from tests.turnstile import Turnstile


@pytest.mark.operator("jobset")
def test_quota_of_a_job_that_went_with_its_definition_is_freed_when_its_pods_are_gone(
    control_plane: ControlPlane,
    turnstile: Turnstile,
    nodes: dict[str, str],
    without_definitions: Callable[[str], RunningOperator],
) -> None:
    """Its pods run until the garbage collector knows the kind again; so long they are charged, and no pod beyond."""
    (row,) = ROWS
    with trial_of(row, control_plane) as trial:
        trial.create("before")
        trial.wait_runs("before")
        operator = without_definitions("jobset")
        trial.gone("before")
        operator.install_definitions()
        trial.create("after")
        trial.wait_runs("after", timeout=COLLECTED)


LEADER, WORKERS = (f"{REPLICATED_JOB_LABEL}={name}" for name in ("leader", "workers"))


def run_jobset(scenario: Scenario, **spec: Any) -> None:
    """Let a JobSet of a leader and two workers run with the whole quota, and let a Job wait."""
    scenario.queue("team", {scenario.flavor("pool", labels={"pool": "operators"}): {"cpu": 3}})
    replicas = (replicated_job("leader"), replicated_job("workers", replicas=2))
    scenario.create(jobset("training", *replicas, namespace=scenario.namespace, queue="team", **spec))
    wait_three(scenario)
    scenario.job("waits", queue="team")
    scenario.wait_pending("waits", reason="WaitingForQuota")


def wait_three(scenario: Scenario) -> None:
    """Until all pods of the JobSet run."""
    wanted = {"leader": 1, "workers": 2}
    labels = f"{NAME_LABEL}=training"
    wait_running(scenario.api, scenario.namespace, wanted, by=REPLICATED_JOB_LABEL, labels=labels, timeout=60)


def end_leader(control_plane: ControlPlane, scenario: Scenario) -> None:
    """Let the leader succeed, and wait until the JobSet reports that."""
    control_plane.end_pods(scenario.namespace, labels=LEADER)

    def succeeded(job_set: Json) -> bool:
        replicated = job_set["status"].get("replicatedJobsStatus", ())
        return any((each["name"], each["succeeded"]) == ("leader", 1) for each in replicated)

    scenario.api.wait_for(jobset_path(scenario.namespace, "training"), succeeded, timeout=30)


@pytest.mark.operator("jobset")
def test_a_replica_that_has_succeeded_gives_its_quota_to_a_job_that_waits(
    control_plane: ControlPlane, scenario: Scenario
) -> None:
    """The workers run on."""
    run_jobset(scenario)
    end_leader(control_plane, scenario)
    scenario.wait_started("waits", timeout=30)


@pytest.mark.operator("jobset")
def test_a_jobset_that_may_restart_keeps_its_quota_and_runs_again_within_it(
    control_plane: ControlPlane, scenario: Scenario
) -> None:
    """Its leader succeeds, then a worker fails: all three pods run again, and the Job still waits."""
    run_jobset(scenario, failurePolicy={"maxRestarts": 1})
    end_leader(control_plane, scenario)
    control_plane.end_pods(scenario.namespace, labels=WORKERS, exit_code=1)
    path = jobset_path(scenario.namespace, "training")
    scenario.api.wait_for(path, lambda found: found["status"].get("restarts") == 1, timeout=30)
    wait_three(scenario)
    assert scenario.suspended("waits")


@pytest.mark.operator("jobset")
def test_replicas_that_are_left_run_when_the_jobset_is_admitted_again(
    control_plane: ControlPlane, scenario: Scenario
) -> None:
    """One worker succeeds, then the JobSet is evicted: the next admission charges for the leader and the other worker,
    and both run to their end."""
    run_jobset(scenario)
    control_plane.end_pods(scenario.namespace, labels=f"{WORKERS},jobset.sigs.k8s.io/job-index=0")
    scenario.wait_started("waits", timeout=30)
    name = scenario.workload_of("training", kind="JobSet")["metadata"]["name"]
    workload = resource_path(GROUP, "workloads", name, namespace=scenario.namespace)
    scenario.api.patch(workload, {"spec": {"active": False}})
    scenario.api.wait_for(workload, lambda found: condition(found, "QuotaReserved")["status"] == "False", timeout=30)
    scenario.api.patch(workload, {"spec": {"active": True}})
    labels = f"{NAME_LABEL}=training"
    wanted = {"leader": 1, "workers": 1}
    wait_running(scenario.api, scenario.namespace, wanted, by=REPLICATED_JOB_LABEL, labels=labels, timeout=60)
    control_plane.end_pods(scenario.namespace, labels=labels)
    path = jobset_path(scenario.namespace, "training")
    scenario.api.wait_for(path, lambda found: condition(found, "Completed").get("status") == "True", timeout=30)
