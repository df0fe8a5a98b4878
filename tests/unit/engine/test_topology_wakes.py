"""Pods that leave nodes wake Workloads only where there is room for more of the pods that found none."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import places, workload, world
from turnstile.engine import State
from turnstile.engine.cycle.cycle import cycle


def pods(state: State, host: str, count: int, *, milli: int = 1000) -> None:
    """Pods of others on a node."""
    for number in range(count):
        state.put_pod(f"kube-system/{host}-{number}", host, {"cpu": milli})


def wakes(state: State, key: str) -> bool:
    """Whether a cycle has work once a pod has left, of a state that had none."""
    assert not state.has_work
    state.drop_pod(key)
    return state.has_work


def test_room_for_another_pod_wakes_the_gang() -> None:
    """It is placed at once."""
    state = world(racks={"r1": [2, 2]})
    pods(state, "r1-0", 1)
    state.put_workload(workload("w", 4), b.NOW)
    b.settle(state)
    assert wakes(state, "kube-system/r1-0-0")
    b.settle(state)
    assert places(state, "w") == {"r1-0": 2, "r1-1": 2}


def test_room_for_less_than_a_pod_wakes_nobody() -> None:
    """A pod of a tenth of a CPU makes no room for one that asks for a whole one."""
    state = world(racks={"r1": [2, 2]})
    pods(state, "r1-0", 5, milli=100)
    state.put_workload(workload("w", 4), b.NOW)
    b.settle(state)
    for number in range(4):
        assert not wakes(state, f"kube-system/r1-0-{number}")
    assert wakes(state, "kube-system/r1-0-4")


def test_kinds_of_pods_that_nobody_waits_for_wake_others_once() -> None:
    """Places for them were looked for when nodes were fuller, and nobody will count them again."""
    state = world(racks={"r1": [2, 2]})
    pods(state, "r1-0", 15, milli=100)
    state.put_workload(workload("passed", 3), b.NOW)
    b.settle(state)
    state.drop_workload("team/passed")
    state.put_workload(b.workload("large", count=4, cpu=3, second=1), b.NOW)
    b.settle(state)
    woken = 0
    for number in range(15):
        woken += wakes(state, f"kube-system/r1-0-{number}")
        b.settle(state)
    assert woken <= 2


def test_nobody_is_woken_where_nobody_looked_for_room() -> None:
    """Workloads that lack quota wait for quota."""
    state = world(b.queue("main", {"gpu": {"cpu": 1}}), racks={"r1": [2, 2]})
    pods(state, "r1-0", 1)
    state.put_workload(workload("w", 4), b.NOW)
    b.settle(state)
    assert not wakes(state, "kube-system/r1-0-0")


def test_a_rack_that_comes_free_wakes_queues_that_share_no_quota() -> None:
    """The nodes are the same, though the two ClusterQueues are in no common Cohort."""
    state = world(b.queue("a", {"gpu": {"cpu": 9}}), b.queue("b", {"gpu": {"cpu": 9}}), racks={"r1": [2, 2]})
    state.put_workload(workload("holder", 2, queue="a"), b.NOW)
    b.settle(state)
    state.put_workload(workload("w", 4, queue="b"), b.NOW)
    state.put_workload(workload("larger", 5, queue="b", second=1), b.NOW)
    b.settle(state)
    assert not state.has_work
    state.drop_workload("team/holder")
    b.settle(state)
    assert places(state, "w") == {"r1-0": 2, "r1-1": 2}
    state.put_workload(workload("last", 1, queue="a", second=2), b.NOW)
    b.settle(state)
    before = len(state.retries.cluster_queues)
    state.drop_workload("team/last")
    assert len(state.retries.cluster_queues) == before + 1, "nobody waits for less than a rack"


@settings(max_examples=150)
@given(
    st.lists(st.integers(1, 3), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(1, 5), st.sampled_from(("required", "preferred", "unconstrained"))), max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 12)), max_size=12),
)
def test_nobody_sleeps_who_would_be_admitted(
    hosts: list[int], wanted: list[tuple[int, str]], happens: list[tuple[int, int, int]]
) -> None:
    """Over drawn pods that come and go: whenever all is decided, trying everyone again admits nobody."""
    state = world(racks={"r1": hosts[:2], "r2": hosts[2:]})
    names = [f"r1-{number}" for number in range(2)] + [f"r2-{number}" for number in range(len(hosts) - 2)]
    for number, (count, mode) in enumerate(wanted):
        asked: dict[str, object] = {mode: True if mode == "unconstrained" else "rack"}
        state.put_workload(workload(f"w{number}", count, second=number, **asked), b.NOW)
    there: dict[str, None] = {}
    for where, slot, tenths in happens:
        host = names[where % len(names)]
        key = f"other/{host}-{slot}"
        if key in there:
            del there[key]
            state.drop_pod(key)
        else:
            there[key] = None
            state.put_pod(key, host, {"cpu": tenths * 100})
        b.settle(state)
        waiting = {*state.queues.waiting}
        state.retries.mark("main")
        cycle(state, b.NOW)
        b.settle(state)
        assert {*state.queues.waiting} == waiting
