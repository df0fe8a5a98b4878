"""Turnstile is started on a cluster of many nodes that are full of pods of others, and a gang waits for a rack.

Measured from the start of the process, its imports included, until the gang has its places: every node and every pod
has been read by then, since what pods use decides where there is room. Nodes and pods stand in etcd as a kubelet and a
Deployment would have left them; whoever else would act on them is paused.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Final

import msgspec

from testbed import nodes, resource_path
from testbed.client import condition
from tests.bench import backlog
from tests.bench.bed import Bed
from tests.bench.client import Seen
from tests.bench.figures import Figure, peak_memory_mib
from tests.bench.shape import tell
from tests.cluster.scenario import GROUP, Scenario
from turnstile.api.topologyassignment import decode
from turnstile.api.workload import Workload

NODES: Final = 5000
RACK: Final = 20
"""Nodes of a rack."""
IMAGES: Final = 50
"""Images that a kubelet reports of its node: most of the node's bytes."""
GANG: Final = 64
TARGET_SECONDS, TARGET_MIB = 15.0, 400.0
PATIENCE: Final = 120.0
LEVELS: Final = ("block", "rack", "kubernetes.io/hostname")
ACTORS: Final = ("kwok", "kube-scheduler", "kube-controller-manager")


class _Gang:
    """When the gang was seen to have quota, and so its places."""

    def __init__(self) -> None:
        self.at: float | None = None

    def saw(self, kind: str, seen: Seen, at: float) -> None:
        if kind != "DELETED" and seen.has("QuotaReserved") and self.at is None:
            self.at = at


async def start(bed: Bed, *, pods: int) -> list[Figure]:
    """Start over nodes and pods that stand."""
    scenario = bed.lasting_world()
    gang, others = _queue_gang(scenario), bed.control_plane.namespace("others")
    await asyncio.to_thread(bed.stop)
    for name in ACTORS:
        bed.control_plane.process(name).pause()
    began = time.perf_counter()
    await _fill(bed, others, pods)
    tell(f"{NODES} nodes with {pods} pods stand after {time.perf_counter() - began:.1f} s")
    path, found = resource_path(GROUP, "workloads", namespace=scenario.namespace), _Gang()
    async with bed.client() as client:
        version = json.loads(await client.call("GET", f"{path}?limit=1"))["metadata"]["resourceVersion"]
        async with client.watching(path, found.saw, since=version):
            began = time.perf_counter()
            bed.launch()
            gauge = bed.gauge()
            while found.at is None and time.perf_counter() - began < PATIENCE:
                await asyncio.sleep(0.05)
                bed.manager.require_running()
            used = gauge.seconds()
    shares = ", ".join(f"{name} {seconds:.1f}" for name, seconds in used.items() if seconds >= 0.1)
    placed = _placed(msgspec.convert(scenario.api.get(f"{path}/{gang}"), Workload)) if found.at is not None else 0
    return [
        Figure(
            name=f"{NODES} nodes, {pods} pods of others: a gang has its rack after",
            value=found.at - began if found.at is not None else float("inf"),
            unit="s",
            target=TARGET_SECONDS,
            note=f"{placed} of {GANG} pods have places; seconds of CPU: {shares}",
        ),
        Figure(name="peak memory until then", value=peak_memory_mib(bed.manager.pid), unit="MiB", target=TARGET_MIB),
    ]


def _queue_gang(scenario: Scenario) -> str:
    """A Workload that asks for a rack of nodes that do not exist yet; its name."""
    topology, flavor = scenario.named("racks"), scenario.named("gpu")
    levels = [{"nodeLabel": level} for level in LEVELS]
    for kind, name, spec in (
        ("Topology", topology, {"levels": levels}),
        ("ResourceFlavor", flavor, {"nodeLabels": {"pool": "gpu"}, "topologyName": topology}),
    ):
        scenario.create({"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec})
    queue = scenario.queue("gpus", {flavor: {"cpu": 100_000}})
    scenario.api.wait_for(
        resource_path(GROUP, "clusterqueues", queue),
        lambda found: condition(found, "Active").get("status") == "True",
        describe="Active",
    )
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "10"}}}
    pod_set = {
        "name": "main",
        "count": GANG,
        "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
        "topologyRequest": {"required": "rack"},
    }
    meta = {"name": "gang", "namespace": scenario.namespace}
    spec = {"queueName": "gpus", "podSets": [pod_set]}
    scenario.api.create({"apiVersion": GROUP, "kind": "Workload", "metadata": meta, "spec": spec})
    scenario.api.wait_for(
        resource_path(GROUP, "workloads", "gang", namespace=scenario.namespace),
        lambda found: condition(found, "QuotaReserved").get("status") == "False",
        describe="the gang waits",
    )
    return "gang"


async def _fill(bed: Bed, namespace: str, pods: int) -> None:
    """Nodes that are Ready, and pods that run on them."""
    api, etcd = bed.control_plane.api, bed.control_plane.etcd
    labels = {"block": "block-0", "rack": "rack-000", "pool": "gpu"}
    node = nodes.node("big-0000", labels=labels, cpu=96, memory="2000Gi", extra={"nvidia.com/gpu": 8})
    made = api.create(node)
    images = [{"names": [f"registry.example/i@sha256:{number:064}"], "sizeBytes": 123_456} for number in range(IMAGES)]
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {**node["status"], "images": images, "conditions": [ready]}
    api.patch(f"{resource_path('v1', 'nodes', 'big-0000')}/status", {"status": status})
    api.patch(resource_path("v1", "nodes", "big-0000"), {"spec": {"taints": None}})
    await backlog.copy(etcd, "/registry/minions/big-0000", _nodes(made["metadata"]["uid"]))
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}}
    meta = {"name": "web-00000", "namespace": namespace, "labels": {"app": "web"}}
    spec = {"containers": [container], "nodeName": "big-0000", "automountServiceAccountToken": False}
    made = api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    path = resource_path("v1", "pods", "web-00000", namespace=namespace)
    api.patch(f"{path}/status", {"status": {"phase": "Running"}})
    key = f"/registry/pods/{namespace}/web-00000"
    await backlog.copy(etcd, key, _pods(made["metadata"]["uid"], pods))


def _nodes(uid: str) -> Iterator[dict[str, str]]:
    for number in range(1, NODES):
        rack = number // RACK
        yield {
            "big-0000": f"big-{number:04}",
            "rack-000": f"rack-{rack:03}",
            "block-0": f"block-{rack * RACK * 5 // NODES}",
            uid: f"{uid[:-5]}{number:05}",
        }


def _pods(uid: str, pods: int) -> Iterator[dict[str, str]]:
    for number in range(1, pods):
        yield {
            "web-00000": f"web-{number:05}",
            "big-0000": f"big-{number % NODES:04}",
            uid: f"{uid[:-5]}{number:05}",
        }


def _placed(workload: Workload) -> int:
    """Pods of the gang that have a place."""
    assert workload.status.admission is not None
    assigned = workload.status.admission.pod_set_assignments
    return sum(place.pods for each in assigned for place in decode(each.topology_assignment))
