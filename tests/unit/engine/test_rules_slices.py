"""Slices of elastic jobs: a workload that takes over from a smaller one of the same job.

Kueue's rules: flavors stay those of the old slice, only the difference is asked for, and the old slice runs on until
the new one is admitted.
"""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.workload import Workload
from turnstile.engine import Decision, Options, State, cycle
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
