"""batch/v1: Jobs, and the Jobs of a CronJob, which Kubernetes' own controllers run."""

from testbed.client import Json, resource_path
from tests.cluster.scenario import QUEUE, Scenario
from tests.operators.rows.row import Attack, Row, end_pods, labelled, metadata, pod_spec

JOB_NAME = "batch.kubernetes.io/job-name"
LAST_YEAR = "2020-02-01T00:00:00Z"


def _job_spec(cpu: str, pods: int) -> Json:
    return {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {"spec": pod_spec(cpu)}}


def _job(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(scenario, name, queue),
        "spec": _job_spec(cpu, 2),
    }


def _cron_job(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata(scenario, name, ""),
        "spec": {
            "schedule": "0 0 29 2 *",
            "jobTemplate": {"metadata": {"labels": {QUEUE: queue} if queue else {}}, "spec": _job_spec(cpu, 2)},
        },
    }


def _make_due(scenario: Scenario, name: str) -> None:
    """The last 29th of February has been missed, so the CronJob makes the Job of that day at once."""
    path = resource_path("batch/v1", "cronjobs", name, namespace=scenario.namespace)
    scenario.api.patch(f"{path}/status", {"status": {"lastScheduleTime": LAST_YEAR}})


def _job_metadata(cron_job: Json) -> Json:
    found: Json = cron_job["spec"]["jobTemplate"]["metadata"]
    return found


def _of_cron_job(pod: Json, name: str) -> bool:
    job: str = pod["metadata"].get("labels", {}).get(JOB_NAME, "")
    return job.rpartition("-")[0] == name


def _parallelism(scenario: Scenario, name: str) -> None:
    path = resource_path("batch/v1", "jobs", name, namespace=scenario.namespace)
    scenario.api.patch(path, {"spec": {"parallelism": 9}})


def _parallelism_of_made(scenario: Scenario, name: str) -> None:
    for job in scenario.api.items(resource_path("batch/v1", "jobs", namespace=scenario.namespace)):
        if job["metadata"]["name"].startswith(f"{name}-"):
            _parallelism(scenario, job["metadata"]["name"])


def _queue_taken_away(scenario: Scenario, name: str) -> None:
    path = resource_path("batch/v1", "jobs", name, namespace=scenario.namespace)
    scenario.api.patch(path, {"metadata": {"labels": {QUEUE: None}}, "spec": {"suspend": True}})
    scenario.api.patch(path, {"spec": {"suspend": False}})


def _made_by_hand(scenario: Scenario, name: str) -> None:
    """As `kubectl create job --from=cronjob/NAME` does it, with more pods."""
    path = resource_path("batch/v1", "cronjobs", name, namespace=scenario.namespace)
    found = scenario.api.get(path)
    template = found["spec"]["jobTemplate"]
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": name, "uid": found["metadata"]["uid"]}
    scenario.api.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": f"{name}-by-hand",
                "namespace": scenario.namespace,
                "labels": template["metadata"]["labels"],
                "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
                "ownerReferences": [{**owner, "controller": True}],
            },
            "spec": {**template["spec"], "parallelism": 9, "completions": 9},
        }
    )


ROWS = (
    Row(
        name="job",
        api_version="batch/v1",
        kind="Job",
        plural="jobs",
        framework="batch/job",
        operators=(),
        make=_job,
        pods=2,
        select=labelled(JOB_NAME),
        end=end_pods(labelled(JOB_NAME)),
        attacks=(
            Attack("Raise the parallelism of a Job that runs.", _parallelism, "refused"),
            Attack(
                "Take the queue name off a Job that runs and suspend it, then resume it.", _queue_taken_away, "refused"
            ),
        ),
    ),
    Row(
        name="cronjob",
        told="Job of a CronJob",
        api_version="batch/v1",
        kind="CronJob",
        plural="cronjobs",
        framework="batch/job",
        operators=(),
        make=_cron_job,
        begin=_make_due,
        pods=2,
        select=_of_cron_job,
        end=end_pods(_of_cron_job),
        owner_kind="Job",
        queued=_job_metadata,
        attacks=(
            Attack("Raise the parallelism of the Job that a CronJob has made.", _parallelism_of_made, "refused"),
            Attack("Create a larger Job in the name of the CronJob.", _made_by_hand, "charged"),
        ),
    ),
)
