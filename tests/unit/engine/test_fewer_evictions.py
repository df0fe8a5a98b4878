"""Evictions lose work: no Workload is preempted again and again in the place of its equals."""

from tests.unit.engine import builders as b
from tests.unit.engine.test_victims import run, victims


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
