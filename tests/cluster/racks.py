"""Racks of simulated nodes with a Topology and a flavor, and where the pods of jobs are in them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from testbed.client import Json, wait_until
from tests.cluster.scenario import GROUP, Scenario, job
from tests.unit.controllers.worlds import decode as read
from turnstile.api.topologyassignment import decode
from turnstile.api.workload import Workload

HOST = "kubernetes.io/hostname"
TOPOLOGY = "kueue.x-k8s.io/podset-{}-topology"


class Racks:
    """Nodes of one test in racks of a block, with a Topology and a flavor of them.

    kube-scheduler keeps pods of other tests away from nodes that are `tainted`; the flavor's own pods tolerate it.
    """

    def __init__(
        self,
        scenario: Scenario,
        add_node: Callable[..., str],
        racks: Mapping[str, Sequence[int]],
        *,
        tainted: bool = False,
    ) -> None:
        self.scenario = scenario
        self.pool = {"pool": scenario.named("racks")}
        self.block, self.rack = f"{scenario.namespace}.example/block", f"{scenario.namespace}.example/rack"
        for rack, hosts in racks.items():
            for number, cpus in enumerate(hosts):
                labels = {**self.pool, self.block: "b1", self.rack: rack}
                taints = [f"pool={self.pool['pool']}:NoSchedule"] if tainted else []
                add_node(scenario.named(f"{rack}-{number}"), labels=labels, cpu=cpus, taints=taints)
        self.topology = scenario.named("racks")
        levels = [{"nodeLabel": label} for label in (self.block, self.rack, HOST)]
        meta = {"name": self.topology}
        scenario.create({"apiVersion": GROUP, "kind": "Topology", "metadata": meta, "spec": {"levels": levels}})
        self.flavor = scenario.named("racked")
        spec: Json = {"nodeLabels": self.pool, "topologyName": self.topology}
        if tainted:
            spec["tolerations"] = [{"key": "pool", "operator": "Exists", "effect": "NoSchedule"}]
        meta = {"name": self.flavor}
        scenario.create({"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": meta, "spec": spec})

    def queue(self, cpu: int, **spec: object) -> str:
        """A LocalQueue `team` with so much quota in the flavor."""
        return self.scenario.queue("team", {self.flavor: {"cpu": cpu}}, **spec)

    def job(
        self,
        name: str,
        pods: int,
        *,
        cpu: str = "1",
        indexed: bool = False,
        annotations: Mapping[str, str] | None = None,
        labels: dict[str, str] | None = None,
        **asked: str,
    ) -> Json:
        """A Job of the queue: `required=racks.rack`; `annotations` of its pods are more of these."""
        body = job(name, namespace=self.scenario.namespace, queue="team", pods=pods, cpu=cpu, labels=labels)
        given = body["spec"]["template"]["metadata"]["annotations"]
        given |= {TOPOLOGY.format(mode): level for mode, level in asked.items()}
        given |= annotations or {}
        body["spec"]["backoffLimit"] = 9
        if indexed:
            body["spec"]["completionMode"] = "Indexed"
        return self.scenario.create(body)

    def short(self, node: str) -> str:
        """The name of a node as in the test."""
        return node.removesuffix(f"-{self.scenario.namespace}")

    def assigned(self, name: str, *, kind: str = "Job") -> dict[str, int]:
        """Pods by node, as the admission of a Job says; none if it has just lost its admission."""
        self.scenario.wait_admitted(name, timeout=20, kind=kind)
        found = read(Workload, self.scenario.workload_of(name, kind=kind))
        if found.status.admission is None:
            return {}
        return {
            self.short(place.values[-1]): place.pods
            for each in found.status.admission.pod_set_assignments
            for place in decode(each.topology_assignment)
        }

    def bound(self, name: str, pods: int) -> dict[str, int]:
        """Pods by node, as they run, once so many do."""

        def look() -> list[str]:
            nodes = [each["spec"].get("nodeName", "") for each in self.scenario.pods_of(name)]
            return [self.short(node) for node in nodes if node]

        wait_until(
            lambda: len(look()) == pods, timeout=30, describe=lambda: f"bound: {look()}: {self.scenario.pods_of(name)}"
        )
        return dict(Counter(look()))
