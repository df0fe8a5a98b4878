"""`turnstile import` of jobs that their real operators run: no pod is restarted, and the next pods are charged too."""

import json
from dataclasses import replace

import pytest

from testbed import ControlPlane
from testbed.client import Json, condition, resource_path
from tests.cluster.command import turnstile as command
from tests.cluster.scenario import GROUP, Scenario
from tests.cluster.scenario import QUEUE as QUEUE_LABEL
from tests.operators.rows import ROWS, Row
from tests.operators.trial import Trial, trial_of
from tests.turnstile import Turnstile
from turnstile.api.names import PODSET_LABEL, WORKLOAD

pytestmark = pytest.mark.usefixtures("nodes")

ANYWHERE = "anywhere"
"""A queue of a flavor for all nodes: the jobs ran before anybody thought of flavors."""
IMPORTED = (
    "pytorchjob",
    "tfjob",
    "xgboostjob",
    "paddlejob",
    "jaxjob",
    "mpijob",
    "jobset",
    "raycluster",
    "rayjob",
    "trainjob",
)
"""Rows whose jobs can be imported, beside those without an operator."""
CASES = [row.case for row in ROWS if row.name in IMPORTED]


def imported(trial: Trial, control_plane: ControlPlane, *arguments: str) -> tuple[int, Json]:
    """Exit code and report of the command."""
    where = ("-n", trial.scenario.namespace, "--kubeconfig", str(control_plane.kubeconfig()))
    code, out, err = command("import", *where, "--queue", ANYWHERE, "-o", "json", *arguments)
    assert not err, err
    return code, json.loads(out)


def wait_reserved(trial: Trial, cpus: int) -> None:
    """Until so many CPUs are reserved."""
    path = resource_path(GROUP, "clusterqueues", trial.scenario.named(ANYWHERE))

    def reserved() -> list[str]:
        flavors = trial.scenario.api.get(path).get("status", {}).get("flavorsReservation", ())
        return [each["total"] for flavor in flavors for each in flavor["resources"] if each["name"] == "cpu"]

    trial.wait(lambda: reserved() == [str(cpus)], describe=lambda: f"{reserved()} CPUs are reserved, not {cpus}")


def uids(trial: Trial, name: str) -> set[str]:
    """The pods of a job that run."""
    return {pod["metadata"]["uid"] for pod in trial.row.running(trial.scenario, name)}


def bring_in(trial: Trial, control_plane: ControlPlane) -> set[str]:
    """Create a job without a queue and import it once it runs: its pods, which run on."""
    row, scenario = trial.row, trial.scenario
    scenario.queue(ANYWHERE, {scenario.flavor("any"): {"cpu": row.pods, **dict(row.beside)}})
    row.create(scenario, "job", "")
    trial.wait(lambda: len(uids(trial, "job")) == row.pods, describe=lambda: f"{len(uids(trial, 'job'))} pods run")
    before = uids(trial, "job")
    code, dry = imported(trial, control_plane)
    assert (code, [(each["kind"], each["pods"]) for each in dry["jobs"]]) == (0, [(row.kind, row.pods)]), dry
    assert not trial.workloads("job")
    code, report = imported(trial, control_plane, "--apply")
    assert (code, [each["imported"] for each in report["jobs"]]) == (0, [True]), report

    def queue_of() -> str:
        labels = scenario.api.get(row.path(scenario, "job"))["metadata"].get("labels", {})
        return str(labels.get(QUEUE_LABEL, ""))

    trial.wait(lambda: queue_of() == ANYWHERE, describe=lambda: f"the job is in queue {queue_of()!r}")
    wait_reserved(trial, row.pods)
    assert uids(trial, "job") == before
    (workload,) = trial.workloads("job")
    assert condition(workload, "Admitted")["reason"] == "Imported"
    return before


@pytest.mark.parametrize("row", CASES)
def test_a_job_of_an_operator_is_imported_without_a_restart(
    row: Row, control_plane: ControlPlane, turnstile: Turnstile
) -> None:
    """It is charged for its pods, which run on, and is stopped and started like any other job from then on."""
    with trial_of(row, control_plane) as made:
        bring_in(made, control_plane)
        made.activate("job", active=False)
        made.wait_stopped("job", made.pods("job"))
        wait_reserved(made, 0)
        made.activate("job", active=True)
        made.wait_runs("job")
        wait_reserved(made, row.pods)


@pytest.mark.parametrize("row", [row.case for row in ROWS if row.name == "raycluster"])
def test_the_worker_of_an_imported_cluster_is_made_again_with_the_marks(
    row: Row, control_plane: ControlPlane, turnstile: Turnstile
) -> None:
    """It runs at once within what the cluster is charged for, and the others run on."""
    with trial_of(row, control_plane) as made:
        before = bring_in(made, control_plane)
        gone = max(made.pods("job"), key=lambda pod: str(pod["metadata"]["name"]))
        assert "worker" in gone["metadata"]["name"]
        made.scenario.api.delete(
            resource_path("v1", "pods", gone["metadata"]["name"], namespace=made.scenario.namespace)
        )
        kept = before - {gone["metadata"]["uid"]}
        made.wait(
            lambda: kept < uids(made, "job") != before and len(uids(made, "job")) == row.pods,
            describe=lambda: "no worker runs in the place of the one that was deleted",
        )
        labels = [
            pod["metadata"]["labels"].get(PODSET_LABEL)
            for pod in made.pods("job")
            if pod["metadata"]["uid"] not in before
        ]
        assert labels == ["workers"]
        wait_reserved(made, row.pods)


@pytest.mark.parametrize("row", [row.case for row in ROWS if row.name == "jobset"])
def test_the_pods_of_an_imported_jobset_are_marked(row: Row, control_plane: ControlPlane, turnstile: Turnstile) -> None:
    """Though no template of it can be changed."""
    with trial_of(row, control_plane) as made:
        before = bring_in(made, control_plane)
        (workload,) = made.workloads("job")

        def marked() -> list[str]:
            return [
                pod["metadata"]["uid"]
                for pod in row.running(made.scenario, "job")
                if PODSET_LABEL in pod["metadata"].get("labels", {})
                and pod["metadata"].get("annotations", {}).get(WORKLOAD) == workload["metadata"]["name"]
            ]

        made.wait(lambda: set(marked()) == before, describe=lambda: f"{marked()} of {before} are marked")


@pytest.mark.parametrize("row", [row.case for row in ROWS if row.name == "jobset"])
def test_an_imported_jobset_that_restarts_runs_on(row: Row, control_plane: ControlPlane, turnstile: Turnstile) -> None:
    """All its pods are made again, without a gate and with the marks, within what it was charged for all the time."""

    def restarting(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
        made = row.make(scenario, name, queue, cpu)
        made["spec"]["failurePolicy"] = {"maxRestarts": 3}
        return made

    with trial_of(replace(row, make=restarting), control_plane) as made:
        before = bring_in(made, control_plane)
        (workload,) = made.workloads("job")
        control_plane.end_pods(
            made.scenario.namespace, labels="jobset.sigs.k8s.io/replicatedjob-name=leader", exit_code=1
        )
        made.wait(
            lambda: len(uids(made, "job") - before) == row.pods,
            timeout=60,
            describe=lambda: f"{len(uids(made, 'job') - before)} new pods run",
        )
        made.wait(
            lambda: all(
                (pod["metadata"]["labels"].get(PODSET_LABEL), pod["metadata"]["annotations"].get(WORKLOAD))
                == (pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"], workload["metadata"]["name"])
                for pod in made.pods("job")
            ),
            describe=lambda: f"{[pod['metadata'] for pod in made.pods('job')]}",
        )
        wait_reserved(made, row.pods)
        (now,) = made.workloads("job")
        assert (now["metadata"]["uid"], condition(now, "Evicted")) == (workload["metadata"]["uid"], {})
