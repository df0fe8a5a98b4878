"""A scheduler on a real API server whose writes go through a proxy, and hands to play the others."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from testbed import ControlPlane
from testbed.patience import Patience
from tests.cluster.desk import Notes
from tests.faults.proxy import Proxy, Request
from tests.waiting import until
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Namespace
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.scheduling.scheduler import Scheduler
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.controllers.view.ledgerfeed import follow
from turnstile.engine import State
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube import auth
from turnstile.kube.fence import Fence, monotonic
from turnstile.kube.reflector import Reflector
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport

KINDS: tuple[type[Kind], ...] = (ClusterQueue, LocalQueue, Namespace, ResourceFlavor, Workload)


class Desk:
    """A scheduler on a real API server whose own requests go through a proxy; others come straight."""

    def __init__(self, proxy: Proxy, direct: Transport, namespace: str) -> None:
        self.proxy = proxy
        self.direct = direct
        self.namespace = namespace
        self.notes = Notes()
        self.scheduler: Scheduler

    async def create(self, kind: type[Kind], name: str, spec: dict[str, Any]) -> None:
        """Somebody makes an object; cluster-scoped ones get the namespace as their name."""
        body = {
            "apiVersion": f"{kind.GROUP}/{kind.VERSION}",
            "kind": kind.KIND,
            "metadata": {"name": name},
            "spec": spec,
        }
        await self.direct.create(kind, self.namespace if kind.NAMESPACED else "", body)

    async def quota(self, cpu: int) -> None:
        """One queue of one flavor, both named like the namespace."""
        name = self.namespace
        await self.create(ResourceFlavor, name, {})
        preemption = {"withinClusterQueue": "LowerPriority"}
        spec = {"namespaceSelector": {}, "resourceGroups": self._groups(cpu), "preemption": preemption}
        await self.create(ClusterQueue, name, spec)
        await self.create(LocalQueue, "team", {"clusterQueue": name})

    async def edit_quota(self, cpu: int) -> None:
        """From now on that queue has so much."""
        await self.direct.patch(ClusterQueue, self.namespace, "", {"spec": {"resourceGroups": self._groups(cpu)}})

    def _groups(self, cpu: int) -> list[dict[str, Any]]:
        flavors = [{"name": self.namespace, "resources": [{"name": "cpu", "nominalQuota": cpu}]}]
        return [{"coveredResources": ["cpu"], "flavors": flavors}]

    async def workload(self, name: str, *, pods: int = 1, cpu: str = "1", priority: int = 0) -> None:
        """Somebody's Workload of so many pods of one cpu."""
        await self.create(
            Workload, name, {"queueName": "team", "podSets": pod_sets(pods, cpu=cpu), "priority": priority}
        )

    async def see(self, name: str) -> Workload:
        """The Workload as the server has it."""
        return await self.direct.get(Workload, name, self.namespace)

    def patches(self, name: str) -> Callable[[Request], bool]:
        """Which requests write the status of that Workload."""
        path = f"{Workload.path(name, self.namespace)}/status"
        return lambda request: request.method == "PATCH" and request.path == path

    def sent(self, name: str) -> int:
        """How many such requests came by."""
        return sum(map(self.patches(name), self.proxy.requests))

    async def eventually(self, name: str, holds: Callable[[Workload], bool]) -> Workload:
        """Wait until that holds of the Workload."""
        patience = Patience(10)
        while not holds(seen := await self.see(name)):
            assert not patience.over, f"after {patience.waited:.3g} s {name} is {seen}"
            await asyncio.sleep(0.02)
        return seen

    async def asked(self, name: str, *, times: int = 1) -> None:
        """Wait until so many writes of that Workload's status have reached the proxy."""
        await until(lambda: self.sent(name) >= times, seconds=10, what=f"fewer than {times} writes of {name} were sent")


def pod_sets(pods: int, *, cpu: str = "1") -> list[dict[str, Any]]:
    """One pod set."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return [{"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}}]


def cpus(workload: Workload) -> str:
    """What the Workload holds."""
    assert workload.status.admission is not None
    return str(workload.status.admission.pod_set_assignments[0].resource_usage["cpu"])


@asynccontextmanager
async def racing(control_plane: ControlPlane) -> AsyncIterator[Desk]:
    """A scheduler that runs, and quota for three cpus."""
    kubeconfig = str(control_plane.kubeconfig())
    namespace = control_plane.namespace("races")
    async with (
        Proxy(await auth.connect(kubeconfig)) as proxy,
        Transport(proxy.access, timeout=1.0) as through,  # no call takes longer than a second
        await Transport.connect(kubeconfig) as direct,
    ):
        made = Desk(proxy, direct, namespace)
        await made.quota(3)
        async with _scheduling(through, direct, made.notes) as made.scheduler:
            yield made
        # Nothing else deletes the objects of a namespace here: the schedulers of later tests would see them too.
        await direct.request("DELETE", Workload.collection_path(namespace))
        for kind in (ClusterQueue, ResourceFlavor):
            await direct.delete(kind, namespace)
    control_plane.api.delete(f"/api/v1/namespaces/{namespace}")


@asynccontextmanager
async def _scheduling(through: Transport, direct: Transport, notes: Notes) -> AsyncIterator[Scheduler]:
    """Watches go straight to the server, writes through the proxy."""
    stores: dict[type[Kind], Store[Any]] = {kind: Store() for kind in KINDS}
    world = _world(stores)
    state = State()
    scheduler = Scheduler(
        state,
        world,
        Executor(through, stores, notes, fence=Fence(clock=monotonic, epoch=1, renewed_at=monotonic(), span=3600.0)),
    )
    reflectors = [Reflector(direct, stores[kind], kind) for kind in KINDS]
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    for reflector in reflectors:
        await reflector.synced.wait()
    undo = follow(state, world, take=scheduler.take)
    running = asyncio.create_task(scheduler.run())
    try:
        yield scheduler
        assert not running.done(), running.exception()
    finally:
        for unsubscribe in undo:
            unsubscribe()
        for task in (running, *tasks):
            task.cancel()
        await asyncio.gather(running, *tasks, return_exceptions=True)


def _world(stores: dict[type[Kind], Store[Any]]) -> ClusterView:
    return ClusterView(
        clock=lambda: datetime.now(UTC),
        options=JobOptions(),
        registry=Registry(),
        workloads=stores[Workload],
        cluster_queues=stores[ClusterQueue],
        local_queues=stores[LocalQueue],
        cohorts=Store(),
        flavors=stores[ResourceFlavor],
        admission_checks=Store(),
        topologies=Store(),
        namespaces=stores[Namespace],
        limit_ranges=Store(),
        runtime_classes=Store(),
        priority_classes=Store(),
        workload_priority_classes=Store(),
        jobs={},
        pods=Store(),
    )
