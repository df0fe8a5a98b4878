"""Cycles give Workloads places, take victims for them, and leave the node table as it was where nothing was decided."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine import builders as b
from turnstile.api.core import Node
from turnstile.api.topology import HOSTNAME
from turnstile.api.topologyassignment import Domain, decode, encode
from turnstile.api.workload import Workload
from turnstile.engine import State
from turnstile.engine.cycle.cycle import cycle, cycle_steps
from turnstile.engine.options import Options
from turnstile.engine.quota.trial import Trial

RACK = "rack"
PREEMPTION = {"withinClusterQueue": "LowerPriority"}


def node(name: str, rack: str, cpus: int) -> Node:
    """A node that is ready."""
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": {RACK: rack, HOSTNAME: name, "pool": "gpu"}},
            "status": {
                "allocatable": {"cpu": str(cpus), "pods": "100"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
    )


def world(*queues: Any, racks: dict[str, list[int]], options: Options | None = None) -> State:
    """A state with a flavor of nodes in racks."""
    state = b.world(
        *(queues or (b.queue("main", {"gpu": {"cpu": 100}}, preemption=PREEMPTION),)), flavors=(), options=options
    )
    state.put_flavor(b.flavor("gpu", topologyName="default", nodeLabels={"pool": "gpu"}))
    state.put_topology("default", (RACK, HOSTNAME))
    for rack, hosts in racks.items():
        for number, cpus in enumerate(hosts):
            state.put_node(node(f"{rack}-{number}", rack, cpus))
    return state


def workload(
    name: str, count: int, *, queue: str = "main", priority: int = 0, second: int = 0, **request: Any
) -> Workload:
    """A Workload whose pods of one cpu each ask for a topology."""
    base = b.workload(name, queue, count=count, priority=priority, second=second)
    body = msgspec.to_builtins(base)
    body["spec"]["podSets"][0]["topologyRequest"] = request or {"required": RACK}
    return msgspec.convert(body, Workload)


def running(
    name: str, at: dict[str, int], *, queue: str = "main", priority: int = 0, second: int = 0, evicted: bool = False
) -> Workload:
    """A Workload that was admitted at that second, with so many pods of one CPU on each of these hosts."""
    count = sum(at.values())
    body = msgspec.to_builtins(workload(name, count, queue=queue, priority=priority, second=second))
    places = [Domain((host,), pods) for host, pods in sorted(at.items())]
    assigned = {
        "name": "main",
        "count": count,
        "flavors": {"cpu": "gpu"},
        "resourceUsage": {"cpu": str(count)},
        "topologyAssignment": msgspec.to_builtins(encode((HOSTNAME,), places)),
    }
    kinds = {"QuotaReserved": "QuotaReserved", "Admitted": "Admitted", **({"Evicted": "Preempted"} if evicted else {})}
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": b.stamp(second)}
        for kind, reason in kinds.items()
    ]
    admission = {"clusterQueue": queue, "podSetAssignments": [assigned]}
    return msgspec.convert({**body, "status": {"admission": admission, "conditions": conditions}}, Workload)


def put(state: State, *workloads: Workload) -> None:
    """Workloads are there."""
    for each in workloads:
        state.put_workload(each, b.NOW)


def places(state: State, name: str) -> dict[str, int]:
    """Pods by host of a Workload that holds quota."""
    info = state.ledger.holder(f"team/{name}")
    assert info is not None
    return {place.values[-1]: place.pods for totals in info.totals for place in decode(totals.topology)}


def free(state: State) -> dict[str, int]:
    """Free cpus by host, in thousandths."""
    tree = state.surroundings.nodes.trees["gpu"]
    return {leaf.values[-1]: leaf.capacity.free.amounts["cpu"] for leaf in tree.leaves}


def test_an_admission_says_where_pods_go() -> None:
    """By host, and the place is taken."""
    state = world(racks={"r1": [2, 2]})
    state.put_workload(workload("w", 3), b.NOW)
    decision = b.decide(state)
    assert decision.admission is not None
    (assigned,) = decision.admission.pod_set_assignments
    assert [tuple(place) for place in decode(assigned.topology_assignment)] == [(("r1-0",), 2), (("r1-1",), 1)]
    assert sum(free(state).values()) == 1000


def test_a_pod_set_between_a_leader_and_its_workers_is_placed_by_itself() -> None:
    """Each with what its own pods request: the parameter server of a TFJob comes between the chief and the workers."""
    state = world(racks={"r1": [5, 5], "r2": [2]})
    body = msgspec.to_builtins(workload("gang", 1))
    template = body["spec"]["podSets"][0]["template"]
    large = json.loads(json.dumps(template).replace('"cpu": "1"', '"cpu": "2"'))
    assert large != template
    group = {"required": RACK, "podSetGroupName": "gang"}
    body["spec"]["podSets"] = [
        {"name": "chief", "count": 1, "template": template, "topologyRequest": group},
        {"name": "ps", "count": 1, "template": large, "topologyRequest": {"required": RACK}},
        {"name": "worker", "count": 9, "template": template, "topologyRequest": group},
    ]
    put(state, msgspec.convert(body, Workload))
    decision = b.decide(state, "gang")
    assert decision.admission is not None
    where = {
        each.name: {place.values[-1]: place.pods for place in decode(each.topology_assignment)}
        for each in decision.admission.pod_set_assignments
        if each.topology_assignment is not None
    }
    assert where == {"chief": {"r1-0": 1}, "ps": {"r2-0": 1}, "worker": {"r1-0": 4, "r1-1": 5}}


def test_the_written_admission_counts_as_the_assumed_one() -> None:
    """And what is released is free again."""
    state = world(racks={"r1": [2, 2]})
    base = workload("w", 3)
    state.put_workload(base, b.NOW)
    b.decide(state)
    assumed = free(state)
    state.put_workload(b.reserved(base, state), b.NOW)
    assert free(state) == assumed
    state.drop_workload("team/w")
    assert sum(free(state).values()) == 4000


def test_heads_of_one_cycle_get_different_racks() -> None:
    """The second finds its rack taken, and gets another one in the same cycle."""
    queues = [b.queue(name, {"gpu": {"cpu": 10}}, cohort="all") for name in ("main", "other")]
    state = world(*queues, racks={"r1": [2], "r2": [2]})
    state.put_workload(workload("a", 2), b.NOW)
    state.put_workload(workload("z", 2, queue="other", second=1), b.NOW)
    cycle(state, b.NOW)
    assert {*places(state, "a"), *places(state, "z")} == {"r1-0", "r2-0"}


def test_quota_without_a_place_admits_nothing() -> None:
    """The message says what is there."""
    state = world(racks={"r1": [2], "r2": [2]})
    state.put_workload(workload("w", 3), b.NOW)
    decision = b.decide(state)
    assert decision.outcome == "pending"
    assert decision.condition_reason == "TopologyPlacementFailed"
    assert decision.message == (
        'couldn\'t assign flavors to pod set main: topology "default" allows to fit only 2 out of 3 pod(s)'
    )


def test_a_fragmented_rack_is_freed_by_preemption() -> None:
    """There is quota for all, and no rack for the preemptor until its victim has gone."""
    state = world(racks={"r1": [4]})
    low = workload("low", 3)
    state.put_workload(low, b.NOW)
    cycle(state, b.NOW)
    state.put_workload(b.reserved(low, state), b.NOW)
    state.put_workload(workload("high", 4, priority=5, second=1), b.NOW)
    decision = b.decide(state, "high")
    assert [victim.key for victim in decision.victims] == ["team/low"]
    state.put_workload(b.released(b.reserved(low, state) if state.reservations.assumed else low), b.NOW)
    assert "team/high" in {each.key for each in b.settle(state) if each.outcome == "admit"}


def test_a_node_that_comes_lets_workloads_be_tried_again() -> None:
    """Without any other event."""
    state = world(racks={"r1": [2]})
    state.put_workload(workload("w", 3), b.NOW)
    b.settle(state)
    state.put_node(node("r2-0", "r2", 3))
    b.settle(state)
    assert places(state, "w") == {"r2-0": 3}


def test_a_queue_that_goes_leaves_pods_where_they_are() -> None:
    """Nodes count them once, also when the queue comes back."""
    state = world(racks={"r1": [4]})
    base = workload("w", 3)
    state.put_workload(base, b.NOW)
    b.decide(state)
    state.put_workload(b.reserved(base, state), b.NOW)
    state.drop_cluster_queue("main")
    assert free(state) == {"r1-0": 1000}
    state.put_cluster_queue(b.queue("main", {"gpu": {"cpu": 100}}), b.NOW)
    assert free(state) == {"r1-0": 1000}
    state.drop_cluster_queue("main")
    state.drop_workload("team/w")
    assert free(state) == {"r1-0": 4000}


def test_without_a_topology_nothing_is_placed() -> None:
    """And no tree is kept."""
    state = b.world(b.queue("main"))
    state.put_workload(b.workload("w"), b.NOW)
    assert b.decide(state).outcome == "admit"
    assert not state.surroundings.nodes.trees


@pytest.mark.parametrize("stops", [1, 3, 6])
def test_a_cycle_that_is_abandoned_leaves_nodes_as_they_were(stops: int) -> None:
    """Wherever it is closed."""
    state = world(racks={"r1": [4], "r2": [2]})
    for number in range(4):
        state.put_workload(workload(f"w{number}", 2, second=number), b.NOW)
    before = free(state)
    steps = cycle_steps(state, b.NOW, stretch=1)
    for _ in range(stops):
        next(steps)
    steps.close()
    assert free(state) == before


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2), st.booleans()), min_size=1, max_size=6),
)
def test_no_node_is_ever_over_its_allocatable(hosts: list[int], wanted: list[tuple[int, int, bool]]) -> None:
    """Over drawn Workloads of drawn priorities, some of which end."""
    state = world(racks={"r1": hosts, "r2": hosts})
    for number, (count, priority, ends) in enumerate(wanted):
        base = workload(f"w{number}", count, priority=priority, second=number, preferred=RACK)
        state.put_workload(base, b.NOW)
        b.settle(state)
        assert min(free(state).values()) >= 0
        if base.metadata.key in state.reservations.assumed:
            state.put_workload(b.reserved(base, state), b.NOW)
        if ends:
            state.drop_workload(base.metadata.key)
    held = sum(sum(places(state, key.partition("/")[2]).values()) for key in b.admitted(state))
    assert sum(free(state).values()) == 1000 * (2 * sum(hosts) - held)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=8))
def test_a_trial_leaves_places_as_they_were(steps: list[tuple[int, bool]]) -> None:
    """Whatever is added and removed."""
    state = world(racks={"r1": [4, 4]})
    usages = []
    for number in range(3):
        base = workload(f"w{number}", 2, second=number)
        state.put_workload(base, b.NOW)
        cycle(state, b.NOW)
        info = state.ledger.holder(base.metadata.key)
        assert info is not None
        usages.append(info.usage)
    before = free(state)
    queue = state.cluster_queues["main"]
    with Trial() as trial:
        for which, more in steps:
            (trial.add if more else trial.remove)(queue.node, usages[which])
    assert free(state) == before
