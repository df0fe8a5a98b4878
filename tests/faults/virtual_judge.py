"""Judges virtual histories from objects alone: no node and no quota ever has more than it takes, and at rest all that
holds quota runs, and no pod of it is gated or without a node. Must never read what a leader thinks.
"""

from collections import Counter
from typing import Final

import msgspec

from tests.faults.virtual_cluster import (
    NAMESPACE,
    NODES,
    Cluster,
    cpus,
    host_of,
    is_over,
    true,
    workload_of,
)
from tests.faults.virtual_server import Json, Server, key_of
from turnstile.api.core import Job, Pod
from turnstile.api.meta import Kind
from turnstile.api.topology import TopologyAssignment
from turnstile.api.topologyassignment import decode
from turnstile.api.workload import Workload

PREEMPTED: Final = "seen evicted: Preempted"
QUOTA: Final = {"a": 7, "b": 5}
"""CPUs of each ClusterQueue."""


def holds(workload: Json) -> bool:
    """Whether a Workload holds quota."""
    return true(workload, "QuotaReserved") and not true(workload, "Finished")


class Judge:
    """Sees each change of a server, and is asked once nothing changes any more."""

    def __init__(self, server: Server, cluster: Cluster) -> None:
        self.wrong: list[str] = []
        self.figures = Counter[str]()
        """How often a history had what it is about, by its name."""
        self.changes: list[str] = []
        """The name of each object that changed, in order."""
        self._server = server
        self._cluster = cluster
        server.listen(self.change)

    def change(self, kind: type[Kind], key: str, body: Json | None, revision: int) -> None:
        """Judge a change: no node and no quota has more than it takes."""
        self.changes.append(f"{revision} {kind.KIND} {key}")
        if kind is Pod:
            running = sum(
                cpus(each) for each in self._cluster.pods if each["spec"].get("nodeName") and not is_over(each)
            )
            if running > sum(QUOTA.values()):
                self.wrong.append(f"{revision}: pods use {running} of {sum(QUOTA.values())} CPUs")
        if kind is not Workload:
            return
        used, charged = Counter[str](), 0
        for workload in filter(holds, self._server.all(Workload)):
            charged += self._charge(workload, used)
        if over := {name: amount for name, amount in used.items() if amount > NODES[name]}:
            self.wrong.append(f"{revision}: nodes have more than they take after a change of {key}: {over}")
        if charged > sum(QUOTA.values()):
            self.wrong.append(f"{revision}: {charged} CPUs are charged after a change of {key}")
        self._count(body or {})

    def _charge(self, workload: Json, used: Counter[str]) -> int:
        """The CPUs that a Workload is charged for; those of its places are added to `used`, by node. Which places the
        pods that are done give back is seen from the pods that are left. Places on failed nodes are given up before
        others are written."""
        status, charged = workload["status"], 0
        done = {each["name"]: each["count"] for each in status.get("reclaimablePods", ())}
        failed = {each["name"] for each in status.get("unhealthyNodes") or ()}
        for given in status["admission"]["podSetAssignments"]:
            each = int(given["resourceUsage"]["cpu"]) // max(1, given["count"])
            charged += each * (given["count"] - done.get(given["name"], 0))
            if done:
                for pod in self._cluster.pods:
                    if workload_of(pod) == workload["metadata"]["name"] and not is_over(pod) and (host := host_of(pod)):
                        used[host] += cpus(pod)
                continue
            assigned = msgspec.convert(given.get("topologyAssignment") or {}, TopologyAssignment)
            placed = 0
            for place in decode(assigned):
                placed += place.pods
                if place.values[-1] not in failed:
                    used[place.values[-1]] += place.pods * each
            if placed != given["count"]:
                self.wrong.append(f"{key_of(workload)} has places for {placed} of {given['count']} pods")
        return charged

    def _count(self, workload: Json) -> None:
        conditions = {each["type"]: each for each in workload.get("status", {}).get("conditions", ())}
        if (evicted := conditions.get("Evicted")) is not None and evicted["status"] == "True":
            self.figures[f"seen evicted: {evicted['reason']}"] += 1
        if workload.get("status", {}).get("unhealthyNodes"):
            self.figures["seen with failed nodes"] += 1

    def at_rest(self) -> None:
        """Judge the pods and Workloads that are left: those with quota run, and all others have none."""
        self.figures["rested"] += 1
        if gated := [key_of(each) for each in self._cluster.pods if each["spec"].get("schedulingGates")]:
            self.wrong.append(f"gated at rest: {gated}")
        if waiting := [key_of(each) for each in self._cluster.pods if self._waits_for_a_node(each)]:
            self.wrong.append(f"without a node at rest: {waiting}")
        for workload in filter(holds, self._server.all(Workload)):
            job = self._server.find(Job, f"{NAMESPACE}/{workload['metadata']['ownerReferences'][0]['name']}")
            if true(workload, "Evicted") or job is None or job["spec"]["suspend"]:
                self.wrong.append(f"{key_of(workload)} holds quota at rest, and its Job does not run")

    def _waits_for_a_node(self, pod: Json) -> bool:
        """Whether a pod has no node, though no other pod of its Workload runs where it has to. Such a node, if it takes
        no new pods, is given up once no pod of the Workload runs there any more."""
        if pod["spec"].get("nodeName") or is_over(pod):
            return False
        host = host_of(pod)
        beside = [each for each in self._cluster.pods if each["spec"].get("nodeName") == host and not is_over(each)]
        return self._cluster.takes_pods(host) or workload_of(pod) not in map(workload_of, beside)
