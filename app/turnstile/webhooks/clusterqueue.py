"""The webhooks of ClusterQueue: they add the finalizer that protects reserved quota, and refuse inconsistent quota.

The annotations by which a ClusterQueue refuses jobs and protects them from preemption are checked too.
"""

from collections.abc import Collection
from itertools import islice
from typing import Final

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.submission import BY_QUEUE, REFUSE, listed
from turnstile.api.validation import FieldError, default_cluster_queue, validate_cluster_queue
from turnstile.api.validation.errors import brought, not_supported
from turnstile.engine.flavors.together import lonely
from turnstile.webhooks import timeannotations
from turnstile.webhooks.advice import MOST
from turnstile.webhooks.handlers import checking, finalizing
from turnstile.webhooks.lookups import Lookups
from turnstile.webhooks.review import Handler, Request

MUTATE: Final = finalizing(ClusterQueue, default_cluster_queue)


def validating(gates: Collection[str], lookups: Lookups) -> Handler:
    """The handler that refuses inconsistent quota; `gates` are the feature gates that are on. It warns of flavors that
    do not fit together, where flavors are known."""

    def errors(_: Request, new: ClusterQueue, old: ClusterQueue | None) -> list[FieldError]:
        found = validate_cluster_queue(new, old, gates=gates)
        found += timeannotations.errors(new, old)
        return found + brought(_refusals(new), lambda: _refusals(old) if old is not None else [])

    def warnings(new: ClusterQueue, old: ClusterQueue | None) -> tuple[str, ...]:
        protected = timeannotations.warnings(new, lookups)
        if lookups.offer is None or (old is not None and old.spec.resource_groups == new.spec.resource_groups):
            return protected
        known = lookups.offer.state.activity.flavors
        groups = [
            [known[each.name] for each in group.flavors if each.name in known] for group in new.spec.resource_groups
        ]
        apart = (f"{each}: no pod can ask for resources of both" for each in islice(lonely(groups), MOST))
        return (*protected, *apart)

    return checking(ClusterQueue, errors, warnings=warnings)


def _refusals(queue: ClusterQueue) -> list[FieldError]:
    """Errors of the annotation that names what jobs are refused for."""
    path = f"metadata.annotations[{REFUSE}]"
    named = listed(queue.metadata.annotations.get(REFUSE, ""))
    return [not_supported(path, each, BY_QUEUE) for each in named if each not in BY_QUEUE]
