"""Runs MultiKueue while this process leads: its controllers on the manager, and the connections to workers."""

import asyncio
from collections.abc import Callable, Generator

from turnstile.api.workload import Workload
from turnstile.controllers.multikueue import checks, quotas, workloads
from turnstile.controllers.multikueue.clusters import Clusters
from turnstile.controllers.multikueue.orders import Ordering
from turnstile.controllers.multikueue.remotes import Remotes
from turnstile.controllers.multikueue.workloads import Dispatching
from turnstile.controllers.runtime.controller import Controller, Target
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs.options import MultiKueueOptions
from turnstile.kube.slices import in_slices


class MultiKueueTerm:
    """One term. `controllers` are to be run by the leader; `run` holds the connections. `sent` is called with each
    Workload that is created on a cluster, and with the name of the cluster."""

    def __init__(
        self,
        cluster: ClusterView,
        executor: Executor,
        options: MultiKueueOptions,
        sent: Callable[[Workload, str], None],
    ) -> None:
        self._clusters = Clusters(cluster, executor, options, controller=lambda each: self._orders.on(each))
        self._remotes = Remotes(cluster, self._clusters)
        cluster.multikueue.elsewhere.holds = self._remotes.holds
        cluster.multikueue.elsewhere.released = self._remotes.released
        self._orders = Ordering(self._remotes, sent)
        self.controllers: list[Controller] = [
            *checks.controllers(cluster, self._clusters),
            workloads.controller(Dispatching(self._remotes)),
            *([quotas.controller(cluster, self._clusters)] if options.automated_quotas else []),
        ]
        self._options = options

    async def run(self, requeue: Callable[[Target], None]) -> None:
        """Hold the connections until cancelled; `requeue` has a key of one of the controllers reconciled."""
        stood = asyncio.Event()

        def stands(name: str) -> None:
            requeue((checks.CLUSTER_CONTROLLER, name))
            connection = self._clusters.connections.get(name)
            if connection is not None and connection.connected and connection.runner is not None:
                connection.runner.reconcile_all()  # what was decided while the cluster was away
            queues_changed(name)
            stood.set()

        def queues_changed(name: str) -> None:
            if self._options.automated_quotas:
                for queue in quotas.concerned(name, self._clusters.cluster):
                    requeue((quotas.CONTROLLER, queue))

        def everything() -> Generator[None, None, None]:
            for key in self._remotes.sent():
                if key is not None:
                    requeue((workloads.CONTROLLER, key))
                yield

        self._clusters.changed = lambda key: requeue((workloads.CONTROLLER, key))
        self._clusters.stands = stands
        self._clusters.queues_changed = queues_changed
        async with asyncio.TaskGroup() as group:
            group.create_task(self._clusters.run(), name="worker clusters")
            while True:
                await stood.wait()
                stood.clear()
                await in_slices(everything())
