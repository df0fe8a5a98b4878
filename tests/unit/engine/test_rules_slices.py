"""Slices of elastic jobs: a workload that takes over from a smaller one of the same job.

Kueue's rules: flavors stay those of the old slice, only the difference is asked for, and the old slice runs on until
the new one is admitted.
"""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.workload import Workload
from turnstile.engine import Decision, Options, State, cycle, cycle_steps
from turnstile.engine.options import FairSharing
from turnstile.engine.quota.info import SLICE_REPLACEMENT_FOR

OLD = {SLICE_REPLACEMENT_FOR: "team/old"}


def new(requests: dict[str, str], *, line: str = "a", priority: int = 0) -> Workload:
    """The new slice."""
    body = msgspec.to_builtins(b.workload("new", line, priority=priority, annotations=OLD))
    body["spec"]["podSets"][0]["template"]["spec"] = {
        "containers": [{"name": "c", "resources": {"requests": requests}}]
    }
    return msgspec.convert(body, Workload)


def decide(state: State) -> Decision:
    """What the next cycle decides about it."""
    return next(decision for decision in cycle(state, b.NOW) if decision.key == "team/new")


def usage(decision: Decision) -> dict[str, int]:
    """Quota that it asks for, beyond that of the old slice."""
    assert decision.assignment is not None
    return {str(pair): amount for pair, amount in decision.assignment.usage.quota.items()}


class TestAResourceThatTheOldSliceLacked:
    """It was not asked for then, or its queue did not count it."""

    def test_it_is_asked_for_as_a_whole(self) -> None:
        """Only what the old slice holds is counted on."""
        state = b.world(b.queue("a", {"default": {"cpu": 5, "gpu": 4}}))
        state.put_workload(b.held("old", "a", {"cpu": "3"}), b.NOW)
        state.put_workload(new({"cpu": "5", "gpu": "4"}), b.NOW)
        decision = decide(state)
        assert decision.outcome == "admit"
        assert usage(decision) == {"default/cpu": 2000, "default/gpu": 4}

    def test_it_must_have_room_as_a_whole(self) -> None:
        """One more than there is."""
        state = b.world(b.queue("a", {"default": {"cpu": 5, "gpu": 4}}))
        state.put_workload(b.held("old", "a", {"cpu": "3"}), b.NOW)
        state.put_workload(new({"cpu": "5", "gpu": "5"}), b.NOW)
        assert decide(state).condition_reason == "ExceedsMaxQuota"

    def test_it_gets_the_flavor_that_its_group_has_already(self) -> None:
        """Resources of one group share their flavor, and that of the old slice stays."""
        state = b.world(
            b.queue("a", {"one": {"cpu": 5, "gpu": 4}, "two": {"cpu": 9, "gpu": 4}}), flavors=("one", "two")
        )
        state.put_workload(b.held("old", "a", {"cpu": "3"}, flavor="two"), b.NOW)
        state.put_workload(new({"cpu": "5", "gpu": "4"}), b.NOW)
        decision = decide(state)
        assert b.flavors_of(decision) == [{"cpu": "two", "gpu": "two"}]

    def test_in_a_group_of_its_own_it_gets_the_first_that_suits(self) -> None:
        """The old slice has no flavor there to keep to."""
        groups = b.groups({"one": {"cpu": 5}, "two": {"cpu": 9}}, {"small": {"gpu": 1}, "large": {"gpu": 4}})
        state = b.world(b.queue("a", resourceGroups=groups), flavors=("one", "two", "small", "large"))
        state.put_workload(b.held("old", "a", {"cpu": "3"}, flavor="two"), b.NOW)
        state.put_workload(new({"cpu": "5", "gpu": "4"}), b.NOW)
        assert b.flavors_of(decide(state)) == [{"cpu": "two", "gpu": "large"}]

    def test_pods_that_the_queue_counts_since(self) -> None:
        """The implicit resource, which no old slice may hold."""
        state = b.world(b.queue("a", {"default": {"cpu": 5, "pods": 1}}))
        state.put_workload(b.held("old", "a", {"cpu": "3"}), b.NOW)
        state.put_workload(new({"cpu": "5"}), b.NOW)
        assert usage(decide(state)) == {"default/cpu": 2000, "default/pods": 1}


class TestTheOldSlice:
    """It runs on while the new one waits, and its quota is given once."""

    def test_its_quota_is_not_given_a_second_time(self) -> None:
        """A neighbour borrows in the same cycle what the new slice wants to borrow."""
        state = b.world(
            *(b.queue(name, {"default": {"cpu": cpu}}, "all") for name, cpu in (("a", 3), ("b", 0), ("c", 2)))
        )
        state.put_workload(b.held("old", "a", {"cpu": "3"}), b.NOW)
        state.put_workload(new({"cpu": "5"}), b.NOW)
        state.put_workload(b.workload("other", "b", cpu=2, priority=9), b.NOW)
        assert {decision.key: decision.message for decision in cycle(state, b.NOW)} == {
            "team/other": "",
            "team/new": "Workload no longer fits after processing another workload",
        }

    @pytest.mark.parametrize("sharing", [None, FairSharing()])
    def test_it_is_not_preempted_for_the_new_one(self, sharing: Any) -> None:
        """However low its priority is, and even if it was the last to be admitted."""
        queue = b.queue("a", {"default": {"cpu": 5}}, preemption={"withinClusterQueue": "LowerPriority"})
        state = b.world(queue, options=Options(fair_sharing=sharing))
        state.put_workload(b.held("old", "a", {"cpu": "3"}, at=9), b.NOW)
        state.put_workload(b.held("low", "a", {"cpu": "2"}, at=1), b.NOW)
        state.put_workload(new({"cpu": "5"}, priority=5), b.NOW)
        assert [victim.key for victim in decide(state).victims] == ["team/low"]


def in_use(state: State) -> int:
    """Milli-CPUs in use in ClusterQueue a."""
    return sum(amount for pair, amount in state.cluster_queues["a"].node.usage.items() if str(pair) == "default/cpu")


class TestBothSlicesTogether:
    """While both hold a reservation they are charged as the larger one."""

    @pytest.fixture
    def state(self) -> State:
        """A slice of 3 CPUs, and one of 5 that was admitted just now in its place."""
        state = b.world(b.queue("a", {"default": {"cpu": 6}}))
        state.put_workload(b.held("old", "a", {"cpu": "3"}), b.NOW)
        state.put_workload(new({"cpu": "5"}), b.NOW)
        assert decide(state).outcome == "admit"
        return state

    def test_the_admission_charges_for_the_difference(self, state: State) -> None:
        """From the end of the cycle on, before any write."""
        assert in_use(state) == 5000

    def test_news_of_the_old_slice_does_not_charge_for_it_again(self, state: State) -> None:
        """Its conditions change while the write is on its way."""
        state.put_workload(b.held("old", "a", {"cpu": "3"}, at=1), b.NOW)
        assert in_use(state) == 5000

    def test_the_end_of_the_old_slice_frees_nothing(self, state: State) -> None:
        """Its quota is that of the new one."""
        state.drop_workload("team/old")
        assert in_use(state) == 5000

    def test_a_failed_write_charges_for_the_old_slice(self, state: State) -> None:
        """It runs on."""
        state.forget("team/new", b.NOW)
        assert in_use(state) == 3000

    @pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
    def test_a_new_leader_charges_for_them_once(self, order: tuple[str, str]) -> None:
        """In whatever order it reads them."""
        state = b.world(b.queue("a", {"default": {"cpu": 6}}))
        slices = {
            "old": b.held("old", "a", {"cpu": "3"}),
            "new": b.changed(b.held("new", "a", {"cpu": "5"}), metadata={"annotations": OLD}),
        }
        for name in order:
            state.put_workload(slices[name], b.NOW)
        assert in_use(state) == 5000

    def test_a_pod_set_that_shrinks_stays_charged_until_the_old_slice_ends(self) -> None:
        """Its pods may run still."""
        state = b.world(b.queue("a", {"default": {"cpu": 6, "gpu": 6}}))
        state.put_workload(b.held("old", "a", {"cpu": "3", "gpu": "4"}), b.NOW)
        smaller = b.held("new", "a", {"cpu": "5", "gpu": "1"})
        state.put_workload(b.changed(smaller, metadata={"annotations": OLD}), b.NOW)
        usage = {str(pair): amount for pair, amount in state.cluster_queues["a"].node.usage.items()}
        assert usage == {"default/cpu": 5000, "default/gpu": 4}
        state.drop_workload("team/old")
        usage = {str(pair): amount for pair, amount in state.cluster_queues["a"].node.usage.items()}
        assert usage == {"default/cpu": 5000, "default/gpu": 1}

    def test_a_cycle_that_is_left_early_charges_for_the_old_slice(self) -> None:
        """At whatever step."""
        for steps in range(1, 40):
            state = b.world(b.queue("a", {"default": {"cpu": 6}}))
            state.put_workload(b.held("old", "a", {"cpu": "3"}), b.NOW)
            state.put_workload(new({"cpu": "5"}), b.NOW)
            run = cycle_steps(state, b.NOW)
            if not all(next(run, run) is not run for _ in range(steps)):
                break
            run.close()
            assert in_use(state) == 3000
        else:
            pytest.fail("the cycle has no end")


class TestASliceThatIsNone:
    """An annotation alone takes no other job's quota."""

    def test_of_another_job(self) -> None:
        """Both are charged, and so the second one waits."""
        state = b.world(b.queue("a", {"default": {"cpu": 5}}))
        state.put_workload(b.held("old", "a", {"cpu": "3"}), b.NOW)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
        state.put_workload(b.changed(new({"cpu": "5"}), metadata={"ownerReferences": [owner]}), b.NOW)
        assert decide(state).outcome != "admit"

    def test_of_another_namespace(self) -> None:
        """A Workload replaces none of a namespace that it is not in."""
        state = b.world(b.queue("a", {"default": {"cpu": 5}}))
        state.put_workload(b.held("old", "a", {"cpu": "3"}), b.NOW)
        other = b.changed(new({"cpu": "5"}), metadata={"annotations": {SLICE_REPLACEMENT_FOR: "other/old"}})
        state.put_workload(other, b.NOW)
        assert decide(state).outcome != "admit"


def test_growth_waits_while_the_old_slice_is_evicted() -> None:
    """Its pods run still, and go."""
    state = b.world(b.queue("a", {"default": {"cpu": 6}}))
    state.put_workload(b.with_conditions(b.held("old", "a", {"cpu": "3"}), Evicted=("True", "Preempted")), b.NOW)
    state.put_workload(new({"cpu": "5"}), b.NOW)
    assert decide(state).message == "the workload slice that it replaces is evicted: its pods have to go first"
    state.drop_workload("team/old")
    assert decide(state).outcome == "admit"
