"""Selects the jobs that are cached with their pod templates: jobs in managed namespaces.

Other jobs are cached without pod templates, which no code reads. Must never decide about a job: `jobreconciler.decide`
ignores a job whose namespace became managed until the job was read again.
"""

from typing import Final

from app.api.core import Namespace
from app.api.meta import Kind
from app.jobs.options import JobOptions
from app.jobs.registry import Registry
from app.kube.caches import Caches


class ManagedNamespaces:
    """Watches the labels of namespaces. When a namespace becomes managed, or unmanaged, its jobs are read again."""

    def __init__(self, caches: Caches, options: JobOptions, registry: Registry) -> None:
        self._caches = caches
        self._selector = options.managed_jobs_namespace_selector
        self._namespaces = caches.of(Namespace)
        self._namespaces.subscribe(self._changed)
        # Kinds with a selector have few objects, and need not be read again.
        self._kinds: Final = [each.kind for each in registry.watched if not each.selector]

    def take_options(self, options: JobOptions) -> None:
        """Take over the namespace selector of a changed configuration."""
        before, self._selector = self._selector, options.managed_jobs_namespace_selector
        for namespace in self._namespaces.values():
            labels = namespace.metadata.labels
            if before.matches(labels) != self._selector.matches(labels):
                self._read_again(namespace.metadata.name)

    def keep(self, job: Kind) -> bool:
        """Whether to cache a job with its pod templates, also while its namespace is unknown; for `Caches.of`."""
        namespace = self._namespaces.get(job.metadata.namespace)
        return namespace is None or self._selector.matches(namespace.metadata.labels)

    def _changed(self, key: str, old: Namespace | None, new: Namespace | None) -> None:
        if old is not None and new is not None:
            managed = [self._selector.matches(each.metadata.labels) for each in (old, new)]
            if managed[0] != managed[1]:
                self._read_again(key)

    def _read_again(self, namespace: str) -> None:
        for kind in self._kinds:
            self._caches.read_again(kind, namespace)
