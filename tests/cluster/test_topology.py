"""Pods go to the racks and nodes that their Workload was given: on a real control plane with simulated nodes."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from testbed.client import Json, resource_path, wait_until
from tests.cluster.scenario import GROUP, Scenario, job
from tests.turnstile import Turnstile
from tests.unit.controllers.worlds import decode as read
from turnstile.api.topologyassignment import decode
from turnstile.api.workload import Workload

pytestmark = pytest.mark.cluster

HOST = "kubernetes.io/hostname"
TOPOLOGY = "kueue.x-k8s.io/podset-{}-topology"


class Racks:
    """Nodes of one test in racks of a block, with a Topology and a flavor of them."""

    def __init__(self, scenario: Scenario, add_node: Callable[..., str], racks: Mapping[str, Sequence[int]]) -> None:
        self.scenario = scenario
        self.pool = {"pool": scenario.named("racks")}
        self.block, self.rack = f"{scenario.namespace}.example/block", f"{scenario.namespace}.example/rack"
        for rack, hosts in racks.items():
            for number, cpus in enumerate(hosts):
                labels = {**self.pool, self.block: "b1", self.rack: rack}
                add_node(scenario.named(f"{rack}-{number}"), labels=labels, cpu=cpus)
        self.topology = scenario.named("racks")
        levels = [{"nodeLabel": label} for label in (self.block, self.rack, HOST)]
        meta = {"name": self.topology}
        scenario.create({"apiVersion": GROUP, "kind": "Topology", "metadata": meta, "spec": {"levels": levels}})
        self.flavor = scenario.named("racked")
        spec = {"nodeLabels": self.pool, "topologyName": self.topology}
        meta = {"name": self.flavor}
        scenario.create({"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": meta, "spec": spec})

    def queue(self, cpu: int, **spec: object) -> str:
        """A LocalQueue `team` with so much quota in the flavor."""
        return self.scenario.queue("team", {self.flavor: {"cpu": cpu}}, **spec)

    def job(self, name: str, pods: int, *, cpu: str = "1", indexed: bool = False, **asked: str) -> Json:
        """A Job of the queue: `required=racks.rack`."""
        body = job(name, namespace=self.scenario.namespace, queue="team", pods=pods, cpu=cpu)
        annotations = body["spec"]["template"]["metadata"]["annotations"]
        annotations |= {TOPOLOGY.format(mode): level for mode, level in asked.items()}
        if indexed:
            body["spec"]["completionMode"] = "Indexed"
        return self.scenario.create(body)

    def short(self, node: str) -> str:
        """The name of a node as in the test."""
        return node.removesuffix(f"-{self.scenario.namespace}")

    def assigned(self, name: str) -> dict[str, int]:
        """Pods by node, as the admission of a Job says."""
        self.scenario.wait_admitted(name, timeout=20)
        found = read(Workload, self.scenario.workload_of(name))
        assert found.status.admission is not None
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


def test_a_gang_runs_on_one_rack(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """The admission says on which nodes, and its pods run there although others are free."""
    racks = Racks(scenario, add_node, {"r1": [2, 1], "r2": [2, 2], "r3": [8]})
    racks.queue(100)
    racks.job("other", 7, required=racks.rack)
    assert racks.assigned("other") == {"r3-0": 7}
    racks.job("train", 4, required=racks.rack)
    assert racks.assigned("train") == {"r2-0": 2, "r2-1": 2}
    assert racks.bound("train", 4) == {"r2-0": 2, "r2-1": 2}


def test_a_gang_that_is_too_large_waits_and_says_why(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """Until a rack has room for all of it: here when a node comes."""
    racks = Racks(scenario, add_node, {"r1": [2, 1], "r2": [2]})
    racks.queue(100)
    racks.job("train", 5, required=racks.rack)
    found = scenario.wait_pending("train", timeout=20)
    assert f'topology "{racks.topology}" allows to fit only 3 out of 5 pod(s)' in found["message"]
    add_node(scenario.named("r1-2"), labels={**racks.pool, racks.block: "b1", racks.rack: "r1"}, cpu=2)
    assert racks.assigned("train") == {"r1-0": 2, "r1-1": 1, "r1-2": 2}
    assert racks.bound("train", 5) == {"r1-0": 2, "r1-1": 1, "r1-2": 2}


def test_pods_of_others_take_their_room(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """Also those of a namespace that is not managed; once they end, what waited gets it."""
    racks = Racks(scenario, add_node, {"r1": [3]})
    meta = {"name": f"apart-{scenario.namespace}"}
    scenario.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "2"}}}
    spec = {"containers": [container], "nodeName": scenario.named("r1-0")}
    pod_meta = {"name": "alien", "namespace": meta["name"]}
    scenario.create({"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": spec})
    racks.queue(100)
    racks.job("train", 3, required=racks.rack)
    found = scenario.wait_pending("train", timeout=20)
    assert "allows to fit only 1 out of 3 pod(s)" in found["message"]
    scenario.api.delete(resource_path("v1", "pods", "alien", namespace=meta["name"]), grace_seconds=0)
    assert racks.bound("train", 3) == {"r1-0": 3}


def test_a_restart_keeps_the_places_of_what_runs(
    scenario: Scenario, add_node: Callable[..., str], turnstile: Turnstile
) -> None:
    """The next leader reads the assignments, and gives nobody a place twice."""
    racks = Racks(scenario, add_node, {"r1": [2], "r2": [3]})
    racks.queue(100)
    racks.job("first", 2, required=racks.rack)
    assert racks.bound("first", 2) == {"r1-0": 2}
    turnstile.crash()
    turnstile.start_with()
    racks.job("second", 2, required=racks.rack)
    assert racks.assigned("second") == {"r2-0": 2}
    racks.job("third", 2, required=racks.rack)
    found = scenario.wait_pending("third", timeout=20)
    assert "allows to fit only 1 out of 2 pod(s)" in found["message"]
    assert racks.assigned("first") == {"r1-0": 2}


def test_ranks_are_neighbours(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """Pods of an Indexed Job go to the nodes of the assignment in the order of their indexes."""
    racks = Racks(scenario, add_node, {"r1": [2, 2, 2]})
    racks.queue(100)
    racks.job("train", 5, indexed=True, required=racks.rack)
    racks.bound("train", 5)
    index = "batch.kubernetes.io/job-completion-index"
    where = {int(each["metadata"]["labels"][index]): each["spec"]["nodeName"] for each in scenario.pods_of("train")}
    given = [node for node, pods in racks.assigned("train").items() for _ in range(pods)]
    assert [racks.short(where[rank]) for rank in range(5)] == given
