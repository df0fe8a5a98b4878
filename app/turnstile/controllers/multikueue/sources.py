"""Finds the jobs that are sent to other clusters: of kinds that are queued here, and of those that the configuration
names (`multiKueue.externalFrameworks`), which another controller queues. Read-only."""

from typing import Any

from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.view.clusterview import WORKLOADS_BY_JOB, ClusterView, NotRead
from turnstile.controllers.view.multikueue import WORKLOADS_BY_EXTERNAL_JOB
from turnstile.jobs.integration import Integration
from turnstile.jobs.naming import split_job_key
from turnstile.jobs.registry import Registry
from turnstile.kube.store import Store


class Sources:
    """The kinds that can be sent, their jobs on the manager, and the Workloads of these."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._external = cluster.multikueue.external or Registry(kinds=())
        self.stores: dict[type[Kind], Store[Any]] = {**cluster.jobs, **cluster.multikueue.external_jobs}
        self.kinds = tuple(
            each
            for each in (*cluster.registry.enabled, *self._external.enabled)
            if each.copies is not None and each.kind in self.stores
        )

    def known(self, framework: str) -> Integration[Any] | None:
        """The integration of that name, enabled or not."""
        return self._external.known.get(framework) or self._cluster.registry.known.get(framework)

    def of(self, kind: type[Kind]) -> Integration[Any]:
        """The integration of a kind. Raises KeyError if it is not known."""
        return self._external.known_kind(kind) or self._cluster.registry.of(kind())

    def key_of(self, job: Kind) -> str:
        """The key of a job."""
        registry = self._cluster.registry if self._external.known_kind(type(job)) is None else self._external
        return registry.key_of(job)

    def jobs_of(self, workload: Workload) -> list[str]:
        """Keys of the jobs that own a Workload."""
        return [*self._external.jobs_of(workload), *self._cluster.registry.jobs_of(workload)]

    def workloads_of(self, job: str) -> list[str]:
        """Keys of the Workloads of a job, by its key."""
        external = split_job_key(job)[0] in self._external.known
        index = WORKLOADS_BY_EXTERNAL_JOB if external else WORKLOADS_BY_JOB
        return self._cluster.workloads.keys_by_index(index, job)

    def get(self, kind: type[Kind], key: str) -> Kind | None:
        """A job by `namespace/name`. Raises NotRead."""
        self.require(kind)
        return self.stores[kind].get(key) if kind in self.stores else None

    def require(self, kind: type[Kind]) -> None:
        """Raise NotRead if a job of a kind may be missing or stale in its store."""
        store = self.stores.get(kind)
        if store is not None and not store.complete:
            raise NotRead(f"{kind.PLURAL} are not read yet")
