"""What a process shows of itself at /metrics, and the page that lists it."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from tests.documents import ROOT
from tests.unit.controllers import worlds
from tests.unit.controllers.test_queue_metrics import World, finished
from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Job, Namespace
from turnstile.api.meta import Kind
from turnstile.controllers.jobs.jobreconciler import index_jobs
from turnstile.controllers.leader import Leader
from turnstile.controllers.metrics.counters import WorkloadMetrics
from turnstile.controllers.metrics.labels import MetricOptions
from turnstile.controllers.metrics.series import Count
from turnstile.controllers.runtime.executor import Executor
from turnstile.engine import Options, State
from turnstile.engine.instants import instant
from turnstile.engine.options import AdmissionFairSharing, FairSharing, Gates
from turnstile.http.connections import Connections
from turnstile.kube import auth
from turnstile.kube.caches import Caches
from turnstile.kube.events import Recorder
from turnstile.kube.fence import Fence
from turnstile.kube.lease import LeaseStats
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport
from turnstile.process.cloudevents import CloudEvents
from turnstile.process.configured import NotificationOptions, TraceOptions
from turnstile.process.metrics import ProcessMetrics, Term
from turnstile.process.tracing import Tracing
from turnstile.process.usual import UsualMetrics
from turnstile.recorder.location import Location
from turnstile.recorder.writer import Retention, Writer
from turnstile.webhooks.metrics import ReviewMetrics, ServerMetrics

ENGINE = Options(
    fair_sharing=FairSharing(),
    admission_fair_sharing=AdmissionFairSharing(usage_half_life=600.0),
    gates=Gates(admission_fair_sharing=True),
)
PAGE = (ROOT / "docs/reference/metrics.md").read_text()

pytestmark = pytest.mark.asyncio


class Process:
    """The parts of a process that leads, none of which has been started."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
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
        state = State(ENGINE)
        self.registry = CollectorRegistry()
        metrics = WorkloadMetrics(self.registry, MetricOptions(resources=True))
        self.leader = Leader(world, self.executor, state, metrics)
        self.term: Term | None = Term(
            self.executor, self.leader.scheduler, (self.leader.runner,), self.leader.auditor, self.leader.queue_metrics
        )
        self.lease = LeaseStats(fence=fence)
        self.flight = Writer(Location.of("unwritten.db"), retention=Retention(), clock=float)
        webhook = NotificationOptions("http://127.0.0.1:1", frozenset(), "/test")
        self.registry.register(
            ProcessMetrics(
                transport,
                self.caches,
                self.recorder,
                term=lambda: self.term,
                lease=self.lease,
                flight=self.flight,
                notices=CloudEvents(webhook),
                tracing=Tracing(TraceOptions("http://127.0.0.1:1"), clock=lambda: worlds.NOW),
            )
        )
        lease = "turnstile-controller"
        self.registry.register(UsualMetrics(transport, lease=lease, term=lambda: self.term, certificates={}))

    def value(self, name: str, /, **labels: str) -> float | None:
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
    assert sorted(shown(process.registry)) == sorted(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE))


def labels_on_the_page(metric: str) -> set[str]:
    """Those of a row; a row that has `the same` labels has those of the row above."""
    rows = [row.split("|") for row in PAGE.splitlines() if row.startswith("| `")]
    names = [row[1].strip(" `") for row in rows]
    place = names.index(metric)
    cell = 3 if "kueue_" in metric or "cluster_queue" in metric else 2
    while "the same" in rows[place][cell] or "as of" in rows[place][cell]:
        place -= 1
    found = set(re.findall(r"`(\w+)`", rows[place][cell]))
    return found | {"name", "namespace"} if metric.startswith("kueue_local_queue_") else found


async def test_the_page_lists_the_labels() -> None:
    """Of each metric of queues and Workloads, but for the role and custom labels."""
    sharing = b.queue("a", None, "all", admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"})
    world = World(
        sharing,
        b.cohort("all"),
        b.local("a", "a"),
        b.workload("w", "a"),
        finished("f"),
        measured=MetricOptions(resources=True),
        options=ENGINE,
    )
    world.shares.count(ClusterQueue, "a")
    world.shares.count(Cohort, "all")
    seen = {sample.name: sample.labels.keys() for each in world.collect() for sample in each.samples}
    counters = WorkloadMetrics(CollectorRegistry())
    seen |= {f"{each.name}_total" if isinstance(each, Count) else each.name: each.labels for each in counters.series}
    assert len(seen) > 50
    for name, labels in seen.items():
        assert set(labels) - {"replica_role"} == labels_on_the_page(name), name


async def test_figures_are_those_of_the_moment(process: Process) -> None:
    """Nothing is counted twice, and nothing is remembered."""
    process.executor.stats.writes["Job", "patch"] += 2
    process.executor.report(Job, "ns/a", ValueError("a"))
    process.namespaces.observe(worlds.decode(Namespace, {"metadata": {"name": "a", "resourceVersion": "1"}}))
    assert process.value("turnstile_writes_total", kind="Job", verb="patch") == 2
    assert process.value("turnstile_write_failures_total", kind="Job", error="ValueError") == 1
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


async def test_what_controllers_count_has_its_usual_names(process: Process) -> None:
    """As client-go and controller-runtime show it."""
    process.leader.runner.queues["batch/job"].add("batch/job:ns/a")
    process.leader.runner.reconciles["batch/job", "error"] += 1
    process.leader.runner.reconciles["batch/job", "conflict"] += 2
    stats = process.transport.stats
    stats.requests["WATCH", "200"] += 1
    stats.requests["GET", "200"] += 2
    stats.requests["PATCH", "lost"] += 3
    stats.lasted("GET", 0.2)
    host = {"host": "127.0.0.1:1"}
    assert process.value("workqueue_depth", name="batch/job", controller="batch/job") == 1
    assert process.value("workqueue_adds_total", name="batch/job", controller="batch/job") == 1
    assert process.value("controller_runtime_reconcile_errors_total", controller="batch/job") == 1
    assert process.value("controller_runtime_reconcile_total", controller="batch/job", result="requeue") == 2
    assert process.value("rest_client_requests_total", code="200", method="GET", **host) == 3
    assert process.value("rest_client_requests_total", code="<error>", method="PATCH", **host) == 3
    durations = "rest_client_request_duration_seconds_bucket"
    assert process.value(durations, verb="GET", le="0.1", **host) == 0
    assert process.value(durations, verb="GET", le="0.25", **host) == 1
    assert process.value("leader_election_master_status", name="turnstile-controller") == 1
    process.term = None
    assert process.value("leader_election_master_status", name="turnstile-controller") == 0


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
