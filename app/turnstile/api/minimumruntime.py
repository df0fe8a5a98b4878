"""How long Workloads run at least before they may be preempted, as ClusterQueues and WorkloadPriorityClasses say it.

Turnstile's own, not Kueue's. The annotation means nothing on a job or a Workload: a tenant may write these.
"""

from typing import Final

from turnstile.api.durations import SECOND, parse, render, seconds
from turnstile.api.meta import ObjectMeta

MINIMUM_RUN_TIME: Final = "turnstile.dev/minimum-run-time"
"""Annotation of a ClusterQueue or a WorkloadPriorityClass: a duration, such as 30m."""
PATH: Final = f"metadata.annotations[{MINIMUM_RUN_TIME}]"


def minimum_run_time(metadata: ObjectMeta) -> float | None:
    """The seconds that the annotation asks for; None if there is none that can be read."""
    text = metadata.annotations.get(MINIMUM_RUN_TIME)
    return seconds(parse(text)) if text is not None and not fault(metadata) else None


def too_long(longest: float) -> str:
    """The fault of a minimum run time above the limit of the configuration."""
    return f"it counts as {render(int(longest * SECOND))}, the limit of the configuration"


def fault(metadata: ObjectMeta) -> str:
    """Why the annotation cannot be read, and what would do; empty if it can be, or there is none."""
    text = metadata.annotations.get(MINIMUM_RUN_TIME)
    try:
        negative = text is not None and parse(text) < 0
    except ValueError as error:
        return str(error)
    return "must not be negative: write a duration such as 30m, or 0s for none" if negative else ""
