"""What a leader records in its term: all that the stores show when it begins, and every change from then on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from tests.unit.engine import builders as b
from tests.unit.recorder.lives import T0, life
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Pod
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.kube.store import Store
from turnstile.recorder.facts import of_quota
from turnstile.recorder.location import Location
from turnstile.recorder.reading import reading
from turnstile.recorder.recording import Pods, Recording
from turnstile.recorder.writer import Retention, Writer

K = TypeVar("K", bound=Kind)

pytestmark = pytest.mark.asyncio


class Leader:
    """The stores of a leader, and its writer."""

    def __init__(self, path: Path, *, waiting: int = 10_000) -> None:
        self.path = path
        self.workloads: Store[Workload] = Store()
        self.queues: Store[ClusterQueue] = Store()
        self.cohorts: Store[Cohort] = Store()
        self.pods: Store[Pod] = Store()
        self.pods.doubt()
        self.version = 0
        retention = Retention(days=None, mib=None)
        self.writer = Writer(
            Location.of(str(path)),
            retention=retention,
            clock=lambda: T0,
            waiting=waiting,
            gather_seconds=0.01,
            again_seconds=(0.02, 0.05),
        )
        self.recording = Recording(
            self.writer,
            workloads=self.workloads,
            cluster_queues=self.queues,
            cohorts=self.cohorts,
            pods=Pods(
                self.pods,
                runs=lambda pod: pod.status.phase == "Running",
                workloads_of=lambda _: [each for each in (self.workloads.get("team/w"),) if each is not None],
                in_use=lambda _: any(pod.status.phase == "Running" for pod in self.pods.values()),
            ),
            clock=lambda: datetime.fromtimestamp(T0 + 8 * self.version, UTC),
            check_seconds=0.02,
        )

    def see(self, *versions: Workload | None) -> None:
        """The watch delivers versions of a Workload, None for its deletion."""
        for each in versions:
            self.version += 1
            if each is None:
                self.workloads.delete("team/w", resource_version=str(self.version))
            else:
                self.workloads.observe(b.changed(each, metadata={"resourceVersion": str(self.version)}))

    def pod(self, name: str, phase: str) -> None:
        """The watch delivers a pod."""
        self.version += 1
        meta = {"name": name, "namespace": "team", "uid": name, "resourceVersion": str(self.version)}
        self.pods.observe(msgspec.convert({"metadata": meta, "status": {"phase": phase}}, Pod))

    def running(self) -> list[bool]:
        """Whether pods of the Workload ran, one time after the other, as the file has it."""
        if not self.writer.stats.written:
            return []
        with reading(Location.of(str(self.path))) as reader:
            found = [each for known in reader.named("team", "w") for each in reader.timeline(known.uid)]
        return [each.detail["run"] for each in found if each.what == "pods"]

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """A term; in the end all is written."""
        task = asyncio.create_task(self.recording.run())
        await asyncio.sleep(0)
        try:
            yield
            await self.written()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self.writer.close()

    async def written(self) -> None:
        """Wait for the writer's thread."""
        stats = self.writer.stats
        await eventually(lambda: stats.written >= stats.put and not len(self.writer) and not stats.failing)

    def told(self, name: str = "w") -> list[str]:
        """What the file has of a Workload."""
        with reading(Location.of(str(self.path))) as reader:
            return [each.what for found in reader.named("team", name) for each in reader.timeline(found.uid)]


async def eventually(look: Callable[[], bool]) -> None:
    """Wait for the writer's thread."""
    async with asyncio.timeout(60):
        while not look():  # noqa: ASYNC110 -- a thread has no event of ours
            await asyncio.sleep(0.01)


def versioned(obj: K, version: int) -> K:
    """An object with a resourceVersion."""
    obj.metadata.resource_version = str(version)
    return obj


def begun(path: Path, *versions: Workload | None, before: int = 0, waiting: int = 10_000) -> Leader:
    """A leader that had seen these versions before its term began, after some others that only its predecessor saw."""
    leader = Leader(path, waiting=waiting)
    leader.version = before
    leader.writer.start()
    leader.see(*versions)
    return leader


@pytest.mark.parametrize("cut", range(9))
async def test_a_change_of_leader_loses_and_repeats_nothing(tmp_path: Path, cut: int) -> None:
    """The next leader begins with the version that the one before saw last."""
    alone = begun(tmp_path / "alone.db")
    async with alone.leading():
        alone.see(*life())
    first = begun(tmp_path / "recorder.db")
    async with first.leading():
        first.see(*life()[:cut])
    seen = max(0, cut - 1)
    second = begun(tmp_path / "recorder.db", *life()[seen:cut], before=seen)
    async with second.leading():
        second.see(*life()[cut:])
    assert second.told() == alone.told()
    assert len(alone.told()) == 12


async def test_what_ended_between_two_terms_is_over(tmp_path: Path) -> None:
    """Its quota is free since the next leader noticed."""
    first = begun(tmp_path / "recorder.db")
    async with first.leading():
        first.see(*life()[:3])
    second = begun(tmp_path / "recorder.db", before=9)
    async with second.leading():
        await eventually(lambda: second.told()[-1] == "deleted")
    with reading(Location.of(str(second.path))) as reader:
        (workload,) = reader.named("team", "w")
        assert workload.over is not None


async def test_what_was_created_while_all_is_recorded_is_not_over(tmp_path: Path) -> None:
    """The list of what exists is taken in slices."""
    leader = begun(tmp_path / "recorder.db")
    for number in range(3000):
        leader.workloads.observe(b.workload(f"w-{number}", version=number + 1))
    async with leader.leading():
        leader.version = 3000
        leader.see(life()[0])
        await leader.written()
    assert leader.told() == ["created"]


async def test_all_is_recorded_again_after_records_were_dropped(tmp_path: Path) -> None:
    """What an object still shows is made up for when the file can be written to again."""
    late = tmp_path / "late" / "recorder.db"
    leader = begun(late, waiting=4)
    async with leader.leading():
        leader.see(*life()[:3])
        assert leader.writer.stats.dropped
        late.parent.mkdir()
        await eventually(
            lambda: leader.writer.stats.written > 0 and leader.told() == ["created", "waiting", "reserved", "admitted"]
        )


class TestPods:
    """Whether a pod of a Workload that holds quota runs is recorded when it changes."""

    async def test_none_yet_then_some_then_none(self, tmp_path: Path) -> None:
        """A second pod changes nothing."""
        leader = begun(tmp_path / "recorder.db")
        leader.pods.believe()
        async with leader.leading():
            leader.see(*life()[:3])
            await eventually(lambda: leader.running() == [False])
            leader.pod("w-0", "Running")
            await eventually(lambda: leader.running() == [False, True])
            leader.pod("w-1", "Running")
            leader.pod("w-0", "Succeeded")
            leader.pod("w-1", "Succeeded")
            await eventually(lambda: leader.running() == [False, True, False])

    async def test_the_next_leader_goes_on(self, tmp_path: Path) -> None:
        """It finds out what changed while nobody led, and repeats nothing."""
        first = begun(tmp_path / "recorder.db")
        first.pods.believe()
        first.pod("w-0", "Running")
        async with first.leading():
            first.see(*life()[:3])
            await eventually(lambda: first.running() == [True])
        second = begun(tmp_path / "recorder.db", *life()[2:3], before=9)
        second.pods.believe()
        async with second.leading():
            await eventually(lambda: second.running() == [True, False])

    async def test_pods_that_are_not_read_yet_say_nothing(self, tmp_path: Path) -> None:
        """A term may begin before all pods are listed."""
        leader = begun(tmp_path / "recorder.db")
        async with leader.leading():
            leader.see(*life()[:3])
            await leader.written()
            assert leader.running() == []
            leader.pods.believe()
            await eventually(lambda: leader.running() == [False])


async def test_quotas_are_recorded_when_they_change(tmp_path: Path) -> None:
    """Not when something else of the ClusterQueue does. What is read at the beginning of the term may be recorded
    twice, if it changes meanwhile."""
    first = versioned(b.queue("a", cohort="all"), 1)
    held = versioned(b.queue("a", cohort="all", stopPolicy="Hold"), 2)
    assert list(of_quota(first, held, 0.0)) == []
    leader = begun(tmp_path / "recorder.db")
    leader.queues.observe(first)
    async with leader.leading():
        leader.queues.observe(held)
        leader.queues.observe(versioned(b.queue("a"), 3))
        leader.cohorts.observe(versioned(b.cohort("all"), 4))
        leader.queues.delete("a")
    with reading(Location.of(str(leader.path))) as reader:
        told = dict.fromkeys((quota.kind, quota.name, quota.parent, quota.gone) for quota in reader.quotas())
    assert list(told) == [
        ("ClusterQueue", "a", "all", False),
        ("ClusterQueue", "a", "", False),
        ("Cohort", "all", "", False),
        ("ClusterQueue", "a", "", True),
    ]
