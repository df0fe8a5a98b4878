"""Many Workloads created as fast as the API server takes them, through many queues, while others keep it busy.

Processes of their own create the Workloads as administrator, many at a time, so the API server is full from the first
second on. The bench finishes each Workload a moment after it was admitted. No webhook is called, as in Kueue's
scheduler harness: the webhook configurations are deleted once the queues stand. When nothing was admitted or finished
for `PATIENCE` seconds the bench ends, and the figures say how far it came.
"""

import asyncio
import json
import multiprocessing
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from testbed import resource_path
from testbed.installation import MANAGED, NAMESPACE, RELEASE
from tests.bench.bed import Bed
from tests.bench.client import Client, Refused, Seen
from tests.bench.figures import Figure, peak_memory_mib
from tests.bench.shape import (
    CLASSES,
    Class,
    class_of,
    each_of,
    make_queues,
    planned,
    queues_for,
    tell,
    workload_body,
)
from tests.cluster.scenario import GROUP

CREATORS = 2
"""Processes that create."""
AT_ONCE = 16
"""Create calls in flight of each of them."""
PATIENCE = 300.0
"""Seconds without any progress after which the bench ends."""
TOLD_SECONDS = 5.0
LEASE = resource_path("coordination.k8s.io/v1", "leases", f"{RELEASE}-controller", namespace=NAMESPACE)


def create_share(kubeconfig: str, namespace: str, workloads: int, share: int) -> float:
    """In a process of its own: create every `CREATORS`-th Workload; the moment (`perf_counter`) of the last answer."""
    mine = planned(workloads, queues=queues_for(workloads))[share::CREATORS]
    path = resource_path(GROUP, "workloads", namespace=namespace)

    async def work() -> None:
        async with Client(Path(kubeconfig)) as client:
            await each_of(mine, lambda each: _created(client, path, workload_body(each, namespace)), at_once=AT_ONCE)

    asyncio.run(work())
    return time.perf_counter()


async def _created(client: Client, path: str, body: bytes) -> None:
    await client.create(path, body)


@dataclass
class _Run:
    """What became of the Workloads, by name: moments of `perf_counter`."""

    client: Client
    path: str
    group: asyncio.TaskGroup
    created: dict[str, float] = field(default_factory=dict)
    admitted: dict[str, float] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    evictions: int = 0
    _finishing: set[str] = field(default_factory=set)

    def saw(self, kind: str, seen: Seen, at: float) -> None:
        """Take in one event of the watch."""
        name = seen.metadata.name
        size = class_of(name)
        if kind == "DELETED" or size is None:
            return
        self.created.setdefault(name, at)
        if seen.has("Finished"):
            self.finished.setdefault(name, at)
        elif seen.has("Admitted") and not seen.has("Evicted"):
            self.admitted.setdefault(name, at)
            if name not in self._finishing:
                self._finishing.add(name)
                self.group.create_task(self._finish(name, size))
        elif seen.has("Evicted"):
            self.group.create_task(self._give_back(seen))

    async def _finish(self, name: str, size: Class) -> None:
        """End a Workload if it is still admitted after its time. One that was evicted meanwhile is run anew."""
        await asyncio.sleep(size.seconds)
        try:
            while True:
                found = json.loads(await self.client.call("GET", f"{self.path}/{name}"))
                conditions = found["status"]["conditions"]
                if not _true(conditions, "Admitted") or _true(conditions, "Evicted") or _true(conditions, "Finished"):
                    return
                conditions.append(_condition("Finished", "Succeeded", "Job finished successfully"))
                if await self._write(name, found, {"conditions": conditions}):
                    return
        finally:
            self._finishing.discard(name)

    async def _give_back(self, seen: Seen) -> None:
        """Release the quota of an evicted Workload, as the reconciler of its job does once its pods are gone."""
        conditions: list[dict[str, Any]] = msgspec.to_builtins(seen.status.conditions)
        if not _true(conditions, "QuotaReserved"):
            return
        self.evictions += 1
        for kind in ("QuotaReserved", "Admitted"):
            conditions = [each for each in conditions if each["type"] != kind]
            conditions.append({**_condition(kind, "Pending", "The workload was evicted"), "status": "False"})
        name = seen.metadata.name
        found = {"metadata": {"resourceVersion": seen.metadata.resourceVersion}}
        await self._write(name, found, {"conditions": conditions, "admission": None})

    async def _write(self, name: str, found: dict[str, Any], status: dict[str, Any]) -> bool:
        """Patch a status if it is still what was read; whether it was."""
        body = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "status": status}
        try:
            await self.client.patch(f"{self.path}/{name}/status", json.dumps(body).encode())
        except Refused as refused:
            if ": 409 " in str(refused):
                return False
            raise
        return True


def _true(conditions: list[dict[str, Any]], kind: str) -> bool:
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _condition(kind: str, reason: str, message: str) -> dict[str, str]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}


async def overload(bed: Bed, *, workloads: int) -> list[Figure]:
    """Create, admit and finish all of them."""
    queues = queues_for(workloads)
    cp = bed.control_plane
    namespace = cp.namespace("bench", labels=MANAGED)
    path = resource_path(GROUP, "workloads", namespace=namespace)
    async with bed.client() as client:
        await make_queues(bed, client, namespace, queues=queues)
        for kind in ("mutating", "validating"):
            await client.call(
                "DELETE",
                f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/{RELEASE}-{kind}-webhook-configuration",
            )
        before = await _terms(client)
        with ProcessPoolExecutor(CREATORS, mp_context=multiprocessing.get_context("spawn")) as processes:
            async with asyncio.TaskGroup() as group:
                run = _Run(client, path, group)
                async with client.watching(path, run.saw):
                    gauge, began = bed.gauge(), time.perf_counter()
                    loop = asyncio.get_running_loop()
                    creators = [
                        loop.run_in_executor(processes, create_share, str(cp.kubeconfig()), namespace, workloads, share)
                        for share in range(CREATORS)
                    ]
                    await _until_done(bed, run, workloads=workloads, began=began, creating=creators)
                    used = gauge.seconds()
            ends = await asyncio.gather(*creators)
        terms = await _terms(client) - before + 1
    return _figures(bed, run, workloads=workloads, queues=queues, began=began, ends=ends, used=used, terms=terms)


async def _terms(client: Client) -> int:
    lease = json.loads(await client.call("GET", LEASE))
    return int(lease["spec"].get("leaseTransitions") or 0)


async def _until_done(
    bed: Bed, run: _Run, *, workloads: int, began: float, creating: list[asyncio.Future[float]]
) -> None:
    progress, at, told = 0, time.perf_counter(), 0.0
    while len(run.finished) < workloads:
        await asyncio.sleep(0.1)
        bed.manager.require_running()
        now = time.perf_counter()
        done = len(run.admitted) + len(run.finished) + (len(run.created) if not all(c.done() for c in creating) else 0)
        if done > progress:
            progress, at = done, now
        if now - at > PATIENCE:
            tell(f"nothing was admitted or finished for {PATIENCE:g} s")
            return
        if now - told >= TOLD_SECONDS:
            told = now
            tell(
                f"after {now - began:.0f} s: {len(run.created)} created, {len(run.admitted)} admitted, "
                f"{len(run.finished)} finished, {run.evictions} evictions; "
                f"{peak_memory_mib(bed.manager.pid):.0f} MiB"
            )


def _figures(
    bed: Bed,
    run: _Run,
    *,
    workloads: int,
    queues: int,
    began: float,
    ends: list[float],
    used: dict[str, float],
    terms: int,
) -> list[Figure]:
    created_by = max(ends)
    early = sum(at <= created_by for at in run.admitted.values())
    last = max(run.admitted.values(), default=created_by)
    late = len(run.admitted) - early
    waits: dict[str, list[float]] = defaultdict(list)
    for name, at in run.admitted.items():
        if (size := class_of(name)) is not None:
            waits[size.name].append(at - run.created[name])
    wall = max(run.finished.values(), default=began) - began
    everything = len(run.finished) == workloads
    return [
        Figure(
            name=f"{workloads} Workloads, {queues} queues: terms of leadership",
            value=terms,
            unit="",
            target=1,
            note=f"{len(run.admitted)} admitted, {len(run.finished)} finished, {run.evictions} evictions",
        ),
        Figure(
            name="admissions a second while Workloads are created",
            value=early / (created_by - began),
            unit="1/s",
            more_is_better=True,
            note=f"all created after {created_by - began:.1f} s, {workloads / (created_by - began):.0f} a second",
        ),
        Figure(
            name="admissions a second after that",
            value=late / (last - created_by) if last > created_by else 0.0,
            unit="1/s",
            more_is_better=True,
        ),
        Figure(
            name="wall until the last is finished",
            value=wall if everything else float("inf"),
            unit="s",
            note="" if everything else f"only {len(run.finished)} were, in {wall:.1f} s",
        ),
        *(
            Figure(
                name=f"mean wait of {size.name} Workloads",
                value=sum(waits[size.name]) / len(waits[size.name]) if waits[size.name] else float("nan"),
                unit="s",
            )
            for size in CLASSES
        ),
        Figure(
            name="CPU of Turnstile",
            value=used["turnstile"],
            unit="s",
            note=f"kube-apiserver {used['kube-apiserver']:.0f} s, etcd {used['etcd']:.0f} s, "
            f"the bench that finishes {used['bench']:.0f} s, others with its creators {used['others']:.0f} s",
        ),
        Figure(name="peak memory of Turnstile", value=peak_memory_mib(bed.manager.pid), unit="MiB"),
    ]
