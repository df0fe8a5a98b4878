"""Many Jobs with a megabyte of environment each wait: how much memory Turnstile holds for them.

One process of all roles is measured, so the webhook's share is in the figures too.
"""

import asyncio
import json
import time
from pathlib import Path

from testbed import resource_path
from tests.bench.bed import Bed, room
from tests.bench.client import Client
from tests.bench.figures import Figure, cpu_seconds, peak_memory_mib
from tests.bench.shape import tell
from tests.cluster.scenario import GROUP, job, job_path

VARIABLES = 1000
"""Variables of a kilobyte in the environment of each Job: with the Workload, as much as etcd takes in one object."""
CREATORS = 2
"""Jobs that are being created at any time."""
SOME = 120
"""The number of Jobs after which memory is read for the first time."""
TARGET_MIB = 300.0
PATIENCE = 1700.0
CALM_CORES = 0.05
"""Turnstile has come to rest when it uses less than that for five seconds."""


async def large(bed: Bed, *, jobs: int) -> list[Figure]:
    """Create Jobs that wait behind another, and read the memory before, after some, and after all."""
    scenario = bed.lasting_world()
    room(scenario, cpu=1)
    scenario.api.apply(job("first", namespace=scenario.namespace, queue="main"))
    path = job_path(scenario.namespace, "first")
    scenario.api.wait_for(path, lambda found: not found["spec"].get("suspend"), describe="started")
    deadline = time.monotonic() + PATIENCE
    await _at_rest(bed, deadline)
    figures = [Figure(name="memory before", value=_memory_mib(bed.manager.pid), unit="MiB")]
    made = 0
    async with bed.client() as client:
        for count in sorted({min(SOME, jobs), jobs}):
            began = time.monotonic()
            await _create(client, scenario.namespace, range(made, count))
            created = time.monotonic() - began
            made = count
            await _queued(bed, client, scenario.namespace, made + 1, deadline)
            await _at_rest(bed, deadline)
            figures += [
                Figure(
                    name=f"memory with {made} waiting Jobs of a megabyte",
                    value=_memory_mib(bed.manager.pid),
                    unit="MiB",
                    target=TARGET_MIB,
                    note=f"created in {created:.0f} s",
                ),
                Figure(
                    name="peak memory until then", value=peak_memory_mib(bed.manager.pid), unit="MiB", target=TARGET_MIB
                ),
            ]
    return figures


def _memory_mib(pid: int) -> float:
    """What a process holds now (VmRSS), in MiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 2**20


async def _create(client: Client, namespace: str, numbers: range) -> None:
    path, left = resource_path("batch/v1", "jobs", namespace=namespace), iter(numbers)

    async def create() -> None:
        for number in left:
            await client.create(path, _body(number, namespace))

    async with asyncio.TaskGroup() as group:
        for _ in range(CREATORS):
            group.create_task(create())


def _body(number: int, namespace: str) -> bytes:
    """A Job whose environment no other Job has."""
    made = job(f"large-{number:05}", namespace=namespace, queue="main")
    value = f"{number:05}".ljust(1000, "x")
    made["spec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": f"V{each}", "value": value} for each in range(VARIABLES)
    ]
    return json.dumps(made, separators=(",", ":")).encode()


async def _queued(bed: Bed, client: Client, namespace: str, count: int, deadline: float) -> None:
    """Wait until so many Workloads are there."""
    path = resource_path(GROUP, "workloads", namespace=namespace)
    while True:
        page = json.loads(await client.call("GET", f"{path}?limit=1"))
        found = len(page["items"]) + page["metadata"].get("remainingItemCount", 0)
        if found >= count:
            return
        bed.manager.require_running()
        tell(f"{found} of {count} Jobs have their Workload; {_memory_mib(bed.manager.pid):.0f} MiB")
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {found} of {count} Jobs have their Workload")
        await asyncio.sleep(2)


async def _at_rest(bed: Bed, deadline: float) -> None:
    """Wait until Turnstile has nothing left to do."""
    while time.monotonic() < deadline:
        before = cpu_seconds(bed.manager.pid)
        await asyncio.sleep(5)
        if cpu_seconds(bed.manager.pid) - before < CALM_CORES * 5:
            return
