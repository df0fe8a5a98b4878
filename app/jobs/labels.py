"""Labels and annotations of a job that mean something to Turnstile, read one way by webhooks and reconciler.

The queue name and the priority class name are all that is taken from a job as its owner writes it. Must never look at
anything but metadata.
"""

from app.api import names
from app.api.meta import Kind, ObjectMeta


def queue_name(job: Kind) -> str:
    """The LocalQueue that a job asks for; empty if it names none."""
    return job.metadata.labels.get(names.QUEUE_LABEL, "")


def identifier(meta: ObjectMeta, key: str) -> tuple[str, str]:
    """An identifier that may stand in an annotation or, failing that, in a label: its value and its field path."""
    if value := meta.annotations.get(key):
        return value, f"metadata.annotations[{key}]"
    return meta.labels.get(key, ""), f"metadata.labels[{key}]"


def prebuilt_name(job: Kind) -> str:
    """Name of the Workload that a job brings along; empty if a Workload is to be made for the job."""
    return identifier(job.metadata, names.PREBUILT_WORKLOAD)[0]


def is_elastic(meta: ObjectMeta) -> bool:
    """Whether the job opted in to workload slices."""
    return meta.annotations.get(names.ELASTIC_JOB) == "true"


def max_execution_seconds(job: Kind) -> int | None:
    """The time limit of the label, None if it is absent or not a positive number."""
    text = job.metadata.labels.get(names.MAX_EXEC_TIME_LABEL, "")
    return int(text) if text.isascii() and text.isdecimal() and int(text) > 0 else None
