"""Runs the leader's parts: the ledger that follows the stores, the scheduler, the controllers, and the audits.

All of them start from the stores as they are when leadership begins, and then follow their changes. The next leader
starts from what the API server has, so a leader must never hold other state that the next leader needs.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Pod
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.controllers import podrecovery
from turnstile.controllers.audit import INTERVAL_SECONDS, Auditor
from turnstile.controllers.checks import workloads as provisioning
from turnstile.controllers.jobs import frameworks
from turnstile.controllers.metrics.counters import WorkloadMetrics
from turnstile.controllers.metrics.queues import QueueMetrics
from turnstile.controllers.metrics.tallies import Tallies
from turnstile.controllers.multikueue.term import MultiKueueTerm
from turnstile.controllers.queues import defaultqueues, inuse, statuses
from turnstile.controllers.queues.queuefigures import QueueFigures
from turnstile.controllers.runtime.controller import Controller
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.runtime.runner import Runner
from turnstile.controllers.scheduling.scheduler import Scheduler
from turnstile.controllers.topology import failures, ungater
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.ledgerfeed import follow
from turnstile.controllers.workloads import variants, workload, workloadpriorityclass
from turnstile.engine import Decision, State


def _of_topologies(cluster: ClusterView) -> Iterator[Controller]:
    """The controllers of pods that have places in a topology."""
    if cluster.options.topologies:
        yield ungater.controller(cluster)
        if cluster.options.node_failures.replace:
            yield failures.controller(cluster)


class Leader:
    """One term of leadership."""

    def __init__(
        self,
        cluster: ClusterView,
        executor: Executor,
        state: State,
        metrics: WorkloadMetrics,
        *,
        tallies: Tallies | None = None,
        audit_interval: float = INTERVAL_SECONDS,
        tried: Callable[[Decision], None] = lambda _: None,
    ) -> None:
        self.cluster = cluster
        cluster.counting = state.surroundings
        self.executor = executor
        self.state = state
        self.metrics = metrics
        self.scheduler = Scheduler(state, cluster, executor, decided=metrics.decided, tried=tried)
        shares = statuses.CountedShares(state)
        self.queue_metrics = QueueMetrics(
            cluster, state, shares, tallies or Tallies(cluster.workloads), metrics.options
        )
        options = cluster.options.multikueue
        self.multikueue = MultiKueueTerm(cluster, executor, options, metrics.sent) if options is not None else None
        self.runner = Runner(
            executor,
            [
                workload.controller(cluster),
                *([variants.controller(cluster)] if cluster.options.concurrent_admission else []),
                *statuses.controllers(cluster, state, shares),
                *inuse.controllers(cluster),
                workloadpriorityclass.controller(cluster),
                defaultqueues.controller(cluster),
                *_of_topologies(cluster),
                *([podrecovery.controller(cluster)] if cluster.options.failure_recovery else []),
                *provisioning.controllers(cluster),
                *(self.multikueue.controllers if self.multikueue is not None else ()),
                *frameworks.controllers(cluster),
            ],
            [frameworks.dispatch(cluster), provisioning.dispatch(cluster), failures.dispatch(cluster)],
            ledger_has=self.scheduler.take,
        )
        self.figures = QueueFigures(
            cluster, state, shares, self.runner.queues, quiet=executor.gate.quiet, take=self.scheduler.take
        )

        self.auditor = Auditor(
            cluster, state.options, emit=executor.emit, requeue=self.runner.requeue, interval=audit_interval
        )

    async def run(self) -> None:
        """Reconcile and schedule until cancelled."""
        with self._following(), self.runner.subscribed():
            async with asyncio.TaskGroup() as group:
                group.create_task(self.scheduler.run(), name="scheduler")
                await self.scheduler.caught_up()  # figures are written from a complete ledger only
                self.reconcile_all()
                group.create_task(self.figures.run(), name="figures of queues")
                group.create_task(self.runner.work(), name="controllers")
                group.create_task(self.auditor.run(), name="audits")
                if self.multikueue is not None:
                    group.create_task(self.multikueue.run(self.runner.requeue), name="worker clusters")

    def reconcile_all(self) -> None:
        """Decide about each object again, as at the start of a term."""
        self.runner.reconcile_all()
        self.figures.shares_changed()
        self.scheduler.wake()

    @contextmanager
    def _following(self) -> Iterator[None]:
        """Subscribe the ledger to the stores, before the controllers, so that the ledger gets each change first."""
        cluster = self.cluster
        self.metrics.begin(cluster, self.state)
        undo = [
            *follow(
                self.state,
                cluster,
                take=self.scheduler.take,
                edit=self.scheduler.take_edit,
                begin=self.scheduler.begin,
                later=self.scheduler.take_later,
            ),
            *self.figures.subscribe(),
            cluster.workloads.subscribe(self._count),
            cluster.pods.subscribe(self._count_pod),
            cluster.cluster_queues.subscribe(self._forget_cluster_queue),
            cluster.cluster_queues.subscribe(self._tree_changed),
            cluster.cohorts.subscribe(self._tree_changed),
            cluster.local_queues.subscribe(self._forget_local_queue),
            cluster.workload_priority_classes.subscribe(self._forget_priority_class),
            cluster.priority_classes.subscribe(self._forget_priority_class),
        ]
        try:
            yield
        finally:
            for unsubscribe in undo:
                unsubscribe()
            self.metrics.end()

    # --- metrics ------------------------------------------------------------------------------------------------------

    def _count(self, _: str, old: Workload | None, new: Workload | None) -> None:
        self.metrics.changed(old, new, self.cluster.now)

    def _count_pod(self, _: str, old: Pod | None, new: Pod | None) -> None:
        self.metrics.pod_changed(old, new, self.cluster.now)

    def _forget_cluster_queue(self, name: str, _: ClusterQueue | None, new: ClusterQueue | None) -> None:
        if new is None:
            self.metrics.forget(name)

    def _tree_changed(self, _: str, old: ClusterQueue | Cohort | None, new: ClusterQueue | Cohort | None) -> None:
        self.metrics.tree_changed(old, new, take=self.scheduler.take)

    def _forget_local_queue(self, key: str, _: LocalQueue | None, new: LocalQueue | None) -> None:
        if new is None:
            self.metrics.forget_local_queue(key)

    def _forget_priority_class(self, name: str, _: Kind | None, new: Kind | None) -> None:
        if new is None:
            self.metrics.forget_priority_class(name)
