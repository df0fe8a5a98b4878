"""A reconciler's desk on a real API server without controllers: stores, an executor, and hands to play the others."""

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

from testbed import ControlPlane
from turnstile.api.core import Job, Namespace, Pod, PriorityClass
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Admission, PodSetAssignment, Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs import jobreconciler
from turnstile.controllers.runtime.actions import Create, Delete, Patch, ReconcileResult
from turnstile.controllers.runtime.executor import Executor
from turnstile.controllers.status.draft import StatusDraft
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry
from turnstile.kube.events import EventType
from turnstile.kube.fence import Fence
from turnstile.kube.gate import Rank
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport
from turnstile.kube.workqueue import WorkQueue

T = TypeVar("T", bound=Kind)
KINDS = (Job, Pod, Workload, Namespace, ResourceFlavor, PriorityClass, WorkloadPriorityClass)


class Notes:
    """Events, as they were told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def emit(
        self,
        regarding: Kind,
        *,
        type: EventType,  # noqa: A002
        reason: str,
        note: str,
        one_series: bool = False,
    ) -> None:
        """Keep it."""
        self.told.append((reason, note))


class Desk:
    """One connection, one term of leadership."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self.transport = transport
        self.namespace = namespace
        self.notes = Notes()
        self.queue = WorkQueue()
        self.fence = Fence(clock=time.monotonic, epoch=1, renewed_at=time.monotonic(), span=600.0)
        self.stores: dict[type[Kind], Store[Any]] = {kind: Store() for kind in KINDS}
        registry = Registry()
        of_jobs: dict[type[Kind], Store[Any]] = {Job: self.stores[Job], Pod: self.stores[Pod]}
        jobreconciler.index_jobs(self.stores[Workload], registry, of_jobs)
        charges.index_pods(self.stores[Pod])
        self.executor = Executor(transport, self.stores, self.notes, fence=self.fence)
        self.world = ClusterView(
            clock=lambda: datetime.now(UTC),
            options=JobOptions(),
            workloads=self.stores[Workload],
            cluster_queues=Store(),
            local_queues=Store(),
            cohorts=Store(),
            flavors=self.stores[ResourceFlavor],
            admission_checks=Store(),
            topologies=Store(),
            namespaces=self.stores[Namespace],
            limit_ranges=Store(),
            runtime_classes=Store(),
            priority_classes=self.stores[PriorityClass],
            workload_priority_classes=self.stores[WorkloadPriorityClass],
            jobs=of_jobs,
            pods=self.stores[Pod],
            registry=registry,
        )

    async def create(self, kind: type[T], body: dict[str, Any], *, namespaced: bool = True) -> T:
        """Somebody makes an object, and we see it."""
        group = f"{kind.GROUP}/{kind.VERSION}" if kind.GROUP else kind.VERSION
        body = {"apiVersion": group, "kind": kind.KIND, **body}
        value = await self.transport.create(kind, self.namespace if namespaced else "", body)
        self.stores[kind].observe(value)
        return value

    async def patch(self, kind: type[T], name: str, body: dict[str, Any], *, subresource: str = "") -> T:
        """Somebody changes an object, and we see it."""
        value = await self.transport.patch(kind, name, self.namespace, body, subresource=subresource)
        self.stores[kind].observe(value)
        return value

    async def see(self, kind: type[T], name: str) -> T:
        """The object as the server has it now."""
        return await self.executor.refresh(kind, f"{self.namespace}/{name}")

    async def raw(self, kind: type[Kind], name: str) -> dict[str, Any]:
        """The object as the server has it now, with all its fields."""
        body: dict[str, Any] = json.loads(await self.transport.request("GET", kind.path(name, self.namespace)))
        return body

    def workload(self) -> Workload:
        """The one Workload of the namespace that we saw."""
        (only,) = self.stores[Workload].values()
        assert isinstance(only, Workload)
        return only

    async def carry_out(self, *actions: Any) -> None:
        """Do these."""
        await self.executor.carry_out(Job, "key", ReconcileResult(list(actions)), self.queue)

    async def settle(self, key: str) -> list[str]:
        """Decide and write until nothing is left to write; the names of the writes."""
        written: list[str] = []
        for _ in range(10):
            decision = jobreconciler.decide(key, self.world)
            writes = [each for each in decision.actions if isinstance(each, Create | Patch | Delete)]
            await self.executor.carry_out(Job, key, decision, self.queue)
            urgent = [each for each in writes if not (isinstance(each, Patch) and each.deferrable)]
            written += [f"{type(each).__name__} {each.kind.KIND}" for each in urgent]
            if not urgent:
                return written
        raise AssertionError(f"still writing: {written}")

    async def admit(self, flavor: str) -> None:
        """The scheduler's write."""
        pod_set = self.workload().spec.pod_sets[0]

        def reserve(workload: Workload) -> Patch:
            draft = StatusDraft(workload, self.world.now)
            assignment = PodSetAssignment(name=pod_set.name, flavors={"cpu": flavor}, count=pod_set.count)
            draft.reserve(Admission(cluster_queue="cq", pod_set_assignments=[assignment]), admitted=True)
            return draft.patch()

        await self.executor.update(Workload, self.workload().metadata.key, reserve, rank=Rank.ADMIT)

    async def evict(self) -> None:
        """The preemptor's write."""

        def evicted(workload: Workload) -> Patch:
            draft = StatusDraft(workload, self.world.now)
            draft.evict("Preempted", "Preempted to make room")
            return draft.patch()

        await self.executor.update(Workload, self.workload().metadata.key, evicted, rank=Rank.STOP)


@asynccontextmanager
async def desk(control_plane: ControlPlane) -> AsyncIterator[Desk]:
    """A desk in a fresh namespace."""
    namespace = control_plane.namespace("desk")
    async with await Transport.connect(str(control_plane.kubeconfig())) as transport:
        made = Desk(transport, namespace)
        await made.executor.refresh(Namespace, namespace)
        yield made
    control_plane.api.delete(f"/api/v1/namespaces/{namespace}")
