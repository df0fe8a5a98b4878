"""The webhooks of ClusterQueue: they add the finalizer that protects reserved quota, and refuse inconsistent quota."""

from collections.abc import Collection
from typing import Final

from app.api.clusterqueue import ClusterQueue
from app.api.validation import default_cluster_queue, validate_cluster_queue
from app.webhooks.handlers import checking, finalizing
from app.webhooks.review import Handler

MUTATE: Final = finalizing(ClusterQueue, default_cluster_queue)


def validating(gates: Collection[str]) -> Handler:
    """The handler that refuses inconsistent quota; `gates` are the feature gates that are on."""
    return checking(ClusterQueue, lambda _, new, old: validate_cluster_queue(new, old, gates=gates))
