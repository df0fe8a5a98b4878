"""A new Workload has the labels and annotations of its job that metrics show, and no others."""

from typing import Any

from app.api.core import Job
from app.jobs.options import JobOptions
from app.jobs.workload import with_measured
from tests.unit.controllers.worlds import decode

JOB = decode(
    Job,
    {
        "metadata": {
            "name": "j",
            "labels": {"size": "big", "team": "a", "kueue.x-k8s.io/job-uid": "forged"},
            "annotations": {"site": "north", "other": "x"},
        }
    },
)


def body() -> dict[str, Any]:
    """A Workload to create."""
    return {"metadata": {"name": "w", "labels": {"kueue.x-k8s.io/job-uid": "u"}}}


def test_what_the_options_name_is_copied() -> None:
    """What a Workload has anyway stays as it is."""
    options = JobOptions(
        copied_labels=("size", "absent", "kueue.x-k8s.io/job-uid"), copied_annotations=("site", "absent")
    )
    made = with_measured(body(), JOB, options)["metadata"]
    assert made["labels"] == {"size": "big", "kueue.x-k8s.io/job-uid": "u"}
    assert made["annotations"] == {"site": "north"}


def test_without_such_labels_nothing_is() -> None:
    """As by default."""
    assert with_measured(body(), JOB, JobOptions()) == body()
