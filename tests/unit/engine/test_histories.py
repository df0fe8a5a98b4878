"""Whatever happens in whatever order, the promises of the engine hold."""

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from app.api.workload import Workload
from app.engine import Options, State, cycle, cycle_steps, tree
from app.engine.amounts import UNLIMITED
from app.engine.options import AdmissionFairSharing, FairSharing
from app.engine.tree import Node, rebuild
from tests.unit.engine import builders as b

FLAVORS = ("x", "y")
QUEUES = ("a", "b", "c")

quota = st.one_of(
    st.integers(0, 6),
    st.tuples(st.integers(0, 6), st.none() | st.integers(0, 4), st.none() | st.integers(0, 4)),
)
policies = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": st.sampled_from(["Never", "LowerPriority", "Any"]),
        "borrowWithinCohort": st.sampled_from([{"policy": "Never"}, {"policy": "LowerPriority"}]),
    }
)
fungibility = st.fixed_dictionaries(
    {
        "whenCanBorrow": st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
        "whenCanPreempt": st.sampled_from(["MayStopSearch", "TryNextFlavor"]),
    }
)


def dump(state: State) -> Any:
    """All that a fork must leave as it was."""
    nodes = {}
    for name, queue in state.cluster_queues.items():
        node: Node | None = queue.node
        while node is not None:
            nodes[f"{node.is_queue}/{node.name}"] = (
                {str(pair): amount for pair, amount in sorted(node.usage.items(), key=str) if amount},
                {str(pair): amount for pair, amount in sorted(node.subtree.items(), key=str)},
            )
            node = node.parent
        nodes[f"queue/{name}"] = (
            sorted(queue.workloads),
            queue.generation,
            [info.key for info in queue.pending.in_order()],
            sorted(queue.pending.inadmissible),
            queue.pending.sticky,
            queue.pending.preemptor,
            sorted(queue.pending.bulk_moved),
        )
    return (
        nodes,
        sorted(state.assumed),
        {
            key: (info.last_assignment.tried if info.last_assignment else None, info.cluster_queue, info.tags)
            for key, info in sorted(state.waiting.items())
        },
        sorted(state.workloads),
        sorted(state.evicting),
        sorted(state.ledger.holders.items()),
        sorted(state.ledger.cohorts),
        state.epoch,
        state.quiet_at,
        sorted(state.retry_queues),
        {key: (line.consumed, line.penalties) for key, line in sorted(state.lines.items())},
    )


class Histories(RuleBasedStateMachine):
    """Objects come, change and go; cycles run; writes succeed, fail, or come late."""

    keys = Bundle("keys")

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, Workload] = {}
        self.number = 0
        self.shrunk = False
        self.state = State()

    @initialize(
        fair=st.sampled_from([None, FairSharing()]),
        usage=st.sampled_from([None, AdmissionFairSharing(usage_half_life=10.0, usage_sampling_interval=5.0)]),
    )
    def start(self, fair: FairSharing | None, usage: AdmissionFairSharing | None) -> None:
        """Namespaces, flavors, three queues in a cohort of two levels."""
        self.state = State(Options(fair_sharing=fair, admission_fair_sharing=usage))
        self.state.put_namespace("team", {})
        for name in FLAVORS:
            self.state.put_flavor(b.flavor(name))
        self.state.put_cohort(b.cohort("inner", {"x": {"cpu": 1}, "y": {"cpu": 0}}, parent="outer"))
        for name in QUEUES:
            self.put_queue(name, "inner", 3, 2, {}, {}, "BestEffortFIFO", False)
            for line in ("first", "second"):
                self.state.put_local_queue(b.local(f"{name}-{line}", name), b.NOW)

    @rule(
        name=st.sampled_from(QUEUES),
        cohort=st.sampled_from(["inner", "outer", "", "inner"]),
        x=quota,
        y=quota,
        preemption=policies,
        fungible=fungibility,
        strategy=st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
        usage_based=st.booleans(),
    )
    def put_queue(
        self, name: str, cohort: str, x: Any, y: Any, preemption: Any, fungible: Any, strategy: str, usage_based: bool
    ) -> None:
        """A queue gets another quota, cohort or policy."""
        spec = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}} if usage_based else {}
        self.state.put_cluster_queue(
            b.queue(
                name,
                {"x": {"cpu": x}, "y": {"cpu": y}},
                cohort or None,
                preemption=preemption,
                flavorFungibility=fungible,
                queueingStrategy=strategy,
                **spec,
            ),
            b.NOW,
        )
        self.shrunk = True  # a cut of quota may leave more in use than there is

    @rule(
        target=keys,
        line=st.sampled_from([f"{name}-{line}" for name in QUEUES for line in ("first", "second")]),
        cpu=st.integers(1, 4),
        count=st.integers(1, 3),
        partial=st.booleans(),
        priority=st.integers(0, 2),
    )
    def create(self, line: str, cpu: int, count: int, partial: bool, priority: int) -> str:
        """A workload is created."""
        self.number += 1
        made = b.workload(
            f"w{self.number}",
            line,
            cpu=cpu,
            count=count,
            min_count=1 if partial else None,
            priority=priority,
            second=self.number,
        )
        self.objects[made.metadata.key] = made
        self.state.put_workload(made, b.NOW)
        return made.metadata.key

    @rule(key=consumes(keys))
    def delete(self, key: str) -> None:
        """A workload is deleted, whatever it was doing."""
        self.objects.pop(key, None)
        self.state.drop_workload(key)

    @rule(key=keys)
    def finish(self, key: str) -> None:
        """A job that holds quota ends."""
        if key in self.objects and self.objects[key].quota_reserved:
            self.objects[key] = b.with_conditions(self.objects[key], Finished=("True", "Succeeded"))
            self.state.put_workload(self.objects[key], b.NOW)

    @rule(key=keys, lag=st.booleans())
    def write_succeeds(self, key: str, lag: bool) -> None:
        """The write of an admission comes back, perhaps after the watch showed the object as it was."""
        if key in self.state.assumed and key in self.objects:
            if lag:
                self.state.put_workload(self.objects[key], b.NOW)
            assert key in self.state.assumed
            self.objects[key] = b.reserved(self.objects[key], self.state)
            self.state.put_workload(self.objects[key], b.NOW)
            assert key not in self.state.assumed

    @rule(key=keys)
    def write_fails(self, key: str) -> None:
        """The write of an admission fails: the workload is where it was."""
        if key in self.state.assumed:
            self.state.forget(key, b.NOW)
            assert key in self.state.waiting

    @rule(key=keys)
    def eviction_ends(self, key: str) -> None:
        """The pods of a victim are gone."""
        if key in self.state.evicting and key in self.objects and self.objects[key].quota_reserved:
            self.objects[key] = b.released(self.objects[key])
            self.state.put_workload(self.objects[key], b.NOW)

    @rule(key=keys, after=st.integers(1, 20), leave=st.booleans(), stretch=st.sampled_from([1, 5, 1000]))
    def something_happens_during_a_cycle(self, key: str, after: int, leave: bool, stretch: int) -> None:
        """A workload is deleted, or the driver leaves, in the middle of a cycle."""
        held = b.admitted(self.state)
        steps = cycle_steps(self.state, b.NOW, stretch=stretch)
        for _ in range(after):
            try:
                next(steps)
            except StopIteration:
                return
        if leave:
            steps.close()
            assert b.admitted(self.state) == held
            return
        self.objects.pop(key, None)
        self.state.drop_workload(key)
        for _ in steps:
            pass
        assert key not in b.admitted(self.state)

    @rule()
    def run_cycle(self) -> None:
        """One cycle."""
        self.cycle()

    def cycle(self) -> None:
        """A cycle admits only what there is room for."""
        before = b.admitted(self.state)
        decisions = list(cycle(self.state, b.NOW))
        new = {decision.key for decision in decisions if decision.outcome == "admit"}
        assert b.admitted(self.state) == before | new
        for decision in decisions:
            if decision.outcome == "admit":
                self.judge_admission(decision.cluster_queue, decision.key)
            if decision.outcome == "preempting":
                assert decision.victims

    def judge_admission(self, name: str, key: str) -> None:
        """What was admitted is within nominal quota plus borrowing limit, and within what every cohort above had free,
        with all victims still there."""
        queue = self.state.cluster_queues[name]
        for pair in queue.workloads[key].usage:
            node = queue.node
            limit = node.borrowing_limit.get(pair, UNLIMITED)
            assert node.usage[pair] <= node.nominal.get(pair, 0) + limit
            assert tree.available(node, pair) >= 0

    @rule()
    def fixed_point(self) -> None:
        """With nobody else acting, cycles come to an end, and then no head that fits is left waiting."""
        for _ in range(400):
            if not self.state.has_work:
                break
            self.cycle()
        else:
            raise AssertionError("no fixed point was reached")
        before = b.admitted(self.state)
        for name in QUEUES:
            self.state.mark_retry(name)
        self.state.epoch += 1
        while self.state.has_work:
            self.cycle()
        missed = b.admitted(self.state) - before
        assert not missed, f"left waiting: {missed}"

    @rule(run=st.integers(1, 3))
    def fork(self, run: int) -> None:
        """What is tried on a fork leaves no trace."""
        before = dump(self.state)
        with self.state.fork() as what_if:
            what_if.put_cluster_queue(b.queue("a", {"x": {"cpu": 20}, "y": {"cpu": 20}}, "outer"), b.NOW)
            what_if.put_cluster_queue(b.queue("new", {"x": {"cpu": 20}}, "inner"), b.NOW)
            what_if.put_workload(b.workload("what-if", "a-first", cpu=2, priority=9), b.NOW)
            for _ in range(run):
                cycle(what_if, b.NOW)
            for key in list(what_if.workloads)[:2]:
                what_if.drop_workload(key)
            what_if.drop_cluster_queue("b")
            cycle(what_if, b.NOW)
        assert dump(self.state) == before

    @invariant()
    def in_one_place(self) -> None:
        """A workload waits in one place or holds quota in one place, never both."""
        seen: dict[str, str] = {}
        for queue in self.state.cluster_queues.values():
            pending = queue.pending
            assert pending.inflight is None
            for place, keys in (
                ("active", [info.key for info in pending.active_infos()]),
                ("inadmissible", [info.key for info in pending.inadmissible_infos()]),
                ("reserved", list(queue.workloads)),
            ):
                for key in keys:
                    assert key not in seen, f"{key} is {seen[key]} and {queue.name} {place}"
                    seen[key] = f"{queue.name} {place}"
        assert set(self.state.waiting) | set(self.state.ledger.holders) <= set(self.objects)
        for key, item in self.objects.items():
            if not item.finished:
                assert key in seen, f"{key} is nowhere"

    @invariant()
    def usage_is_the_sum(self) -> None:
        """Usage kept step by step is the usage computed from scratch."""
        self.state.ledger.settle()
        for queue in self.state.cluster_queues.values():
            total: dict[Any, int] = {}
            for info in queue.workloads.values():
                for pair, amount in info.usage.items():
                    total[pair] = total.get(pair, 0) + amount
            assert {pair: amount for pair, amount in queue.node.usage.items() if amount} == total
            by_line = {key: line for line, held in queue.holders.items() for key in held.infos}
            assert by_line == {key: info.local_queue for key, info in queue.workloads.items()}
        for queue in self.state.cluster_queues.values():
            root = queue.node.root
            kept = {str(pair): amount for pair, amount in root.usage.items() if amount}
            rebuild(root)
            assert {str(pair): amount for pair, amount in root.usage.items() if amount} == kept


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=int(os.environ.get("HISTORIES", "200")),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
