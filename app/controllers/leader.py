"""What the leader runs: the reconcilers behind their work queues, and the scheduler.

Everything starts from the stores as they are when leadership begins, and then follows their changes. When leadership
ends nothing is left behind but what the API server has; the next leader starts from that.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from app.api import names
from app.api.admissioncheck import AdmissionCheck
from app.api.clusterqueue import ClusterQueue
from app.api.cohort import Cohort
from app.api.core import Job, Namespace, PriorityClass
from app.api.localqueue import LocalQueue
from app.api.meta import Kind
from app.api.resourceflavor import ResourceFlavor
from app.api.topology import Topology
from app.api.workload import Workload
from app.api.workloadpriorityclass import WorkloadPriorityClass
from app.controllers import inuse, jobs, queues, wakes, workload, workloadpriorityclass
from app.controllers.actions import Decision
from app.controllers.executor import Executor
from app.controllers.figures import ChangedFigures, Keys
from app.controllers.jobs import WORKLOADS_BY_JOB
from app.controllers.ledger import LedgerBooks, follow
from app.controllers.metrics import WorkloadMetrics
from app.controllers.scheduler import Scheduler
from app.controllers.world import (
    CLUSTER_QUEUES_BY_CHECK,
    CLUSTER_QUEUES_BY_FLAVOR,
    LOCAL_QUEUES_BY_CLUSTER_QUEUE,
    WORKLOADS_BY_CLUSTER_QUEUE,
    WORKLOADS_BY_QUEUE,
    World,
)
from app.engine import State
from app.kube.slices import Slice, ordered
from app.kube.store import Store
from app.kube.workqueue import WorkQueue, run_workers


@dataclass(frozen=True, slots=True)
class _Reconciler:
    """One kind's queue of keys, what is decided about a key, and how many are decided side by side."""

    kind: type[Kind]
    decide: Callable[[str], Decision]
    workers: int
    queue: WorkQueue


class Leader:
    """The reconcilers of one term of leadership."""

    def __init__(self, world: World, executor: Executor, state: State, metrics: WorkloadMetrics) -> None:
        self.world = world
        self.executor = executor
        self.state = state
        self.metrics = metrics
        self.scheduler = Scheduler(state, world, executor, decided=metrics.decided)
        books = self._books = LedgerBooks(state)
        self.figures = ChangedFigures(executor.quiet, self._hand_on if books.fair_sharing else WorkQueue.add)
        self._reconcilers: list[_Reconciler] = []
        self._to_add: deque[Iterator[None]] = deque()
        self._more_to_add = asyncio.Event()
        self.jobs = self._reconciler(Job, lambda key: jobs.decide(key, world), workers=32)
        self.workloads = self._reconciler(Workload, lambda key: workload.decide(key, world), workers=8)
        self.cluster_queues = self._reconciler(
            ClusterQueue, lambda key: queues.decide_cluster_queue(key, world, books), workers=2
        )
        self.local_queues = self._reconciler(
            LocalQueue, lambda key: queues.decide_local_queue(key, world, books), workers=2
        )
        self.cohorts = self._reconciler(Cohort, lambda key: queues.decide_cohort(key, world, books), workers=1)
        self.flavors = self._reconciler(ResourceFlavor, lambda key: inuse.decide_flavor(key, world), workers=1)
        self.checks = self._reconciler(AdmissionCheck, lambda key: inuse.decide_check(key, world), workers=1)
        self.topologies = self._reconciler(Topology, lambda key: inuse.decide_topology(key, world), workers=1)
        self.priority_classes = self._reconciler(
            WorkloadPriorityClass, lambda key: workloadpriorityclass.decide(key, world), workers=1
        )

    def _reconciler(self, kind: type[Kind], decide: Callable[[str], Decision], *, workers: int) -> WorkQueue:
        queue = WorkQueue()
        self._reconcilers.append(_Reconciler(kind, decide, workers, queue))
        return queue

    async def run(self) -> None:
        """Reconcile and schedule until cancelled."""
        with self._following():
            async with asyncio.TaskGroup() as group:
                group.create_task(self.scheduler.run(), name="scheduler")
                await self.scheduler.caught_up()  # figures are written from a ledger that knows everything
                self.look_at_everything()
                group.create_task(self._add(), name="keys to look at")
                group.create_task(self.figures.run(), name="figures of queues")
                for reconciler in self._reconcilers:
                    group.create_task(self._work(reconciler), name=f"{reconciler.kind.KIND} reconciler")

    async def _work(self, reconciler: _Reconciler) -> None:
        kind, queue = reconciler.kind, reconciler.queue

        async def handle(key: str) -> None:
            await self.executor.carry_out(kind, key, reconciler.decide(key), queue)

        await run_workers(
            queue,
            handle,
            workers=reconciler.workers,
            on_error=lambda key, error: self.executor.report(kind, key, error),
        )

    @contextmanager
    def _following(self) -> Iterator[None]:
        """Subscribed to the stores for as long as this lasts. The ledger hears of a change before the reconcilers."""
        world = self.world
        undo = [
            *follow(self.state, world, take=self.scheduler.take, begin=self.scheduler.begin),
            world.workloads.subscribe(self._workload_changed),
            world.cluster_queues.subscribe(self._cluster_queue_changed),
            world.local_queues.subscribe(self._local_queue_changed),
            world.cohorts.subscribe(self._cohort_changed),
            world.flavors.subscribe(self._flavor_changed),
            world.admission_checks.subscribe(self._check_changed),
            world.topologies.subscribe(lambda key, old, new: self.topologies.add(key)),
            world.namespaces.subscribe(self._namespace_changed),
            world.workload_priority_classes.subscribe(self._workload_priority_class_changed),
            world.priority_classes.subscribe(self._priority_class_changed),
            *(store.subscribe(self._job_changed) for store in world.jobs.values()),
            *(store.on_complete(lambda: self._later(self._every_job())) for store in world.jobs.values()),
        ]
        try:
            yield
        finally:
            for unsubscribe in undo:
                unsubscribe()

    def look_at_everything(self) -> None:
        """Decide about each object again, as at the start of a term."""
        self._later(self._everything())
        self._shares_changed()
        self.scheduler.wake()

    def _later(self, keys: Iterator[None]) -> None:
        """Add keys that may be many, in slices: as many as there are steps."""
        self._to_add.append(keys)
        self._more_to_add.set()

    async def _add(self) -> None:
        while True:
            await self._more_to_add.wait()
            self._more_to_add.clear()
            turn = Slice()
            while self._to_add:
                for _ in self._to_add.popleft():
                    if turn.over:
                        await turn.rest()

    def _everything(self) -> Iterator[None]:
        world = self.world
        stores: tuple[tuple[WorkQueue, Store[Any]], ...] = (
            (self.workloads, world.workloads),
            (self.cluster_queues, world.cluster_queues),
            (self.local_queues, world.local_queues),
            (self.cohorts, world.cohorts),
            (self.flavors, world.flavors),
            (self.checks, world.admission_checks),
            (self.topologies, world.topologies),
            (self.priority_classes, world.workload_priority_classes),
        )
        for queue, seen in stores:
            for key in (yield from ordered(seen.keys())):
                queue.add(key)
                yield
        yield from self._every_job()

    def _every_job(self) -> Iterator[None]:
        """Also those that were deleted while nobody led, or while their kind was not read."""
        world = self.world
        yield from self._jobs_where(lambda job: True)
        for key in (yield from ordered(world.workloads.keys())):
            held = world.workloads.get(key)
            for owner in world.registry.jobs_of(held) if held is not None else ():
                self.jobs.add(owner)
            yield

    # --- what a change makes us look at ---------------------------------------------------------------------------

    def _job_changed(self, key: str, old: Kind | None, new: Kind | None) -> None:
        job = new or old
        if job is None:
            return
        integration = self.world.registry.of(job)
        if wakes.job_concerned(old, new, integration=integration, options=self.world.options):
            for version in (old, new):  # an object may leave a group, or join one
                if version is not None:
                    self.jobs.add(self.world.registry.key_of(version))

    def _workload_changed(self, key: str, old: Workload | None, new: Workload | None) -> None:
        if wakes.workload_concerned(old, new):
            self.workloads.add(key)
        self.metrics.changed(old, new, self.world.now)
        latest = new or old
        if latest is not None and wakes.owner_concerned(old, new):
            for job in self.world.registry.jobs_of(latest):
                self.jobs.add(job)
            if new is None:
                for group in self.world.registry.groups_named(latest):
                    self.jobs.add(group)  # whatever it was made for, its name is free now
        for version in (old, new):
            if version is None:
                continue
            self._figures_of(f"{version.metadata.namespace}/{version.spec.queue_name or ''}")
            if version.status.admission is not None:
                self._figures_of_cluster_queue(version.status.admission.cluster_queue)

    def _figures_of(self, local_queue: str) -> None:
        queue = self.world.local_queues.get(local_queue)
        if queue is None:
            return
        self.figures.changed(self.local_queues, local_queue)
        if queue.spec.cluster_queue:
            self._figures_of_cluster_queue(queue.spec.cluster_queue)

    def _figures_of_cluster_queue(self, name: str) -> None:
        self.figures.changed(self.cluster_queues, name)
        if self._books.fair_sharing:
            for cohort in self.state.cohorts_above(name):
                self.figures.changed(self.cohorts, cohort)

    def _hand_on(self, queue: WorkQueue, key: str) -> None:
        """Have a share counted between two cycles, and then the object decided about."""
        sharers: dict[WorkQueue, type[Kind]] = {self.cluster_queues: ClusterQueue, self.cohorts: Cohort}
        kind = sharers.get(queue)

        def count() -> None:
            if kind is not None:
                self._books.count_share(kind, key)
            queue.add(key)

        self.scheduler.take(count)

    def _shares_changed(self) -> None:
        """Quotas changed: so did, maybe, every share of their tree."""
        if self._books.fair_sharing:
            self.figures.many_changed(self._sharers)

    def _sharers(self) -> Keys:
        for queue, keys in (
            (self.cluster_queues, self.world.cluster_queues.keys()),
            (self.cohorts, self.world.cohorts.keys()),
        ):
            for key in keys:
                yield queue, key

    def _cluster_queue_changed(self, key: str, old: ClusterQueue | None, new: ClusterQueue | None) -> None:
        self.cluster_queues.add(key)
        if new is None:
            self.metrics.forget(key)
        if old is not None and new is not None and _same_spec(old, new):
            if [c.status for c in old.status.conditions] != [c.status for c in new.status.conditions]:
                self._later(self._members(key))
            return
        self._shares_changed()
        self._later(self._members(key))
        for version in (old, new):
            if version is None:
                continue
            for group in version.spec.resource_groups:
                for flavor in group.flavors:
                    self.flavors.add(flavor.name)
            strategy = version.spec.admission_checks_strategy
            for check in strategy.admission_checks if strategy is not None else ():
                self.checks.add(check.name)

    def _cohort_changed(self, key: str, old: Cohort | None, new: Cohort | None) -> None:
        """Another parent may close a cycle of cohorts, which admit nothing then, or open one.

        The ledger may keep the change until its cycle is over; it tells what it thinks of the queues after that.
        """
        self.cohorts.add(key)
        if old is None or new is None or not _same_spec(old, new):
            self._shares_changed()
        if _parent_of(old) != _parent_of(new):
            self.scheduler.take(lambda: self._later(self._in_cohorts()))

    def _in_cohorts(self) -> Iterator[None]:
        for queue in self.world.cluster_queues.values(ordered=True):
            if queue.spec.cohort_name:
                self.cluster_queues.add(queue.metadata.name)
            yield

    def _members(self, cluster_queue: str) -> Iterator[None]:
        """All that a ClusterQueue's spec or activity decides about."""
        world = self.world
        for local_queue in world.local_queues.keys_by_index(LOCAL_QUEUES_BY_CLUSTER_QUEUE, cluster_queue):
            self.local_queues.add(local_queue)
            yield
            yield from self._in_line(local_queue)
        held = world.workloads.keys_by_index(WORKLOADS_BY_CLUSTER_QUEUE, cluster_queue, ordered=False)
        for key in (yield from ordered(held)):
            self.workloads.add(key)
            yield

    def _local_queue_changed(self, key: str, old: LocalQueue | None, new: LocalQueue | None) -> None:
        self.local_queues.add(key)
        if new is None:
            self.metrics.forget_local_queue(key)
        if old is not None and new is not None and _same_spec(old, new):
            return
        for version in (old, new):
            if version is not None and version.spec.cluster_queue:
                self.figures.changed(self.cluster_queues, version.spec.cluster_queue)
        self._later(self._in_line(key))

    def _in_line(self, local_queue: str) -> Iterator[None]:
        waiting = self.world.workloads.keys_by_index(WORKLOADS_BY_QUEUE, local_queue, ordered=False)
        for key in (yield from ordered(waiting)):
            self.workloads.add(key)
            yield

    def _workload_priority_class_changed(
        self, key: str, old: WorkloadPriorityClass | None, new: WorkloadPriorityClass | None
    ) -> None:
        """Workloads of the class follow its value; jobs that name it may have waited for it."""
        self.priority_classes.add(key)
        if old is None:
            self._later(self._jobs_where(lambda job: job.metadata.labels.get(names.PRIORITY_CLASS_LABEL) == key))

    def _priority_class_changed(self, key: str, old: PriorityClass | None, new: PriorityClass | None) -> None:
        """Jobs whose pods name a class that is not there have no Workload."""
        if old is None:
            workloads = self.world.workloads
            self._later(
                self._jobs_where(
                    lambda job: not workloads.keys_by_index(WORKLOADS_BY_JOB, self.world.registry.key_of(job))
                )
            )

    def _jobs_where(self, concerned: Callable[[Kind], bool]) -> Iterator[None]:
        for store in self.world.jobs.values():
            for key in (yield from ordered(store.keys())):
                job = store.get(key)
                if job is not None and concerned(job):
                    self.jobs.add(self.world.registry.key_of(job))
                yield

    def _namespace_changed(self, key: str, old: Namespace | None, new: Namespace | None) -> None:
        """A namespace that was relabelled may be managed from now on, or no longer, or be let into other queues.

        One that is new to us may have been awaited: what is in it may be seen before itself.
        """
        if new is None or (old is not None and old.metadata.labels == new.metadata.labels):
            return
        self._later(self._in_namespace(key))

    def _in_namespace(self, namespace: str) -> Iterator[None]:
        yield from self._jobs_where(lambda job: job.metadata.namespace == namespace)
        keys, inside = self.world.workloads.keys(), []
        for key in keys:
            if key.startswith(f"{namespace}/"):
                inside.append(key)
            yield
        for key in (yield from ordered(inside)):
            self.workloads.add(key)
            yield

    def _flavor_changed(self, key: str, old: ResourceFlavor | None, new: ResourceFlavor | None) -> None:
        self.flavors.add(key)
        for version in (old, new):
            if version is not None and version.spec.topology_name:
                self.topologies.add(version.spec.topology_name)
        for name in self.world.cluster_queues.keys_by_index(CLUSTER_QUEUES_BY_FLAVOR, key):
            self.figures.changed(self.cluster_queues, name)

    def _check_changed(self, key: str, old: AdmissionCheck | None, new: AdmissionCheck | None) -> None:
        """A ClusterQueue admits only while somebody answers each of its checks."""
        self.checks.add(key)
        for name in self.world.cluster_queues.keys_by_index(CLUSTER_QUEUES_BY_CHECK, key):
            self.cluster_queues.add(name)


def _parent_of(cohort: Cohort | None) -> str:
    return (cohort.spec.parent_name or "") if cohort is not None else ""


def _same_spec(old: Kind, new: Kind) -> bool:
    """The generation grows with every change of a spec; a deletion changes the metadata only."""
    return (old.metadata.generation, old.metadata.deletion_timestamp) == (
        new.metadata.generation,
        new.metadata.deletion_timestamp,
    )
