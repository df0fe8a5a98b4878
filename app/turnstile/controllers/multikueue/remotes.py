"""Finds one Workload, its job and the copies of both in the stores of the manager and of each worker. Never writes."""

from collections.abc import Container, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from turnstile.api import names
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers.jobs import slices
from turnstile.controllers.jobs.jobreconciler import JOBS_BY_GROUP
from turnstile.controllers.multikueue.clusters import COPIES_BY_WORKLOAD, Clusters, Connection
from turnstile.controllers.multikueue.situation import Remote, RemoteJob, counts_of, is_ours
from turnstile.controllers.view.clusterview import ClusterView, NotRead
from turnstile.controllers.view.multikueue import is_multikueue
from turnstile.controllers.view.provisioning import WORKLOADS_BY_CHECK
from turnstile.jobs.integration import Integration
from turnstile.jobs.labels import prebuilt_name
from turnstile.jobs.naming import group_in, job_key, split_job_key
from turnstile.jobs.remote import RemoteCopies, origin_uid
from turnstile.jobs.servingset import Gangs
from turnstile.kube.slices import ordered

Keys = Generator[str | None, None, None]


@dataclass(frozen=True, slots=True)
class Sent:
    """The job of a Workload as it is copied: its kind, and the objects that it consists of; none if it is gone."""

    integration: Integration[Any] | None = None
    objects: tuple[Kind, ...] = ()
    siblings: tuple[Workload, ...] = ()
    """All Workloads of a job that has several, such as the groups of a LeaderWorkerSet; they run on one cluster."""
    gangs: Gangs | None = None
    """The parts that such a job has."""

    @property
    def copies(self) -> RemoteCopies[Any] | None:
        """How jobs of the kind are copied."""
        return self.integration.copies if self.integration is not None else None

    def cluster(self, workload: Workload) -> str:
        """The cluster on which another part of the job runs; empty if none does."""
        others = (each for each in self.siblings if each.metadata.name != workload.metadata.name)
        return next((name for each in others if (name := each.status.cluster_name) and not each.finished), "")

    def sizes(self, workload: Workload, cluster: str) -> bool:
        """Whether a Workload decides about the size of the copy on a cluster: one of the groups of a set, or a slice of
        an elastic job whose place no other one has taken."""
        return self.gangs is not None or (
            names.SLICE_NAME in workload.metadata.annotations
            and not any(
                slices.replaced_by(each) == workload.metadata.key and each.status.cluster_name == cluster
                for each in self.siblings
            )
        )

    def leads(self, workload: Workload) -> bool:
        """Whether a Workload may be sent to a cluster of its own choice. In a job with several Workloads only the first
        may, and once all are there; the others follow it, as does a slice the one whose place it takes."""
        if self.gangs is None:
            before = slices.replaced_by(workload)
            return all(each.metadata.key != before for each in self.siblings)
        return len(self.siblings) >= self.gangs.count and workload.metadata.name == self.gangs.name(0)


class Remotes:
    """The Workloads that are sent away, their jobs, and the copies of both."""

    def __init__(self, cluster: ClusterView, clusters: Clusters) -> None:
        self.cluster = cluster
        self.clusters = clusters
        self.sources = clusters.sources

    def sent_for(self, workload: Workload) -> Sent:
        """The job of a Workload, if it can be copied. Raises NotRead."""
        for key in self.sources.jobs_of(workload):
            framework, name = split_job_key(key)
            integration = self.sources.known(framework)
            if integration is None or integration.copies is None:
                continue
            self.sources.require(integration.kind)
            store = self.sources.stores[integration.kind]
            if group_in(name):
                return Sent(integration, tuple(store.by_index(JOBS_BY_GROUP, key)))
            job = store.get(name)
            if job is None:
                return Sent(integration)
            own = [each for name in self.sources.workloads_of(key) if (each := self.cluster.workloads.get(name))]
            if names.SLICE_NAME in workload.metadata.annotations:
                return Sent(integration, (job,), tuple(each for each in own if not each.finished))
            gangs = integration.as_set.components(job) if integration.as_set is not None else None
            if gangs is not None and not gangs.ahead:
                continue  # each of its Workloads would be sent with a copy of the whole set
            if not integration.copies.shared or gangs is None:
                return Sent(integration, (job,))
            return Sent(integration, (job,), tuple(own), gangs)
        return Sent()

    def remote(self, connection: Connection, key: str, sent: Sent) -> Remote:
        """The objects that a cluster has for a Workload, by its watches. Only objects with the label are ours."""
        found, integration = connection.workloads.get(key), sent.integration
        remote = Remote(
            connected=connection.connected,
            lost_seconds=connection.lost_seconds,
            lacks=connection.lacks(integration.kind) if integration is not None else "",
            workload=found if self.is_ours_here(found) else None,
            shared=any(
                each.status.cluster_name == connection.name and not each.finished and each.metadata.key != key
                for each in sent.siblings
            ),
            seen=connection.seen.get(key, 0),
        )
        mine = self.cluster.workloads.get(key)
        if mine is not None and sent.objects and sent.sizes(mine, connection.name) and sent.copies and sent.copies.size:
            remote = replace(remote, size=sent.copies.size(sent.objects[0], counts_of(mine)))
        objects = {each.metadata.key: each for each in sent.objects}
        named = {key.rpartition("/")[2], *(each.metadata.name for each in sent.siblings)}
        jobs: list[RemoteJob] = []
        strays: list[RemoteJob] = []
        for copy in self._copies(connection, key, sent):
            job = objects.get(copy.metadata.key)
            (jobs if job is not None and _made_of(copy, job, named) else strays).append(copy)
        known = {each.metadata.key for each in (*jobs, *strays)}
        missing = [
            each
            for place, each in objects.items()
            if integration is not None
            and place not in known
            and not (each.metadata.deletion_timestamp or integration.finished(each))
        ]
        taken = _taken(connection, key if remote.workload is None else "", missing)
        return replace(remote, jobs=jobs, strays=strays, missing=missing, taken=taken)

    def holds(self, workload: Workload) -> bool:
        """Whether the cluster on which a Workload runs holds quota for it, as far as is known: a cluster that is not
        heard of is taken to do so until it counts as lost."""
        name, key = workload.status.cluster_name or "", workload.metadata.key
        if not name or workload.finished or self.cluster.multikueue.clusters.get(name) is None:
            return False
        connection = self.clusters.connections.get(name)
        if connection is None or not connection.connected:
            return connection is None or connection.lost_seconds < self.clusters.options.worker_lost_seconds
        found = connection.workloads.get(key)
        return Remote(workload=found if self.is_ours_here(found) else None).holds

    def released(self, workload: Workload) -> dict[str, int] | None:
        """The pods whose quota the cluster on which a Workload runs has released early, by pod set; None if it runs on
        no other cluster."""
        name = workload.status.cluster_name or ""
        if not name or self.cluster.multikueue.clusters.get(name) is None:
            return None
        connection = self.clusters.connections.get(name)
        found = connection.workloads.get(workload.metadata.key) if connection is not None else None
        ours = found if found is not None and self.is_ours_here(found) else None
        return {each.name: each.count for each in ours.status.reclaimable_pods} if ours is not None else {}

    def _copies(self, connection: Connection, key: str, sent: Sent) -> Iterator[RemoteJob]:
        """The copies on a cluster that were made for a Workload, or of an object of its job."""
        kinds = self.clusters.kinds if sent.integration is None else (sent.integration.kind,)
        seen: set[str] = set()
        for kind in kinds:
            jobs = connection.jobs(kind)
            if jobs is None:
                continue
            named = jobs.by_index(COPIES_BY_WORKLOAD, key)
            of_objects = (jobs.get(each.metadata.key) for each in sent.objects)
            for copy in (*named, *filter(None, of_objects)):
                if copy.metadata.uid in seen or not self.is_ours_here(copy):
                    continue
                if sent.integration is None and self._is_wanted(kind, copy):
                    continue
                seen.add(copy.metadata.uid)
                yield copy

    def _is_wanted(self, kind: type[Kind], copy: RemoteJob) -> bool:
        """Whether a copy that names no Workload is of a job that has Workloads, or that is not read."""
        if prebuilt_name(copy):
            return False
        try:
            mine = self.sources.get(kind, copy.metadata.key)
        except NotRead:
            return True
        return mine is not None and _made_of(copy, mine) and self._has_workloads(mine)

    def _has_workloads(self, job: Kind) -> bool:
        return bool(self.sources.workloads_of(self.sources.key_of(job)))

    def keys_of(self, kind: type[Kind], copy: RemoteJob) -> Iterable[str]:
        """The Workloads for which a copy was made; the copy's own key if it names none, and no job has any."""
        meta = copy.metadata
        if name := prebuilt_name(copy):
            return (f"{meta.namespace}/{name}",)
        framework = self.sources.of(kind).framework
        return self.sources.workloads_of(job_key(framework, meta.namespace, meta.name)) or (meta.key,)

    def parts_of(self, workload: Workload) -> Keys | None:
        """The Workloads of a job that has several, if this is one of them."""
        if not {names.COMPONENT_WORKLOAD_INDEX, names.SLICE_NAME}.intersection(workload.metadata.annotations):
            return None

        def parts() -> Keys:
            for key in self.sources.jobs_of(workload):
                yield from self.sources.workloads_of(key)

        return parts()

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


def _taken(connection: Connection, workload: str, missing: Iterable[Kind]) -> str:
    """Which object of a cluster's own has the name of a Workload, given by its key, or of an object of its job that the
    cluster is to have; empty if none has."""
    wanted: list[tuple[type[Kind], str]] = [(Workload, workload)] if workload else []
    wanted += [(type(each), each.metadata.key) for each in missing]
    found = next((each for each in wanted if connection.is_taken(*each)), None)
    if found is None:
        return ""
    kind, key = found
    return f'cluster {connection.name} has another {kind.KIND} "{key.rpartition("/")[2]}"'


def _made_of(copy: RemoteJob, mine: Kind, named: Container[str] = ()) -> bool:
    """Whether a copy is of this very object, not of an earlier one of its name. Copies that Kueue made do not say, but
    name one of the Workloads `named`, to which the worker holds them. A job of the worker with the label alone is no
    copy."""
    if (origin := origin_uid(copy)) != copy.metadata.uid:
        return origin == mine.metadata.uid
    return prebuilt_name(copy) in named
