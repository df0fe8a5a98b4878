"""How far the scan of flavors came: when it is kept, when it is forgotten, and what becomes of a head meanwhile.

Kueue's rules (gate FlavorFungibilityPreserveScanProgress): progress is kept by the head of the next cycle, whatever
changed, and later as long as no quota of its tree was given back or changed. A head with flavors left goes back
in line at once. Here one addition: what is parked at the end of a scan that went on is never what the first flavors
could hold.
"""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.workload import Workload
from turnstile.engine import Cycle, Options, State, cycle
from turnstile.engine.cycle.entries import outdated
from turnstile.engine.options import Gates
from turnstile.engine.quota.progress import LastAssignment

STOP = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
NEXT = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}


def borrowers(*names: str, x: int, y: int, preserve: bool = True, **spec: Any) -> State:
    """Queues that have nothing of their own and borrow from a cohort: cores of the flavors `x` and `y`."""
    queues = [
        b.queue(name, {"x": {"cpu": 0}, "y": {"cpu": 0}}, "team", flavorFungibility=STOP, **spec) for name in names
    ]
    gates = Gates(flavor_fungibility_preserve_scan_progress=preserve)
    state = b.world(*queues, options=Options(gates=gates), flavors=("x", "y"))
    state.put_cohort(b.cohort("team", {"x": {"cpu": x}, "y": {"cpu": y}}))
    return state


def tried(result: Cycle, name: str) -> list[dict[str, int]] | None:
    """How far the scan of a head came, by pod set; None if it starts over."""
    entry = next(entry for entry in result.entries if entry.info.key == f"team/{name}")
    last = entry.info.last_assignment
    return last.tried if last is not None else None


def places(state: State, queue: str) -> tuple[list[str], list[str]]:
    """Who is in line and who is parked."""
    pending = state.cluster_queues[queue].pending
    return [info.key for info in pending.in_order()], [info.key for info in pending.inadmissible_infos()]


class TestWhenItIsOutdated:
    """By hash, by cycle and by generation."""

    @pytest.mark.parametrize(
        ("preserve", "cycles", "changed", "hash_", "over"),
        [
            (True, 1, False, "h", False),
            (True, 1, True, "h", False),
            (True, 2, False, "h", False),
            (True, 2, True, "h", True),
            (True, 1, False, "other", True),
            (True, 1, False, "", False),
            (False, 1, False, "h", False),
            (False, 1, True, "h", True),
            (False, 5, False, "other", False),
        ],
    )
    def test_the_rule(self, preserve: bool, cycles: int, changed: bool, hash_: str, over: bool) -> None:
        """Another request starts over; a changed quota only from the second cycle on, or at once without the gate."""
        last = LastAssignment([{"cpu": 0}], 3, 10, "h")
        generation = 4 if changed else 3
        assert over == outdated(last, cycle=10 + cycles, generation=generation, hash_=hash_, preserve_progress=preserve)


class TestASkippedHead:
    """Another one took the room in the same cycle."""

    def start(self, **kwargs: Any) -> tuple[State, Cycle]:
        """`first` is admitted in `x`, and `later` is skipped there."""
        state = borrowers("a", "z", x=1, **kwargs)
        state.put_workload(b.workload("first", "a"), b.NOW)
        state.put_workload(b.workload("later", "z", second=1), b.NOW)
        return state, cycle(state, b.NOW)

    @pytest.mark.parametrize(("preserve", "kept"), [(True, [{"cpu": 0}]), (False, None)])
    def test_it_keeps_its_progress_only_with_the_gate(self, preserve: bool, kept: Any) -> None:
        """And is back in line in any case."""
        state, result = self.start(y=0, preserve=preserve)
        assert tried(result, "later") == kept
        assert places(state, "z") == (["team/later"], [])

    def test_it_goes_on_although_quota_came_back_in_between(self) -> None:
        """The generation of its queue grew, but it is the very next cycle."""
        state, _ = self.start(y=1)
        generation = state.cluster_queues["z"].generation
        state.put_workload(b.held("gone", "z", {"cpu": "1"}, flavor="y"), b.NOW)
        state.drop_workload("team/gone")
        assert state.cluster_queues["z"].generation > generation
        cycle(state, b.NOW)
        assert state.cluster_queues["z"].workloads["team/later"].totals[0].flavors == {"cpu": "y"}

    def test_without_the_gate_it_starts_over(self) -> None:
        """It finds the first flavor full, and the next one in the same scan."""
        state, _ = self.start(y=1, preserve=False)
        cycle(state, b.NOW)
        assert state.cluster_queues["z"].workloads["team/later"].totals[0].flavors == {"cpu": "y"}

    def test_it_is_inadmissible_if_no_flavor_is_left(self) -> None:
        """One cycle later than in Kueue: the first flavor, which it left behind as another head took it, is tried once
        more. The end of that other one wakes it."""
        state, _ = self.start(y=0)
        for _ in range(2):
            result = cycle(state, b.NOW)
            assert [(entry.info.key, entry.requeue_reason) for entry in result.entries] == [("team/later", "NoFit")]
        assert places(state, "z") == ([], ["team/later"])
        assert b.settle(state) == []
        state.drop_workload("team/first")
        assert [decision.outcome for decision in b.settle(state)] == ["admit"]

    def test_it_is_not_parked_if_the_first_flavor_has_room_after_all(self) -> None:
        """The write of the admission that was before it failed."""
        state, _ = self.start(y=0)
        state.forget("team/first", b.NOW)
        state.drop_workload("team/first")
        state.retries.cluster_queues.clear()  # nobody tells of the room
        cycle(state, b.NOW)
        assert places(state, "z") == (["team/later"], [])
        cycle(state, b.NOW)
        assert b.admitted(state) == {"team/later"}


class TestRoomThatWasOnlyKept:
    """A neighbour without candidates keeps room from it for the rest of one cycle."""

    def test_it_is_not_parked_behind_it(self) -> None:
        """The neighbour goes, and nothing is given back that would wake anybody."""
        state = b.world(
            b.queue("owner", {"x": {"cpu": 2}, "y": {"cpu": 0}}, "team"),
            b.queue("z", {"x": {"cpu": 0}, "y": {"cpu": 0}}, "team", flavorFungibility=STOP),
            flavors=("x", "y"),
        )
        state.put_workload(b.held("running", "owner", {"cpu": "1"}, flavor="x", priority=9), b.NOW)
        state.put_workload(b.workload("whole", "owner", cpu=2), b.NOW)
        state.put_workload(b.workload("later", "z", second=1), b.NOW)
        result = cycle(state, b.NOW)
        assert [entry.status for entry in result.entries if entry.info.key == "team/later"] == ["skipped"]
        state.drop_workload("team/whole")
        b.settle(state)
        assert "team/later" in b.admitted(state)


class TestFlavorsLeft:
    """What is recorded, and where a head waits that has some left."""

    def test_the_last_flavor_means_to_start_over(self) -> None:
        """It is recorded as -1, and nothing is left."""
        state = b.world(b.queue("a", {"x": {"cpu": 1}, "y": {"cpu": 1}}, flavorFungibility=NEXT), flavors=("x", "y"))
        for name in ("x", "y"):
            state.put_workload(b.held(f"in-{name}", "a", {"cpu": "1"}, flavor=name), b.NOW)
        state.put_workload(b.workload("w", "a"), b.NOW)
        assert tried(cycle(state, b.NOW), "w") == [{"cpu": -1}]
        assert places(state, "a") == ([], ["team/w"])

    def test_a_later_pod_set_does_not_hide_what_an_earlier_one_has_left(self) -> None:
        """The first fits `x`, which is not the last; the second fits nothing and records nothing."""
        state = b.world(b.queue("a", {"x": {"cpu": 4}, "y": {"cpu": 4}}), flavors=("x", "y"))
        body = msgspec.to_builtins(b.workload("w", "a"))
        body["spec"]["podSets"] = [
            body["spec"]["podSets"][0] | {"name": name, "count": count} for name, count in (("small", 1), ("large", 9))
        ]
        state.put_workload(msgspec.convert(body, Workload), b.NOW)
        assert tried(cycle(state, b.NOW), "w") == [{"cpu": 0}, {}]
        assert places(state, "a") == (["team/w"], [])

    def test_it_is_forgotten_by_who_waits_for_the_victims_of_another(self) -> None:
        """The room will be there for both, in the flavor that was found."""
        policy = {"reclaimWithinCohort": "Any"}
        queues = [b.queue(name, {"x": {"cpu": 1}, "y": {"cpu": 0}}, "team", preemption=policy) for name in ("a", "z")]
        taker = b.queue("taker", {"x": {"cpu": 0}}, "team")
        state = b.world(*queues, taker, flavors=("x", "y"))
        state.put_workload(b.held("all", "taker", {"cpu": "2"}, flavor="x"), b.NOW)
        state.put_workload(b.workload("first", "a", priority=1), b.NOW)
        state.put_workload(b.workload("later", "z"), b.NOW)
        result = cycle(state, b.NOW)
        assert [decision.requeue_reason for decision in result] == ["PendingPreemption", "PendingPreemption"]
        assert tried(result, "later") is None

    def test_it_is_forgotten_once_others_are_preempted(self) -> None:
        """The room will be in the flavor that was found: it is looked for from the first."""
        policy = {"withinClusterQueue": "LowerPriority"}
        state = b.world(
            b.queue("a", {"x": {"cpu": 1}, "y": {"cpu": 0}}, flavorFungibility=STOP, preemption=policy),
            flavors=("x", "y"),
        )
        state.put_workload(b.held("low", "a", {"cpu": "1"}, flavor="x"), b.NOW)
        state.put_workload(b.workload("w", "a", priority=5), b.NOW)
        result = cycle(state, b.NOW)
        assert [decision.outcome for decision in result] == ["preempting"]
        assert tried(result, "w") is None
