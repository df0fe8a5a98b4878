"""What a process shows of itself at /metrics, and the page that lists it."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from app.api.core import Job, Namespace
from app.api.meta import Kind
from app.controllers.executor import Executor
from app.controllers.jobreconciler import index_jobs
from app.controllers.leader import Leader
from app.controllers.metrics import WorkloadMetrics
from app.engine import State
from app.engine.instants import instant
from app.http.connections import Connections
from app.kube import auth
from app.kube.caches import Caches
from app.kube.events import Recorder
from app.kube.lease import Fence, LeaseStats
from app.kube.store import Store
from app.kube.transport import Transport
from app.process.metrics import ProcessMetrics, Term
from app.webhooks.metrics import ReviewMetrics, ServerMetrics
from tests.documents import ROOT
from tests.unit.controllers import worlds
from tests.unit.engine import builders as b

PAGE = (ROOT / "docs/reference/metrics.md").read_text()

pytestmark = pytest.mark.asyncio


class Process:
    """The parts of a process that leads, none of which has been started."""

    def __init__(self, transport: Transport) -> None:
        self.caches = Caches(transport)
        self.namespaces = self.caches.of(Namespace)
        self.jobs = self.caches.of(Job, optional=True)
        self.recorder = Recorder(transport, instance="test")
        world = worlds.world()
        index_jobs(world.workloads, world.registry, world.jobs)
        stores: dict[type[Kind], Store[Any]] = {Job: self.jobs}
        loop = asyncio.get_running_loop()
        fence = Fence(clock=loop.time, epoch=1, renewed_at=loop.time(), span=600.0)
        self.executor = Executor(transport, stores, self.recorder, fence=fence)
        self.leader = Leader(world, self.executor, State(), WorkloadMetrics(CollectorRegistry()))
        self.term: Term | None = Term(self.executor, self.leader.scheduler, (self.leader.runner,), self.leader.auditor)
        self.lease = LeaseStats(fence=fence)
        self.registry = CollectorRegistry()
        self.registry.register(
            ProcessMetrics(transport, self.caches, self.recorder, term=lambda: self.term, lease=self.lease)
        )

    def value(self, name: str, **labels: str) -> float | None:
        """One sample."""
        return self.registry.get_sample_value(name, labels)


@pytest_asyncio.fixture
async def process() -> AsyncIterator[Process]:
    """A process without a server."""
    async with Transport(auth.Access("http://127.0.0.1:1", None, auth.Fixed("Bearer t"))) as transport:
        yield Process(transport)


def shown(registry: CollectorRegistry) -> Iterator[str]:
    """Metrics as they are named in an exposition."""
    for family in registry.collect():
        yield f"{family.name}_total" if family.type == "counter" else family.name


async def test_the_page_lists_what_is_shown_and_nothing_else(process: Process) -> None:
    """By their names, and with their labels."""
    ReviewMetrics(process.registry, ["/validate"])
    process.registry.register(ServerMetrics(Connections(), {}))
    assert sorted(shown(process.registry)) == sorted(re.findall(r"^\| `(turnstile_\w+)`", PAGE, re.MULTILINE))


async def test_figures_are_those_of_the_moment(process: Process) -> None:
    """Nothing is counted twice, and nothing is remembered."""
    process.executor.stats.writes["Job", "patch"] += 2
    process.executor.report(Job, "ns/a", ValueError("a"))
    process.leader.runner.queues["batch/job"].add("batch/job:ns/a")
    process.leader.runner.reconciles["batch/job", "error"] += 1
    process.namespaces.observe(worlds.decode(Namespace, {"metadata": {"name": "a", "resourceVersion": "1"}}))
    assert process.value("turnstile_writes_total", kind="Job", verb="patch") == 2
    assert process.value("turnstile_write_failures_total", kind="Job", error="ValueError") == 1
    assert process.value("turnstile_queue_depth", controller="batch/job") == 1
    assert process.value("turnstile_queue_adds_total", controller="batch/job") == 1
    assert process.value("turnstile_reconciles_total", controller="batch/job", result="error") == 1
    assert process.value("turnstile_cache_objects", kind="namespaces") == 1
    assert process.value("turnstile_cache_objects", kind="jobs.batch") == 0
    assert process.value("turnstile_cache_state", kind="jobs.batch", state="reading") == 1
    assert process.value("turnstile_cache_state", kind="jobs.batch", state="synced") == 0


async def test_victims_that_hold_quota_still_are_counted(process: Process) -> None:
    """With the time since the first of them was evicted."""
    state = process.leader.state
    assert process.value("turnstile_evicted_workloads_holding_quota") == 0
    assert process.value("turnstile_evicted_workloads_oldest_seconds") == 0
    for name, second in (("late", 10), ("later", 40)):
        state.put_workload(b.held(name, "main", {"cpu": "1"}, at=second, evicted=True), b.NOW)
    oldest = process.leader.cluster.now.timestamp() - instant(b.stamp(10))
    assert process.value("turnstile_evicted_workloads_holding_quota") == 2
    assert process.value("turnstile_evicted_workloads_oldest_seconds") == pytest.approx(max(0.0, oldest), abs=5)
    assert process.value("turnstile_evicted_workloads_overdue") == 0
    state.note_overdue(instant(b.stamp(10)) + 300)
    assert process.value("turnstile_evicted_workloads_overdue") == 1


async def test_who_does_not_lead_says_so(process: Process) -> None:
    """And shows none of the figures of leading."""
    assert process.value("turnstile_leading") == 1
    process.term = None
    assert process.value("turnstile_leading") == 0
    assert process.value("turnstile_scheduler_cycles_total") is None


async def test_a_leader_that_may_not_write_is_seen(process: Process) -> None:
    """With the time since the last renewal; a process that does not lead has none."""
    loop = asyncio.get_running_loop()
    process.lease.fence = Fence(clock=loop.time, epoch=3, renewed_at=loop.time() - 12.0, span=10.0)
    process.lease.renewed, process.lease.failed = 5, 2
    assert process.value("turnstile_lease_suspended") == 1
    assert process.value("turnstile_lease_renewed_ago_seconds") == pytest.approx(12.0, abs=1.0)
    assert process.value("turnstile_lease_renewals_total", result="success") == 5
    assert process.value("turnstile_lease_renewals_total", result="error") == 2
    process.lease.fence.extend(loop.time())
    assert process.value("turnstile_lease_suspended") == 0
    process.lease.fence = None
    assert process.value("turnstile_lease_suspended") == 0
    assert process.value("turnstile_lease_renewed_ago_seconds") == 0
