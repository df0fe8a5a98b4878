"""Match conditions that several kinds share: CEL that the API server evaluates before it calls a webhook."""

from typing import Final

QUEUED: Final = (
    "[object, oldObject].exists(o, o != null && has(o.metadata.labels) && "
    "o.metadata.labels.exists(k, k.startsWith('kueue.x-k8s.io/')))"
)
"""The object carries, or carried, a label of Kueue's group."""
NEW_OR_QUEUED: Final = f"request.operation == 'CREATE' || {QUEUED}"
"""The object is new, so that it may be given the default queue, or it carries or carried a label of Kueue's group."""
