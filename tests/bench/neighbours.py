"""Whether a flood of Jobs in one namespace makes the few Jobs of another wait."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from testbed import resource_path
from tests.bench.bed import Bed, Run, job_body, room
from tests.bench.client import Client, Seen
from tests.bench.figures import Figure, percentile
from tests.cluster.scenario import GROUP

CREATORS = 50
"""Jobs of the flood that are being created at any time: as fast as the API server takes them."""
CALM_SECONDS = 15
"""Seconds for which the neighbour is alone."""
PATIENCE = 900


@dataclass
class Neighbour(Run):
    """Jobs whose Workloads are watched too: a Workload's name begins with `job-` and the name of its Job."""

    queued: dict[str, float] = field(default_factory=dict)
    """When the Workload of each Job was seen first."""
    reserved: dict[str, float] = field(default_factory=dict)

    def saw_workload(self, _: str, seen: Seen, at: float) -> None:
        """Take in one event of the watch of Workloads."""
        name = seen.metadata.name.removeprefix("job-").rpartition("-")[0]
        if name in self.sent:
            self.queued.setdefault(name, at)
            if seen.has("QuotaReserved"):
                self.reserved.setdefault(name, at)

    def stages(self, percent: float) -> str:
        """Where the wait goes: each part's percentile in seconds."""
        parts = {
            "create call": (self.sent, self.answered),
            "until its Workload": (self.answered, self.queued),
            "until its quota": (self.queued, self.reserved),
            "until its start": (self.reserved, self.started),
        }
        return ", ".join(
            f"{what} {percentile([end[name] - begin[name] for name in self.started if name in end], percent):.2f}"
            for what, (begin, end) in parts.items()
        )


async def neighbours(bed: Bed, *, flood: int) -> list[Figure]:
    """One Job a second, alone and then beside a flood, until every Job of the flood has started."""
    quiet, busy = bed.lasting_world(), bed.lasting_world()
    room(quiet, cpu=1000)
    room(busy, cpu=2 * flood)
    async with bed.client() as client, bed.client() as crowd:
        calm_until = time.monotonic() + CALM_SECONDS
        calm = await _one_a_second(client, quiet.namespace, lambda: time.monotonic() >= calm_until, prefix="calm")
        many = Run()
        async with crowd.watching(_jobs(busy.namespace), many.saw), asyncio.TaskGroup() as group:
            began = time.perf_counter()
            creating = group.create_task(_flood(crowd, busy.namespace, many, count=flood))
            beside = await _one_a_second(client, quiet.namespace, lambda: len(many.started) == flood, prefix="beside")
            await creating
    created = max(many.answered.values()) - began
    note = f"{flood} Jobs created in {created:.1f} s, the last one started after {many.last_started:.1f} s"
    floors = {percent: percentile(calm.waits, percent) for percent in (50, 99)}
    return [
        Figure(
            name="a neighbour's Job, created to unsuspended, p50",
            value=percentile(beside.waits, 50),
            unit="s",
            floor=floors[50],
            note=f"{len(beside.waits)} of them; {note}",
        ),
        Figure(
            name="p99",
            value=percentile(beside.waits, 99),
            unit="s",
            target=2.0,
            floor=floors[99],
            note=f"the floor is without the flood; p50 and p99 of each stage: {beside.stages(50)}; {beside.stages(99)}",
        ),
        Figure(
            name="create call of the neighbour, p50",
            value=percentile(beside.calls, 50) * 1000,
            unit="ms",
            floor=percentile(calm.calls, 50) * 1000,
        ),
        Figure(name="the flood, created to unsuspended, p50", value=percentile(many.waits, 50), unit="s"),
    ]


def _jobs(namespace: str) -> str:
    return resource_path("batch/v1", "jobs", namespace=namespace)


async def _create(client: Client, namespace: str, run: Run, name: str) -> None:
    body = job_body(name, namespace=namespace, queue="main", run_for="1s")
    run.sent[name] = time.perf_counter()
    await client.create(_jobs(namespace), body)
    run.answered[name] = time.perf_counter()


async def _one_a_second(client: Client, namespace: str, over: Callable[[], bool], *, prefix: str) -> Neighbour:
    """Create a Job each second until `over`, and wait until all have started."""
    run = Neighbour()
    workloads = resource_path(GROUP, "workloads", namespace=namespace)
    began = time.monotonic()
    async with (
        client.watching(_jobs(namespace), run.saw),
        client.watching(workloads, run.saw_workload),
        asyncio.TaskGroup() as group,
    ):
        number = 0
        while not over() and time.monotonic() < began + PATIENCE:
            group.create_task(_create(client, namespace, run, f"{prefix}-{number:05}"))
            number += 1
            await asyncio.sleep(began + number - time.monotonic())
        while len(run.started) < number:
            if time.monotonic() > began + PATIENCE + 60:
                raise TimeoutError(f"{prefix}: {len(run.started)} of {number} Jobs have started")
            await asyncio.sleep(0.02)
    return run


async def _flood(client: Client, namespace: str, run: Run, *, count: int) -> None:
    numbers = iter(range(count))

    async def create() -> None:
        for number in numbers:
            await _create(client, namespace, run, f"flood-{number:05}")

    async with asyncio.TaskGroup() as group:
        for _ in range(CREATORS):
            group.create_task(create())
