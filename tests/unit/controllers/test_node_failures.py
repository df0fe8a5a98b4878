"""Which nodes of a Workload count as failed, and what becomes of its pods there."""

from typing import Any

import orjson
import pytest

from tests.unit.controllers.test_ungater import HOST, charging, pod
from tests.unit.controllers.worlds import decode, world
from turnstile.api import names
from turnstile.api.core import Node, Pod
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Action, Delete, Emit, Patch, ReconcileResult, RequeueAfter
from turnstile.controllers.topology.failures import controller, decide, dispatch
from turnstile.engine.pace import finish
from turnstile.jobs.options import JobOptions, NodeFailureOptions

Json = dict[str, Any]


def node(name: str, *, ready: str = "True", since: str = "2026-01-02T03:04:00Z", host: str = "", **more: Any) -> Node:
    """A node; `more` are its taints, and other conditions that are True."""
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": since}]
    conditions += [{"type": each, "status": "True"} for each in more.get("conditions", ())]
    meta = {"name": name, "labels": {HOST: host or name}}
    taints = [{"key": each, "effect": "NoSchedule"} for each in more.get("taints", ())]
    return decode(Node, {"metadata": meta, "spec": {"taints": taints}, "status": {"conditions": conditions}})


def running(name: str, on: str) -> Pod:
    """A pod that runs on a node."""
    return pod(name, schedulingGates=[], nodeName=on, phase="Running")


def starting(name: str, on: str) -> Pod:
    """A pod that selects a host and has no node."""
    return pod(name, schedulingGates=[], nodeSelector={HOST: on})


def on_hosts(*hosts: str, unhealthy: tuple[str, ...] = ()) -> Workload:
    """A Workload with a pod on each host."""
    failed = [{"name": each} for each in unhealthy]
    return charging(*((host, 1) for host in hosts), level=HOST, unhealthyNodes=failed)


def decided(workload: Workload, *objects: Node | Pod, **options: Any) -> ReconcileResult:
    """The decision about the Workload."""
    failures = NodeFailureOptions(**options)
    cluster = world(workload, *objects, options=JobOptions(node_failures=failures))
    return finish(decide("ns/wl", cluster))


def marked(*given: Any, **options: Any) -> list[str] | None:
    """The nodes that the status of the Workload names as failed; None if it is left as it is."""
    statuses = [status for each in decided(*given, **options).actions if (status := status_of(each)) is not None]
    if not statuses:
        return None
    return [each["name"] for each in statuses[0].get("unhealthyNodes") or ()]


def status_of(action: Action) -> Json | None:
    """The patch of a Workload's status."""
    if not isinstance(action, Patch) or action.kind is not Workload:
        return None
    status: Json = orjson.loads(action.body)["status"]
    return status


class TestFailedNodes:
    def test_all_failed_nodes_are_named_at_once(self) -> None:
        """None is forgotten for another one."""
        given = on_hosts("a", "b", "c", "d", unhealthy=("c",))
        assert marked(given, node("b", ready="Unknown"), node("c", ready="False"), node("d")) == ["a", "b", "c"]

    def test_a_node_that_works_again_is_not_named_any_more(self) -> None:
        """Its pods may run there after all."""
        assert marked(on_hosts("a", unhealthy=("a",)), node("a")) == []

    def test_nothing_is_written_that_is_known(self) -> None:
        """Neither of nodes that work nor of those that are named."""
        assert marked(on_hosts("a"), node("a")) is None
        assert marked(on_hosts("a", unhealthy=("a",))) is None

    def test_a_host_is_found_by_its_label(self) -> None:
        """The name of its node may be another one; Kueue never replaces it then."""
        assert marked(on_hosts("a"), node("a.example.com", host="a", ready="False")) == ["a"]
        pod_there = running("p", "a.example.com")
        assert marked(on_hosts("a"), node("a.example.com", host="a", ready="False"), pod_there) is None

    def test_pods_that_run_on_it_are_waited_for(self) -> None:
        """A node that is not ready, or tainted, may come back; one that is gone does not."""
        pod_there = running("p", "a")
        assert marked(on_hosts("a"), node("a", ready="False"), pod_there) is None
        assert marked(on_hosts("a"), node("a", taints=["maintenance"]), pod_there) is None
        assert marked(on_hosts("a"), pod_there) == ["a"]

    def test_without_waiting_a_node_has_half_a_minute(self) -> None:
        """The gate TASReplaceNodeOnPodTermination is off."""
        late, given = node("a", ready="False", since="2026-01-02T03:03:00Z"), (on_hosts("a"), running("p", "a"))
        assert marked(*given, late, on_pod_termination=False) == ["a"]
        soon = decided(*given, node("a", ready="False"), on_pod_termination=False).actions
        assert soon == [RequeueAfter(25.0)]

    def test_while_a_node_or_pod_may_be_unknown_nothing_is_decided(self) -> None:
        """A node that was not read yet is not gone."""
        cluster = world(on_hosts("a"))
        cluster.nodes.doubt()
        assert finish(decide("ns/wl", cluster)).actions == []

    def test_domains_wider_than_a_host_are_left_alone(self) -> None:
        """Kubernetes finds another node of the rack."""
        assert marked(charging(("r1", 1))) is None

    def test_more_than_can_be_named_evict_the_workload(self) -> None:
        """The status names at most eight nodes."""
        first, event = decided(on_hosts(*"abcdefghi")).actions
        status = status_of(first)
        assert status is not None
        assert [each["reason"] for each in status["conditions"] if each["type"] == "Evicted"] == ["NodeFailures"]
        assert isinstance(event, Emit)
        assert event.reason == "EvictedDueToNodeFailures"


class TestPodsThatCannotStart:
    def test_they_are_failed_so_that_others_are_made(self) -> None:
        """By the status that Kueue writes; a gated pod only waits."""
        given = on_hosts("a", "b"), node("a", ready="False"), node("b")
        actions = decided(*given, starting("p", "a"), starting("q", "b"), pod("r")).actions
        ended = {each.name: orjson.loads(each.body)["status"] for each in actions if isinstance(each, Patch)}
        assert ended.keys() == {"wl", "p"}
        assert ended["p"]["phase"] == "Failed"
        assert ended["p"]["conditions"][0]["reason"] == "UnschedulableOnAssignedNode"

    def test_also_on_a_node_that_is_not_assigned_any_more(self) -> None:
        """The node was replaced while the pod was told to select it."""
        actions = decided(on_hosts("b"), node("b"), starting("p", "a")).actions
        assert [each.name for each in actions if isinstance(each, Patch)] == ["p"]

    def test_not_of_other_workloads(self) -> None:
        """A pod that names the Workload without being one of its pods says nothing."""
        other = starting("p", "a")
        other.metadata.labels = {names.PODSET_LABEL: "other"}
        other.metadata.owner_references = []
        assert decided(on_hosts("b"), node("b"), other).actions == []


class TestConditionsThatTheConfigurationNames:
    def test_its_pods_are_deleted(self) -> None:
        """They run without their devices, and would not end by themselves."""
        broken = node("a", conditions=["GPUUnhealthy"])
        assert marked(on_hosts("a"), broken, running("p", "a")) is None
        actions = decided(on_hosts("a"), broken, running("p", "a"), conditions=frozenset(["GPUUnhealthy"])).actions
        assert marked(on_hosts("a"), broken, conditions=frozenset(["GPUUnhealthy"])) == ["a"]
        assert [each.name for each in actions if isinstance(each, Delete)] == ["p"]


class TestWhatItIsWokenBy:
    @pytest.mark.parametrize(
        ("old", "new", "woken"),
        [
            (node("a"), node("a"), False),
            (node("a"), node("a", conditions=["DiskPressure"]), False),
            (node("a"), node("a", ready="Unknown"), True),
            (node("a"), node("a", taints=["x"]), True),
            (node("a"), None, True),
            (node("b"), None, False),
        ],
        ids=["a heartbeat", "a condition that nobody reads", "not ready", "a taint", "gone", "another node"],
    )
    def test_changes_of_a_node(self, old: Node, new: Node | None, woken: bool) -> None:
        """Only changes that a decision reads, and only Workloads with places on the node."""
        _, of_nodes, _ = controller(world(on_hosts("a"))).watches
        keys = of_nodes.many("a", old, new)
        assert [each for each in keys or () if each] == (["ns/wl"] if woken else [])

    def test_pods_on_nodes_that_work_wake_nobody(self) -> None:
        """A pod that ends on a node which is waited for does."""
        cluster = world(on_hosts("a", "b"), node("a"), node("b", ready="False"))
        _, _, of_pods = controller(cluster).watches
        assert list(of_pods.keys("p", running("p", "a"), None)) == []
        assert list(of_pods.keys("p", running("p", "b"), None)) == ["ns/wl"]


def test_what_was_left_undecided_is_decided_once_all_pods_and_nodes_are_known() -> None:
    """A pod that was made while nobody led, and a node that went, may never change again."""
    cluster = world(on_hosts("h1"))
    found = {store: [*filter(None, targets())] for store, targets in dispatch(cluster).complete.items()}
    assert found == {
        cluster.pods: [("topology-ungater", "ns/wl"), ("node-failures", "ns/wl")],
        cluster.nodes: [("node-failures", "ns/wl")],
    }
