"""Runs MultiKueue while this process leads: its controllers on the manager, and the connections to workers."""

import asyncio
from collections.abc import Callable, Generator

from turnstile.controllers.multikueue import checks, workloads
from turnstile.controllers.multikueue.clusters import Clusters
from turnstile.controllers.multikueue.workloads import Dispatching
from turnstile.controllers.runtime.controller import Controller, Target
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs.options import MultiKueueOptions
from turnstile.kube.slices import in_slices


class MultiKueueTerm:
    """One term. `controllers` are to be run by the leader; `run` holds the connections."""

    def __init__(self, cluster: ClusterView, executor: Executor, options: MultiKueueOptions) -> None:
        self._clusters = Clusters(cluster, executor, options, controller=lambda each: self._work.on(each))
        self._work = Dispatching(cluster, self._clusters)
        self.controllers: list[Controller] = [
            *checks.controllers(cluster, self._clusters),
            workloads.controller(self._work),
        ]

    async def run(self, requeue: Callable[[Target], None]) -> None:
        """Hold the connections until cancelled; `requeue` has a key of one of the controllers reconciled."""
        stood = asyncio.Event()

        def stands(name: str) -> None:
            requeue((checks.CLUSTER_CONTROLLER, name))
            connection = self._clusters.connections.get(name)
            if connection is not None and connection.connected and connection.runner is not None:
                connection.runner.reconcile_all()  # what was decided while the cluster was away
            stood.set()

        def everything() -> Generator[None, None, None]:
            for key in self._work.sent():
                if key is not None:
                    requeue((workloads.CONTROLLER, key))
                yield

        self._clusters.changed = lambda key: requeue((workloads.CONTROLLER, key))
        self._clusters.stands = stands
        async with asyncio.TaskGroup() as group:
            group.create_task(self._clusters.run(), name="worker clusters")
            while True:
                await stood.wait()
                stood.clear()
                await in_slices(everything())
