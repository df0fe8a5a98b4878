"""Admissions whose Workload changes, goes or comes back between the decision and its write."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from app.api.clusterqueue import ClusterQueue
from app.api.core import Namespace
from app.api.localqueue import LocalQueue
from app.api.meta import Kind, to_plain
from app.api.resourceflavor import ResourceFlavor
from app.api.workload import Workload
from app.controllers.clusterview import ClusterView
from app.controllers.executor import Executor
from app.controllers.ledgerfeed import follow
from app.controllers.scheduler import Scheduler
from app.engine import State
from app.jobs.options import JobOptions
from app.jobs.registry import Registry
from app.kube import auth
from app.kube.fence import Fence, monotonic
from app.kube.reflector import Reflector
from app.kube.store import Store
from app.kube.transport import Transport
from testbed import ControlPlane
from tests.cluster.desk import Notes
from tests.faults.proxy import Fault, Proxy, Request, answer, drop, held, lose_answer, passed

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]

KINDS: tuple[type[Kind], ...] = (ClusterQueue, LocalQueue, Namespace, ResourceFlavor, Workload)


class Desk:
    """A scheduler on a real API server whose own requests go through a proxy; others come straight."""

    def __init__(self, proxy: Proxy, direct: Transport, namespace: str) -> None:
        self.proxy = proxy
        self.direct = direct
        self.namespace = namespace

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
        seen = await self.see(name)
        try:
            async with asyncio.timeout(10):
                while not holds(seen):
                    await asyncio.sleep(0.02)
                    seen = await self.see(name)
        except TimeoutError:
            raise AssertionError(f"{name} is {seen}") from None
        return seen

    async def asked(self, name: str, *, times: int = 1) -> None:
        """Wait until so many writes of that Workload's status have reached the proxy."""
        async with asyncio.timeout(10):
            while self.sent(name) < times:  # noqa: ASYNC110  the proxy has no event for it
                await asyncio.sleep(0.01)


def pod_sets(pods: int, *, cpu: str = "1") -> list[dict[str, Any]]:
    """One pod set."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return [{"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}}]


def cpus(workload: Workload) -> str:
    """What the Workload holds."""
    assert workload.status.admission is not None
    return str(workload.status.admission.pod_set_assignments[0].resource_usage["cpu"])


@pytest_asyncio.fixture
async def at(schema_server: ControlPlane) -> AsyncIterator[Desk]:
    """A scheduler that runs, and quota for three cpus."""
    kubeconfig = str(schema_server.kubeconfig())
    namespace = schema_server.namespace("races")
    async with (
        Proxy(await auth.connect(kubeconfig)) as proxy,
        Transport(proxy.access, timeout=1.0) as through,  # no call takes longer than a second
        await Transport.connect(kubeconfig) as direct,
    ):
        made = Desk(proxy, direct, namespace)
        await made.quota(3)
        async with _scheduling(through, direct):
            yield made
    schema_server.api.delete(f"/api/v1/namespaces/{namespace}")


@asynccontextmanager
async def _scheduling(through: Transport, direct: Transport) -> AsyncIterator[None]:
    """Watches go straight to the server, writes through the proxy."""
    stores: dict[type[Kind], Store[Any]] = {kind: Store() for kind in KINDS}
    world = _world(stores)
    state = State()
    scheduler = Scheduler(
        state,
        world,
        Executor(through, stores, Notes(), fence=Fence(clock=monotonic, epoch=1, renewed_at=monotonic(), span=3600.0)),
    )
    reflectors = [Reflector(direct, stores[kind], kind) for kind in KINDS]
    tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    for reflector in reflectors:
        await reflector.synced.wait()
    undo = follow(state, world, take=scheduler.take)
    running = asyncio.create_task(scheduler.run())
    try:
        yield
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


class TestAChangedWorkload:
    """Its admission was decided for something else."""

    async def test_does_not_get_the_quota_of_what_it_was(self, at: Desk) -> None:
        """A Workload that grows from one pod to five while its admission is on the way waits, as five do not fit."""
        gate = asyncio.Event()
        at.proxy.plan(held(gate, passed), applies=at.patches("grows"))
        await at.workload("grows")
        await at.asked("grows")
        await at.direct.patch(Workload, "grows", at.namespace, {"spec": {"podSets": pod_sets(5)}})
        gate.set()
        seen = await at.eventually("grows", lambda w: bool(w.status.conditions))
        assert not seen.quota_reserved
        assert "insufficient quota" in seen.status.conditions[0].message

    async def test_is_decided_anew(self, at: Desk) -> None:
        """One that grows to what still fits gets quota for all of it."""
        gate = asyncio.Event()
        at.proxy.plan(held(gate, passed), applies=at.patches("grows"))
        await at.workload("grows")
        await at.asked("grows")
        await at.direct.patch(Workload, "grows", at.namespace, {"spec": {"podSets": pod_sets(3)}})
        gate.set()
        assert cpus(await at.eventually("grows", lambda w: w.quota_reserved)) == "3"


class TestANamesake:
    """A Workload is deleted while its admission is on the way, and another of its name takes its place."""

    async def test_keeps_its_own_assumption(self, at: Desk) -> None:
        """The end of the first one's write does not give away what the second one was promised."""
        first, second = asyncio.Event(), asyncio.Event()
        at.proxy.plan(held(first, passed), held(second, passed), applies=at.patches("twice"))
        await at.workload("twice", pods=3)
        await at.asked("twice")
        await at.direct.delete(Workload, "twice", at.namespace)
        await at.workload("twice", pods=3)
        await at.workload("small")  # seen by the scheduler, and told that it waits, once the second one is assumed
        await at.eventually("small", lambda w: bool(w.status.conditions))
        await at.workload("other", pods=3, priority=10)
        await at.eventually("other", lambda w: bool(w.status.conditions))
        first.set()
        await at.asked("twice", times=2)
        second.set()
        await at.eventually("twice", lambda w: w.quota_reserved)
        assert not (await at.see("other")).quota_reserved


class TestAnEviction:
    """Its write has to be made again, and by then nobody needs it."""

    @pytest.fixture
    def stale(self) -> Fault:
        """The server says that it holds a newer version."""
        return answer("409 Conflict", b'{"kind":"Status","code":409,"reason":"Conflict","message":"newer"}')

    async def on_its_way(self, at: Desk, stale: Fault) -> asyncio.Event:
        """`first` runs, and its eviction for `urgent` is sent; the server answers once that is set."""
        await at.workload("first", pods=3)
        await at.eventually("first", lambda w: w.quota_reserved)
        gate = asyncio.Event()
        at.proxy.plan(held(gate, stale), applies=at.patches("first"))
        sent = at.sent("first")
        await at.workload("urgent", pods=3, priority=10)
        await at.asked("first", times=sent + 1)
        return gate

    async def test_is_left_alone_once_its_preemptor_got_quota_elsewhere(self, at: Desk, stale: Fault) -> None:
        """Quota grows while the eviction is on the way: both have room, and nobody has to go."""
        gate = await self.on_its_way(at, stale)
        await at.edit_quota(6)
        await at.eventually("urgent", lambda w: w.quota_reserved)
        gate.set()
        await at.workload("last")
        await at.eventually("last", lambda w: bool(w.status.conditions))
        assert not (await at.see("first")).evicted

    async def test_is_left_alone_once_its_preemptor_is_gone(self, at: Desk, stale: Fault) -> None:
        """Deleted while the eviction is on the way: the victim stays where it is."""
        gate = await self.on_its_way(at, stale)
        await at.direct.delete(Workload, "urgent", at.namespace)
        await at.workload("last")
        await at.eventually("last", lambda w: bool(w.status.conditions))
        gate.set()
        await at.workload("later", pods=2)
        await at.eventually("later", lambda w: bool(w.status.conditions))
        assert not (await at.see("first")).evicted

    async def test_is_left_alone_once_it_has_finished(self, at: Desk, stale: Fault) -> None:
        """Its quota is free already, and its end is not to be told as an eviction."""
        gate = await self.on_its_way(at, stale)
        seen = to_plain((await at.see("first")).status.conditions)
        end = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": "done"}
        conditions = [*seen, {**end, "lastTransitionTime": "2026-01-02T03:04:05Z"}]
        body = {"status": {"conditions": conditions}}
        await at.direct.patch(Workload, "first", at.namespace, body, subresource="status")
        await at.eventually("urgent", lambda w: w.quota_reserved)
        gate.set()
        await at.workload("last")
        await at.eventually("last", lambda w: bool(w.status.conditions))
        assert not (await at.see("first")).evicted

    async def test_is_made_again_while_it_is_needed(self, at: Desk, stale: Fault) -> None:
        """A conflict alone keeps nobody in his place."""
        await at.workload("first", pods=3)
        await at.eventually("first", lambda w: w.quota_reserved)
        at.proxy.plan(stale, applies=at.patches("first"))
        await at.workload("urgent", pods=3, priority=10)
        await at.eventually("first", lambda w: w.evicted)


class TestALostAnswer:
    """It is not known whether the admission was written."""

    async def test_holds_what_was_written(self, at: Desk) -> None:
        """The server has it: nobody else gets that quota."""
        at.proxy.plan(lose_answer, times=2, applies=at.patches("first"))
        await at.workload("first", pods=3)
        await at.eventually("first", lambda w: w.quota_reserved)
        await at.workload("second")
        seen = await at.eventually("second", lambda w: bool(w.status.conditions))
        assert not seen.quota_reserved

    async def test_is_not_given_to_another_while_the_write_may_still_arrive(self, at: Desk) -> None:
        """A write that hangs past its deadline may arrive later; whoever is let in meanwhile would be one too many."""
        gate = asyncio.Event()
        at.proxy.plan(held(gate, passed), drop, applies=at.patches("late"))
        await at.workload("late", pods=3)
        await at.asked("late")
        await at.workload("other", pods=3, priority=10)
        await at.asked("late", times=2)
        gate.set()
        await at.eventually("late", lambda w: w.quota_reserved)
        seen = await at.eventually("other", lambda w: bool(w.status.conditions))
        assert not seen.quota_reserved


class TestARefusal:
    """The server does not take an admission, and says so."""

    async def test_is_not_asked_for_again_at_once_and_holds_nothing(self, at: Desk) -> None:
        """The Workload stands back, longer each time, and others get the quota."""
        forbidden = answer("403 Forbidden", b'{"kind":"Status","code":403,"reason":"Forbidden","message":"policy"}')
        at.proxy.plan(forbidden, times=1000, applies=at.patches("refused"))
        await at.workload("refused", pods=3)
        await at.asked("refused")
        await at.workload("next", pods=3)
        await at.eventually("next", lambda w: w.quota_reserved)
        await asyncio.sleep(1.0)
        assert at.sent("refused") < 10

    async def test_is_asked_for_again_later(self, at: Desk) -> None:
        """Once the server takes it, it is admitted."""
        forbidden = answer("403 Forbidden", b'{"kind":"Status","code":403,"reason":"Forbidden","message":"policy"}')
        at.proxy.plan(forbidden, applies=at.patches("refused"))
        await at.workload("refused", pods=3)
        await at.eventually("refused", lambda w: w.quota_reserved)


class TestAReasonForWaiting:
    """It is told late rather than never."""

    async def test_survives_trouble_of_the_server(self, at: Desk) -> None:
        """A write that failed is made again, though nothing else changes."""
        trouble = answer("500 Internal Server Error", b"etcdserver: no leader")
        at.proxy.plan(trouble, times=8, applies=at.patches("waits"))
        await at.workload("waits", pods=5)
        await at.eventually("waits", lambda w: bool(w.status.conditions))


class TestAnUnreadableWorkload:
    """One that came past the webhook."""

    async def test_keeps_nobody_else_from_being_admitted(self, at: Desk) -> None:
        """Its amounts make no sense, in the middle of cycles too; the loop goes on."""
        for number in range(10):
            await at.workload(f"bad-{number}", cpu="banana")
            await at.workload(f"waits-{number}", pods=4 + number)
        await at.workload("good")
        await at.eventually("good", lambda w: w.quota_reserved)
