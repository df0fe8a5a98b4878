"""The owner of reservations knows who holds quota, as assumed and as seen, and which victims are to release theirs."""

from tests.unit.engine import builders as b
from turnstile.engine import Options, State, cycle
from turnstile.engine.options import WaitForPodsReady

PATIENCE = 300.0


def admitted(**options: object) -> State:
    """A ClusterQueue whose Workload was admitted by a cycle, and not seen yet."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}), options=Options(**options))  # type: ignore[arg-type]
    state.put_workload(b.workload("w", "a"), b.NOW)
    cycle(state, b.NOW)
    return state


def test_an_admission_is_assumed_until_it_is_seen() -> None:
    """Its quota counts all the time."""
    state = admitted()
    assert list(state.reservations.assumed) == ["team/w"]
    state.put_workload(b.reserved(b.workload("w", "a"), state), b.NOW)
    assert not state.reservations.assumed
    assert state.reservations.queue_of("team/w") is state.cluster_queues["a"]


def test_what_is_released_is_expected_no_more() -> None:
    """Neither its admission, nor its eviction, nor that its pods become ready."""
    state = admitted(wait_for_pods_ready=WaitForPodsReady(block_admission=True))
    reservations = state.reservations
    reservations.expect_eviction("team/w", "InClusterQueue")
    assert list(reservations.not_ready) == ["team/w"]
    reservations.release("team/w")
    assert not any((reservations.assumed, reservations.evicting, reservations.not_ready))
    assert reservations.queue_of("team/w") is None
    assert list(state.retries.cluster_queues) == ["a"]


def test_a_victim_counts_as_evicted_from_the_moment_it_is_chosen() -> None:
    """Until the write of its eviction is known to have failed."""
    state = admitted()
    held = state.ledger.holder("team/w")
    assert held is not None
    assert not state.reservations.is_evicted(held)
    state.reservations.expect_eviction("team/w", "InClusterQueue")
    assert state.reservations.is_evicted(held)
    state.reservations.forget_eviction("team/w")
    assert not state.reservations.is_evicted(held)


def test_a_victim_is_overdue_once() -> None:
    """After the patience of the options, counted from its eviction."""
    state = admitted()
    evicted = b.with_conditions(b.reserved(b.workload("w", "a"), state), Evicted=("True", "Preempted"))
    state.put_workload(evicted, b.NOW)
    due = state.reservations.next_overdue()
    assert due is not None
    assert not state.reservations.note_overdue(state.workloads, due - 1)
    assert state.reservations.note_overdue(state.workloads, due)
    assert not state.reservations.note_overdue(state.workloads, due)
    assert state.reservations.next_overdue() is None
