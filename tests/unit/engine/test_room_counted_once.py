"""Room is counted once for heads of one shape, and the count is brought up to date: no decision shows it."""

import pickle
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine import builders as b
from tests.unit.engine.room_worlds import PREEMPTION, bind, node, put, queue, why, world
from turnstile.engine import Decision, State, cycle
from turnstile.engine.topology.fits import Outlook


def test_heads_of_one_shape_are_counted_and_refused_once() -> None:
    """Ten ClusterQueues ask for the same, and no node has room."""
    state = world(*(queue(f"q{number}") for number in range(10)), nodes=[2] * 20)
    put(state, *(b.workload(f"w{number}", f"q{number}", cpu=3, count=number + 1) for number in range(10)))
    with (
        patch.object(Outlook, "_count_all", autospec=True, side_effect=Outlook._count_all) as counted,
        patch.object(Outlook, "refusals", autospec=True, side_effect=Outlook.refusals) as explained,
    ):
        cycle(state, b.NOW)
    assert (counted.call_count, explained.call_count) == (1, 1)
    for number in range(10):
        words = f"nodes of flavor default have room for 0 out of {number + 1} pod(s)"
        assert words in why(state, f"w{number}")


def test_heads_that_are_admitted_are_counted_beside_each_other() -> None:
    """All nodes are counted once, then only those to which pods of the head before are expected to go."""
    state = world(*(queue(f"q{number}") for number in range(10)), nodes=[2] * 9)
    put(state, *(b.workload(f"w{number}", f"q{number}", cpu=2, second=number) for number in range(10)))
    with patch.object(Outlook, "_count_all", autospec=True, side_effect=Outlook._count_all) as counted:
        cycle(state, b.NOW)
    assert counted.call_count == 1
    assert b.admitted(state) == {f"team/w{number}" for number in range(9)}


def test_room_that_a_preemptor_keeps_is_gone_and_comes_back() -> None:
    """For pods of a size that was counted before in the same cycle, and once the preemptor waits no more."""
    state = world(queue("a", cpu=4, preemption=PREEMPTION), queue("b"), nodes=[2, 2])
    put(state, b.workload("low", "a", count=2))
    b.settle(state)
    for number in range(2):
        bind(state, "low", number, "n0")
    put(state, b.workload("high", "a", count=4, priority=9, second=1), b.workload("small", "b", second=2))
    cycle(state, b.NOW)
    assert [*state.reservations.evicting] == ["team/low"]
    assert b.admitted(state) == {"team/low"}
    state.drop_workload("team/high")
    b.settle(state)
    assert b.admitted(state) == {"team/low", "team/small"}


def test_a_node_of_another_pool_is_seen() -> None:
    """Nodes come, go, and change their labels between two cycles."""
    state = world(nodes={})
    state.put_flavor(b.flavor("default", nodeLabels={"pool": "a"}))
    put(state, b.workload("w", cpu=2))
    b.settle(state)
    assert "no node that is ready has the labels of flavor default" in why(state)
    state.put_node(node("first", 1, pool="a"))
    b.settle(state)
    assert "Total nodes: 1" in why(state)
    state.put_node(node("second", 4, pool="b"))
    b.settle(state)
    assert "Total nodes: 1" in why(state)
    state.put_node(node("second", 4, pool="a"))
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def outcomes(decisions: list[Decision]) -> list[tuple[str, str, str, list[str]]]:
    """What is decided, in order."""
    return [(each.key, each.outcome, each.message, [victim.key for victim in each.victims]) for each in decisions]


def fresh(state: State) -> State:
    """A copy of the state that has counted nothing yet."""
    found: State = pickle.loads(pickle.dumps(state))
    room = found.surroundings.nodes.room
    assert room is not None
    room._outlook._known.clear()
    room._outlook._beside.clear()
    room._outlook._roster = None
    room.tree.counts.clear()
    return found


hosts = st.integers(0, 2)
asks = st.tuples(st.just("workload"), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.booleans())
steps = st.lists(
    st.one_of(
        asks,
        asks,
        asks,
        st.tuples(st.just("drop"), st.integers(0, 5)),
        st.tuples(st.just("bind"), st.integers(0, 5), hosts),
        st.tuples(st.just("bind"), st.just(9), hosts),
        st.tuples(st.just("unbind"), st.integers(0, 5)),
        st.tuples(st.just("node"), hosts, st.integers(0, 4), st.booleans(), st.sampled_from(["a", "a", "b"])),
        st.tuples(st.just("no node"), hosts),
    ),
    min_size=6,
    max_size=30,
)


@settings(max_examples=150)
@given(steps)
def test_what_is_kept_is_what_would_be_counted_anew(history: list[tuple[Any, ...]]) -> None:
    """Whatever happens to nodes, pods and Workloads: each cycle decides as in a state that has counted nothing."""
    names = ("main", "other", "third")
    state = world(*(queue(name, 4, cohort="all", preemption=PREEMPTION) for name in names), nodes={})
    state.put_flavor(b.flavor("default", nodeLabels={"pool": "a"}))
    for number in range(3):
        state.put_node(node(f"n{number}", 2 + number, pool="a"))
    made, bound = 0, list[str]()
    for kind, *given_ in history:
        decides = True
        match kind, *given_:
            case "workload", count, cpu, priority, decides:
                one = b.workload(f"w{made}", names[made % 3], cpu=cpu, count=count, priority=priority, second=made)
                put(state, one)
                made += 1
            case "drop", number:
                state.drop_workload(f"team/w{number}")
            case "bind", number, host:
                bound.append(bind(state, f"w{number}", len(bound), f"n{host}"))
            case "unbind", number if bound:
                state.drop_pod(bound.pop(number % len(bound)))
            case "node", host, cpus, tainted, pool:
                taints = [{"key": "k", "effect": "NoSchedule"}] if tainted else []
                state.put_node(node(f"n{host}", cpus, taints=taints, pool=pool))
            case "no node", host:
                state.drop_node(f"n{host}")
        if decides:
            anew = fresh(state)
            assert outcomes(cycle(state, b.NOW)) == outcomes(cycle(anew, b.NOW))
