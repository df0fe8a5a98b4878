"""Pods that leave nodes wake Workloads only where there is room for more of the pods that found none."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import PREEMPTION, node, places, workload, world
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


def test_a_head_that_keeps_places_for_one_cycle_leaves_nobody_asleep() -> None:
    """Quota of ClusterQueue `a` is short for its head, which has nobody to preempt. What the head keeps in its cycle is
    free in the next, and nothing happens in the tree of ClusterQueue `b` by which `next` would be tried again."""
    state = world(b.queue("a", {"gpu": {"cpu": 3}}), b.queue("b", {"gpu": {"cpu": 3}}), racks={"r1": [1, 2]})
    state.put_workload(workload("first", 1, queue="b"), b.NOW)
    b.settle(state)
    state.put_workload(workload("whole", 3, queue="a", second=1), b.NOW)
    state.put_workload(workload("one", 1, queue="a", second=2), b.NOW)
    state.put_workload(workload("next", 2, queue="b", second=3), b.NOW)
    b.settle(state)
    state.drop_workload("team/first")
    b.settle(state)
    assert places(state, "next") == {"r1-0": 1, "r1-1": 1}


def test_a_head_without_quota_keeps_no_places_from_others() -> None:
    """The head of a StrictFIFO queue waits for quota for as long as that takes. Nodes belong to all ClusterQueues."""
    strict = b.queue("a", {"gpu": {"cpu": 3}}, queueingStrategy="StrictFIFO")
    state = world(strict, b.queue("b", {"gpu": {"cpu": 3}}), racks={"r1": [1, 2]})
    state.put_workload(workload("one", 1, queue="a"), b.NOW)
    b.settle(state)
    state.put_workload(workload("whole", 3, queue="a", second=1), b.NOW)
    state.put_workload(workload("next", 2, queue="b", second=2), b.NOW)
    b.settle(state)
    assert places(state, "next") == {"r1-1": 2}


def test_a_head_that_keeps_places_for_long_is_passed_and_then_left_to_the_next() -> None:
    """A StrictFIFO head that has quota keeps its rack. Behind a Workload that finds that rack taken, another finds its
    place; and the first of them is tried again when the head waits no more."""
    strict = b.queue("a", {"gpu": {"cpu": 3}}, queueingStrategy="StrictFIFO")
    state = world(strict, b.queue("b", {"gpu": {"cpu": 9}}), racks={"r1": [1, 2], "r2": [1]})
    state.put_node(node("r2-0", "r2", 0))
    state.put_workload(workload("holder", 1, queue="b"), b.NOW)
    b.settle(state)
    state.put_node(node("r2-0", "r2", 1))
    for second, (name, count) in enumerate((("head", 3), ("second", 2), ("third", 1)), 1):
        state.put_workload(workload(name, count, queue="a" if name == "head" else "b", second=second), b.NOW)
    b.settle(state)
    assert places(state, "third") == {"r2-0": 1}
    assert {*state.queues.waiting} == {"team/head", "team/second"}
    state.drop_workload("team/head")
    b.settle(state)
    assert places(state, "second") == {"r1-1": 2}


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


@settings(max_examples=300)
@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(2, 5), st.booleans(), st.booleans(), st.booleans()), min_size=3, max_size=3),
    st.lists(
        st.tuples(
            st.integers(0, 7),
            st.sampled_from("abc"),
            st.integers(1, 4),
            st.integers(0, 1),
            st.sampled_from(("required", "required", "preferred", "unconstrained")),
            st.booleans(),
        ),
        min_size=3,
        max_size=10,
    ),
)
def test_nobody_sleeps_in_any_queue_who_would_be_admitted(
    racks: list[list[int]],
    queues: list[tuple[int, bool, bool, bool]],
    happens: list[tuple[int, str, int, int, str, bool]],
) -> None:
    """Over drawn Workloads that come and go in queues with and without a common Cohort: whenever all is decided, trying
    one ClusterQueue again, or all of them, admits nobody."""
    made = []
    for name, (cpus, strict, shares, preempts) in zip("abc", queues, strict=True):
        spec: dict[str, object] = {"queueingStrategy": "StrictFIFO"} if strict else {}
        if preempts:
            spec["preemption"] = PREEMPTION
        made.append(b.queue(name, {"gpu": {"cpu": cpus}}, cohort="all" if shares else None, **spec))
    state = world(*made, racks={f"r{number}": hosts for number, hosts in enumerate(racks)})
    for second, (slot, queue, count, priority, mode, settles) in enumerate(happens):
        if f"team/w{slot}" in state.workloads:
            state.drop_workload(f"team/w{slot}")
        else:
            asked: dict[str, object] = {mode: True if mode == "unconstrained" else "rack"}
            put = workload(f"w{slot}", count, queue=queue, priority=priority, second=second, **asked)
            state.put_workload(put, b.NOW)
        if not settles:
            continue
        b.settle(state)
        holds = b.admitted(state)
        for woken in ("a", "b", "c", "abc"):
            for name in woken:
                state.retries.mark(name)
            b.settle(state)
            assert b.admitted(state) == holds, woken
