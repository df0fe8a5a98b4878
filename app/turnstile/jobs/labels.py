"""Reads the labels and annotations of a job for both the webhooks and the reconciler.

Only the queue name and the priority class name of a job's metadata are used as the user wrote them. Must never read
anything but metadata.
"""

from turnstile.api import names
from turnstile.api.meta import Kind, ObjectMeta
from turnstile.api.numbers import parse_int32


def queue_name(job: Kind) -> str:
    """The LocalQueue that a job names; empty if it names none."""
    return job.metadata.labels.get(names.QUEUE_LABEL, "")


def identifier(meta: ObjectMeta, key: str) -> tuple[str, str]:
    """Value and field path of an identifier from an annotation, else from the label of the same key."""
    if value := meta.annotations.get(key):
        return value, f"metadata.annotations[{key}]"
    return meta.labels.get(key, ""), f"metadata.labels[{key}]"


def prebuilt_name(job: Kind) -> str:
    """Name of the prebuilt Workload that a job names; empty if Turnstile creates the Workload."""
    return identifier(job.metadata, names.PREBUILT_WORKLOAD)[0]


def is_elastic(meta: ObjectMeta) -> bool:
    """Whether the job opted in to workload slices."""
    return meta.annotations.get(names.ELASTIC_JOB) == "true"


def slice_name(workload: Kind) -> str:
    """The name of the first slice of the chain that a Workload belongs to: its own, unless it took another's place."""
    return workload.metadata.annotations.get(names.SLICE_NAME) or workload.metadata.name


def max_execution_seconds(job: Kind) -> int | None:
    """The time limit of the label, None if it is absent or not a positive number of 32 bits."""
    seconds = parse_int32(job.metadata.labels.get(names.MAX_EXEC_TIME_LABEL, ""))
    return seconds if seconds is not None and seconds > 0 else None
