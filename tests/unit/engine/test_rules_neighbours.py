"""What heads of one cycle do to each other: kept capacity, shared victims, order, variants and slices."""

from typing import Any

import pytest

from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.engine import Decision, Options, State, cycle
from turnstile.engine.cycle.entries import Entry
from turnstile.engine.cycle.precedence import after_their_preemptors
from turnstile.engine.flavors.assignment import Assignment
from turnstile.engine.options import FairSharing, Gates
from turnstile.engine.pace import Pace
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.quota import tree
from turnstile.engine.quota.progress import LastAssignment

TAKEN = "Workload no longer fits after processing another workload"
OVERLAP = "Workload has overlapping preemption targets with another workload"
LATER = f"{OVERLAP}, but will fit after these preemptions complete"


POLICIES = ("withinClusterQueue", "reclaimWithinCohort", "borrowWithinCohort")
WHILE_BORROWING: Any = {"reclaimWithinCohort": "LowerPriority", "borrowWithinCohort": {"policy": "LowerPriority"}}


def queue(name: str, cpu: Any, cohort: str | None = "x", **spec: Any) -> ClusterQueue:
    """A queue of cpu; the preemption policies by name, or other fields of the spec."""
    policies = {key: spec.pop(key) for key in POLICIES if key in spec}
    return b.queue(name, {"default": {"cpu": cpu}}, cohort, preemption=policies, **spec)


def decisions(state: State) -> dict[str, Decision]:
    """What the next cycle decides, by name, in its order."""
    return {decision.key.removeprefix("team/"): decision for decision in cycle(state, b.NOW)}


class TestKeptCapacity:
    """What a head that can preempt nobody keeps from those after it."""

    @pytest.mark.parametrize(("policy", "kept"), [("Any", False), ("LowerPriority", True), ("Never", True)])
    def test_only_a_queue_that_can_always_reclaim_keeps_nothing(self, policy: str, kept: bool) -> None:
        """Others may borrow meanwhile what it will get back anyway."""
        state = b.world(queue("lender", 2, reclaimWithinCohort=policy), queue("borrower", 0))
        state.put_workload(b.held("runs", "lender", {"cpu": "1"}, priority=9), b.NOW)
        state.put_workload(b.workload("two", "lender", cpu=2, priority=1), b.NOW)
        state.put_workload(b.workload("one", "borrower", cpu=1), b.NOW)
        found = decisions(state)
        assert found["two"].requeue_reason == "PreemptionNoCandidates"
        assert (found["one"].outcome, found["one"].message) == (("skipped", TAKEN) if kept else ("admit", ""))

    def test_a_borrower_keeps_up_to_its_limit(self) -> None:
        """A head that would borrow keeps what its borrowing limit leaves it, without a limit all it asks for."""
        for limit, outcome in ((None, "skipped"), (1, "admit")):
            state = b.world(queue("a", (2, limit, None), **WHILE_BORROWING), queue("peer", 4), queue("z", 0))
            state.put_workload(b.held("high", "a", {"cpu": "2"}, priority=9), b.NOW)
            state.put_workload(b.held("lent", "z", {"cpu": "2"}, priority=9), b.NOW)
            state.put_workload(b.workload("asks", "a", cpu=3, priority=5), b.NOW)
            state.put_workload(b.workload("small", "z", cpu=1, second=9), b.NOW)
            found = decisions(state)
            assert found["asks"].requeue_reason == "PreemptionNoCandidates"
            assert found["small"].outcome == outcome

    @pytest.mark.parametrize(("prioritized", "kept"), [(True, True), (False, False)])
    @pytest.mark.parametrize("preemptor", [True, False])
    def test_who_had_others_preempted_keeps_room(self, prioritized: bool, kept: bool, preemptor: bool) -> None:
        """With PrioritizePreemptorWorkloads, even in a queue that can always reclaim."""
        gates = Gates(prioritize_preemptor_workloads=prioritized)
        lender = queue("lender", 2, reclaimWithinCohort="Any", withinClusterQueue="LowerPriority")
        state = b.world(lender, queue("borrower", 0), options=Options(gates=gates))
        if preemptor:
            state.put_workload(b.held("low", "lender", {"cpu": "2"}, priority=-1), b.NOW)
        state.put_workload(b.workload("waits", "lender", cpu=2), b.NOW)
        if preemptor:
            assert decisions(state)["waits"].outcome == "preempting"
        state.drop_workload("team/low")
        state.put_workload(b.held("high", "lender", {"cpu": "1"}, priority=9), b.NOW)
        state.put_workload(b.workload("one", "borrower", cpu=1), b.NOW)
        found = decisions(state)
        assert found["waits"].requeue_reason == "PreemptionNoCandidates"
        assert (found["one"].outcome == "admit") is not (kept and preemptor)


class TestSharedRoom:
    """Two heads, and room for one."""

    def test_room_that_an_earlier_preemptor_counts_on(self) -> None:
        """Both would take their own and borrow the same core; the second is told that it no longer fits."""
        own: Any = {"withinClusterQueue": "LowerPriority", **WHILE_BORROWING}
        state = b.world(queue("alpha", 2, **own), queue("beta", 2, **own), queue("bank", 1))
        for name in ("alpha", "beta"):
            state.put_workload(b.held(f"runs-{name}", name, {"cpu": "2"}), b.NOW)
        state.put_workload(b.workload("first", "alpha", cpu=3, priority=100), b.NOW)
        state.put_workload(b.workload("second", "beta", cpu=3, priority=99), b.NOW)
        found = decisions(state)
        assert list(found) == ["first", "second"]
        assert found["first"].message.endswith("2 more needed. Pending the preemption of 1 workload(s)")
        assert (found["second"].status, found["second"].message) == ("skipped", TAKEN)
        assert found["second"].requeue_reason == "FailedAfterNomination"
        assert [info.key for info in state.cluster_queues["beta"].pending.active_infos()] == ["team/second"]

    def test_room_that_a_preemptor_takes_besides_that_of_its_victims(self) -> None:
        """It is free now, but not for one that comes after."""
        state = b.world(queue("a", 4, withinClusterQueue="LowerPriority"), queue("z", 0))
        state.put_workload(b.held("runs", "a", {"cpu": "2"}), b.NOW)
        state.put_workload(b.workload("first", "a", cpu=4, priority=9), b.NOW)
        state.put_workload(b.workload("second", "z", cpu=2), b.NOW)
        found = decisions(state)
        assert [victim.key for victim in found["first"].victims] == ["team/runs"]
        assert (found["second"].outcome, found["second"].message) == ("skipped", TAKEN)

    def test_who_fits_beside_victims_that_still_run_starts_at_once(self) -> None:
        """What an earlier head waits for is not in use yet, and what another was given is."""
        state = b.world(queue("a", (4, 0, None), withinClusterQueue="LowerPriority"), queue("z", 2), queue("y", 2))
        state.put_workload(b.held("runs", "a", {"cpu": "4"}), b.NOW)
        state.put_workload(b.workload("first", "a", cpu=4, priority=9), b.NOW)
        state.put_workload(b.workload("second", "y", cpu=2, priority=5), b.NOW)
        state.put_workload(b.workload("third", "z", cpu=2), b.NOW)
        found = decisions(state)
        assert [found[name].outcome for name in found] == ["preempting", "admit", "admit"]
        assert list(found) == ["first", "second", "third"]

    def test_a_shared_victim(self) -> None:
        """The second will fit when the victim of the first is gone: it waits without victims of its own."""
        state = b.world(
            queue("small", 50, reclaimWithinCohort="Any"),
            queue("big", 3000, reclaimWithinCohort="Any"),
            queue("taker", 3005),
        )
        state.put_workload(b.held("all", "taker", {"cpu": "6055"}), b.NOW)
        state.put_workload(b.workload("a", "small", cpu=50, priority=1), b.NOW)
        state.put_workload(b.workload("b", "big", cpu=2950), b.NOW)
        found = decisions(state)
        assert (found["a"].outcome, [victim.key for victim in found["a"].victims]) == ("preempting", ["team/all"])
        assert (found["b"].outcome, found["b"].status, found["b"].message) == ("pending", "", LATER)
        assert (found["b"].condition_reason, found["b"].requeue_reason) == (
            "WaitingForPreemptedWorkloads",
            "PendingPreemption",
        )
        assert not found["b"].victims
        state.drop_workload("team/all")
        assert {name: item.outcome for name, item in decisions(state).items()} == {"a": "admit", "b": "admit"}

    def test_a_shared_victim_is_not_shared_without_the_gate(self) -> None:
        """RecomputeAssignmentUponPreemptionTargetsOverlap off: the second is skipped."""
        gates = Gates(recompute_assignment_upon_preemption_targets_overlap=False)
        state = b.world(
            queue("a", 1, reclaimWithinCohort="Any"),
            queue("b", 1, reclaimWithinCohort="Any"),
            queue("taker", 0),
            options=Options(gates=gates),
        )
        state.put_workload(b.held("all", "taker", {"cpu": "2"}), b.NOW)
        state.put_workload(b.workload("one", "a", priority=1), b.NOW)
        state.put_workload(b.workload("two", "b"), b.NOW)
        found = decisions(state)
        assert (found["two"].status, found["two"].message) == ("skipped", OVERLAP)

    def test_other_victims_for_the_second(self) -> None:
        """The first took the one that both chose and needs all of it: the second finds another."""
        state = b.world(
            queue("a", 2, reclaimWithinCohort="Any"), queue("b", 2, reclaimWithinCohort="Any"), queue("taker", 0)
        )
        state.put_workload(b.held("low", "taker", {"cpu": "2"}, priority=-5), b.NOW)
        state.put_workload(b.held("high", "taker", {"cpu": "2"}, priority=5), b.NOW)
        state.put_workload(b.workload("one", "a", cpu=2, priority=1), b.NOW)
        state.put_workload(b.workload("two", "b", cpu=2), b.NOW)
        found = decisions(state)
        assert [victim.key for victim in found["one"].victims] == ["team/low"]
        assert [victim.key for victim in found["two"].victims] == ["team/high"]

    def test_a_second_search_keeps_to_the_flavors_of_the_first(self) -> None:
        """Others are passed over, and it is told why."""
        state = b.world(
            b.queue(
                "a",
                {"one": {"cpu": 2}, "two": {"cpu": 2}},
                "x",
                preemption={"reclaimWithinCohort": "Any"},
                flavorFungibility={"whenCanPreempt": "MayStopSearch"},
            ),
            b.queue("b", {"one": {"cpu": 2}}, "x", preemption={"reclaimWithinCohort": "Any"}),
            b.queue("taker", {"one": {"cpu": 0}}, "x"),
            flavors=("one", "two"),
        )
        state.put_workload(b.held("all", "taker", {"cpu": "4"}, flavor="one"), b.NOW)
        state.put_workload(b.workload("early", "b", cpu=2, priority=9), b.NOW)
        state.put_workload(b.workload("late", "a", cpu=2), b.NOW)
        found = decisions(state)
        late = found["late"].assignment
        assert found["late"].message == LATER
        assert late is not None
        assert [item.flavors["cpu"].flavor for item in late.pod_sets] == ["one"]


class TestOrder:
    """Who is processed first."""

    def test_who_borrows_from_nearer_comes_first(self) -> None:
        """Whatever its priority: the height of the subtree that can hold it decides."""
        state = b.world(queue("g", 0, "near"), queue("far", 0, "root"))
        state.put_cohort(b.cohort("root"))
        state.put_cohort(b.cohort("near", {"default": {"cpu": 4}}, "root"))
        state.put_workload(b.workload("inside", "g", cpu=4), b.NOW)
        state.put_workload(b.workload("outside", "far", cpu=4, priority=9), b.NOW)
        found = decisions(state)
        assert list(found) == ["inside", "outside"]
        assert [item.borrowing for item in found.values()] == [1, 2]
        assert (found["inside"].outcome, found["outside"].message) == ("admit", TAKEN)

    @pytest.mark.parametrize(("priority_first", "first"), [(True, "high"), (False, "old")])
    def test_priority_then_age(self, priority_first: bool, first: str) -> None:
        """Priority only with PrioritySortingWithinCohort."""
        gates = Gates(priority_sorting_within_cohort=priority_first)
        state = b.world(queue("a", 1), queue("b", 1), options=Options(gates=gates))
        state.put_workload(b.workload("old", "a", second=0), b.NOW)
        state.put_workload(b.workload("high", "b", second=5, priority=3), b.NOW)
        assert next(iter(decisions(state))) == first

    def test_smaller_share_by_weight(self) -> None:
        """Among those who borrow: 3 of 10 at weight 2 come before 2 of 10 at weight 1."""
        state = b.world(
            queue("a", 2, fairSharing={"weight": "2"}),
            queue("b", 2),
            queue("bank", 6),
            options=Options(fair_sharing=FairSharing()),
        )
        state.put_workload(b.held("runs-a", "a", {"cpu": "4"}), b.NOW)
        state.put_workload(b.held("runs-b", "b", {"cpu": "2"}), b.NOW)
        state.put_workload(b.workload("one", "a", cpu=1), b.NOW)
        state.put_workload(b.workload("two", "b", cpu=2, priority=9), b.NOW)
        assert list(decisions(state)) == ["one", "two"]

    def test_weight_zero_comes_last_as_soon_as_it_borrows(self) -> None:
        """Two of weight zero are compared by what they borrow."""
        weightless: Any = {"fairSharing": {"weight": "0"}}
        state = b.world(
            queue("a", 0, **weightless),
            queue("b", 0, **weightless),
            queue("c", 0),
            queue("bank", 10),
            options=Options(fair_sharing=FairSharing()),
        )
        state.put_workload(b.workload("more", "a", cpu=2, priority=9), b.NOW)
        state.put_workload(b.workload("less", "b", cpu=1, priority=5), b.NOW)
        state.put_workload(b.workload("most", "c", cpu=5), b.NOW)
        assert list(decisions(state)) == ["most", "less", "more"]

    def test_preemptors_first_only_with_their_gate(self) -> None:
        """PrioritizePreemptorWorkloads: who waits for its victims comes before priority."""
        for on, first in ((False, "high"), (True, "waits")):
            gates = Gates(prioritize_preemptor_workloads=on)
            state = b.world(
                queue("a", 2, None, withinClusterQueue="LowerPriority"),
                queue("b", 2, None),
                options=Options(gates=gates),
            )
            state.put_workload(b.held("low", "a", {"cpu": "2"}, priority=-1), b.NOW)
            state.put_workload(b.workload("waits", "a", cpu=2), b.NOW)
            assert decisions(state)["waits"].outcome == "preempting"
            state.put_workload(b.workload("high", "b", cpu=2, priority=9), b.NOW)
            assert next(iter(decisions(state))) == first


def test_who_was_preempted_comes_right_after_its_preemptor() -> None:
    """And before those it would have come before anyway."""
    state = b.world(queue("a", 4), queue("y", 4), queue("z", 4))
    entries = []
    for name, where in (("victim", "z"), ("head", "a"), ("third", "y")):
        state.put_workload(b.workload(name, where), b.NOW)
        holder = state.cluster_queues[where]
        if name == "head":
            holder.pending.nomination = Nomination("team/head", victims={"team/victim": "InCohortReclamation"})
        entry = Entry(state.workloads[f"team/{name}"], holder)
        entry.assignment = Assignment(LastAssignment([], 0, 0, ""))
        entries.append(entry)
    found = [entry.info.key for entry in after_their_preemptors(entries, entries, Pace()) if entry is not None]
    assert found == ["team/head", "team/victim", "team/third"]


class TestProgress:
    """What a scan is remembered for."""

    def test_a_gated_preemption_forgets_it(self) -> None:
        """Flavors that were not tried are no reason to try again: it waits for its gate."""
        state = b.world(
            b.queue(
                "a",
                {"one": {"cpu": 2}, "two": {"cpu": 2}},
                preemption={"withinClusterQueue": "LowerPriority"},
                flavorFungibility={"whenCanPreempt": "MayStopSearch"},
            ),
            flavors=("one", "two"),
            options=Options(gates=Gates(multi_kueue_orchestrated_preemption=True)),
        )
        state.put_workload(b.held("low", "a", {"cpu": "2"}, flavor="one", priority=-1), b.NOW)
        state.put_workload(b.changed(b.workload("w", cpu=1), spec={"preemptionGates": [{"name": "g"}]}), b.NOW)
        decision = decisions(state)["w"]
        assert decision.status == "preemptionGated"
        assert decision.info.last_assignment is None
        assert [info.key for info in state.cluster_queues["a"].pending.inadmissible_infos()] == ["team/w"]


class TestSlices:
    """A workload that takes the place of another, larger."""

    def _state(self, *extra: Any) -> State:
        state = b.world(queue("a", 5, **({} if not extra else {"reclaimWithinCohort": "Any"})), *extra)
        state.put_workload(b.held("old", "a", {"cpu": "3"}), b.NOW)
        replaces = {"kueue.x-k8s.io/workload-slice-replacement-for": "team/old"}
        state.put_workload(b.workload("new", "a", cpu=5, annotations=replaces), b.NOW)
        return state

    def test_only_the_difference_is_asked_for(self) -> None:
        """3 of 5 are its own already."""
        decision = decisions(self._state())["new"]
        assert decision.outcome == "admit"
        assert decision.assignment is not None
        assert {str(pair): amount for pair, amount in decision.assignment.usage.quota.items()} == {"default/cpu": 2000}

    def test_it_holds_all_it_asks_for_once_the_old_one_is_gone(self) -> None:
        """Not the difference alone: nobody else gets what the old one leaves."""
        state = self._state()
        assert decisions(state)["new"].outcome == "admit"
        state.drop_workload("team/old")
        assert [usage.total for usage in state.questions.queue_usage("a")] == [5000]
        state.put_workload(b.workload("next", "a", cpu=1), b.NOW)
        assert decisions(state)["next"].outcome == "pending"

    def test_an_old_slice_that_has_to_go_is_shared_like_any_victim(self) -> None:
        """It is not counted on twice: the new slice asks for all once the old one is gone."""
        state = self._state(queue("owner", 2, reclaimWithinCohort="Any"))
        state.put_workload(b.held("also", "a", {"cpu": "4"}, priority=9), b.NOW)
        state.put_workload(b.workload("mine", "owner", cpu=2, priority=9), b.NOW)
        found = decisions(state)
        assert [victim.key for victim in found["mine"].victims] == ["team/old"]
        assert found["new"].outcome != "admit"


def test_usage_below_nothing_goes_up_and_down_alike() -> None:
    """A slice may ask for less of one resource than the one it replaces; parents are as before when it is undone."""
    state = b.world(queue("a", (4, None, 1)), queue("b", 4))
    state.ledger.settle()
    node = state.cluster_queues["a"].node
    pair = state.surroundings.catalog.pair("default", "cpu")
    assert node.parent is not None
    for held in (0, 2000, 3500, 9000):
        tree.add_usage(node, pair, held)
        before = dict(node.usage), dict(node.parent.usage)
        tree.add_usage(node, pair, -1000)
        assert node.parent.usage.get(pair, 0) == max(0, held - 1000 - 3000)
        tree.remove_usage(node, pair, -1000)
        assert (node.usage, node.parent.usage) == before
        tree.remove_usage(node, pair, held)


@pytest.mark.parametrize(("listed", "admitted"), [("Pending", False), ("Ready", True)])
def test_a_listed_check_that_is_not_ready_stands_in_the_way(listed: str, admitted: bool) -> None:
    """Even if it is for no flavor that was given: it is dropped first, by who keeps the list."""
    check = {"name": "other", "state": listed, "lastTransitionTime": b.STAMP, "message": ""}
    state = b.world(b.queue("a"))
    state.put_workload(b.workload("w", status={"admissionChecks": [check]}), b.NOW)
    assert decisions(state)["w"].admitted is admitted
