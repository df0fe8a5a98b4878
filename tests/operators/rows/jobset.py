"""JobSet, under its own controller."""

from testbed.client import Json, resource_path
from tests.cluster.scenario import Scenario
from tests.operators.jobsets import NAME_LABEL, VERSION, jobset, jobset_path, replicated_job
from tests.operators.rows.row import Attack, Row, end_pods, labelled


def _jobset(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    return jobset(
        name,
        replicated_job("leader", cpu=cpu),
        replicated_job("workers", replicas=2, cpu=cpu),
        namespace=scenario.namespace,
        queue=queue,
    )


def _replicas(scenario: Scenario, name: str) -> None:
    patch = [{"op": "replace", "path": "/spec/replicatedJobs/1/replicas", "value": 9}]
    scenario.api.patch(jobset_path(scenario.namespace, name), patch, kind="json")


def _another_job(scenario: Scenario, name: str) -> None:
    patch = [{"op": "add", "path": "/spec/replicatedJobs/-", "value": replicated_job("more", replicas=9)}]
    scenario.api.patch(jobset_path(scenario.namespace, name), patch, kind="json")


def _child(scenario: Scenario, name: str) -> None:
    path = resource_path("batch/v1", "jobs", f"{name}-workers-0", namespace=scenario.namespace)
    scenario.api.patch(path, {"spec": {"parallelism": 9}})


ROWS = (
    Row(
        name="jobset",
        api_version=VERSION,
        kind="JobSet",
        plural="jobsets",
        framework="jobset.x-k8s.io/jobset",
        operators=("jobset",),
        make=_jobset,
        pods=3,
        select=labelled(NAME_LABEL),
        end=end_pods(labelled(NAME_LABEL)),
        attacks=(
            Attack("Raise the replicas of a replicated Job of a JobSet that runs.", _replicas, "refused"),
            Attack("Add a replicated Job to a JobSet that runs.", _another_job, "refused"),
            Attack("Raise the parallelism of a child Job.", _child, "refused"),
        ),
    ),
)
