"""Who is first in line, who is parked, and what puts the parked back."""

from collections.abc import Callable

import pytest

from app.engine import cycle
from tests.unit.engine import builders as b


def order(state: b.State, name: str = "a") -> list[str]:
    """Names in the order of the line."""
    return [key.partition("/")[2] for key in state.pending(name)]


def test_priority_comes_first_then_age() -> None:
    """Equal priorities in order of creation, equal times by UID."""
    state = b.world(b.queue("a", {"default": {"cpu": 0}}))
    for name, priority, second in (("old", 0, 0), ("new", 0, 9), ("urgent", 5, 9), ("b-tie", 0, 0)):
        state.put_workload(b.workload(name, priority=priority, second=second), b.NOW)
    assert order(state) == ["urgent", "b-tie", "old", "new"]


def test_strict_fifo_waits_for_its_head() -> None:
    """Nobody overtakes a head that does not fit."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}, queueingStrategy="StrictFIFO"))
    state.put_workload(b.workload("big", cpu=5), b.NOW)
    state.put_workload(b.workload("small", second=1), b.NOW)
    b.settle(state)
    assert b.admitted(state) == set()
    state.drop_workload("team/big")
    b.settle(state)
    assert b.admitted(state) == {"team/small"}


def test_best_effort_fifo_lets_others_pass() -> None:
    """A head that does not fit is parked."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("big", cpu=5), b.NOW)
    state.put_workload(b.workload("small", second=1), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/small"}


def test_equals_of_a_refused_workload_are_parked_with_it() -> None:
    """One refusal speaks for all that ask for the same; room brings them back in order."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("runs", cpu=4), b.NOW)
    b.settle(state)
    for number in range(5):
        state.put_workload(b.workload(f"w{number}", cpu=2, second=number), b.NOW)
    decisions = b.settle(state)
    assert len(decisions) == 1
    assert order(state) == ["w0", "w1", "w2", "w3", "w4"]
    assert state.why("team/w3") == (
        "WaitingForQuota",
        "Bypassed scheduling evaluation because an equivalent workload recently failed",
        "",
    )
    state.drop_workload("team/runs")
    b.settle(state)
    assert b.admitted(state) == {"team/w0", "team/w1"}


def _hold_and_resume(state: b.State) -> None:
    state.put_local_queue(b.local("main", "a", stopPolicy="Hold"), b.NOW)
    state.put_local_queue(b.local("main", "a"), b.NOW)


def _delete_and_create_again(state: b.State) -> None:
    state.drop_local_queue("team/main")
    state.put_local_queue(b.local("main", "a"), b.NOW)


@pytest.mark.parametrize("leave_and_return", [_hold_and_resume, _delete_and_create_again])
def test_a_workload_that_left_its_queue_learns_why_it_waits_after_its_return(
    leave_and_return: Callable[[b.State], None],
) -> None:
    """It is inadmissible with its equals then, which no cycle looks at: it is told that, not what was found before."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("w", cpu=5), b.NOW)
    b.settle(state)
    assert state.waits("team/w") is None  # the cycle told it itself
    leave_and_return(state)
    b.settle(state)
    assert state.why("team/w") == (
        "ExceedsMaxQuota",
        "Bypassed scheduling evaluation because an equivalent workload recently failed",
        "",
    )
    assert state.waits("team/w") is not None


def test_a_deactivated_workload_is_tried_again_after_its_return() -> None:
    """Its deactivation has the inadmissible of its tree tried again, and itself with them."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("w", cpu=5), b.NOW)
    b.settle(state)
    inactive = b.workload("w", cpu=5)
    inactive.spec.active = False
    state.put_workload(inactive, b.NOW)
    state.put_workload(b.workload("w", cpu=5), b.NOW)
    assert [decision.outcome for decision in b.settle(state)] == ["pending"]
    assert state.waits("team/w") is None  # the cycle told it itself


def test_room_anywhere_in_the_tree_wakes_the_parked() -> None:
    """A workload of another queue ends: what borrowed from it is tried again."""
    state = b.world(b.queue("a", {"default": {"cpu": 0}}, "x"), b.queue("b", {"default": {"cpu": 4}}, "x"))
    state.put_workload(b.workload("lender", "b", cpu=4), b.NOW)
    b.settle(state)
    state.put_workload(b.workload("borrower", cpu=2), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/lender"}
    state.drop_workload("team/lender")
    b.settle(state)
    assert b.admitted(state) == {"team/borrower"}


def test_back_off_keeps_a_workload_out_of_line() -> None:
    """Until the time has come and something puts it back."""
    state = b.world(b.queue("a"))
    status = {"requeueState": {"count": 1, "requeueAt": "2026-01-02T03:05:05Z"}}
    state.put_workload(b.workload("w", status=status), b.NOW)
    assert b.settle(state) == []
    state.mark_retry("a")
    assert not state.flush_retries(b.NOW + 59)
    state.mark_retry("a")
    assert state.flush_retries(b.NOW + 60)
    cycle(state, b.NOW + 60)
    assert b.admitted(state) == {"team/w"}


def test_a_changed_request_leaves_the_parking_place() -> None:
    """What now asks for less is tried at once."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("w", cpu=5), b.NOW)
    b.settle(state)
    state.put_workload(b.workload("w", cpu=4), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_when_nothing_can_change_there_is_no_work() -> None:
    """The driver may sleep, whatever waits."""
    state = b.world(b.queue("a", {"default": {"cpu": 1}}, queueingStrategy="StrictFIFO"))
    state.put_workload(b.workload("w", cpu=2), b.NOW)
    b.settle(state)
    assert not state.has_work
    state.put_workload(b.workload("v", cpu=2, second=1), b.NOW)
    assert state.has_work


def test_a_deep_queue_costs_as_little_as_a_short_one() -> None:
    """Thousands that cannot run are neither looked at one by one nor moved one by one."""
    state = b.world(b.queue("a", {"default": {"cpu": 1}}))
    for number in range(2000):
        state.put_workload(b.workload(f"w{number:04}", cpu=1, second=number // 60), b.NOW)
    assert len(b.settle(state)) == 2
    for _ in range(20):
        (key,) = b.admitted(state)
        state.drop_workload(key)
        assert len(b.settle(state)) == 2
    assert len(b.admitted(state)) == 1


def test_nobody_is_preempted_for_a_workload_that_is_being_deleted() -> None:
    """It may wait long for its finalizers; meanwhile it stands in no line, also if it did before."""
    preemption = {"withinClusterQueue": "LowerPriority"}
    state = b.world(b.queue("main", {"default": {"cpu": 4}}, preemption=preemption))
    state.put_workload(b.held("low", "main", {"cpu": "3"}), b.NOW)
    gone = b.workload("gone", cpu=3, priority=10)
    state.put_workload(gone, b.NOW)
    state.put_workload(b.changed(gone, metadata={"deletionTimestamp": b.STAMP}), b.NOW)
    assert not b.settle(state)
