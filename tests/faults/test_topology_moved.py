"""Assignments of Workloads that run when Turnstile takes a cluster over: their pods keep their places, whatever has
become of the Topology, the flavor and the nodes since."""

from collections.abc import Callable

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from tests.cluster.racks import HOST, Racks
from tests.cluster.scenario import GROUP, Scenario, resource_groups
from tests.faults.test_topology_failures import INDEX, by_rank
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

OLD = "kueue.x-k8s.io/v1beta1"


def runs(racks: Racks, name: str, pods: int) -> dict[int, str]:
    """An Indexed Job that runs on one rack: the node of each rank."""
    racks.job(name, pods, indexed=True, required=racks.rack)
    racks.bound(name, pods)
    return by_rank(racks, name)


def replace(racks: Racks, name: str, rank: int) -> None:
    """Delete a pod while nobody leads, and wait for the one that its controller makes in its place: after ten seconds
    for the first pod of a Job, and twice as many for each further one."""
    scenario = racks.scenario
    (old,) = (each for each in scenario.pods_of(name) if each["metadata"]["labels"][INDEX] == str(rank))
    path = resource_path("v1", "pods", old["metadata"]["name"], namespace=scenario.namespace)
    scenario.api.delete(path, grace_seconds=0)

    def replaced() -> bool:
        now = [each for each in scenario.pods_of(name) if each["metadata"]["labels"][INDEX] == str(rank)]
        return [each["metadata"]["uid"] for each in now] not in ([], [old["metadata"]["uid"]])

    wait_until(replaced, timeout=60, describe=lambda: "no other pod is made")


def assign(racks: Racks, name: str, levels: list[str], domains: list[Json]) -> None:
    """Have the Workload of a Job say where its pods are, in the form of v1beta1."""
    scenario = racks.scenario
    path = resource_path(OLD, "workloads", scenario.workload_of(name)["metadata"]["name"], namespace=scenario.namespace)
    admission = scenario.api.get(path)["status"]["admission"]
    admission["podSetAssignments"][0]["topologyAssignment"] = {"levels": levels, "domains": domains}
    scenario.api.patch(f"{path}/status", {"status": {"admission": admission}})


def retire(racks: Racks, queue: str, other: str, cpu: int = 100) -> None:
    """Take the flavor with the Topology out of the ClusterQueue, and delete both."""
    scenario = racks.scenario
    scenario.patch_queue(queue, {"resourceGroups": resource_groups({other: {"cpu": cpu}})})
    for plural, name in (("resourceflavors", racks.flavor), ("topologies", racks.topology)):
        path = resource_path(GROUP, plural, name)
        scenario.api.delete(path)
        scenario.api.wait_gone(path)


def test_the_order_of_domains_decides(scenario: Scenario, add_node: Callable[..., str], turnstile: Turnstile) -> None:
    """An assignment in the form of v1beta1 with all levels, as older versions of Kueue wrote it."""
    racks = Racks(scenario, add_node, {"r1": [1, 1], "r2": [1]})
    racks.queue(100)
    runs(racks, "train", 2)
    hosts = [scenario.named(each) for each in ("r1-1", "r1-0")]
    levels = [racks.block, racks.rack, HOST]
    assign(racks, "train", levels, [{"values": ["b1", "r1", host], "count": 1} for host in hosts])
    turnstile.crash()
    for rank in range(2):
        replace(racks, "train", rank)
    turnstile.start_with()
    racks.bound("train", 2)
    assert by_rank(racks, "train") == {0: "r1-1", 1: "r1-0"}
    racks.job("late", 2, required=racks.rack)
    assert "allows to fit only 1 out of 2 pod(s)" in scenario.wait_pending("late", timeout=20)["message"]


def test_without_a_topology(scenario: Scenario, add_node: Callable[..., str], turnstile: Turnstile) -> None:
    """The flavor and its Topology are gone. Pods go by their ranks, and not by their names, of which the tenth is
    before the second."""
    racks = Racks(scenario, add_node, {"r1": [3, 8]})
    queue = racks.queue(100)
    where = runs(racks, "train", 11)
    retire(racks, queue, scenario.flavor("plain"))
    turnstile.crash()
    replace(racks, "train", 2)
    replace(racks, "train", 10)
    turnstile.start_with()
    racks.bound("train", 11)
    assert by_rank(racks, "train") == where


def test_without_a_topology_and_a_node(scenario: Scenario, add_node: Callable[..., str], turnstile: Turnstile) -> None:
    """Pods would wait for ever for a node that is gone."""
    racks = Racks(scenario, add_node, {"r1": [2, 2]})
    queue = racks.queue(100)
    runs(racks, "train", 4)
    retire(racks, queue, scenario.flavor("plain"))
    turnstile.crash()
    turnstile.installation.control_plane.remove_node(scenario.named("r1-1"))
    turnstile.start_with()
    found = scenario.wait_workload("train", lambda each: condition(each, "Evicted"), timeout=40)
    assert condition(found, "Evicted")["reason"] == "NodeFailures"


@pytest.mark.parametrize("wide", [True, False], ids=["racks", "hosts"])
def test_with_other_levels(wide: bool, scenario: Scenario, add_node: Callable[..., str], turnstile: Turnstile) -> None:
    """The Topology had another lowest level when the Workload was admitted: its pods take room where they run."""
    racks = Racks(scenario, add_node, {"r1": [2, 2], "r2": [1]})
    queue = racks.queue(100)
    where = runs(racks, "train", 3)
    levels = [{"nodeLabel": label} for label in ([racks.block, racks.rack] if wide else [racks.rack, HOST])]
    if not wide:
        assign(racks, "train", [racks.block, racks.rack], [{"values": ["b1", "r1"], "count": 3}])
    retire(racks, queue, scenario.flavor("plain"))
    meta = {"name": racks.topology}
    scenario.create({"apiVersion": GROUP, "kind": "Topology", "metadata": meta, "spec": {"levels": levels}})
    spec: Json = {"nodeLabels": racks.pool, "topologyName": racks.topology}
    meta = {"name": racks.flavor}
    scenario.create({"apiVersion": GROUP, "kind": "ResourceFlavor", "metadata": meta, "spec": spec})
    scenario.patch_queue(queue, {"resourceGroups": resource_groups({racks.flavor: {"cpu": 100}})})
    turnstile.crash()
    for rank in range(3):
        replace(racks, "train", rank)
    turnstile.start_with()
    racks.bound("train", 3)
    racks.job("late", 2, required=racks.rack)
    assert "allows to fit only 1 out of 2 pod(s)" in scenario.wait_pending("late", timeout=20)["message"]
    if wide:
        assert by_rank(racks, "train") == where
    else:
        assert {node[:2] for node in by_rank(racks, "train").values()} == {"r1"}
