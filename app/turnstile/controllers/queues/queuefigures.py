"""Which changes affect the figures of which queues; `controllers.queues.figures` batches the updates.

Figures are what the status of a LocalQueue, ClusterQueue or Cohort counts: Workloads, usage, shares. Must never read
the figures; `controllers.queues.statuses` decides about the queues whose figures have changed.
"""

from collections.abc import Callable, Mapping

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.controllers import wakes
from turnstile.controllers.queues.figures import ChangedFigures, Keys, Quiet
from turnstile.controllers.queues.statuses import CountedShares
from turnstile.controllers.view.clusterview import CLUSTER_QUEUES_BY_FLAVOR, ClusterView
from turnstile.controllers.view.ledgerfeed import Change
from turnstile.engine import State
from turnstile.kube.workqueue import WorkQueue


class QueueFigures:
    """Adds queues whose figures have changed to their work queues. `take` applies a change between two cycles."""

    def __init__(
        self,
        cluster: ClusterView,
        state: State,
        shares: CountedShares,
        queues: Mapping[str, WorkQueue],
        *,
        quiet: Quiet,
        take: Callable[[Change], None],
    ) -> None:
        self._world = cluster
        self._state = state
        self._shares = shares
        self._take = take
        self._local_queues = queues[LocalQueue.KIND]
        self._cluster_queues = queues[ClusterQueue.KIND]
        self._cohorts = queues[Cohort.KIND]
        self._figures = ChangedFigures(quiet, self._hand_on if shares.on else WorkQueue.add)

    async def run(self) -> None:
        """Add keys to the work queues until cancelled."""
        await self._figures.run()

    def subscribe(self) -> list[Callable[[], None]]:
        """Subscribe to the changes that affect figures. Returns the functions that end the subscriptions."""
        cluster = self._world
        return [
            cluster.workloads.subscribe(self._workload_changed),
            cluster.local_queues.subscribe(self._local_queue_changed),
            cluster.cluster_queues.subscribe(self._quota_changed),
            cluster.cohorts.subscribe(self._quota_changed),
            cluster.flavors.subscribe(self._flavor_changed),
        ]

    def shares_changed(self) -> None:
        """Report that quotas changed, which may change every share of their tree."""
        if self._shares.on:
            self._figures.many_changed(self._sharers)

    def _sharers(self) -> Keys:
        for queue, keys in (
            (self._cluster_queues, self._world.cluster_queues.keys()),
            (self._cohorts, self._world.cohorts.keys()),
        ):
            for key in keys:
                yield queue, key

    def _hand_on(self, queue: WorkQueue, key: str) -> None:
        """Compute a share between two cycles, and then have its object reconciled."""
        sharers: dict[WorkQueue, type[Kind]] = {self._cluster_queues: ClusterQueue, self._cohorts: Cohort}
        kind = sharers.get(queue)

        def count() -> None:
            if kind is not None:
                self._shares.count(kind, key)
            queue.add(key)

        self._take(count)

    def _workload_changed(self, _: str, old: Workload | None, new: Workload | None) -> None:
        for version in (old, new):
            if version is None:
                continue
            self._of_local_queue(f"{version.metadata.namespace}/{version.spec.queue_name or ''}")
            if version.status.admission is not None:
                self._of_cluster_queue(version.status.admission.cluster_queue)

    def _of_local_queue(self, key: str) -> None:
        queue = self._world.local_queues.get(key)
        if queue is None:
            return
        self._figures.changed(self._local_queues, key)
        if queue.spec.cluster_queue:
            self._of_cluster_queue(queue.spec.cluster_queue)

    def _of_cluster_queue(self, name: str) -> None:
        self._figures.changed(self._cluster_queues, name)
        if self._shares.on:
            for cohort in self._state.questions.cohorts_above(name):
                self._figures.changed(self._cohorts, cohort)

    def _local_queue_changed(self, _: str, old: LocalQueue | None, new: LocalQueue | None) -> None:
        if not wakes.spec_concerned(old, new):
            return
        for version in (old, new):
            if version is not None and version.spec.cluster_queue:
                self._figures.changed(self._cluster_queues, version.spec.cluster_queue)

    def _quota_changed(self, _: str, old: Kind | None, new: Kind | None) -> None:
        if wakes.spec_concerned(old, new):
            self.shares_changed()

    def _flavor_changed(self, name: str, _: ResourceFlavor | None, __: ResourceFlavor | None) -> None:
        for queue in self._world.cluster_queues.keys_by_index(CLUSTER_QUEUES_BY_FLAVOR, name):
            self._figures.changed(self._cluster_queues, queue)
