"""What a page of the visibility API costs, and how long it holds the event loop: `python -m tests.bench.visibility`.

The pending Workloads are of one ClusterQueue with ten LocalQueues; a hundred of them change between two pages. A page
is measured from the request to the last byte, without TLS and without the questions who asks. A hold is CPU time of the
loop's thread between two of its callbacks, with the garbage collector as `turnstile serve` sets it.
"""

import argparse
import asyncio
import time
from typing import Any, TypeVar

import msgspec

from tests.bench.figures import HEADER, Figure, percentile
from tests.bench.turns import Turns, timed
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.http.health import Health
from turnstile.kube.store import Store
from turnstile.process.memory import Collector
from turnstile.visibility.application import VisibilityApp
from turnstile.visibility.queues import PendingWorkloads
from turnstile.visibility.resources import Asked
from turnstile.visibility.users import Doorkeeper

T = TypeVar("T", bound=Kind)

PENDING, LOCAL_QUEUES, CHANGED, PAGES = 50_000, 10, 100, 40
TARGET_MS, TARGET_HOLD_MS = 100.0, 1.0
ROOT = "/apis/visibility.kueue.x-k8s.io/v1beta2"


class _Everybody(Doorkeeper):
    """Admits all requests: who may ask is a question to the API server, and no part of a page."""

    def __init__(self) -> None:
        pass

    async def admit(self, scope: Any, asked: Asked) -> None:
        pass


def _of(kind: type[T], metadata: dict[str, Any], **parts: Any) -> T:
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata, **parts}), type=kind)


def _workload(number: int, version: int) -> Workload:
    stamp = f"2026-01-02T{number * 7919 % 24:02}:{number * 104729 % 60:02}:00Z"
    name, local = f"workload-{number}", f"local-{number % LOCAL_QUEUES}"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{number}", "controller": True}
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "no quota"}
    return _of(
        Workload,
        {"name": name, "namespace": "team", "uid": f"uid-{number * 2654435761 % 2**32:08x}",
         "creationTimestamp": stamp, "resourceVersion": str(version), "ownerReferences": [owner]},
        spec={"queueName": local, "priority": (number + version) % 5, "podSets": [{"name": "main", "count": 1}]},
        status={"conditions": [condition | {"lastTransitionTime": stamp}]},
    )  # fmt: skip


async def _get(app: VisibilityApp, path: str, query: str) -> int:
    """Bytes of the answer."""
    received = 0

    async def send(message: Any) -> None:
        nonlocal received
        assert message.get("status", 200) == 200
        received += len(message.get("body", b""))

    async def receive() -> Any:
        raise AssertionError("there is no body")

    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": []}
    await app(scope, receive, send)
    return received


async def _measure(count: int) -> list[Figure]:
    workloads: Store[Workload] = Store()
    cluster_queues: Store[ClusterQueue] = Store()
    local_queues: Store[LocalQueue] = Store()
    cluster_queues.observe(_of(ClusterQueue, {"name": "queue"}))
    for number in range(LOCAL_QUEUES):
        meta = {"name": f"local-{number}", "namespace": "team"}
        local_queues.observe(_of(LocalQueue, meta, spec={"clusterQueue": "queue"}))
    for number in range(count):
        workloads.observe(_workload(number, 1))
    collector = Collector()
    collector.begin()
    collector.settle()
    pending = PendingWorkloads(
        workloads=workloads, local_queues=local_queues, cluster_queues=cluster_queues, options=Options()
    )
    app = VisibilityApp(pending, _Everybody(), health=Health())
    path = f"{ROOT}/clusterqueues/queue/pendingworkloads"
    local = f"{ROOT}/namespaces/team/localqueues/local-3/pendingworkloads"
    rows = []
    with timed() as turns:
        began = time.perf_counter()
        await asyncio.create_task(_get(app, path, "limit=1"))
        rows.append(Figure(name=f"{count:,} pending sorted for the first time", unit="ms", value=_since(began)))
    rows.append(_hold(turns))
    for name, asked, span in (("ClusterQueue", path, count), ("LocalQueue", local, count // LOCAL_QUEUES)):
        times: list[float] = []
        work: list[float] = []
        with timed() as turns:
            for page in range(PAGES):
                for number in range(CHANGED):
                    workloads.observe(_workload((page * 1009 + number * 31) % count, page + 2))
                await asyncio.sleep(0)
                began, worked = time.perf_counter(), time.thread_time()
                await asyncio.create_task(_get(app, asked, f"limit=1000&offset={page * span // PAGES}"))
                times.append(_since(began))
                work.append((time.thread_time() - worked) * 1e3)
        cpu = f"{percentile(work, 50):.1f} / {max(work):.1f} ms"
        note = f"p50 {percentile(times, 50):.1f} ms; CPU p50 / longest {cpu}; {CHANGED} changes before each"
        rows.append(
            Figure(
                name=f"page of 1,000 of the {name}: longest", unit="ms", value=max(times), target=TARGET_MS, note=note
            )
        )
        rows.append(_hold(turns))
    with timed() as turns:
        began = time.perf_counter()
        size = await asyncio.create_task(_get(app, path, "limit=100000"))
        rows.append(Figure(name=f"all in one answer of {size / 1e6:.1f} MB", unit="ms", value=_since(began)))
    rows.append(_hold(turns))
    return rows


def _since(began: float) -> float:
    return (time.perf_counter() - began) * 1e3


def _hold(turns: Turns) -> Figure:
    """Of the requests; the bench itself makes objects in between."""
    held = turns.held["_get"]
    note = f"p99 {percentile(held, 99):.2f} ms"
    return Figure(name="longest hold", value=max(held), unit="ms", target=TARGET_HOLD_MS, note=note)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.visibility", description=__doc__)
    parser.add_argument("--pending", type=int, default=PENDING, help="pending Workloads")
    chosen = parser.parse_args()
    rows = asyncio.run(_measure(chosen.pending))
    print(HEADER)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
