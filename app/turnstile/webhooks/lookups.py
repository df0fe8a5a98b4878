"""The webhooks' view of the cluster: a few reads from caches, and the installation's options.

`main` implements `Lookups` on top of the stores; tests pass plain objects. A webhook must never call the API server,
for reads or writes: a review must be answered in microseconds, however busy the API server is.
"""

from collections.abc import Mapping
from typing import Protocol

from turnstile.advice.offer import Offer
from turnstile.api.errors import PermanentError, TurnstileError
from turnstile.api.meta import Kind
from turnstile.jobs.ancestors import Ancestor, managed_ancestor
from turnstile.jobs.options import NAMESPACE_NAME_LABEL, JobOptions
from turnstile.jobs.registry import Registry


class Undecided(TurnstileError):
    """The caches lack an object that the decision needs, or the owners are invalid; the client should retry."""


class Lookups(Protocol):
    """Reads that the handlers need. All are synchronous and answered from a cache."""

    @property
    def options(self) -> JobOptions:
        """The options of this installation."""

    @property
    def registry(self) -> Registry:
        """The job kinds of this installation."""

    @property
    def offer(self) -> Offer | None:
        """The queues, quotas and priority classes; None while the caches lack any of them."""

    def default_local_queue(self, namespace: str) -> bool:
        """Whether the namespace has a LocalQueue named `default`."""

    def sends_away(self, namespace: str, queue: str) -> bool:
        """Whether the jobs of a LocalQueue run on other clusters."""

    def default_priority_class(self) -> bool:
        """Whether a WorkloadPriorityClass named `default` exists."""

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a namespace, or None if the cache does not have it."""

    def find(self, kind: type[Kind], key: str) -> Kind | None:
        """An object of a job kind, or of one whose pods are counted for a job, by its key `namespace/name`; None if the
        cache does not have it."""


def managed_owner(job: Kind, lookups: Lookups) -> Ancestor | None:
    """The ancestor that is queued in place of `job`, if its owner references lead to one. `job.metadata.namespace` must
    be set.

    Raises Undecided if an owner that could count is not in the caches.
    """
    return owner_above(job, lookups) if lookups.registry.manages(job.metadata.controller) else None


def owner_above(job: Kind, lookups: Lookups, *, known: tuple[type[Kind], ...] = ()) -> Ancestor | None:
    """As `managed_owner`, also where the controller is not a job. Owners of the `known` kinds must be in the caches
    too."""

    def find(kind: type[Kind], key: str) -> Kind | None:
        found = lookups.find(kind, key)
        if found is None and kind in known:
            raise LookupError(f"{kind.KIND} {key} is not known yet")
        return found

    try:
        return managed_ancestor(job, find, options=lookups.options, registry=lookups.registry)
    except LookupError as error:
        raise Undecided(str(error)) from None
    except PermanentError:
        return None  # owners in a circle, or too many of them


def namespace_is_managed(namespace: str, lookups: Lookups) -> bool:
    """Whether `managedJobsNamespaceSelector` selects the namespace.

    A selector on names alone is decided even if the cache does not have the namespace; for other labels Undecided is
    raised until it does.
    """
    selector = lookups.options.managed_jobs_namespace_selector
    labels = lookups.namespace_labels(namespace)
    if labels is None:
        keys = {*selector.match_labels, *(requirement.key for requirement in selector.match_expressions)}
        if keys - {NAMESPACE_NAME_LABEL}:
            raise Undecided(f"namespace {namespace!r} is not known yet")
        labels = {NAMESPACE_NAME_LABEL: namespace}
    return selector.matches(labels)
