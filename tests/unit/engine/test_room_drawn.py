"""Drawn nodes, pods and Workloads: who is admitted fits, who fits is admitted, and nobody sleeps who would be."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine import builders as b
from tests.unit.engine.room_worlds import PREEMPTION, node, put, queue, world
from turnstile.engine import State
from turnstile.engine.cycle.cycle import cycle

SIZES = (1, 2, 3)


def fits(free: list[int], pods: Counter[int]) -> bool:
    """Whether pods of these sizes fit on nodes with so much free, by trying all ways: the largest pods first."""
    if not pods.total():
        return True
    size = max(each for each, count in pods.items() if count)
    rest = pods - Counter([size])
    return any(
        fits([*free[:at], free[at] - size, *free[at + 1 :]], rest)
        for at in {free.index(left) for left in set(free)}
        if free[at] >= size
    )


class Cluster:
    """Nodes, and a kube-scheduler that binds the pods of admitted Workloads wherever they fit."""

    def __init__(self, nodes: list[int], *queues: Any) -> None:
        self.state: State = world(*queues, nodes=nodes)
        self.free = {f"n{at}": cpus for at, cpus in enumerate(nodes)}
        self.asked: dict[str, tuple[int, int]] = {}
        """Pods and the CPUs of each, by Workload."""
        self.bound: dict[str, list[tuple[str, str]]] = {}
        """Pods and their nodes, by Workload."""

    def submit(self, line: str, count: int, size: int, priority: int = 0) -> None:
        """A Workload comes."""
        name = f"w{len(self.asked)}"
        self.asked[name] = count, size
        self.bound[name] = []
        put(self.state, b.workload(name, line, cpu=size, count=count, priority=priority, second=len(self.asked)))

    @property
    def admitted(self) -> list[str]:
        """Names of Workloads that hold quota, and are not to leave."""
        leaving = self.state.reservations.evicting
        return sorted(key.partition("/")[2] for key in b.admitted(self.state) if key not in leaving)

    def unbound(self) -> Counter[int]:
        """Pods that have yet to be bound, by their CPUs."""
        found: Counter[int] = Counter()
        for name in self.admitted:
            count, size = self.asked[name]
            found[size] += count - len(self.bound[name])
        return +found

    def bind(self, which: int, where: int) -> None:
        """A pod of one of the admitted Workloads is bound: a kube-scheduler that sees only which nodes have room."""
        names = [each for each in self.admitted if len(self.bound[each]) < self.asked[each][0]]
        if not names:
            return
        name = names[which % len(names)]
        _, size = self.asked[name]
        hosts = [host for host, free in self.free.items() if free >= size]
        if not hosts:
            return
        host, key = hosts[where % len(hosts)], f"team/{name}-{len(self.bound[name])}"
        self.free[host] -= size
        self.bound[name].append((key, host))
        self.state.put_pod(key, host, {"cpu": size * 1000}, f"team/{name}")

    def end(self, which: int) -> None:
        """A Workload ends, and its pods with it."""
        names = self.admitted
        if not names:
            return
        name = names[which % len(names)]
        self.state.drop_workload(f"team/{name}")
        for key, host in self.bound.pop(name):
            self.free[host] += self.asked[name][1]
            self.state.drop_pod(key)


@settings(max_examples=150)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.sampled_from(SIZES)), min_size=1, max_size=6),
)
def test_who_is_admitted_fits_on_the_nodes(nodes: list[int], wanted: list[tuple[str, int, int]]) -> None:
    """All together, by a search of all ways to place their pods; whatever order they come in."""
    cluster = Cluster(nodes, queue("a"), queue("b"))
    for line, count, size in wanted:
        cluster.submit(line, count, size)
        b.settle(cluster.state)
        assert fits(list(cluster.free.values()), cluster.unbound())


@settings(max_examples=150)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.sampled_from(SIZES),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=8),
)
def test_pods_of_one_size_are_admitted_exactly_while_they_fit(
    nodes: list[int], size: int, wanted: list[tuple[str, int]], happens: list[tuple[int, int, bool]]
) -> None:
    """Wherever the pods before them were bound, and whoever ends: never one too many, and nobody waits who fits."""
    cluster = Cluster(nodes, queue("a"), queue("b"))
    for line, count in wanted:
        cluster.submit(line, count, size)
    for which, where, ends in [(0, 0, False), *happens]:
        b.settle(cluster.state)
        holes = sum(free // size for free in cluster.free.values())
        left = holes - cluster.unbound().total()
        assert left >= 0
        waiting = {key.partition("/")[2] for key in cluster.state.queues.waiting}
        assert all(cluster.asked[name][0] > left for name in waiting)
        if ends:
            cluster.end(which)
        else:
            cluster.bind(which, where)


@settings(max_examples=150)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.sampled_from(SIZES)), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from(("bind", "end", "node"))), max_size=10),
    st.booleans(),
)
def test_nobody_sleeps_who_would_be_admitted(
    nodes: list[int], wanted: list[tuple[str, int, int]], happens: list[tuple[int, int, str]], strict: bool
) -> None:
    """Whenever all is decided, trying everyone again admits nobody; and pods are where the room was."""
    spec: dict[str, Any] = {"queueingStrategy": "StrictFIFO"} if strict else {"preemption": PREEMPTION}
    cluster = Cluster(nodes, queue("a", cpu=6, **spec), queue("b", cpu=6))
    for number, (line, count, size) in enumerate(wanted):
        cluster.submit(line, count, size, priority=number % 3)
    for which, where, what in [(0, 0, "bind"), *happens]:
        b.settle(cluster.state)
        before = {*cluster.state.queues.waiting}
        for name in "ab":
            cluster.state.retries.mark(name)
        cycle(cluster.state, b.NOW)
        b.settle(cluster.state)
        assert {*cluster.state.queues.waiting} == before
        match what:
            case "bind":
                cluster.bind(which, where)
            case "end":
                cluster.end(which)
            case "node":
                name = f"more-{len(cluster.free)}"
                cluster.free[name] = 1 + where % 4
                cluster.state.put_node(node(name, cluster.free[name]))
