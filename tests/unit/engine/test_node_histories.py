"""Nodes come and go under Workloads that run, and writes are refused: drawn histories, judged from nodes and places."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.engine import builders as b
from tests.unit.engine.test_second_pass import failed, written
from tests.unit.engine.test_topology_cycles import RACK, free, node, places, workload, world
from turnstile.api.workload import Workload
from turnstile.engine import Decision
from turnstile.engine.cycle.cycle import cycle

RACKS = {"r1": [2, 2, 1], "r2": [1, 1, 2], "r3": [3, 1, 1]}
NODES = {f"{rack}-{number}": cpus for rack, hosts in RACKS.items() for number, cpus in enumerate(hosts)}
WISHES: list[dict[str, Any]] = [
    {"required": RACK},
    {"preferred": RACK},
    {"unconstrained": True},
    {"preferred": RACK, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2},
]

STEPS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 2), st.sampled_from(range(len(WISHES)))),
    st.tuples(st.just("fail"), st.sampled_from(sorted(NODES)), st.just(0)),
    st.tuples(st.just("recover"), st.sampled_from(sorted(NODES)), st.just(0)),
    st.tuples(st.just("finish"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("refuse"), st.just(0), st.just(0)),
)


class History:
    """A cluster as the API server has it, and the state that follows it."""

    def __init__(self) -> None:
        self.state = world(racks=RACKS)
        self.seen: dict[str, Workload] = {}
        self.dead: set[str] = set()
        self.now: float = b.NOW
        self.refuse = 0
        self.wishes: dict[str, dict[str, Any]] = {}

    def put(self, given: Workload) -> None:
        """A version of a Workload is written and seen."""
        self.seen[given.metadata.name] = given
        self.state.put_workload(given, self.now)

    def step(self, kind: str, what: Any, which: int) -> None:
        """Something happens in the cluster."""
        match kind:
            case "submit":
                name = f"w{len(self.wishes)}"
                self.wishes[name] = WISHES[which]
                self.put(workload(name, 2 * what, second=len(self.wishes), **WISHES[which]))
            case "fail":
                self.dead.add(what)
                self.state.drop_node(what)
            case "recover" if what in self.dead:
                self.dead.discard(what)
                rack = what.partition("-")[0]
                self.state.put_node(node(what, rack, NODES[what]))
            case "finish":
                running = [each for each in self.seen.values() if each.admitted]
                if running:
                    gone = running[what % len(running)].metadata
                    del self.seen[gone.name]
                    self.state.drop_workload(gone.key)
            case "refuse":
                self.refuse += 1

    def mark(self) -> None:
        """Name the nodes that have failed, as their controller does: all of a Workload at once."""
        for name, each in list(self.seen.items()):
            if each.admitted and not each.evicted:
                lost = sorted(self.dead & places(self.state, name).keys())
                if lost != sorted(host.name for host in each.status.unhealthy_nodes):
                    self.put(failed(each, *lost))

    def settle(self) -> None:
        """Let time go on until nothing is left to decide."""
        for _ in range(60):
            self.mark()
            turn = self.state.second_passes.next_turn
            if not self.state.has_work and turn is None:
                return
            self.now = max(self.now, turn or 0)
            for decision in cycle(self.state, self.now):
                self.carry_out(decision)
                self.judge()
        raise AssertionError("it never comes to rest")

    def carry_out(self, decision: Decision) -> None:
        """Write a decision, or have the API server refuse it."""
        name = decision.key.partition("/")[2]
        if decision.outcome not in {"admit", "place", "evict"}:
            return
        if self.refuse:
            self.refuse -= 1
            if decision.outcome == "evict":
                self.state.forget_eviction(decision.key)
            else:
                self.state.forget(decision.key, self.now)
            return
        match decision.outcome:
            case "admit":
                self.put(b.with_conditions(b.reserved(self.seen[name], self.state), Evicted=("False", "QuotaReserved")))
            case "place":
                self.put(written(decision))
            case "evict":
                gone = b.changed(self.seen[name], status={"unhealthyNodes": []})
                self.put(b.with_conditions(gone, Evicted=("True", "NodeFailures")))
                body = msgspec.to_builtins(b.released(self.seen[name]))
                self.put(b.with_conditions(msgspec.convert(body, Workload), Evicted=("True", "NodeFailures")))

    def judge(self) -> None:
        """No node has more pods than it takes, of those that were placed there."""
        used = dict.fromkeys(NODES, 0)
        for key in b.admitted(self.state):
            for host, pods in places(self.state, key.partition("/")[2]).items():
                used[host] += pods
        assert all(pods <= NODES[host] for host, pods in used.items())
        left = {host: 1000 * (NODES[host] - pods) for host, pods in used.items() if host not in self.dead}
        assert free(self.state) == left

    def judge_at_rest(self) -> None:
        """Each pod of an admitted Workload has a place on a node that works, as it wishes."""
        for name, held in self.seen.items():
            if not held.admitted:
                continue
            found = places(self.state, name)
            assert sum(found.values()) == held.spec.pod_sets[0].count
            assert not self.dead & found.keys()
            by_rack: dict[str, int] = {}
            for host, pods in found.items():
                rack = host.partition("-")[0]
                by_rack[rack] = by_rack.get(rack, 0) + pods
            if "required" in self.wishes[name]:
                assert len(by_rack) == 1
            if "podSetSliceSize" in self.wishes[name]:
                assert all(pods % 2 == 0 for pods in by_rack.values())


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=14))
def test_no_node_is_over_full_and_no_pod_stays_without_a_node(steps: list[tuple[str, Any, int]]) -> None:
    """Whatever fails, recovers, ends and is refused."""
    history = History()
    for step in steps:
        history.step(*step)
        history.settle()
        history.judge()
        history.judge_at_rest()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(STEPS, min_size=1, max_size=4), max_size=5))
def test_the_same_where_several_things_happen_at_once(together: list[list[tuple[str, Any, int]]]) -> None:
    """Between two cycles."""
    history = History()
    for steps in together:
        for step in steps:
            history.step(*step)
        history.settle()
        history.judge()
        history.judge_at_rest()
