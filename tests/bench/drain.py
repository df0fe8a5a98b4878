"""Workloads through six queues of one cohort as fast as they will go, beside a bare loop that does the same writes.

The bench creates the Workloads, and finishes each as soon as it sees it admitted. In the bare loop the bench also
admits, each one at once and without a look at any quota: what remains is what the API server takes for it. Both write
under the controller's account, as the controller does it for a Job, so that no webhook is called.
"""

import asyncio
import json
import time
from typing import NamedTuple

import msgspec

from testbed import resource_path
from tests.bench.bed import Bed
from tests.bench.client import Client, Seen
from tests.bench.figures import Figure, median
from tests.cluster.scenario import GROUP, Scenario

QUEUES = 6
CREATING = 16
"""Creations in flight."""
QUOTA = 100
"""Workloads of one pod that each queue can hold by itself."""


def _workload(namespace: str, name: str, queue: str) -> bytes:
    template = {
        "metadata": {"labels": {"app": "drain"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
            ],
        },
    }
    body = {
        "apiVersion": GROUP,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"queueName": queue, "priority": 0, "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    return json.dumps(body, separators=(",", ":")).encode()


def _condition(kind: str, reason: str, message: str) -> dict[str, str]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}


def _admitted(queue: str) -> list[dict[str, str]]:
    return [
        _condition("QuotaReserved", "QuotaReserved", f"Quota reserved in ClusterQueue {queue}"),
        _condition("Admitted", "Admitted", "The workload is admitted"),
    ]


class _Drain:
    """One run over one namespace."""

    def __init__(self, client: Client, scenario: Scenario, *, count: int, bare: bool) -> None:
        self._client = client
        self._scenario = scenario
        self._namespace = namespace = scenario.namespace
        self._count = count
        self._bare = bare
        self._path = resource_path(GROUP, "workloads", namespace=namespace)
        self._finishing: set[str] = set()
        self._done = 0
        self._all = asyncio.Event()
        self._group = asyncio.TaskGroup()

    async def run(self) -> float:
        """Seconds from the first creation until the last finish is written."""
        async with self._client.watching(self._path, self._saw):
            began = time.perf_counter()
            async with self._group:
                for start in range(CREATING):
                    self._group.create_task(self._creator(start))
                async with asyncio.timeout(600):
                    await self._all.wait()
            return time.perf_counter() - began

    async def _creator(self, start: int) -> None:
        for number in range(start, self._count, CREATING):
            name, queue = f"workload-{number:05}", f"queue-{number % QUEUES}"
            await self._client.create(self._path, _workload(self._namespace, name, queue))
            if self._bare:
                self._group.create_task(self._admit(name, queue))

    async def _admit(self, name: str, queue: str) -> None:
        flavor, cluster_queue = self._scenario.named("default"), self._scenario.named(queue)
        admission = {
            "clusterQueue": cluster_queue,
            "podSetAssignments": [
                {"name": "main", "count": 1, "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": "1"}},
            ],
        }
        status = {"admission": admission, "conditions": _admitted(cluster_queue)}
        await self._client.patch(f"{self._path}/{name}/status", json.dumps({"status": status}).encode())

    def _saw(self, kind: str, seen: Seen, _: float) -> None:
        name = seen.metadata.name
        if kind != "DELETED" and seen.has("Admitted") and not seen.has("Finished") and name not in self._finishing:
            self._finishing.add(name)
            self._group.create_task(self._finish(seen))

    async def _finish(self, seen: Seen) -> None:
        finished = _condition("Finished", "Succeeded", "Job finished successfully")
        conditions = [*msgspec.to_builtins(seen.status.conditions), finished]
        body = {"metadata": {"resourceVersion": seen.metadata.resourceVersion}, "status": {"conditions": conditions}}
        await self._client.patch(f"{self._path}/{seen.metadata.name}/status", json.dumps(body).encode())
        self._done += 1
        if self._done == self._count:
            self._all.set()


class _Ran(NamedTuple):
    """One run: seconds, CPU seconds of the API server, of Turnstile and of the bench, and cores that other processes
    used meanwhile."""

    wall: float
    server: float
    turnstile: float
    bench: float
    others: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} s (API server {self.server:.1f} s of CPU, others {self.others:.2f} cores)"


async def _run(bed: Bed, *, count: int, bare: bool) -> _Ran:
    with bed.world() as scenario:
        if not bare:
            flavor = scenario.flavor("default")
            scenario.cohort("all")
            for number in range(QUEUES):
                scenario.queue(f"queue-{number}", {flavor: {"cpu": QUOTA}}, cohort="all")
        async with bed.client(as_controller=True) as client:
            if not bare:
                await asyncio.sleep(1.5)  # until the queues are known and their first figures written
            gauge = bed.gauge()
            wall = await _Drain(client, scenario, count=count, bare=bare).run()
            spent = gauge.seconds()
    return _Ran(wall, spent["kube-apiserver"], spent.get("turnstile", 0.0), spent["bench"], spent["others"] / wall)


async def drain(bed: Bed, *, workloads: int) -> list[Figure]:
    """Bare, Turnstile, bare: the first and the last run show how the machine changed meanwhile."""
    bed.stop()
    floors = [await _run(bed, count=workloads, bare=True)]
    bed.start()
    ours = await _run(bed, count=workloads, bare=False)
    bed.stop()
    floors.append(await _run(bed, count=workloads, bare=True))
    bed.start()
    floor = median([ran.wall for ran in floors])
    server = median([ran.server for ran in floors])
    return [
        Figure(
            name=f"drain of {workloads} Workloads in {QUEUES} queues, wall",
            value=ours.wall,
            unit="s",
            target=1.15 * floor,
            floor=floor,
            note=f"Turnstile {ours}; bare loop {', '.join(map(str, floors))}",
        ),
        Figure(
            name="CPU of the API server for each Workload of the drain",
            value=ours.server / workloads * 1000,
            unit="ms",
            target=1.15 * server / workloads * 1000,
            floor=server / workloads * 1000,
        ),
        Figure(
            name="CPU of Turnstile for each Workload of the drain",
            value=ours.turnstile / workloads * 1000,
            unit="ms",
            floor=(median([ran.bench for ran in floors]) - ours.bench) / workloads * 1000,
            note="the floor is what the bench takes more when it admits itself: one patch, without a watch or an event",
        ),
    ]
