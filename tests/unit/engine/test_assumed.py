"""An admission counts from the moment it is decided until its write is known to have failed."""

import pytest

from tests.unit.engine import builders as b
from turnstile.engine import cycle, cycle_steps


@pytest.fixture
def state() -> b.State:
    """A queue with room for one."""
    return b.world(b.queue("a", {"default": {"cpu": 1}}, queueingStrategy="StrictFIFO"))


def test_an_old_view_of_the_object_does_not_undo_it(state: b.State) -> None:
    """The watch may show the workload as it was while the write is on its way."""
    first = b.workload("first", version=5)
    state.put_workload(first, b.NOW)
    cycle(state, b.NOW)
    state.put_workload(first, b.NOW)
    state.put_workload(b.workload("second", second=1), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/first"}


def test_until_the_write_is_seen_older_versions_are_ignored(state: b.State) -> None:
    """An event that was on its way before the write does not free quota."""
    first = b.workload("first", version=5)
    state.put_workload(first, b.NOW)
    cycle(state, b.NOW)
    state.confirm("team/first", "9")
    state.put_workload(b.workload("first", version=7), b.NOW)
    assert b.admitted(state) == {"team/first"}


def test_versions_are_compared_by_the_store_alone(state: b.State) -> None:
    """After etcd was restored from a backup, the store goes back to older versions, and the ledger goes with it: it
    neither keeps quota of what is pending again, nor gives quota twice that is held again."""
    first, second = b.workload("first", version=5), b.workload("second", version=6, second=1)
    state.put_workload(first, b.NOW)
    cycle(state, b.NOW)
    after = b.reserved(first, state)
    after.metadata.resource_version = "9"
    state.put_workload(after, b.NOW)
    state.put_workload(first, b.NOW)
    state.put_workload(second, b.NOW)
    assert b.admitted(state) == set()
    assert state.questions.pending("a") == ["team/first", "team/second"]


def test_a_failed_write_returns_it_to_its_place(state: b.State) -> None:
    """Before those behind it, whatever came meanwhile."""
    state.put_workload(b.workload("first"), b.NOW)
    cycle(state, b.NOW)
    state.put_workload(b.workload("second", second=1), b.NOW)
    b.settle(state)
    state.forget("team/first", b.NOW)
    assert state.questions.pending("a") == ["team/first", "team/second"]
    b.settle(state)
    assert b.admitted(state) == {"team/first"}


def test_a_failed_write_looks_at_the_same_flavor_again() -> None:
    """The flavor was right; the scan starts over, not after it."""
    state = b.world(b.queue("a", {"x": {"cpu": 1}, "y": {"cpu": 0}}), flavors=("x", "y"))
    state.put_workload(b.workload("w"), b.NOW)
    cycle(state, b.NOW)
    state.forget("team/w", b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_a_deleted_workload_frees_its_quota_and_a_late_failure_is_harmless(state: b.State) -> None:
    """Gone is gone."""
    state.put_workload(b.workload("first"), b.NOW)
    cycle(state, b.NOW)
    state.drop_workload("team/first")
    state.forget("team/first", b.NOW)
    assert b.admitted(state) == set()
    assert state.questions.pending("a") == []


def test_a_deactivated_workload_holds_its_quota_until_it_is_released(state: b.State) -> None:
    """Its pods may still run."""
    first = b.workload("first")
    state.put_workload(first, b.NOW)
    cycle(state, b.NOW)
    held = b.reserved(first, state)
    held.spec.active = False
    state.put_workload(held, b.NOW)
    assert b.admitted(state) == {"team/first"}
    freed = b.released(held)
    state.put_workload(freed, b.NOW)
    assert b.admitted(state) == set()
    assert state.questions.pending("a") == []


def test_events_wait_for_the_end_of_a_cycle(state: b.State) -> None:
    """A cycle sees one instant, however it is sliced."""
    state.put_workload(b.workload("first"), b.NOW)
    steps = cycle_steps(state, b.NOW)
    next(steps)
    state.put_workload(b.workload("urgent", priority=9), b.NOW)
    state.drop_workload("team/first")
    for _ in steps:
        pass
    assert state.questions.pending("a") == ["team/urgent"]
    assert b.admitted(state) == set()


def test_what_comes_during_a_quiet_cycle_wakes_the_next(state: b.State) -> None:
    """No event is lost between a cycle that found nothing and the sleep after it."""
    state.put_workload(b.held("runs", "a", {"cpu": "1"}), b.NOW)
    state.put_workload(b.workload("big"), b.NOW)
    b.settle(state)
    steps = cycle_steps(state, b.NOW)
    next(steps)
    state.drop_workload("team/runs")
    state.drop_workload("team/big")
    state.put_workload(b.workload("small"), b.NOW)
    for _ in steps:
        pass
    assert state.has_work
    b.settle(state)
    assert b.admitted(state) == {"team/small"}


def test_a_malformed_object_during_a_cycle_is_reported_and_changes_nothing(state: b.State) -> None:
    """Those that came after it are taken in."""
    state.put_workload(b.workload("first"), b.NOW)
    steps = cycle_steps(state, b.NOW)
    next(steps)
    state.put_workload(b.workload("broken", cpu="much"), b.NOW)
    state.put_workload(b.workload("second", second=1), b.NOW)
    for _ in steps:
        pass
    assert [str(error) for error in state.log.refused]
    assert state.questions.pending("a") == ["team/second"]
    assert "team/broken" not in state.workloads


def test_what_changes_nothing_wakes_nobody(state: b.State) -> None:
    """An old view, the same object again, a label: the driver sleeps on."""
    first, big = b.workload("first"), b.workload("big", cpu=2, second=1)
    state.put_workload(first, b.NOW)
    state.put_workload(big, b.NOW)
    b.settle(state)
    state.put_workload(first, b.NOW)
    seen = b.reserved(first, state)
    state.put_workload(seen, b.NOW)
    b.settle(state)
    for again in (seen, big):
        state.put_workload(again, b.NOW)
        assert not state.has_work


@pytest.mark.parametrize("slices", range(1, 6))
def test_a_cycle_that_is_left_early_decided_nothing(state: b.State, slices: int) -> None:
    """Its heads are where they were, and nothing is counted."""
    state.put_workload(b.workload("first"), b.NOW)
    state.put_workload(b.workload("second", second=1), b.NOW)
    steps = cycle_steps(state, b.NOW)
    for _ in range(slices):
        try:
            next(steps)
        except StopIteration:
            return
    steps.close()
    assert state.questions.pending("a") == ["team/first", "team/second"]
    assert state.questions.queue_usage("a")[0].total == 0
    b.settle(state)
    assert b.admitted(state) == {"team/first"}


def test_it_stays_a_victim_when_it_is_seen_as_it_was_before() -> None:
    """It had been evicted, was let in again, and is to make way before the write came back: a late version, that still
    tells of the first eviction, says nothing of the second."""
    state = b.world(
        b.queue("a", {"default": {"cpu": 2}}, "org", preemption={"reclaimWithinCohort": "Any"}),
        b.queue("b", {"default": {"cpu": 0}}, "org"),
    )
    evicted = b.with_conditions(b.workload("again", "b", cpu=2, second=5), Evicted=("True", "ClusterQueueStopped"))
    state.put_workload(evicted, b.NOW)
    assert b.decide(state, "again").outcome == "admit"
    state.put_workload(b.workload("owner", "a", cpu=2), b.NOW)
    assert [victim.new for victim in b.decide(state, "owner").victims] == [True]
    state.put_workload(b.changed(evicted, metadata={"annotations": {"seen": "late"}}), b.NOW)
    assert [victim.new for victim in b.decide(state, "owner").victims] == [False]
