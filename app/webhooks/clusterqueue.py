"""The webhooks of ClusterQueue: a finalizer while workloads hold its quota, and quota that adds up."""

from typing import Final

from app.api.clusterqueue import ClusterQueue
from app.api.validation import default_cluster_queue, validate_cluster_queue
from app.webhooks.handlers import checking, finalizing

MUTATE: Final = finalizing(ClusterQueue, default_cluster_queue)
VALIDATE: Final = checking(ClusterQueue, lambda _, new, old: validate_cluster_queue(new, old))
