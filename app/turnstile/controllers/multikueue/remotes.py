"""Finds one Workload, its job and the copies of both in the stores of the manager and of each worker. Never writes."""

from collections.abc import Generator
from typing import Any

from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.multikueue.clusters import Clusters, Connection
from turnstile.controllers.multikueue.situation import Remote, is_ours
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.multikueue import is_multikueue
from turnstile.controllers.view.provisioning import WORKLOADS_BY_CHECK
from turnstile.jobs.integration import Integration
from turnstile.jobs.naming import split_job_key
from turnstile.kube.slices import ordered

Keys = Generator[str | None, None, None]


class Remotes:
    """The Workloads that are sent away, their jobs, and the copies of both."""

    def __init__(self, cluster: ClusterView, clusters: Clusters) -> None:
        self.cluster = cluster
        self.clusters = clusters

    def job_of(self, workload: Workload) -> tuple[Integration[Any] | None, Kind | None]:
        """The job of a Workload, if it can be copied. Raises NotRead."""
        for each in self.cluster.registry.jobs_of(workload):
            framework, key = split_job_key(each)
            integration = self.cluster.registry.known.get(framework)
            if integration is not None and integration.copies is not None:
                return integration, self.cluster.find_job(integration.kind, key)
        return None, None

    def remote(
        self, connection: Connection, key: str, integration: Integration[Any] | None, job: Kind | None
    ) -> Remote:
        """The objects that a cluster has for a Workload, by its watches. Only objects with the label are ours."""
        found = connection.workloads.get(key)
        jobs = connection.jobs(integration.kind) if integration is not None else None
        copy = jobs.get(job.metadata.key) if jobs is not None and job is not None else None
        return Remote(
            connected=connection.connected,
            lost_seconds=connection.lost_seconds,
            lacks=connection.lacks(integration.kind) if integration is not None else "",
            workload=found if self.is_ours_here(found) else None,
            job=copy if self.is_ours_here(copy) else None,
            seen=connection.seen.get(key, 0),
        )

    def is_ours_here(self, found: Kind | None) -> bool:
        """Whether an object on a worker has the label of this manager."""
        return is_ours(found, self.clusters.options.origin)

    def sent(self) -> Keys:
        """All Workloads that are sent to other clusters."""
        for name in list(self.cluster.admission_checks.keys()):
            if is_multikueue(self.cluster.admission_checks.get(name)):
                yield from (
                    yield from ordered(self.cluster.workloads.keys_by_index(WORKLOADS_BY_CHECK, name, ordered=False))
                )
