"""Pods go to the racks and nodes that their Workload was given: on a real control plane with simulated nodes."""

from collections import Counter
from collections.abc import Callable

import pytest

from testbed.client import condition, resource_path, wait_until
from testbed.components import STOP_FOR
from tests.cluster.racks import Racks
from tests.cluster.scenario import QUEUE, Scenario
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

INDEX = "batch.kubernetes.io/job-completion-index"


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
    """Pods of an Indexed Job go to the nodes of the assignment in the order of their indexes, not of their names."""
    racks = Racks(scenario, add_node, {"r1": [5, 5, 5]})
    racks.queue(100)
    racks.job("train", 12, indexed=True, required=racks.rack)
    racks.bound("train", 12)
    where = {int(each["metadata"]["labels"][INDEX]): each["spec"]["nodeName"] for each in scenario.pods_of("train")}
    given = [node for node, pods in racks.assigned("train").items() for _ in range(pods)]
    assert [racks.short(where[rank]) for rank in range(12)] == given


def test_a_preferred_level_is_given_up_before_the_job_waits(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """One rack if there is one; else as few as possible, the largest first."""
    racks = Racks(scenario, add_node, {"r1": [2], "r2": [3], "r3": [1]})
    racks.queue(100)
    racks.job("small", 2, preferred=racks.rack)
    assert racks.assigned("small") == {"r1-0": 2}
    racks.job("large", 4, preferred=racks.rack)
    assert racks.bound("large", 4) == {"r2-0": 3, "r3-0": 1}


def test_slices_stay_together_each(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """In one block, and each slice of two pods on one node."""
    racks = Racks(scenario, add_node, {"r1": [3], "r2": [2], "r3": [1]})
    racks.queue(100)
    slices = {
        "kueue.x-k8s.io/podset-slice-required-topology": "kubernetes.io/hostname",
        "kueue.x-k8s.io/podset-slice-size": "2",
    }
    racks.job("train", 4, required=racks.block, annotations=slices)
    assert racks.bound("train", 4) == {"r1-0": 2, "r2-0": 2}


def test_a_job_that_asks_for_nothing_gets_places_too(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """Where all flavors have a Topology: the fullest nodes that do, so that whole racks stay free."""
    racks = Racks(scenario, add_node, {"r1": [4], "r2": [2]})
    racks.queue(100)
    racks.job("plain", 2)
    assert racks.bound("plain", 2) == {"r2-0": 2}


def test_pods_of_a_group_are_on_one_rack(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """Each pod asks for it, and all are placed together."""
    racks = Racks(scenario, add_node, {"r1": [2], "r2": [1, 2]})
    racks.queue(100)
    annotations = {
        "kueue.x-k8s.io/pod-group-total-count": "3",
        "kueue.x-k8s.io/podset-required-topology": racks.rack,
    }
    container = {"name": "main", "image": "registry.example/main:1", "resources": {"requests": {"cpu": "1"}}}
    for number in range(3):
        meta = {
            "name": f"ring-{number}",
            "namespace": scenario.namespace,
            "labels": {QUEUE: "team", "kueue.x-k8s.io/pod-group-name": "ring"},
            "annotations": annotations,
        }
        scenario.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}})

    def nodes() -> list[str]:
        pods = scenario.api.items(resource_path("v1", "pods", namespace=scenario.namespace))
        return [racks.short(each["spec"]["nodeName"]) for each in pods if each["spec"].get("nodeName")]

    wait_until(lambda: len(nodes()) == 3, timeout=30, describe=lambda: f"bound: {nodes()}")
    assert Counter(nodes()) == {"r2-0": 1, "r2-1": 2}


def test_pods_that_are_made_later_go_where_the_others_were(
    scenario: Scenario, add_node: Callable[..., str], turnstile: Turnstile
) -> None:
    """Also those that were made while no controller ran, as when a cluster moves over: by their ranks."""
    racks = Racks(scenario, add_node, {"r1": [2, 2]})
    racks.queue(100)
    racks.job("train", 4, indexed=True, required=racks.rack)
    racks.bound("train", 4)
    where = {each["metadata"]["labels"][INDEX]: each["spec"]["nodeName"] for each in scenario.pods_of("train")}
    turnstile.crash()
    (first,) = (each for each in scenario.pods_of("train") if each["metadata"]["labels"][INDEX] == "3")
    path = resource_path("v1", "pods", first["metadata"]["name"], namespace=scenario.namespace)
    scenario.api.delete(path, grace_seconds=0)

    def replaced() -> bool:
        pods = scenario.pods_of("train")
        return len(pods) == 4 and any(not each["spec"].get("nodeName") for each in pods)

    wait_until(replaced, timeout=20, describe=lambda: "no other pod is made")
    turnstile.start_with()
    assert racks.bound("train", 4) == {"r1-0": 2, "r1-1": 2}
    now = {each["metadata"]["labels"][INDEX]: each["spec"]["nodeName"] for each in scenario.pods_of("train")}
    assert now == where


def test_pods_that_drain_keep_their_nodes(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """A Job that is deleted gives its nodes to others when its pods are gone, and not before."""
    racks = Racks(scenario, add_node, {"r1": [2]})
    racks.queue(100)
    racks.job("first", 2, required=racks.rack, annotations={STOP_FOR: "6s"})
    racks.bound("first", 2)
    scenario.delete_job("first")
    racks.job("second", 2, required=racks.rack)
    scenario.wait_pending("second", timeout=20)
    assert racks.bound("second", 2) == {"r1-0": 2}
    assert scenario.pods_of("first") == []


def test_a_rack_is_freed_by_preemption(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """There is quota for both, and one rack."""
    racks = Racks(scenario, add_node, {"r1": [2, 2], "r2": [1]})
    racks.queue(100, preemption={"withinClusterQueue": "LowerPriority"})
    urgent = {"kueue.x-k8s.io/priority-class": scenario.priority_class("urgent", 1000)}
    racks.job("low", 3, required=racks.rack)
    assert racks.bound("low", 3) == {"r1-0": 1, "r1-1": 2} or racks.bound("low", 3) == {"r1-0": 2, "r1-1": 1}
    racks.job("high", 4, required=racks.rack, labels=urgent)
    assert racks.bound("high", 4) == {"r1-0": 2, "r1-1": 2}
    found = scenario.wait_workload("low", lambda each: condition(each, "Preempted"))
    assert condition(found, "Preempted")["status"] == "True"


def test_one_job_of_a_rack_makes_way_instead_of_two_in_two_racks(
    scenario: Scenario, add_node: Callable[..., str]
) -> None:
    """The two were admitted last, and would free as much quota, and a rack besides."""
    racks = Racks(scenario, add_node, {"r1": [4], "r2": [4], "r3": [4]})
    racks.queue(10, preemption={"withinClusterQueue": "LowerPriority"})
    urgent, kept = (
        {"kueue.x-k8s.io/priority-class": scenario.priority_class(name, value)}
        for name, value in (("urgent", 1000), ("kept", 2000))
    )
    racks.job("whole", 4, required=racks.rack)
    assert racks.bound("whole", 4) == {"r1-0": 4}
    racks.job("kept", 2, required=racks.rack, labels=kept)
    assert racks.bound("kept", 2) == {"r2-0": 2}
    racks.job("first", 2, required=racks.rack)
    assert racks.bound("first", 2) == {"r2-0": 2}
    racks.job("second", 2, required=racks.rack)
    assert racks.bound("second", 2) == {"r3-0": 2}
    racks.job("high", 4, required=racks.rack, labels=urgent)
    assert racks.bound("high", 4) == {"r1-0": 4}
    found = scenario.wait_workload("whole", lambda each: condition(each, "Preempted"))
    assert condition(found, "Preempted")["status"] == "True"
    for name, host in (("first", "r2-0"), ("second", "r3-0")):
        assert not condition(scenario.workload_of(name), "Evicted")
        assert racks.bound(name, 2) == {host: 2}


def test_a_missing_topology_stops_its_queues(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """With Kueue's reason; it comes back, and so do they."""
    racks = Racks(scenario, add_node, {"r1": [2]})
    full = racks.queue(100)
    path = resource_path("kueue.x-k8s.io/v1beta2", "clusterqueues", full)
    scenario.api.wait_for(path, lambda found: condition(found, "Active").get("status") == "True", describe="Active")
    flavor = scenario.named("lost")
    spec = {"nodeLabels": racks.pool, "topologyName": scenario.named("nowhere")}
    meta = {"name": flavor}
    scenario.create({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": meta, "spec": spec})
    other = scenario.cluster_queue("other", {flavor: {"cpu": 1}})
    path = resource_path("kueue.x-k8s.io/v1beta2", "clusterqueues", other)
    found = scenario.api.wait_for(path, lambda seen: condition(seen, "Active"), describe="judged")
    told = condition(found, "Active")
    assert (told["status"], told["reason"]) == ("False", "TopologyNotFound")
    missing = f'there is no Topology "{scenario.named("nowhere")}" for TAS flavor "{flavor}"'
    assert told["message"] == f"Can't admit new workloads: {missing}."
