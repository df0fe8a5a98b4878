"""Which jobs are held whole: those in managed namespaces.

Others are held without their pod templates, which nobody reads. Must never decide about a job: `jobs.decide` leaves one
alone that is managed by now and was not read again yet.
"""

from typing import Final

from app.api.core import Namespace
from app.api.meta import Kind
from app.jobs.options import Options
from app.jobs.registry import Registry
from app.kube.caches import Caches


class ManagedNamespaces:
    """Follows the labels of namespaces. When one becomes managed, or is managed no longer, its jobs are read again.

    `keep` says whether a job is held whole; for `Caches.of`.
    """

    def __init__(self, caches: Caches, options: Options, registry: Registry) -> None:
        self._caches = caches
        self._selector = options.managed_jobs_namespace_selector
        self._namespaces = caches.of(Namespace)
        self._namespaces.subscribe(self._changed)
        # Kinds with a selector are few objects, and need not be read again.
        self._kinds: Final = [each.kind for each in registry.watched if not each.selector]

    def take_options(self, options: Options) -> None:
        """The configuration may select other namespaces now."""
        before, self._selector = self._selector, options.managed_jobs_namespace_selector
        for namespace in self._namespaces.values():
            labels = namespace.metadata.labels
            if before.matches(labels) != self._selector.matches(labels):
                self._read_again(namespace.metadata.name)

    def keep(self, job: Kind) -> bool:
        """Also where the namespace was not seen yet: it may be managed."""
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
