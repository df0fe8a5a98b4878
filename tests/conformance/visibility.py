"""The visibility API, as recorded: pages of pending Workloads, their limit and offset, and where the server listens."""

import asyncio
import json
from typing import Any

from tests.conformance import world
from tests.conformance.cases import Case, NotRead
from tests.conformance.engine_tables import differs
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.config import v1beta2
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.kube.store import Store
from turnstile.process.configured import listening
from turnstile.visibility.queues import PendingWorkloads
from turnstile.visibility.resources import page

Json = Any

SET_UP = (
    "WithPreemptionExpectations",
    "NewManagerForUnitTests",
    "NewPendingWorkloadsInCqREST",
    "NewPendingWorkloadsInLqREST",
)


def check_options(case: Case, run: dict[str, Json]) -> list[str]:
    """What limit and offset of a query come to."""
    body = case.body["case"]
    query, want = body["inputQueryParams"], body["wantPendingWorkloadOptions"]
    found = page(int(query["limit"][0]), int(query["offset"][0]))
    return differs("limit and offset", (want["limit"], want["offset"]), found)


def check_server(case: Case, run: dict[str, Json]) -> list[str]:
    """Where the server listens."""
    body = case.body["case"]
    section = v1beta2.VisibilityServer.model_validate(body["cfg"].get("visibilityServer") or {})
    want = body["want"]
    return differs("address", (want["BindAddress"], want["BindPort"]), listening(section))


def check_pages(case: Case, run: dict[str, Json]) -> list[str]:
    """The pages of a queue. What the queues were given is replayed, and each page compared."""
    return asyncio.run(_pages(case.body["case"]["req"].get("nsName", ""), run))


def check_priority(case: Case, run: dict[str, Json]) -> list[str]:
    """The priority of one pending Workload, as its queue lists it."""
    table = case.body["case"]
    queue = {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
    workload = {**table["wl"], "spec": {**table["wl"]["spec"], "queueName": "lq"}}
    trace = [
        {
            "op": "Cache.AddClusterQueue",
            "args": {"cq": {"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}}}},
        },
        {"op": "Cache.AddLocalQueue", "args": {"q": queue}},
        {"op": "Cache.AddOrUpdateWorkload", "args": {"w": workload}},
    ]
    (item,) = asyncio.run(_listed(trace))
    return differs("priority", table["wantPriority"], item["priority"])


async def _listed(trace: Json) -> list[Json]:
    """The Workloads that a queue lists in the end."""
    pending, _ = await _replayed("ns", trace)
    return [json.loads(each) for each in await pending.of_cluster_queue("cq", limit=10, offset=0) or ()]


async def _pages(namespace: str, run: dict[str, Json]) -> list[str]:
    return (await _replayed(namespace, run["trace"]))[1]


async def _replayed(namespace: str, trace: Json) -> tuple[PendingWorkloads, list[str]]:
    workloads: Store[Workload] = Store()
    cluster_queues: Store[ClusterQueue] = Store()
    local_queues: Store[LocalQueue] = Store()
    pending = PendingWorkloads(
        workloads=workloads, local_queues=local_queues, cluster_queues=cluster_queues, options=Options()
    )
    found = []
    for call in trace:
        args, results = call["args"], call.get("results")
        match call["op"].rsplit(".", 1)[-1]:
            case "AddClusterQueue":
                cluster_queues.observe(world.load(ClusterQueue, args["cq"]))
            case "AddLocalQueue":
                local_queues.observe(world.load(LocalQueue, args["q"]))
            case "AddOrUpdateWorkload":
                workloads.observe(world.load(Workload, args["w"]))
            case "Get" if "InCqREST" in call["op"]:
                limit, offset = page(args["opts"]["limit"], args["opts"]["offset"])
                have = await pending.of_cluster_queue(args["name"], limit=limit, offset=offset)
                found += _compare(results, have)
            case "Get" if "InLqREST" in call["op"]:
                limit, offset = page(args["opts"]["limit"], args["opts"]["offset"])
                have = await pending.of_local_queue(namespace, args["name"], limit=limit, offset=offset)
                found += _compare(results, have)
            case name if name in SET_UP:
                pass
            case other:
                raise NotRead(f"the call {other}")
    return pending, found


def _compare(results: Json, have: list[bytes] | None) -> list[str]:
    summary, error = results
    if error is not None:
        return differs("error", error.get("reason"), "NotFound" if have is None else None)
    items = None if have is None else json.loads(b"[" + b"".join(have) + b"]")
    return differs("items", summary.get("items") or [], items)
