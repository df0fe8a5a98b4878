"""The annotation by which a ClusterQueue admits Workloads only while nodes have room for each of their pods.

Turnstile's own, not Kueue's. It means nothing on a job or a Workload.
"""

from typing import Final

from turnstile.api.meta import ObjectMeta

WAIT_FOR_ROOM: Final = "turnstile.dev/wait-for-room"
"""Annotation of a ClusterQueue: `"true"` or `"false"`. Without it the configuration says."""
_READ: Final = {"true": True, "false": False}


def wait_for_room(metadata: ObjectMeta) -> bool | None:
    """The answer of the annotation; None if there is none that can be read."""
    return _READ.get(metadata.annotations.get(WAIT_FOR_ROOM, ""))


def asks_for_room(metadata: ObjectMeta, by_default: bool) -> bool:
    """Whether a ClusterQueue admits only with room on nodes."""
    said = wait_for_room(metadata)
    return by_default if said is None else said


def fault(metadata: ObjectMeta) -> str:
    """Why the annotation cannot be read; empty if it can be, or there is none."""
    text = metadata.annotations.get(WAIT_FOR_ROOM)
    return "" if text is None or text in _READ else 'must be "true" or "false"'
