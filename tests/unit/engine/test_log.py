"""The log of a state: events that come during a cycle wait for its end, and a listener is told of all in order."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.unit.engine import builders as b
from turnstile.api.errors import InvalidValue
from turnstile.engine import Decision, Options, State, cycle, cycle_steps
from turnstile.engine.instants import Instant
from turnstile.engine.log import Listener, Log
from turnstile.engine.pace import finish


class Heard(Listener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.notes: list[Any] = []

    def took(self, event: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Note an event."""
        self.notes.append(event)

    def cycled(self, cycle: int, now: Instant, decisions: Sequence[Decision]) -> None:
        """Note a cycle."""
        self.notes.append((cycle, [decision.key for decision in decisions]))

    def abandoned(self, cycle: int) -> None:
        """Note a cycle that was left."""
        self.notes.append(("abandoned", cycle))


def heard() -> tuple[State, Heard]:
    """A state with a Workload that fits, and what is heard of it from here on."""
    listener = Heard()
    state = b.furnish(State(Options(), listener), b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("w", "a"), b.NOW)
    listener.notes.clear()
    return state, listener


def test_an_event_that_comes_during_a_cycle_is_told_after_the_cycle() -> None:
    """As it is applied then."""
    state, listener = heard()
    steps = cycle_steps(state, b.NOW)
    next(steps)
    state.put_namespace("new", {})
    assert listener.notes == []
    finish(steps)
    assert listener.notes == [(1, ["team/w"]), "put_namespace"]


def test_a_cycle_that_is_left_is_told_with_the_number_of_the_last_that_ended() -> None:
    """Its own number is used again."""
    state, listener = heard()
    steps = cycle_steps(state, b.NOW)
    next(steps)
    steps.close()
    assert listener.notes == [("abandoned", 0)]
    cycle(state, b.NOW)
    assert listener.notes[-1] == (1, ["team/w"])


def test_an_object_that_is_refused_after_a_cycle_is_reported() -> None:
    """Whoever sent it is gone."""
    log = Log()
    log.cycling = True

    def event() -> None:
        raise InvalidValue("spec", "x", "is malformed")

    log.defer(event)
    log.ended(b.NOW, (), changed=False, progress=False)
    assert [type(error) for error in log.refused] == [InvalidValue]
    assert not log.cycling


def test_a_cycle_that_decided_nothing_new_makes_the_log_quiet_until_something_changes() -> None:
    """An event that changes nothing keeps it quiet."""
    log = Log()
    assert not log.quiet
    log.ended(b.NOW, (), changed=False, progress=False)
    assert log.quiet
    log.took("put_workload", (), {}, changed=False, shape=False)
    assert log.quiet
    log.took("put_workload", (), {}, changed=True, shape=False)
    assert not log.quiet
    assert log.shape == 0


def test_only_events_of_other_objects_than_workloads_change_the_shape() -> None:
    """A Workload that can never be admitted as the objects are is tried again when they change."""
    log = Log()
    log.took("put_flavor", (), {}, changed=True, shape=True)
    assert (log.epoch, log.shape) == (1, 1)
