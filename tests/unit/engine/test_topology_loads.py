"""The usage of a node follows the pods that are bound to it, whatever Workload they name."""

from typing import Any

import msgspec

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import RACK, free, node, workload, world
from turnstile.api.core import Pod
from turnstile.engine import State
from turnstile.engine.cycle.cycle import cycle
from turnstile.engine.intake import PLACES


def pod(name: str, host: str, *, of: str = "", cpus: int = 1, phase: str = "Running", namespace: str = "team") -> Pod:
    """A pod that is bound."""
    annotations = {"kueue.x-k8s.io/workload": of} if of else {}
    spec = {"nodeName": host, "containers": [{"resources": {"requests": {"cpu": str(cpus)}}}]}
    meta = {"name": name, "namespace": namespace, "annotations": annotations}
    body = {"metadata": meta, "spec": spec, "status": {"phase": phase}}
    return msgspec.json.decode(msgspec.json.encode(body), type=Pod)


def put(state: State, *pods: Pod) -> None:
    """Pods as they are now."""
    for each in pods:
        PLACES[Pod].put(state, each, b.NOW)


def admitted(state: State, name: str, count: int, **request: Any) -> Any:
    """A Workload that holds quota and places, as the API has it."""
    base = workload(name, count, **request)
    state.put_workload(base, b.NOW)
    cycle(state, b.NOW)
    written = b.reserved(base, state)
    state.put_workload(written, b.NOW)
    return written


def test_pods_of_an_admitted_workload_count_once() -> None:
    """In its places, from the admission on."""
    state = world(racks={"r1": [4]})
    admitted(state, "w", 3)
    put(state, *(pod(f"w-{number}", "r1-0", of="w") for number in range(3)))
    assert free(state) == {"r1-0": 1000}


def test_a_pod_that_names_the_workload_of_another_counts() -> None:
    """A Workload's places cover as much as it holds there, and no pod more."""
    state = world(racks={"r1": [8]})
    admitted(state, "w", 3)
    put(state, *(pod(f"w-{number}", "r1-0", of="w") for number in range(5)))
    assert free(state) == {"r1-0": 3000}


def test_a_pod_that_asks_for_more_than_its_place_counts_for_that() -> None:
    """Amounts decide, not the number of pods."""
    state = world(racks={"r1": [8]})
    admitted(state, "w", 2)
    put(state, pod("w-0", "r1-0", of="w", cpus=4))
    assert free(state) == {"r1-0": 4000}


def test_a_pod_elsewhere_counts_there() -> None:
    """A Workload that holds places on one node covers nothing on another, nor one of another namespace."""
    state = world(racks={"r1": [2], "r2": [2]})
    admitted(state, "w", 2)
    put(state, pod("w-0", "r2-0", of="w"), pod("w-0", "r1-0", of="w", namespace="other"))
    assert free(state) == {"r1-0": -1000, "r2-0": 1000}


def test_pods_that_outlive_their_workload_count_until_they_are_gone() -> None:
    """So nobody is put on a node that drains; its place is free when they end, and what waited is tried again."""
    state = world(racks={"r1": [3]})
    admitted(state, "w", 3)
    put(state, *(pod(f"w-{number}", "r1-0", of="w") for number in range(3)))
    state.drop_workload("team/w")
    assert free(state) == {"r1-0": 0}
    state.put_workload(workload("next", 3, second=1), b.NOW)
    assert b.settle(state)[-1].outcome == "pending"
    put(state, *(pod(f"w-{number}", "r1-0", of="w", phase="Succeeded") for number in range(3)))
    assert b.settle(state)[-1].outcome == "admit"


def test_pods_that_are_seen_before_the_admission_count_once_with_it() -> None:
    """A leader that starts may be told of pods first."""
    state = world(racks={"r1": [4]})
    put(state, *(pod(f"w-{number}", "r1-0", of="w") for number in range(3)))
    assert free(state) == {"r1-0": 1000}
    running = world(racks={"r1": [4]})
    state.put_workload(admitted(running, "w", 3), b.NOW)
    assert free(state) == {"r1-0": 1000}
    state.drop_workload("team/w")
    assert free(state) == {"r1-0": 1000}


def test_a_node_that_comes_back_has_its_pods() -> None:
    """Those in places and the others."""
    state = world(racks={"r1": [8]})
    admitted(state, "w", 2)
    put(state, pod("w-0", "r1-0", of="w"), pod("alien", "r1-0"), pod("more", "r1-0", of="w", cpus=3))
    assert free(state) == {"r1-0": 3000}
    state.drop_node("r1-0")
    state.put_node(node("r1-0", "r1", 8))
    assert free(state) == {"r1-0": 3000}
    for name in ("w-0", "alien", "more"):
        state.drop_pod(f"team/{name}")
    assert free(state) == {"r1-0": 6000}


def test_pods_of_a_wide_domain_count_once() -> None:
    """Where racks are the lowest level, the pods of a Workload count in its rack on whichever node they are."""
    state = world(racks={"r1": [4, 4]})
    state.put_topology("default", (RACK,))
    admitted(state, "w", 4)
    put(state, *(pod(f"w-{number}", "r1-1", of="w") for number in range(4)), pod("alien", "r1-0"))
    (leaf,) = state.surroundings.nodes.trees["gpu"].leaves
    assert leaf.capacity.free.amounts["cpu"] == 3000


def test_the_end_of_a_pod_in_its_place_is_no_news() -> None:
    """Its place is held until its Workload ends, so nothing is tried again for it."""
    state = world(racks={"r1": [4]})
    admitted(state, "w", 3)
    put(state, pod("w-0", "r1-0", of="w"))
    b.settle(state)
    before = state.log.epoch
    state.drop_pod("team/w-0")
    assert state.log.epoch == before
