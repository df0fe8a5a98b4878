"""Small clusters of racks as snapshots: nodes, the pods of Workloads on them, and one that waits for room."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import RACK, node, workload
from tests.unit.insight.pending_worlds import team
from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.topology import HOSTNAME, Topology
from turnstile.api.topologyassignment import Domain, encode
from turnstile.api.workload import Workload
from turnstile.controllers.view.managed import keep_bound
from turnstile.insight.snapshot import Snapshot


def racks(hosts: Mapping[str, Sequence[int]], *queues: Any) -> Snapshot:
    """Racks with nodes of so many CPUs, and a queue with 100 CPUs on them."""
    snapshot = Snapshot()
    levels = {"spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOSTNAME}]}}
    for each in (
        team(),
        b.flavor("gpu", topologyName="default", nodeLabels={"pool": "gpu"}),
        msgspec.convert({"metadata": {"name": "default"}, **levels}, Topology),
        *(queues or (b.queue("main", {"gpu": {"cpu": 100}}),)),
        b.local("main", "main"),
    ):
        snapshot.put(each)
    for rack, cpus in hosts.items():
        for number, cpu in enumerate(cpus):
            snapshot.put(node(f"{rack}-{number}", rack, cpu))
    snapshot.objects.setdefault(Pod, {})
    return snapshot


def runs(snapshot: Snapshot, name: str, at: Mapping[str, int], **more: Any) -> Workload:
    """A Workload runs with so many pods of one CPU on each of these nodes."""
    count = sum(at.values())
    body = msgspec.to_builtins(workload(name, count, **more))
    places = [Domain((host,), pods) for host, pods in sorted(at.items())]
    assigned = {
        "name": "main",
        "count": count,
        "flavors": {"cpu": "gpu"},
        "resourceUsage": {"cpu": str(count)},
        "topologyAssignment": msgspec.to_builtins(encode((HOSTNAME,), places)),
    }
    conditions = [
        {"type": each, "status": "True", "reason": each, "message": "", "lastTransitionTime": b.stamp(1)}
        for each in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": more.get("queue", "main"), "podSetAssignments": [assigned]}
    body["status"] = {"admission": admission, "conditions": conditions}
    found = msgspec.convert(body, Workload)
    snapshot.put(found)
    for host, pods in at.items():
        for number in range(pods):
            snapshot.put(pod(f"{name}-{host}-{number}", host, workload=name))
    return found


def pod(name: str, host: str, *, workload: str = "", cpu: int = 1) -> Pod:
    """A pod of one CPU that runs on a node, as pages and commands keep it."""
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}
    body = {
        "metadata": {"name": name, "namespace": "team", "annotations": {names.WORKLOAD: workload} if workload else {}},
        "spec": {"nodeName": host, "containers": [container]},
        "status": {"phase": "Running"},
    }
    found = Pod.decoder()(msgspec.json.encode(body))
    keep_bound(found)
    return found
