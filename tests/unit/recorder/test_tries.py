"""What the scheduler decided about a Workload that waits is recorded when it is something else than before."""

import pytest

from tests.unit.engine import builders as b
from turnstile.engine import Decision, State, cycle
from turnstile.recorder.facts import Fact
from turnstile.recorder.recording import AGAIN_SECONDS, Tries


@pytest.fixture
def state() -> State:
    """A ClusterQueue of 4 CPUs in which the higher priority preempts; one Workload holds 3 of them."""
    queue = b.queue("main", {"default": {"cpu": 4}}, preemption={"withinClusterQueue": "LowerPriority"})
    made = b.world(queue)
    made.put_workload(b.workload("low", cpu=3), b.NOW)
    cycle(made, b.NOW)
    return made


def decided(state: State, name: str, **spec: int) -> Decision:
    """The decision about a new Workload."""
    state.put_workload(b.workload(name, **spec), b.NOW)
    return b.decide(state, name)


def test_the_reason_and_the_amounts(state: State) -> None:
    """As the condition will say, and what is short."""
    fact = Tries().of(decided(state, "w", cpu=2), b.NOW)
    assert isinstance(fact, Fact)
    assert (fact.uid, fact.what, fact.at) == ("uid-w", "tried", b.NOW)
    assert "insufficient unused quota for cpu" in fact.message
    assert fact.detail is not None
    assert fact.detail["outcome"] == "pending"
    assert fact.detail["short"] == [("default", "cpu", 2000, 1000)]


def test_the_victims_of_a_preemptor(state: State) -> None:
    """By uid and key, with the right by which they have to go, and the run that they lose."""
    state.put_workload(b.workload("high", cpu=2, priority=1), b.NOW)
    (decision,) = cycle(state, b.NOW + 7200)
    fact = Tries().of(decision, b.NOW)
    assert isinstance(fact, Fact)
    assert fact.detail is not None
    assert fact.detail["preempts"] == [["uid-low", "team/low", "InClusterQueue", "6 core-hours"]]


def test_the_same_decision_is_recorded_once(state: State) -> None:
    """However often the Workload is tried."""
    tries, decision = Tries(), decided(state, "w", cpu=2)
    assert tries.of(decision, b.NOW) is not None
    assert tries.of(decision, b.NOW + 1000) is None


def test_other_amounts_are_recorded_once_a_minute(state: State) -> None:
    """A Workload at the head of a busy queue is tried in every cycle."""
    tries, decision = Tries(), decided(state, "w", cpu=2)
    tries.of(decision, b.NOW)
    decision.message = "now 3 more needed"
    assert tries.of(decision, b.NOW + AGAIN_SECONDS - 1) is None
    assert tries.of(decision, b.NOW + AGAIN_SECONDS) is not None


def test_an_admission_is_no_try() -> None:
    """The reservation tells it, once it is written."""
    made = b.world(b.queue("main"))
    assert Tries().of(decided(made, "w"), b.NOW) is None
