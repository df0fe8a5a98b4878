"""Names of what may be wrong with a submitted job: in the configuration file, and in an annotation of ClusterQueues.

Turnstile's own, not Kueue's. Their meaning in a cluster is in `turnstile.advice.submission`.
"""

from enum import StrEnum
from typing import Final

REFUSE: Final = "turnstile.dev/refuse-jobs"
"""Annotation of a ClusterQueue: names of `About`, with commas between them, for which its jobs are refused."""


class About(StrEnum):
    """The subject of a notice about a job."""

    LOCAL_QUEUE_NOT_FOUND = "LocalQueueNotFound"
    LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
    CLUSTER_QUEUE_NOT_FOUND = "ClusterQueueNotFound"
    CLUSTER_QUEUE_STOPPED = "ClusterQueueStopped"
    CLUSTER_QUEUE_INACTIVE = "ClusterQueueInactive"
    NAMESPACE_NOT_SELECTED = "NamespaceNotSelected"
    PRIORITY_CLASS_NOT_FOUND = "PriorityClassNotFound"
    RESOURCE_NOT_COVERED = "ResourceNotCovered"
    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    NEVER_FITS = "NeverFits"
    LARGE_TEMPLATE = "LargeTemplate"
    DEVICES_NOT_COUNTED = "DevicesNotCounted"


BY_QUEUE: Final = tuple(
    sorted(set(About) - {About.LOCAL_QUEUE_NOT_FOUND, About.CLUSTER_QUEUE_NOT_FOUND, About.LOCAL_QUEUE_STOPPED})
)
"""The reasons for which a ClusterQueue may refuse jobs."""


def listed(text: str) -> list[str]:
    """The names in the value of the annotation."""
    return [each.strip() for each in text.split(",") if each.strip()]
