"""What the webhooks may know of the cluster: a handful of reads, answered from caches, and the options of the install.

`main` implements `World` on top of the stores; tests pass plain objects. A webhook never writes, and never asks the API
server: a review must be answered in microseconds and with the API server as busy as it may be.
"""

from collections.abc import Mapping
from typing import Protocol

from app.api.errors import PermanentError, TurnstileError
from app.api.meta import Kind
from app.jobs.ancestors import managed_ancestor
from app.jobs.options import NAMESPACE_NAME_LABEL, Options
from app.jobs.registry import Registry


class Undecided(TurnstileError):
    """The caches do not tell yet, or the owners make no sense; the client should try again."""


class World(Protocol):
    """Reads that the handlers need. All are synchronous and come from a cache."""

    @property
    def options(self) -> Options:
        """The options of this install."""

    @property
    def registry(self) -> Registry:
        """The job kinds of this install."""

    def default_local_queue(self, namespace: str) -> bool:
        """Whether the namespace has a LocalQueue named `default`."""

    def default_priority_class(self) -> bool:
        """Whether a WorkloadPriorityClass named `default` exists."""

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a namespace, or None while the cache has not seen it."""

    def find(self, kind: type[Kind], key: str) -> Kind | None:
        """An object of a job kind by its key `namespace/name`, or None while the cache has not seen it."""


def has_managed_ancestor(job: Kind, world: World) -> bool:
    """Whether a job above this one is queued, so that this one must be left alone. Its metadata has the namespace.

    Raises Undecided if an owner of a job kind is not in the caches, or if the owners go in a circle or too far.
    """
    if not world.registry.manages(job.metadata.controller):
        return False
    try:
        ancestor = managed_ancestor(job, world.find, options=world.options, registry=world.registry)
    except (LookupError, PermanentError) as error:
        raise Undecided(str(error)) from None
    return ancestor is not None


def namespace_is_managed(namespace: str, world: World) -> bool:
    """Whether `managedJobsNamespaceSelector` selects the namespace.

    A selector on names alone is decided even before the cache has seen the namespace; for other labels Undecided is
    raised until it has.
    """
    selector = world.options.managed_jobs_namespace_selector
    labels = world.namespace_labels(namespace)
    if labels is None:
        keys = {*selector.match_labels, *(requirement.key for requirement in selector.match_expressions)}
        if keys - {NAMESPACE_NAME_LABEL}:
            raise Undecided(f"namespace {namespace!r} is not known yet")
        labels = {NAMESPACE_NAME_LABEL: namespace}
    return selector.matches(labels)
