"""Durations that administrators write as annotations: how long Workloads run at least, and when quota is kept for one.

Turnstile's own, not Kueue's. They mean nothing on a job or a Workload: a tenant may write these.
"""

from typing import Final

from turnstile.api.durations import SECOND, parse, render, seconds
from turnstile.api.meta import ObjectMeta

MINIMUM_RUN_TIME: Final = "turnstile.dev/minimum-run-time"
"""Annotation of a ClusterQueue or a WorkloadPriorityClass: how long its Workloads run before they may be preempted."""
KEEP_QUOTA_AFTER: Final = "turnstile.dev/keep-quota-after"
"""Annotation of a ClusterQueue: how long its head waits until the ClusterQueue keeps for it what comes free."""
NAMES: Final = (MINIMUM_RUN_TIME, KEEP_QUOTA_AFTER)


def path(name: str) -> str:
    """The field of an annotation."""
    return f"metadata.annotations[{name}]"


def annotated(metadata: ObjectMeta, name: str) -> float | None:
    """The seconds of an annotation; None if there is none that can be read."""
    text = metadata.annotations.get(name)
    return seconds(parse(text)) if text is not None and not fault(metadata, name) else None


def fault(metadata: ObjectMeta, name: str) -> str:
    """Why an annotation cannot be read, and what would do; empty if it can be, or there is none."""
    text = metadata.annotations.get(name)
    try:
        negative = text is not None and parse(text) < 0
    except ValueError as error:
        return str(error)
    return "must not be negative: write a duration such as 30m" if negative else ""


def above_limit(metadata: ObjectMeta, longest: float) -> str:
    """The fault of a minimum run time above the limit of the configuration; empty if it is not above that."""
    found = annotated(metadata, MINIMUM_RUN_TIME)
    if found is None or found <= longest:
        return ""
    return f"it counts as {render(int(longest * SECOND))}, the limit of the configuration"
