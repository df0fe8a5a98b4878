"""A batch Job."""

from typing import Any, Final

from tests.unit.jobs.samples.sample import NAMED_TEMPLATE, Moment, Sample, moments

Json = dict[str, Any]


def _job_pods(body: Json) -> int:
    spec, status = body["spec"], body["status"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    if completions is None:  # the first success says that no more pods are needed
        done = status.get("succeeded", 0)
        return max(parallelism - done, 0) if spec.get("completionMode") != "Indexed" else parallelism
    if spec.get("completionMode") == "Indexed":
        ended = {index for name in ("completedIndexes", "failedIndexes") for index in _indexes(status.get(name, ""))}
        done = len([index for index in ended if index < completions])
    else:
        done = status.get("succeeded", 0)
    return max(min(parallelism, completions - done), 0)


def _indexes(text: str) -> list[int]:
    """`0-1,3` as numbers."""
    ends = [part.split("-") for part in text.split(",") if part]
    return [index for end in ends for index in range(int(end[0]), int(end[-1]) + 1)]


_INDEXED: Final = {"completionMode": "Indexed", "parallelism": 3, "completions": 3, "template": NAMED_TEMPLATE}
_MOMENTS: Final[list[Moment]] = [
    *moments(
        {"parallelism": 3, "completions": 9, "template": NAMED_TEMPLATE},
        ("nothing is written yet", {}, False),
        ("two of three pods are ready", {"active": 3, "ready": 2}, False),
        ("all pods are ready", {"active": 3, "ready": 3}, True),
        ("one has succeeded, and the next one begins", {"active": 3, "ready": 2, "succeeded": 1}, True),
        ("one was lost before any succeeded", {"active": 3, "ready": 2, "failed": 1}, False),
    ),
    *moments(
        {"parallelism": 5, "completions": 2, "template": NAMED_TEMPLATE},
        ("no more pods than completions are made", {"active": 2, "ready": 2}, True),
    ),
    *moments(
        _INDEXED,
        ("an index has failed and is made again", {"active": 3, "ready": 2, "failed": 1}, False),
        ("an index has failed for good", {"active": 2, "ready": 2, "failed": 1, "failedIndexes": "1"}, True),
        ("one failed for good, one is not ready", {"active": 2, "ready": 1, "failed": 1, "failedIndexes": "1"}, False),
        (
            "a pod has succeeded that is not counted yet",
            {"ready": 2, "uncountedTerminatedPods": {"succeeded": ["u"]}},
            True,
        ),
    ),
]

_CONTAINER: Final = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
SAMPLES: Final = (
    Sample(
        framework="batch/job",
        api_version="batch/v1",
        kind="Job",
        metadata={
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "uid-1", "controller": True}
            ]
        },
        spec={
            "parallelism": 1,
            "completions": 1,
            "suspend": False,
            "template": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [_CONTAINER]}},
        },
        pods=_job_pods,
        moments=_MOMENTS,
    ),
)
