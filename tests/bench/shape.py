"""The large-scale shape of Kueue's scheduler harness: cohorts of many ClusterQueues, and Workloads of three classes.

Every queue has a quota of 20 and may borrow 100. Of ten Workloads of a queue seven ask for 1, two for 5 and one for 20,
which preempts in its own queue and takes back in its cohort what others borrowed.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from testbed import resource_path
from tests.bench.bed import Bed
from tests.bench.client import Client
from tests.cluster.scenario import GROUP, resource_groups

T = TypeVar("T")

EACH = 50
"""Workloads of one queue."""
COHORTS = 10
QUOTA = 20
BORROWING = 100
FLAVOR = "default"
IN_FLIGHT = 8
"""Queues that are created at a time."""


@dataclass(frozen=True, slots=True)
class Class:
    """Workloads of one size: what each asks for, and its priority."""

    name: str
    cpu: int
    priority: int


SMALL, MEDIUM, LARGE = (
    Class("small", 1, 50),
    Class("medium", 5, 100),
    Class("large", 20, 200),
)
_TEN = (SMALL, SMALL, MEDIUM, SMALL, SMALL, LARGE, SMALL, MEDIUM, SMALL, SMALL)


@dataclass(frozen=True, slots=True)
class Planned:
    """One Workload that a bench will make."""

    name: str
    queue: str
    size: Class


def queues_for(workloads: int) -> int:
    """How many queues so many Workloads go to: 1,000 at most, and at least one a cohort."""
    return max(COHORTS, min(1000, workloads // EACH))


def planned(workloads: int, *, queues: int) -> list[Planned]:
    """The Workloads in the order of their creation: one of each queue in turn."""
    return [
        Planned(
            name=f"{(size := _TEN[number // queues % len(_TEN)]).name}-{number:06}",
            queue=queue_name(number % queues),
            size=size,
        )
        for number in range(workloads)
    ]


def queue_name(number: int) -> str:
    """A queue's ClusterQueue and LocalQueue."""
    return f"queue-{number:04}"


def workload_json(each: Planned, namespace: str) -> dict[str, Any]:
    """A Workload of one pod, made by hand: no job stands behind it."""
    requests = {"requests": {"cpu": str(each.size.cpu)}}
    template = {
        "metadata": {"labels": {"app": "bench"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "registry.example/main:1", "resources": requests}],
        },
    }
    return {
        "apiVersion": GROUP,
        "kind": "Workload",
        "metadata": {"name": each.name, "namespace": namespace},
        "spec": {
            "queueName": each.queue,
            "priority": each.size.priority,
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }


def workload_body(each: Planned, namespace: str) -> bytes:
    """The same as the body of a create call."""
    return json.dumps(workload_json(each, namespace), separators=(",", ":")).encode()


def queue_jsons(number: int, namespace: str, *, queues: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ClusterQueue of that number, of so many, and its LocalQueue."""
    name = queue_name(number)
    groups = resource_groups({FLAVOR: {"cpu": {"nominalQuota": str(QUOTA), "borrowingLimit": str(BORROWING)}}})
    cluster_queue = {
        "apiVersion": GROUP,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "cohortName": f"cohort-{number * COHORTS // queues}",
            "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            "resourceGroups": groups,
        },
    }
    local_queue = {
        "apiVersion": GROUP,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": name},
    }
    return cluster_queue, local_queue


async def make_queues(bed: Bed, client: Client, namespace: str, *, queues: int) -> None:
    """Create the flavor, the ClusterQueues and the LocalQueues, and wait until all are active."""
    flavor = {"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": {"name": FLAVOR}}
    await client.create(resource_path(GROUP, "resourceflavors"), json.dumps(flavor).encode())
    local_queues = resource_path(GROUP, "localqueues", namespace=namespace)

    async def make(number: int) -> None:
        cluster_queue, local_queue = queue_jsons(number, namespace, queues=queues)
        await client.create(resource_path(GROUP, "clusterqueues"), json.dumps(cluster_queue).encode())
        await client.create(local_queues, json.dumps(local_queue).encode())

    await each_of(range(queues), make, at_once=IN_FLIGHT)
    deadline = time.monotonic() + 180
    while True:
        items = json.loads(await client.call("GET", local_queues))["items"]
        active = sum(_active(item) for item in items)
        if active >= queues:
            return
        bed.manager.require_running()
        if time.monotonic() > deadline:
            raise TimeoutError(f"after 180 s only {active} of {queues} LocalQueues are active")
        tell(f"{active} of {queues} LocalQueues are active")
        await asyncio.sleep(2)


def _active(queue: dict[str, Any]) -> bool:
    conditions = queue.get("status", {}).get("conditions", [])
    return any(each["type"] == "Active" and each["status"] == "True" for each in conditions)


async def each_of(items: Iterable[T], one: Callable[[T], Awaitable[None]], *, at_once: int) -> None:
    """Call `one` for every item, so many at a time."""
    left = iter(items)

    async def work() -> None:
        for item in left:
            await one(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())


def tell(sentence: str) -> None:
    """Progress, on standard error: a stall is seen while it lasts."""
    print(f"  {time.strftime('%H:%M:%S')} {sentence}", file=sys.stderr, flush=True)
