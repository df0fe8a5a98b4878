"""What holds a head back though there is room, or could be: gates, pods that are not ready, variants, preemptors."""

import pytest

from tests.unit.engine import builders as b
from turnstile.api.workload import Workload
from turnstile.engine import Decision, Options, State, cycle
from turnstile.engine.options import Gates, WaitForPodsReady
from turnstile.engine.queue.nomination import Nomination


def only(decisions: list[Decision]) -> Decision:
    """The one decision."""
    (decision,) = decisions
    return decision


class TestPreemptionGates:
    """A closed preemption gate, under either feature that knows them."""

    def world(self, strategy: str = "BestEffortFIFO", **gates: bool) -> tuple[State, Workload]:
        """A head that needs a preemption and has a closed gate."""
        state = b.world(
            b.queue(
                "a",
                {"default": {"cpu": 4}},
                preemption={"withinClusterQueue": "LowerPriority"},
                queueingStrategy=strategy,
            ),
            options=Options(gates=Gates(**gates)),
        )
        state.put_workload(b.workload("low", cpu=4), b.NOW)
        b.settle(state)
        head = b.changed(b.workload("high", cpu=4, priority=5), spec={"preemptionGates": [{"name": "g"}]})
        state.put_workload(head, b.NOW)
        return state, head

    @pytest.mark.parametrize("feature", ["concurrent_admission", "multi_kueue_orchestrated_preemption"])
    def test_it_holds_the_preemption_back(self, feature: str) -> None:
        """Until it is open; without a status it counts as closed."""
        state, head = self.world("BestEffortFIFO", **{feature: True})
        decision = only(b.settle(state))
        assert (decision.outcome, decision.status) == ("gated", "preemptionGated")
        assert decision.condition_reason == "AdmissionGated"
        assert decision.message == "Workload requires preemption, but it's gated"
        assert state.cluster_queues["a"].pending.inadmissible_infos()
        opened = [{"name": "g", "position": "Open", "lastTransitionTime": b.STAMP}]
        state.put_workload(b.changed(head, status={"preemptionGates": opened}), b.NOW)
        assert [each.outcome for each in b.settle(state)][:1] == ["preempting"]

    def test_it_means_nothing_without_a_feature(self) -> None:
        """The preemption is issued."""
        state, _ = self.world()
        assert next(iter(cycle(state, b.NOW))).outcome == "preempting"

    def test_a_strict_line_keeps_its_gated_head(self) -> None:
        """StrictFIFO: it stays first."""
        state, _ = self.world("StrictFIFO", multi_kueue_orchestrated_preemption=True)
        b.settle(state)
        assert [info.key for info in state.cluster_queues["a"].pending.in_order()] == ["team/high"]

    def test_it_does_not_hold_back_what_fits_or_has_no_victims(self) -> None:
        """Only a preemption is gated."""
        state, head = self.world(multi_kueue_orchestrated_preemption=True)
        state.put_workload(b.changed(head, spec={"priority": 0}), b.NOW)
        assert only(b.settle(state)).condition_reason == "WaitingForQuota"
        state.drop_workload("team/low")
        b.settle(state)
        assert b.admitted(state) == {"team/high"}


class TestPodsReady:
    """One reservation whose pods are not ready at a time, in all queues together."""

    def world(self, **gates: bool) -> State:
        """Two queues with room for all."""
        options = Options(wait_for_pods_ready=WaitForPodsReady(block_admission=True), gates=Gates(**gates))
        return b.world(b.queue("a", preemption={"withinClusterQueue": "LowerPriority"}), b.queue("z"), options=options)

    def test_the_second_waits_for_the_first(self) -> None:
        """It is told why, keeps its place, and is admitted once the pods are ready."""
        state = self.world()
        first = b.workload("first")
        state.put_workload(first, b.NOW)
        state.put_workload(b.workload("second", "z", second=1), b.NOW)
        decisions = {decision.key: decision for decision in b.settle(state)}
        assert b.admitted(state) == {"team/first"}
        told = decisions["team/second"]
        assert told.condition_reason == "WaitingForPodsReady"
        assert told.message == "waiting for all admitted workloads to be in PodsReady condition"
        runs = b.reserved(first, state)
        state.put_workload(runs, b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/first"}
        state.put_workload(b.with_conditions(runs, PodsReady=("True", "Started")), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/first", "team/second"}

    def test_who_waits_is_offered_the_same_flavor_each_time(self) -> None:
        """Waiting is no reason to look for another, neither for the one that is told nor for those behind it."""
        options = Options(wait_for_pods_ready=WaitForPodsReady(block_admission=True))
        quota = {"x": {"cpu": 4}, "y": {"cpu": 4}}
        state = b.world(*(b.queue(name, quota) for name in ("a", "m", "z")), options=options, flavors=("x", "y"))
        for second, name in enumerate(("a", "m", "z")):
            state.put_workload(b.workload(name, name, second=second), b.NOW)
        for _ in range(4):
            for entry in cycle(state, b.NOW).entries:
                assert entry.assignment is not None
                assert entry.assignment.pins() == {"main": {"cpu": "x"}}
        assert b.admitted(state) == {"team/a"}

    def test_pods_that_are_lost_again_block_again(self) -> None:
        """PodsReady False counts, whatever it was before."""
        state = self.world()
        first = b.workload("first")
        state.put_workload(first, b.NOW)
        b.settle(state)
        runs = b.reserved(first, state)
        state.put_workload(b.with_conditions(runs, PodsReady=("True", "Started")), b.NOW)
        state.put_workload(b.with_conditions(runs, PodsReady=("False", "WaitForRecovery")), b.NOW)
        state.put_workload(b.workload("second", "z"), b.NOW)
        b.settle(state)
        assert b.admitted(state) == {"team/first"}

    def test_preemptions_are_issued_all_the_same(self) -> None:
        """Only an admission is held back."""
        state = self.world()
        state.put_workload(b.workload("low", cpu=10), b.NOW)
        b.settle(state)
        state.put_workload(b.workload("high", cpu=10, priority=1), b.NOW)
        assert [decision.outcome for decision in b.settle(state)][:1] == ["preempting"]

    def test_its_old_reason(self) -> None:
        """Without observability it is Waiting."""
        state = self.world(unadmitted_workloads_observability=False)
        state.put_workload(b.workload("first"), b.NOW)
        state.put_workload(b.workload("second", "z", second=1), b.NOW)
        assert {decision.condition_reason for decision in b.settle(state) if decision.outcome != "admit"} == {"Waiting"}


class TestPreemptorsFirst:
    """PrioritizePreemptorWorkloads: who had others preempted keeps room for itself, though its queue could reclaim."""

    @pytest.mark.parametrize(
        ("on", "preemptor", "kept"), [(True, True, True), (True, False, False), (False, True, False)]
    )
    def test_it_keeps_room_even_where_reclaim_is_free(self, on: bool, preemptor: bool, kept: bool) -> None:
        """Only the preemptor, and only with the gate."""
        state = b.world(
            b.queue("a", {"default": {"cpu": 4}}, "x", preemption={"reclaimWithinCohort": "Any"}),
            b.queue("z", {"default": {"cpu": 0}}, "x"),
            options=Options(gates=Gates(prioritize_preemptor_workloads=on)),
        )
        state.put_workload(b.workload("runs", cpu=2), b.NOW)
        b.settle(state)
        state.put_workload(b.workload("head", cpu=4), b.NOW)
        state.put_workload(b.workload("borrower", "z", cpu=2, second=1), b.NOW)
        if preemptor:
            state.cluster_queues["a"].pending.nomination = Nomination("team/head")
        outcomes = {decision.key: decision.outcome for decision in cycle(state, b.NOW)}
        assert outcomes == {"team/head": "pending", "team/borrower": "skipped" if kept else "admit"}
