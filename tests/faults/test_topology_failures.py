"""Pods of nodes that failed go elsewhere, pods of nodes that are not provisioned yet wait: on a real control plane with
simulated nodes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.autoscaler import Autoscaler
from testbed.client import Json, condition, resource_path, wait_until
from testbed.controlplane import ControlPlane
from tests.cluster.racks import Racks
from tests.cluster.scenario import Scenario
from tests.cluster.test_provisioning import World
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

INDEX = "batch.kubernetes.io/job-completion-index"
BROKEN = "example.com/GPUUnhealthy"


@pytest.fixture(scope="module")
def autoscaler(control_plane: ControlPlane) -> Iterator[Autoscaler]:
    """The autoscaler's kind is served; requests are answered by the test."""
    found = Autoscaler(control_plane.api, details={})
    found.install()
    yield found
    found.remove()


def by_rank(racks: Racks, name: str) -> dict[int, str]:
    """The node of each index of an Indexed Job, of pods that are not being deleted and have one."""
    found = {}
    for pod in racks.scenario.pods_of(name):
        over = pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") in ("Failed", "Succeeded")
        if not over and (node := pod["spec"].get("nodeName")):
            found[int(pod["metadata"]["labels"][INDEX])] = racks.short(node)
    return found


def wait_ranks(racks: Racks, name: str, wanted: dict[int, str], *, timeout: float = 60) -> None:
    """Wait until the pods of a Job run there, and its Workload says the same and names no node that failed."""

    def told() -> tuple[dict[int, str], object]:
        return by_rank(racks, name), racks.scenario.workload_of(name).get("status", {}).get("unhealthyNodes")

    wait_until(lambda: told() == (wanted, None), timeout=timeout, describe=lambda: f"{told()}")
    assert racks.assigned(name) == dict.fromkeys(sorted(wanted.values()), 1)


def gang(racks: Racks, pods: int = 3) -> None:
    """A Job that runs on one rack, a pod on each node."""
    racks.queue(100)
    racks.job("train", pods, indexed=True, required=racks.rack)
    wait_ranks(racks, "train", {rank: f"r1-{rank}" for rank in range(pods)})


def taint(racks: Racks, node: str) -> None:
    """Have a node be rid of its pods."""
    taints = [{"key": "example.com/maintenance", "effect": "NoExecute"}]
    racks.scenario.api.patch(resource_path("v1", "nodes", racks.scenario.named(node)), {"spec": {"taints": taints}})


def test_pods_of_a_tainted_node_go_elsewhere_in_the_same_rack(scenario: Scenario, add_node: Callable[..., str]) -> None:
    """The new pod has the rank of the one that had to go; the others keep running where they are."""
    racks = Racks(scenario, add_node, {"r1": [1, 1, 1, 1], "r2": [1, 1, 1, 1]})
    gang(racks)
    before = {pod["metadata"]["name"] for pod in scenario.pods_of("train") if pod["metadata"]["labels"][INDEX] != "1"}
    taint(racks, "r1-1")
    wait_ranks(racks, "train", {0: "r1-0", 1: "r1-3", 2: "r1-2"})
    after = {pod["metadata"]["name"] for pod in scenario.pods_of("train") if pod["metadata"]["labels"][INDEX] != "1"}
    assert after == before


def test_two_nodes_that_are_deleted_while_nobody_leads(
    scenario: Scenario, add_node: Callable[..., str], control_plane: ControlPlane, turnstile: Turnstile
) -> None:
    """The next leader replaces both at once; Kueue would evict the Job."""
    racks = Racks(scenario, add_node, {"r1": [1, 1, 1, 1, 1], "r2": [1, 1]})
    gang(racks)
    turnstile.crash()
    for node in ("r1-0", "r1-2"):
        control_plane.remove_node(scenario.named(node))
    turnstile.start_with()
    wait_ranks(racks, "train", {0: "r1-3", 1: "r1-1", 2: "r1-4"})


def test_a_restart_between_failure_and_replacement(
    scenario: Scenario, add_node: Callable[..., str], control_plane: ControlPlane, turnstile: Turnstile
) -> None:
    """The status names the node that failed, and the next leader finds another one."""
    racks = Racks(scenario, add_node, {"r1": [1, 1, 1, 1]})
    gang(racks)
    control_plane.remove_node(scenario.named("r1-2"))
    scenario.wait_workload("train", lambda found: bool(found.get("status", {}).get("unhealthyNodes")), timeout=10)
    turnstile.crash()
    turnstile.start_with()
    wait_ranks(racks, "train", {0: "r1-0", 1: "r1-1", 2: "r1-3"})


def test_without_a_replacement_the_workload_is_evicted(
    scenario: Scenario, add_node: Callable[..., str], control_plane: ControlPlane
) -> None:
    """It gets another rack, all its pods together."""
    racks = Racks(scenario, add_node, {"r1": [1, 1, 1], "r2": [3, 3]})
    gang(racks)
    gone = scenario.named("r1-1")
    control_plane.remove_node(gone)
    why = f"Workload was evicted as there was no replacement for unhealthy node(s): {gone}"
    scenario.wait_workload("train", lambda found: why in condition(found, "Evicted").get("message", ""), timeout=30)
    wait_until(
        lambda: racks.assigned("train") == {"r2-0": 3}, timeout=60, describe=lambda: f"{racks.assigned('train')}"
    )
    assert racks.bound("train", 3) == {"r2-0": 3}


def test_a_node_that_is_ready_and_does_not_work(
    scenario: Scenario, add_node: Callable[..., str], turnstile: Turnstile, tmp_path: Path
) -> None:
    """A condition that the configuration names says so: its pods are deleted, and nobody gets a place there."""
    racks = Racks(scenario, add_node, {"r1": [1, 1, 1, 1]})
    config = tmp_path / "config.yaml"
    config.write_text(
        f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nnodeFailureConditions: [{BROKEN}]\n"
    )
    turnstile.restart("--config", str(config))
    try:
        gang(racks)
        path = resource_path("v1", "nodes", scenario.named("r1-1")) + "/status"
        now = "2026-01-02T03:04:05Z"
        broken = {"type": BROKEN, "status": "True", "reason": "XID", "message": "", "lastTransitionTime": now}
        scenario.api.patch(path, {"status": {"conditions": [*_conditions(scenario, "r1-1"), broken]}})
        wait_ranks(racks, "train", {0: "r1-0", 1: "r1-3", 2: "r1-2"})
        racks.job("late", 1, required=racks.rack)
        scenario.wait_pending("late", timeout=20)
    finally:
        turnstile.restart()  # with that file it queues Jobs alone, and later tests have other kinds too


def _conditions(scenario: Scenario, node: str) -> list[Json]:
    found: Json = scenario.api.get(resource_path("v1", "nodes", scenario.named(node)))
    conditions: list[Json] = found["status"]["conditions"]
    return conditions


def test_places_are_found_once_the_nodes_are_provisioned(
    scenario: Scenario, add_node: Callable[..., str], autoscaler: Autoscaler
) -> None:
    """Quota is reserved before; the Job starts where there was no node when it was created."""
    racks = Racks(scenario, add_node, {"r1": [1]})
    world = World(scenario, autoscaler)
    check = world.check(world.config())
    racks.queue(100, admissionChecksStrategy={"admissionChecks": [{"name": check}]})
    racks.job("train", 2, required=racks.rack)
    name = world.wait_request(check, job="train")
    (given,) = scenario.workload_of("train")["status"]["admission"]["podSetAssignments"]
    assert given["delayedTopologyRequest"] == "Pending"
    assert "topologyAssignment" not in given
    world.answer(name, "Provisioned")
    waits = scenario.wait_workload(
        "train",
        lambda found: condition(found, "Admitted").get("reason") == "PendingDelayedTopologyRequests",
        timeout=20,
    )
    assert condition(waits, "QuotaReserved").get("status") == "True"
    add_node(scenario.named("r2-0"), labels={**racks.pool, racks.block: "b1", racks.rack: "r2"}, cpu=2)
    assert racks.bound("train", 2) == {"r2-0": 2}
    (given,) = scenario.workload_of("train")["status"]["admission"]["podSetAssignments"]
    assert given["delayedTopologyRequest"] == "Ready"
