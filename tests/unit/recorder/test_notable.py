"""A Workload that can never start is told of, one that only waits is not."""

from datetime import UTC, datetime

import pytest

from tests.unit.engine import builders as b
from turnstile.api.workload import Workload
from turnstile.engine import Decision, State, cycle
from turnstile.kube.store import Store
from turnstile.recorder.notable import Notice, of_decision
from turnstile.recorder.notifying import Notifying


@pytest.fixture
def state() -> State:
    """A ClusterQueue of 4 CPUs, of which 3 are used."""
    made = b.world(b.queue("main", {"default": {"cpu": 4}}))
    made.put_workload(b.workload("busy", cpu=3), b.NOW)
    cycle(made, b.NOW)
    return made


def decided(state: State, name: str, **spec: int) -> Decision:
    """The decision about a new Workload."""
    state.put_workload(b.workload(name, **spec), b.NOW)
    return b.decide(state, name)


def test_more_than_the_quota_can_never_start(state: State) -> None:
    """With the reason and the message of its own condition."""
    notice = of_decision(decided(state, "large", cpu=5), b.NOW)
    assert notice is not None
    assert (notice.about, notice.name, notice.data["reason"]) == ("cannotstart", "large", "ExceedsMaxQuota")
    assert "maximum capacity" in notice.data["message"]


def test_one_that_waits_for_others_is_not_told_of(state: State) -> None:
    """It starts when they have ended."""
    assert of_decision(decided(state, "small", cpu=2), b.NOW) is None


def test_the_same_is_told_once(state: State) -> None:
    """However often the scheduler tries it; again when the Workload was changed."""
    told: list[Notice] = []
    workloads: Store[Workload] = Store()
    clock = datetime.fromtimestamp(b.NOW, UTC)
    notifying = Notifying(workloads, about={"cannotstart"}, clock=lambda: clock, put=told.append)
    decision = decided(state, "large", cpu=5)
    notifying.tried(decision)
    notifying.tried(decision)
    assert len(told) == 1
    decision.generation += 1
    notifying.tried(decision)
    assert [each.mark for each in told] == [str(decision.generation - 1), str(decision.generation)]


def test_what_nobody_asked_for_is_not_told(state: State) -> None:
    """`notifications.events` chooses."""
    told: list[Notice] = []
    workloads: Store[Workload] = Store()
    clock = datetime.fromtimestamp(b.NOW, UTC)
    Notifying(workloads, about={"started"}, clock=lambda: clock, put=told.append).tried(decided(state, "x", cpu=5))
    assert told == []
