"""The webhooks of ClusterQueue: they add the finalizer that protects reserved quota, and refuse inconsistent quota.

The annotations by which a ClusterQueue refuses jobs, protects them from preemption and asks for room on nodes are
checked too.
"""

from collections.abc import Collection
from itertools import islice
from typing import Final

from turnstile.api import waitforroom
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.submission import BY_QUEUE, REFUSE, listed
from turnstile.api.validation import FieldError, default_cluster_queue, validate_cluster_queue
from turnstile.api.validation.errors import brought, invalid, not_supported
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
        return found + brought(_faults(new), lambda: _faults(old) if old is not None else [])

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


def _faults(queue: ClusterQueue) -> list[FieldError]:
    """Errors of the annotations that name what jobs are refused for, and ask for room on nodes."""
    path = f"metadata.annotations[{REFUSE}]"
    named = listed(queue.metadata.annotations.get(REFUSE, ""))
    found = [not_supported(path, each, BY_QUEUE) for each in named if each not in BY_QUEUE]
    if why := waitforroom.fault(queue.metadata):
        text = queue.metadata.annotations[waitforroom.WAIT_FOR_ROOM]
        found.append(invalid(f"metadata.annotations[{waitforroom.WAIT_FOR_ROOM}]", text, why))
    return found
