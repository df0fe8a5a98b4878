"""Match conditions that several kinds share: CEL, evaluated by the API server before it asks a webhook."""

from typing import Final

QUEUED: Final = (
    "[object, oldObject].exists(o, o != null && has(o.metadata.labels) && "
    "o.metadata.labels.exists(k, k.startsWith('kueue.x-k8s.io/')))"
)
"""The object carries, or carried, a label of Kueue's group."""
QUEUED_NOW: Final = "(has(object.metadata.labels) && object.metadata.labels.exists(k, k.startsWith('kueue.x-k8s.io/')))"
"""The object carries a label of Kueue's group."""
