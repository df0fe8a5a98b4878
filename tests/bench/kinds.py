"""Many groups of Pods released at once, and many JobSets: how soon they run, and what Turnstile takes for it."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from testbed import resource_path
from testbed.operators import OPERATORS, RunningOperator
from tests.bench.bed import Bed, room
from tests.bench.client import Seen, paced
from tests.bench.figures import Figure, peak_memory_mib, percentile
from tests.cluster.scenario import GROUP, QUEUE
from tests.operators.jobsets import VERSION, jobset, replicated_job

MEMBERS = 10
"""Pods of a group."""
CREATED = 100.0
"""Pods created a second, before the queue is released."""
JOBSETS = 20.0
"""JobSets created a second."""
TURNSTILE = "system:serviceaccount:turnstile-system:"


async def groups(bed: Bed, *, count: int) -> list[Figure]:
    """Groups of ten Pods wait in a queue that is stopped; from its release until no Pod of them is gated.

    Needs a bed with an audit log.
    """
    with bed.world() as scenario:
        room(scenario, cpu=2 * MEMBERS * count)
        queue = scenario.named("main")
        scenario.patch_queue(queue, {"stopPolicy": "Hold"})
        pods = resource_path("v1", "pods", namespace=scenario.namespace)
        ungated: dict[str, float] = {}

        def saw(kind: str, seen: Seen, at: float) -> None:
            if kind != "DELETED" and not seen.spec.schedulingGates:
                ungated.setdefault(seen.metadata.name, at)

        async with bed.client() as client, client.watching(pods, saw):
            total = count * MEMBERS
            names = [(f"group-{number // MEMBERS:04}", f"pod-{number:05}") for number in range(total)]
            await paced(
                total,
                rate=CREATED,
                one=lambda number: client.create(pods, _member(scenario.namespace, *names[number])),
            )
            path = resource_path(GROUP, "workloads", namespace=scenario.namespace)

            async def whole() -> bool:
                found = json.loads(await client.call("GET", path))["items"]
                return len(found) == count and all(
                    len(each["metadata"]["ownerReferences"]) == MEMBERS for each in found
                )

            await _until(whole, patience=300)
            log = bed.control_plane.audit_log
            gauge, start, began = bed.gauge(), log.stat().st_size, time.perf_counter()
            scenario.patch_queue(queue, {"stopPolicy": "None"})

            async def released() -> bool:
                return len(ungated) == total

            await _until(released, patience=300)
            spent = gauge.seconds()
            ours, all_users = _requests(log, start)
        memory = peak_memory_mib(bed.manager.pid)
    waits = [at - began for at in ungated.values()]
    usual = total == 2000
    return [
        Figure(
            name=f"{total} gated Pods of {count} groups: last one ungated after",
            value=max(waits),
            unit="s",
            target=30 if usual else None,
            note=f"p50 {percentile(waits, 50):.1f} s; {gauge.sentence()}",
        ),
        Figure(
            name="requests of Turnstile among all meanwhile",
            value=100 * ours / max(1, all_users),
            unit="%",
            note=f"{ours} of {all_users}",
        ),
        Figure(name="CPU of controller and webhook for one Pod", value=spent["turnstile"] / total * 1000, unit="ms"),
        Figure(name="peak memory", value=memory, unit="MiB"),
    ]


async def jobsets(bed: Bed, *, count: int) -> list[Figure]:
    """JobSets of four Pods under JobSet's own controller, twenty a second, into a queue with room for all."""
    RunningOperator(bed.control_plane, OPERATORS["jobset"]).start()
    with bed.world() as scenario:
        room(scenario, cpu=4 * count)
        collection = resource_path(VERSION, "jobsets", namespace=scenario.namespace)
        sent: dict[str, float] = {}
        started: dict[str, float] = {}

        def saw(_: str, seen: Seen, at: float) -> None:
            if seen.metadata.name in sent and not seen.spec.suspend:
                started.setdefault(seen.metadata.name, at)

        async with bed.client() as client:

            async def one(number: int) -> None:
                name = f"set-{number:04}"
                body = jobset(
                    name, replicated_job("workers", replicas=2, pods=2), namespace=scenario.namespace, queue="main"
                )
                sent[name] = time.perf_counter()
                await client.create(collection, json.dumps(body).encode())

            async def all_started() -> bool:
                return len(started) == count

            gauge = bed.gauge()
            async with client.watching(collection, saw):
                await paced(count, rate=JOBSETS, one=one)
                await _until(all_started, patience=300)
            spent = gauge.seconds()
            await client.clear(collection)
        memory = peak_memory_mib(bed.manager.pid)
    waits = [at - sent[name] for name, at in started.items()]
    last = max(started.values()) - min(sent.values())
    return [
        Figure(
            name=f"{count} JobSets of 4 Pods, {JOBSETS:g} a second: last one resumed after",
            value=last,
            unit="s",
            note=f"{gauge.sentence()}",
        ),
        Figure(
            name="created to resumed, p50",
            value=percentile(waits, 50),
            unit="s",
            note=f"p99 {percentile(waits, 99):.2f} s",
        ),
        Figure(name="CPU of controller and webhook for one JobSet", value=spent["turnstile"] / count * 1000, unit="ms"),
        Figure(name="peak memory", value=memory, unit="MiB"),
    ]


def _member(namespace: str, group: str, name: str) -> bytes:
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    labels = {QUEUE: "main", "kueue.x-k8s.io/pod-group-name": group}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(MEMBERS)},
        },
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return json.dumps(body, separators=(",", ":")).encode()


async def _until(holds: Callable[[], Awaitable[bool]], *, patience: float) -> None:
    deadline = time.monotonic() + patience
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience:g} s")
        await asyncio.sleep(0.1)


def _requests(log: Path, start: int) -> tuple[int, int]:
    """Requests but watches of Turnstile's accounts, and of all users, since that position of the audit log."""
    users: Counter[bool] = Counter()
    with log.open("rb") as file:
        file.seek(start)
        for line in file:
            entry = json.loads(line)
            if entry["stage"] == "ResponseComplete" and entry["verb"] != "watch":
                users[entry["user"]["username"].startswith(TURNSTILE)] += 1
    return users[True], users.total()
