"""The webhooks of ClusterQueue: a finalizer while workloads hold its quota, and quota that adds up."""

from collections.abc import Collection
from typing import Final

from app.api.clusterqueue import ClusterQueue
from app.api.validation import default_cluster_queue, validate_cluster_queue
from app.webhooks.handlers import checking, finalizing
from app.webhooks.review import Handler

MUTATE: Final = finalizing(ClusterQueue, default_cluster_queue)


def validating(gates: Collection[str]) -> Handler:
    """The handler that refuses quota that does not add up; `gates` are the feature gates that are on."""
    return checking(ClusterQueue, lambda _, new, old: validate_cluster_queue(new, old, gates=gates))
