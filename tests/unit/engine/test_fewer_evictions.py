"""Evictions lose work: on a busy server a preemptor first waits for quota to come free, and nobody is preempted again
and again in the place of his equals."""

from typing import Any

from tests.unit.engine import builders as b
from tests.unit.engine.test_victims import run, victims
from turnstile.engine import State

TAKES = 2.0
"""Seconds that an eviction takes on the server."""


def busy(**policy: str) -> State:
    """A queue of one cpu that is in use, a Workload that may preempt, and a server that is not at ease."""
    state = b.world(b.queue("a", {"default": {"cpu": 1}}, preemption={"withinClusterQueue": "LowerPriority", **policy}))
    run(state, "low")
    state.note_hold_off(TAKES, b.NOW)
    state.put_workload(b.workload("high", priority=1), b.NOW)
    return state


def finished(state: State, name: str) -> None:
    """A Workload ends by itself."""
    info = state.workloads[f"team/{name}"]
    state.put_workload(b.with_conditions(info.workload, Finished=("True", "Succeeded")), b.NOW)


def test_nobody_is_preempted_for_quota_that_comes_free_in_time() -> None:
    """The preemptor is admitted when the other has ended, and nobody was evicted."""
    state = busy()
    assert victims(b.settle(state)) == {}
    finished(state, "low")
    b.settle(state)
    assert b.admitted(state) == {"team/high"}


def test_after_as_long_as_an_eviction_takes_others_are_preempted() -> None:
    """Once, and not before; there is nothing to decide until then."""
    state = busy()
    b.settle(state)
    state.note_hold_off(TAKES, b.NOW + TAKES - 0.1)
    assert not state.has_work
    state.note_hold_off(TAKES, b.NOW + TAKES)
    assert victims(b.settle(state)) == {"team/low": "InClusterQueue"}
    state.note_hold_off(TAKES, b.NOW + TAKES + 1)
    assert not state.has_work


def test_a_preemptor_goes_on_when_the_server_is_at_ease_again() -> None:
    """At once."""
    state = busy()
    b.settle(state)
    state.note_hold_off(0.0, b.NOW + 0.1)
    assert victims(b.settle(state)) == {"team/low": "InClusterQueue"}


def test_quota_that_comes_free_is_kept_for_it() -> None:
    """A Workload of lower priority in another queue of the cohort gets none of it, though the preemptor needs more."""
    preemption: Any = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
    state = b.world(
        b.queue("a", {"default": {"cpu": 2}}, "x", preemption=preemption),
        b.queue("b", {"default": {"cpu": 0}}, "x"),
    )
    for name in ("first", "second"):
        run(state, name)
    state.note_hold_off(TAKES, b.NOW)
    state.put_workload(b.workload("high", cpu=2, priority=1), b.NOW)
    state.put_workload(b.workload("other", "b", second=1), b.NOW)
    b.settle(state)
    finished(state, "first")
    b.settle(state)
    assert b.admitted(state) == {"team/second"}
    finished(state, "second")
    b.settle(state)
    assert b.admitted(state) == {"team/high"}


def test_it_waits_anew_after_it_had_quota() -> None:
    """Should it be evicted and become a preemptor once more."""
    state = busy()
    b.settle(state)
    finished(state, "low")
    b.settle(state)
    state.put_workload(b.reserved(state.workloads["team/high"].workload, state), b.NOW)
    assert not state.nominations.hold_off.waiting


def test_who_was_preempted_before_comes_last_among_equals() -> None:
    """Though it was admitted last."""
    state = b.world(b.queue("a", {"default": {"cpu": 2}}, preemption={"withinClusterQueue": "LowerPriority"}))
    run(state, "older")
    again = b.workload("again", second=1)
    stats = {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]}
    again = b.changed(again, status={"schedulingStats": stats})
    state.put_workload(again, b.NOW)
    b.settle(state)
    state.put_workload(b.reserved(again, state), b.NOW)
    state.put_workload(b.workload("high", priority=1), b.NOW)
    assert victims(b.settle(state)) == {"team/older": "InClusterQueue"}
