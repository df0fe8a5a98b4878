"""A new Workload has the labels and annotations of its job that metrics show, and no others."""

from typing import Any

from tests.unit.controllers.worlds import decode
from turnstile.api.core import Job
from turnstile.jobs.kinds.batch_job import BatchJob
from turnstile.jobs.options import JobOptions
from turnstile.jobs.workload import Priority, body

JOB = decode(
    Job,
    {
        "metadata": {
            "name": "j",
            "uid": "u",
            "labels": {"size": "big", "team": "a", "kueue.x-k8s.io/job-uid": "forged"},
            "annotations": {"site": "north", "other": "x"},
        }
    },
)


def made(options: JobOptions) -> dict[str, Any]:
    """The metadata of the Workload to create."""
    metadata: dict[str, Any] = body(BatchJob(), JOB, [], Priority(), options)["metadata"]
    return metadata


def test_what_the_options_name_is_copied() -> None:
    """What a Workload has anyway stays as it is."""
    plain = made(JobOptions())
    options = JobOptions(
        copied_labels=("size", "absent", "kueue.x-k8s.io/job-uid"), copied_annotations=("site", "absent")
    )
    metadata = made(options)
    assert metadata["labels"] == {"size": "big", **plain.get("labels", {})}
    assert metadata["annotations"] == {"site": "north", **plain.get("annotations", {})}


def test_without_such_labels_nothing_is() -> None:
    """As by default."""
    metadata = made(JobOptions())
    assert not {"size", "team"} & metadata.get("labels", {}).keys()
    assert not {"site", "other"} & metadata.get("annotations", {}).keys()
