"""Selects the jobs that are cached with their pod templates: jobs of enabled kinds in managed namespaces, and jobs that
have an unfinished Workload, which are followed to their end wherever they are.

Other jobs are cached without pod templates, which no code reads. Must never decide about a job: `jobreconciler.decide`
ignores a job that was not cached whole until the job was read again.
"""

from typing import Final

from app.api.core import Namespace
from app.api.meta import Kind
from app.api.workload import Workload
from app.controllers.jobreconciler import WORKLOADS_BY_JOB
from app.jobs.naming import split_job_key
from app.jobs.options import JobOptions
from app.jobs.registry import Registry
from app.kube import raws
from app.kube.caches import Caches


class ManagedNamespaces:
    """Watches the labels of namespaces. When a namespace becomes managed, or unmanaged, its jobs are read again."""

    def __init__(self, caches: Caches, options: JobOptions, registry: Registry) -> None:
        self._caches = caches
        self._registry = registry
        self._selector = options.managed_jobs_namespace_selector
        self._workloads = caches.of(Workload)
        self._workloads.subscribe(self._workload_changed)
        self._namespaces = caches.of(Namespace)
        self._namespaces.subscribe(self._changed)
        # Kinds with a selector have few objects, and need not be read again.
        self._kinds: Final = [each.kind for each in registry.followed if not each.selector]

    def take_options(self, options: JobOptions) -> None:
        """Take over the namespace selector of a changed configuration."""
        before, self._selector = self._selector, options.managed_jobs_namespace_selector
        for namespace in self._namespaces.values():
            labels = namespace.metadata.labels
            if before.matches(labels) != self._selector.matches(labels):
                self._read_again(namespace.metadata.name)

    def keep(self, job: Kind) -> bool:
        """Whether to cache a job with its pod templates, also while its namespace is unknown; for `Caches.of`."""
        if self._registry.is_enabled(self._registry.of(job)):
            namespace = self._namespaces.get(job.metadata.namespace)
            if namespace is None or self._selector.matches(namespace.metadata.labels):
                return True
        workloads = self._workloads.by_index(WORKLOADS_BY_JOB, self._registry.key_of(job))
        return any(not each.finished for each in workloads)

    def _changed(self, key: str, old: Namespace | None, new: Namespace | None) -> None:
        if old is not None and new is not None:
            managed = [self._selector.matches(each.metadata.labels) for each in (old, new)]
            if managed[0] != managed[1]:
                self._read_again(key)

    def _workload_changed(self, _: str, old: Workload | None, new: Workload | None) -> None:
        """Read a job again that gets a Workload although its templates were not cached."""
        if old is not None or new is None or new.finished:
            return
        for key in self._registry.jobs_of(new):
            framework, name = split_job_key(key)
            integration = self._registry.known[framework]
            store = self._caches.held(integration.kind) if integration.kind in self._kinds else None
            job = store.get(name) if store is not None else None
            if job is not None and raws.stripped(job):
                self._caches.read_again(integration.kind, new.metadata.namespace)

    def _read_again(self, namespace: str) -> None:
        for kind in self._kinds:
            if self._caches.held(kind) is not None:
                self._caches.read_again(kind, namespace)
