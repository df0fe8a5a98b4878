"""What the page says of Turnstile itself."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import team
from tests.unit.web.asking import page
from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueueStatus, FlavorUsage, ResourceUsage
from turnstile.api.meta import Condition, ObjectMeta
from turnstile.api.multikueue import MultiKueueCluster, MultiKueueClusterStatus
from turnstile.engine import Options
from turnstile.insight.snapshot import Snapshot
from turnstile.kube.lease import Lease, LeaseSpec
from turnstile.kube.store import Store
from turnstile.process.sources import Dumped
from turnstile.web.health import Observer, differences
from turnstile.web.sight import Sight
from turnstile.web.world import World

pytestmark = pytest.mark.asyncio


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = datetime.fromtimestamp(b.NOW, UTC)

    def __call__(self) -> datetime:
        """The time."""
        return self.now


async def test_a_leader_that_does_not_renew() -> None:
    """It is late once nothing was seen of it for the duration of its Lease, whatever its clock says."""
    clock, leases = Clock(), Store[Lease]()
    observer = Observer(World(Dumped(Snapshot()), Options(), clock), list, leases, "ns/name")
    assert observer.health().leader is None
    spec = LeaseSpec(holder_identity="one", lease_duration_seconds=15, renew_time="1999-01-01T00:00:00.000000Z")
    leases.observe(Lease(metadata=ObjectMeta(name="name", namespace="ns", resource_version="1"), spec=spec))
    leader = observer.health().leader
    assert leader is not None
    assert (leader.holder, leader.late) == ("one", False)
    clock.now += timedelta(seconds=16)
    leader = observer.health().leader
    assert leader is not None
    assert leader.late


async def test_figures_of_a_status() -> None:
    """Those that are not what the Workloads add up to are named, with both amounts."""
    queue = b.queue("main", {"default": {"cpu": 4}})
    said = ClusterQueueStatus(
        reserving_workloads=1,
        admitted_workloads=1,
        pending_workloads=7,
        flavors_reservation=[FlavorUsage(name="default", resources=[ResourceUsage(name="cpu", total="1500m")])],
    )
    queue = replace(queue, status=said)
    running = b.held("runs", "main", {"cpu": "2"}, flavor="default")
    async with page(team(), b.flavor(), queue, b.local("main", "main"), running) as shown:
        found = {each.what: (each.status, each.counted) for each in differences(shown.world, queue)}
        assert found == {"pending Workloads": ("7", "0"), "cpu of flavor default in use": ("1500m", "2")}


async def test_what_happened_in_the_last_hour() -> None:
    """By minute; what is older is not counted."""
    async with page(team(), b.flavor(), b.queue("main", {"default": {"cpu": 4}}), b.local("main", "main")) as shown:
        minute = timedelta(minutes=1)
        now = shown.world.now
        made = b.workload("new", cpu=1)
        for number, ago in enumerate((now, now - minute, now - minute, now - 90 * minute)):
            stamp = ago.strftime("%Y-%m-%dT%H:%M:%SZ")
            meta = replace(made.metadata, name=f"new-{number}", uid=f"uid-{number}", creation_timestamp=stamp)
            await shown.put(replace(made, metadata=meta))
        rates = dict(shown.observer.health().rates)
        assert rates["created"][-3:] == (0, 2, 1)
        assert sum(rates["created"]) == 3
        assert "3 created" in (await shown.get("/health")).text.replace("<b>", "").replace("</b>", "")


def worker(name: str, *conditions: Condition) -> MultiKueueCluster:
    """A worker cluster."""
    return MultiKueueCluster(metadata=ObjectMeta(name=name), status=MultiKueueClusterStatus(conditions=conditions))


async def test_worker_clusters() -> None:
    """Which are connected, and why others are not; how many jobs run there, until they have ended or are gone."""
    east = worker("east", Condition(type="Active", status="True", reason="Active", message="Connected"))
    west = worker("west", Condition(type="Active", status="False", reason="ClientConnectionFailed", message="refused"))
    held = b.held("sent", "main", {"cpu": "1"}, flavor="default")
    sent = replace(held, status=replace(held.status, cluster_name="east"))
    queue = b.queue("main", {"default": {"cpu": 4}})
    async with page(team(), b.flavor(), queue, b.local("main", "main"), east, west, worker("new"), sent) as shown:
        found = [tuple(each) for each in shown.observer.health().workers]
        assert found == [("east", True, "", 1), ("new", None, "", 0), ("west", False, "refused", 0)]
        text = (await shown.get("/health")).text
        assert "not connected</span> refused" in text
        assert "not tried yet" in text
        unlisted = await shown.get("/health", sight=Sight(frozenset({MultiKueueCluster})))
        assert "Worker clusters" not in unlisted.text
        over = Condition(type=wl.FINISHED, status="True", reason="Succeeded", message="Done")
        await shown.put(replace(sent, status=replace(sent.status, conditions=[*sent.status.conditions, over])))
        assert shown.observer.health().workers[0].workloads == 0


async def test_no_worker_clusters() -> None:
    """Nothing is said of them where there are none."""
    async with page(team(), b.flavor(), b.queue("main", {"default": {"cpu": 4}}), b.local("main", "main")) as shown:
        assert "Worker clusters" not in (await shown.get("/health")).text
