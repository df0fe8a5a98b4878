"""What the wire costs in CPU: one PATCH and one watch event, beside a bare aiohttp loop that does the least one can do.

The peer is a server of canned answers. Run it: `python -m tests.bench.wire`. Ratios are medians of interleaved rounds;
absolute figures are of the machine and its mood.
"""

import asyncio
import gc
import json
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aiohttp
import msgspec

from tests.bench.canned import END, STREAM, Answer, added, canned, complete, whole
from turnstile.api.workload import Workload
from turnstile.kube import auth
from turnstile.kube.reflector import Reflector
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport

PATCHES = 1500
EVENTS = 20_000
IN_FLIGHT = 16
ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Row:
    """One figure beside its floor, in microseconds of CPU."""

    name: str
    microseconds: float
    floor: float
    ratio: float

    def __str__(self) -> str:
        return f"{self.name:<34}{self.microseconds:>8.1f} µs{self.floor:>9.1f} µs{self.ratio:>8.2f}"


def workload(number: int) -> bytes:
    """A Workload of about 3 KB with what real ones carry, managed fields included."""
    pods = {
        "name": "main",
        "count": 3,
        "template": {
            "metadata": {"labels": {"app": "train", "job-name": f"train-{number}"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example/train:v1",
                        "command": ["python", "-m", "train"],
                        "env": [{"name": f"SETTING_{n}", "value": "x" * 20} for n in range(10)],
                        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}},
                    }
                ],
            },
        },
    }
    condition = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "WaitingForQuota",
        "message": "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor a",
        "lastTransitionTime": "2026-11-21T09:00:00Z",
        "observedGeneration": 1,
    }
    fields: dict[str, object] = {f"f:field{n}": {"f:inner": {}, "f:other": {}} for n in range(25)}
    return json.dumps(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": f"job-train-{number}",
                "namespace": "team-a",
                "uid": f"5d4c5a52-0000-4000-8000-{number:012}",
                "resourceVersion": str(1000 + number),
                "generation": 1,
                "creationTimestamp": "2026-11-21T09:00:00Z",
                "labels": {"kueue.x-k8s.io/job-uid": "5d4c5a52-1c9e-4b8f-9d7e-8d0a4a0b1b1b"},
                "managedFields": [{"manager": "turnstile", "operation": "Apply", "fieldsV1": fields}],
            },
            "spec": {"active": True, "queueName": "default", "priority": 0, "podSets": [pods]},
            "status": {"conditions": [condition]},
        },
        separators=(",", ":"),
    ).encode()


def _answering() -> Answer:
    """Answers PATCHes with a Workload, and a watch with all events at once."""
    patched = whole(workload(0))
    watched = STREAM + b"".join(added(workload(number)) for number in range(EVENTS)) + complete(99999) + END

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(watched if request.startswith(b"GET") else patched)

    return answer


async def _many(one: Callable[[], Awaitable[object]]) -> float:
    """CPU microseconds of one call when so many are in flight."""

    async def worker() -> None:
        for _ in range(PATCHES // IN_FLIGHT):
            await one()

    gc.collect()
    started = time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())
    return (time.process_time() - started) / (PATCHES // IN_FLIGHT * IN_FLIGHT) * 1e6


async def _patches(server: str, session: aiohttp.ClientSession, transport: Transport) -> tuple[float, float]:
    """Ours and the floor: a PATCH of a Workload's status whose answer is decoded."""
    body = b'{"metadata":{"resourceVersion":"1000"},"status":{"conditions":[]}}'
    url = f"{server}{Workload.path('job-train-0', 'team-a')}/status?fieldManager=turnstile"
    decode = Workload.decoder()
    headers = {"Content-Type": "application/merge-patch+json", "Authorization": "Bearer " + "t" * 900}

    async def bare() -> object:
        async with session.patch(url, data=body, headers=headers) as response:
            return decode(await response.read())

    async def ours() -> object:
        return await transport.patch(Workload, "job-train-0", "team-a", body, subresource="status")

    floor = await _many(bare)
    return await _many(ours), floor


async def _watch(server: str, session: aiohttp.ClientSession, transport: Transport) -> tuple[float, float]:
    """Ours and the floor: an event into an indexed store, beside one that is read, decoded and put into a dict."""

    class Event(msgspec.Struct):
        type: str
        object: msgspec.Raw

    read, decode = msgspec.json.Decoder(Event).decode, Workload.decoder()
    seen: dict[str, Workload] = {}
    gc.collect()
    started = time.process_time()
    async with session.get(server + Workload.collection_path()) as response:
        while line := await response.content.readline():
            value = decode(read(line).object)
            seen[value.metadata.key] = value
    floor = (time.process_time() - started) / len(seen) * 1e6
    seen.clear()
    store = Store[Workload]()
    store.add_index("queue", lambda each: (each.spec.queue_name or "",))
    reflector = Reflector(transport, store, Workload)
    gc.collect()
    started = time.process_time()
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    ours = (time.process_time() - started) / len(store) * 1e6
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return ours, floor


async def _measure(server: str) -> list[Row]:
    access = auth.Access(server, None, auth.Fixed("Bearer " + "t" * 900))
    pairs: dict[str, list[tuple[float, float]]] = {"PATCH, answer decoded": [], "watch event of 3 KB, indexed": []}
    async with aiohttp.ClientSession(read_bufsize=2**21) as session, Transport(access, timeout=60) as transport:
        for _ in range(ROUNDS):
            pairs["PATCH, answer decoded"].append(await _patches(server, session, transport))
            pairs["watch event of 3 KB, indexed"].append(await _watch(server, session, transport))
    rows = []
    for name, figures in pairs.items():
        ours, floors = zip(*figures, strict=True)
        ratio = statistics.median(our / floor for our, floor in figures)
        rows.append(Row(name, statistics.median(ours), statistics.median(floors), ratio))
    return rows


def main() -> list[Row]:
    """Measure; a row each for a PATCH and a watch event."""
    with canned(_answering) as server:
        return asyncio.run(_measure(server))


if __name__ == "__main__":
    print(f"{'CPU of our process':<34}{'ours':>11}{'bare':>12}{'ratio':>8}")
    for row in main():
        print(row)
