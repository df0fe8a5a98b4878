"""What a batch Job says of itself."""

import json
from typing import Any

import msgspec
import pytest

from turnstile.api.core import Job
from turnstile.jobs.kinds.batch_job import BatchJob

KIND = BatchJob()


def job(*, status: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, **spec: Any) -> Job:
    """A Job of this spec and status."""
    template = {"spec": {"containers": [{"name": "c"}]}}
    body = {
        "metadata": {"name": "j", "namespace": "n", "annotations": annotations or {}},
        "spec": {"template": template, **spec},
        "status": status or {},
    }
    return msgspec.json.decode(json.dumps(body).encode(), type=Job)


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({}, 1),
        ({"parallelism": 3}, 3),
        ({"parallelism": 3, "completions": 2}, 2),
        ({"parallelism": 3, "completions": 9}, 3),
        ({"parallelism": 0}, 0),
        ({"completions": 5}, 1),
    ],
)
def test_it_asks_for_the_pods_that_run_at_a_time(spec: dict[str, Any], count: int) -> None:
    """Never more than there are completions."""
    (pod_set,) = KIND.pod_sets(job(**spec))
    assert pod_set.count == count


@pytest.mark.parametrize(
    ("status", "active"), [({}, False), ({"active": 1}, True), ({"terminating": 1}, True), ({"succeeded": 1}, False)]
)
def test_it_is_active_until_the_last_pod_is_gone(status: dict[str, Any], active: bool) -> None:
    """Pods that take their time to stop count: others cannot have their place yet."""
    assert KIND.active(job(status=status)) is active


@pytest.mark.parametrize(("text", "expected"), [("2", 2), ("0", None), ("-1", None), ("two", None), ("", None)])
def test_fewer_pods_are_allowed_by_an_annotation(text: str, expected: int | None) -> None:
    """What is no positive number is as good as none; the webhook refuses it."""
    (pod_set,) = KIND.pod_sets(job(parallelism=5, annotations={"kueue.x-k8s.io/job-min-parallelism": text}))
    assert pod_set.min_count == expected


@pytest.mark.parametrize(
    ("spec", "status", "reclaimable"),
    [
        ({"parallelism": 1}, {"succeeded": 1}, {}),
        ({"parallelism": 3, "completions": 5}, {}, {}),
        ({"parallelism": 3, "completions": 5}, {"succeeded": 2}, {}),
        ({"parallelism": 3, "completions": 5}, {"succeeded": 3}, {"main": 1}),
        ({"parallelism": 3, "completions": 5}, {"succeeded": 9}, {"main": 3}),
        ({"parallelism": 3}, {"succeeded": 1}, {"main": 1}),
        ({"parallelism": 4, "completions": 2}, {"succeeded": 1}, {"main": 1}),
    ],
)
def test_pods_that_are_not_made_again_are_reclaimable(
    spec: dict[str, Any], status: dict[str, Any], reclaimable: dict[str, int]
) -> None:
    """By pods that succeeded."""
    assert KIND.reclaimable(job(status=status, **spec)) == reclaimable


@pytest.mark.parametrize(
    ("completed", "failed", "reclaimable"),
    [
        ("", "", {}),
        ("0-1", "", {}),
        ("0,2-3", "", {"main": 1}),
        ("0-2", "2-3", {"main": 2}),
        ("0-99", "", {"main": 3}),
        ("0-2,4", "9", {"main": 2}),
        ("0-2,odd,4-,3", "", {"main": 2}),
        ("0-2,4-" + "9" * 5000, "\u0663", {"main": 2}),
    ],
)
def test_of_an_indexed_job_each_index_counts_once(completed: str, failed: str, reclaimable: dict[str, int]) -> None:
    """Whether it completed or failed, and only below the number of completions."""
    made = job(
        parallelism=3,
        completions=5,
        completionMode="Indexed",
        status={"completedIndexes": completed, "failedIndexes": failed},
    )
    assert KIND.reclaimable(made) == reclaimable


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, False),
        ({"ready": 1, "succeeded": 1}, False),
        ({"ready": 2, "succeeded": 1}, True),
        ({"ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["a"]}}, True),
    ],
)
def test_it_is_ready_once_all_pods_are_or_have_succeeded(status: dict[str, Any], ready: bool) -> None:
    """Those not yet counted are counted."""
    assert KIND.pods_ready(job(parallelism=3, status=status)) is ready


def test_a_condition_that_is_not_true_is_no_end() -> None:
    """Nor is any other condition."""
    conditions = [{"type": "Complete", "status": "False"}, {"type": "SuccessCriteriaMet", "status": "True"}]
    assert KIND.finished(job(status={"conditions": conditions})) is None


def test_a_stop_under_way_does_not_count_as_suspended() -> None:
    """So that somebody ends it."""
    made = job(suspend=True, annotations={"kueue.x-k8s.io/stopping": "true"})
    assert not KIND.suspended(made)
    assert KIND.half_stopped(made)
