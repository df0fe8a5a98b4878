"""The page in the cluster over many Workloads, as its readers get it: through the API server, with their own rights.

The controller is stopped meanwhile, so that the page's process is what is measured. A Workload that is created says by
its name when, so that a reader who follows the page can tell how old the news is. Memory is what the process and its
questions hold together (Pss), as the limit of its pod counts it.
"""

import asyncio
import json
import statistics
import time
from contextlib import suppress
from pathlib import Path

from testbed import resource_path
from testbed.installation import MANAGED, RELEASE, Installation
from tests.bench import backlog
from tests.bench.bed import Bed, Turnstile
from tests.bench.client import Client, Refused
from tests.bench.figures import Figure, peak_memory_mib, percentile
from tests.bench.shape import LARGE, Planned, make_queues, planned, queue_name, queues_for, workload_json
from tests.cluster.page_served import PAGE
from tests.cluster.scenario import GROUP

PATIENCE = 240.0
ASKED = 5
"""Times that each page is asked for."""
UPDATES = 20
TARGET_SECONDS, TARGET_MS, TARGET_NEWS_MS, TARGET_MIB = 60.0, 1000.0, 1000.0, 2048.0


async def page(bed: Bed, *, workloads: int) -> list[Figure]:
    """Serve the page over a standing backlog, and look at it."""
    queues = queues_for(workloads)
    namespace = bed.control_plane.namespace("bench", labels=MANAGED)
    async with bed.client() as client:
        await make_queues(bed, client, namespace, queues=queues)
        etcd, all_planned = bed.control_plane.etcd, planned(workloads, queues=queues)
        pattern = await backlog.pattern_of(client, etcd, namespace, all_planned[0])
        bed.stop()
        await _without_webhooks(client)
        await backlog.fill(etcd, namespace, pattern, all_planned)
        began = time.perf_counter()
        process = _installation(bed).start_page()
        bed.beside["page"] = process
        name = all_planned[-1].name
        await _shown(client, f"{PAGE}/workloads/{namespace}/{name}")
        ready = time.perf_counter() - began
        read = peak_memory_mib(process.pid)
        async with asyncio.TaskGroup() as group:
            memory = _Memory(process.pid)
            watching = group.create_task(memory.watch())
            paths = {"the overview": "/", "a ClusterQueue": f"/clusterqueues/{queue_name(0)}",
                     "a Workload": f"/workloads/{namespace}/{name}", "a search": f"/workloads?q={name}"}  # fmt: skip
            shown = {each: await _times(client, path) for each, path in paths.items()}
            ages = await _followed(client, namespace, paths["a ClusterQueue"])
            watching.cancel()
        process.require_running()
        bed.launch()
    return [
        Figure(name="start to a page with everything", value=ready, unit="s", target=TARGET_SECONDS),
        Figure(name="memory after the first lists, peak", value=read, unit="MiB"),
        Figure(name="memory with its questions, peak", value=memory.most, unit="MiB", target=TARGET_MIB),
        *(
            Figure(name=f"{each}: whole answer, median", value=statistics.median(times), unit="ms", target=TARGET_MS)
            for each, times in shown.items()
        ),
        Figure(name="a change to the event, median", value=statistics.median(ages), unit="ms", target=TARGET_NEWS_MS),
        Figure(name="a change to the event, longest", value=percentile(ages, 100), unit="ms"),
    ]


def _installation(bed: Bed) -> Installation:
    assert isinstance(bed.program, Turnstile)
    return bed.program.installation


async def _without_webhooks(client: Client) -> None:
    """Nobody answers them now."""
    for kind in ("mutating", "validating"):
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
        await client.call("DELETE", f"{path}/{RELEASE}-{kind}-webhook-configuration")


async def _shown(client: Client, path: str) -> None:
    """Wait until the page has a Workload: the last one that it reads."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with suppress(Refused):  # the API server does not know yet that the page is there, or the page not of this one
            await client.call("GET", path)
            return
        await asyncio.sleep(0.05)
    raise TimeoutError(f"after {PATIENCE:g} s the page has no {path}")


async def _times(client: Client, path: str) -> list[float]:
    """How long answers take, in ms."""
    found = []
    for _ in range(ASKED):
        began = time.perf_counter()
        await client.call("GET", PAGE + path)
        found.append((time.perf_counter() - began) * 1000)
    return found


async def _followed(client: Client, namespace: str, path: str) -> list[float]:
    """How old Workloads are when a reader of a page is told of them, in ms."""
    ages: list[float] = []

    async def follow() -> None:
        seen = set[int]()
        async for line in client.lines(f"{PAGE}/events?of={path}"):
            now = time.time() * 1000
            for word in line.partition(b"made-")[2].split(b"made-"):
                made = int(word.partition(b"-")[0] or 0)
                if made and made not in seen:
                    seen.add(made)
                    ages.append(now - made)

    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        until = time.monotonic() + PATIENCE
        while len(ages) < UPDATES:
            if time.monotonic() > until:
                raise TimeoutError(f"after {PATIENCE:g} s only {len(ages)} Workloads were seen on the page")
            await asyncio.sleep(1)
            now = time.time()
            body = workload_json(Planned(f"made-{now * 1000:.0f}-x", queue_name(0), LARGE), namespace)
            body["spec"]["priority"] = int(now)
            await client.create(resource_path(GROUP, "workloads", namespace=namespace), json.dumps(body).encode())
        following.cancel()
    return ages


class _Memory:
    """What a process and the processes that it forks hold together at most, in MiB."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.most = 0.0

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            pids = [self._pid, *_children(self._pid)]
            self.most = max(self.most, sum(_proportional_mib(pid) for pid in pids))
            await asyncio.sleep(0.1)


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _proportional_mib(pid: int) -> float:
    """Its own memory, and its part of what it shares; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
