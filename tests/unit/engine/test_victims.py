"""Who is preempted for whom."""

import pytest

from tests.unit.engine import builders as b
from turnstile.engine import Decision, Options, cycle
from turnstile.engine.options import FairSharing


def run(state: b.State, name: str, line: str = "main", cpu: int = 1, priority: int = 0, second: int = 0) -> b.Workload:
    """A workload that is admitted, and whose write is seen."""
    made = b.workload(name, line, cpu=cpu, priority=priority, second=second)
    state.put_workload(made, b.NOW)
    cycle(state, b.NOW)
    seen = b.reserved(made, state)
    state.put_workload(seen, b.NOW)
    return seen


def victims(decisions: list[Decision]) -> dict[str, str]:
    """Reason by victim, of those to be written."""
    return {victim.key: victim.reason for decision in decisions for victim in decision.victims if victim.new}


def test_a_higher_priority_takes_the_place_of_the_newest_of_the_lowest() -> None:
    """Within the queue, and no more than are needed; quota moves only when the victim is gone."""
    state = b.world(b.queue("a", {"default": {"cpu": 3}}, preemption={"withinClusterQueue": "LowerPriority"}))
    low = run(state, "low", priority=-1)
    run(state, "mid", priority=0)
    run(state, "high", priority=5)
    state.put_workload(b.workload("urgent", priority=9), b.NOW)
    decisions = b.settle(state)
    assert victims(decisions) == {"team/low": "InClusterQueue"}
    preempting = decisions[-1] if decisions[-1].victims else decisions[0]
    assert preempting.condition_reason == "WaitingForPreemptedWorkloads"
    assert preempting.message.endswith("1 more needed. Pending the preemption of 1 workload(s)")
    assert preempting.victims[0].message == (
        "Preempted to accommodate a workload (UID: uid-urgent, JobUID: UNKNOWN) due to prioritization in the"
        " ClusterQueue; preemptor path: /a; preemptee path: /a"
    )
    assert b.admitted(state) == {"team/low", "team/mid", "team/high"}
    state.put_workload(b.released(low), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/urgent", "team/mid", "team/high"}


def test_lent_quota_is_reclaimed() -> None:
    """From who borrows, whatever its priority, if the policy is Any."""
    state = b.world(
        b.queue("a", {"default": {"cpu": 2}}, "x", preemption={"reclaimWithinCohort": "Any"}),
        b.queue("b", {"default": {"cpu": 2}}, "x"),
    )
    for number in range(4):
        run(state, f"b{number}", "b", priority=9, second=number)
    state.put_workload(b.workload("mine", cpu=2), b.NOW)
    found = victims(b.settle(state))
    assert set(found.values()) == {"InCohortReclamation"}
    assert len(found) == 2


def test_who_stays_within_its_own_quota_is_safe() -> None:
    """Reclaiming goes no further than nominal quota."""
    state = b.world(
        b.queue("a", {"default": {"cpu": 2}}, "x", preemption={"reclaimWithinCohort": "Any"}),
        b.queue("b", {"default": {"cpu": 2}}, "x"),
    )
    run(state, "b0", "b", cpu=2)
    run(state, "a0", cpu=2)
    state.put_workload(b.workload("more", cpu=1, priority=9), b.NOW)
    assert victims(b.settle(state)) == {}


def test_a_failed_eviction_is_tried_again() -> None:
    """The victim may be chosen anew."""
    state = b.world(b.queue("a", {"default": {"cpu": 1}}, preemption={"withinClusterQueue": "LowerPriority"}))
    run(state, "low")
    state.put_workload(b.workload("high", priority=1), b.NOW)
    assert victims(b.settle(state)) == {"team/low": "InClusterQueue"}
    assert not state.has_work
    state.forget_eviction("team/low")
    assert victims(b.settle(state)) == {"team/low": "InClusterQueue"}


def test_room_that_a_victim_still_holds_is_not_given_away() -> None:
    """A big victim frees more than its preemptor needs; others wait until it is gone."""
    state = b.world(
        b.queue("a", {"default": {"cpu": 4}}, "x", preemption={"withinClusterQueue": "LowerPriority"}),
        b.queue("b", {"default": {"cpu": 0}}, "x"),
        b.queue("c", {"default": {"cpu": 0}}, "x"),
    )
    state.put_cohort(b.cohort("x", {"default": {"cpu": 2}}))
    run(state, "big", cpu=4)
    state.put_workload(b.workload("urgent", cpu=3, priority=9), b.NOW)
    state.put_workload(b.workload("wb", "b", cpu=2), b.NOW)
    state.put_workload(b.workload("wc", "c", cpu=2), b.NOW)
    b.settle(state)
    total = sum(row.total for name in ("a", "b", "c") for row in state.questions.queue_usage(name))
    assert total <= 6000


@pytest.mark.parametrize(
    ("held", "asks", "expected"),
    [
        pytest.param({"a": 3, "b": 5, "c": 1}, ("c", 1), {"InCohortReclamation": 1}, id="within nominal quota"),
        pytest.param({"a": 3, "b": 5, "c": 1}, ("a", 1), {"InCohortFairSharing": 1}, id="towards equal shares"),
        pytest.param({"a": 3, "b": 5}, ("a", 2), {}, id="not past equal shares"),
    ],
)
def test_fair_sharing_takes_from_the_largest_share(
    held: dict[str, int], asks: tuple[str, int], expected: dict[str, int]
) -> None:
    """Three queues of 3 in a cohort of 9."""
    spec = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    state = b.world(
        *(b.queue(name, {"default": {"cpu": 3}}, "x", preemption=spec) for name in "abc"),
        options=Options(fair_sharing=FairSharing()),
    )
    for name, count in held.items():
        for number in range(count):
            run(state, f"{name}{number}", name, second=number)
    if sum(held.values()) < 9:
        run(state, "filler", "c", cpu=9 - sum(held.values()))
    line, cpu = asks
    state.put_workload(b.workload("new", line, cpu=cpu, second=59), b.NOW)
    found = victims(b.settle(state))
    counted: dict[str, int] = {}
    for reason in found.values():
        counted[reason] = counted.get(reason, 0) + 1
    assert counted == expected
