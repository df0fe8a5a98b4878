"""The bench of two workers notices a Job that is lost, runs twice, or leaves something behind."""

import pytest

from tests.bench.client import Condition, Meta, Seen, Spec, Status
from tests.bench.dispatch import Trip, Trips

COMPLETE = Status([Condition("Complete", "True")])


def seen(uid: str, *, suspend: bool = False, status: Status | None = None) -> Seen:
    """The Job `a`, or a copy of it."""
    return Seen(Meta("a", uid), Spec(suspend), status or Status())


def sent() -> Trips:
    """The Job `a` was created, and a copy of it runs to its end in the east; the manager has not said so yet."""
    trips = Trips()
    trips.by_name["a"] = Trip(1.0)
    trips.saw_copy("east", "ADDED", seen("u-1", suspend=True), 2.0)
    trips.saw_copy("east", "MODIFIED", seen("u-1"), 3.0)
    trips.saw_copy("east", "MODIFIED", seen("u-1", status=COMPLETE), 5.0)
    return trips


def test_a_job_that_ran_to_its_end_is_over_when_its_copy_is_gone() -> None:
    """Each moment is the first at which it was seen."""
    trips = sent()
    trip = trips.by_name["a"]
    assert not trip.once
    trips.saw_job("MODIFIED", seen("here", status=COMPLETE), 6.0)
    assert trips.left == {("east", "Job", "a")}
    trips.saw_copy("east", "DELETED", seen("u-1", status=COMPLETE), 7.0)
    assert (trip.once, trip.doubled, trips.left) == (True, False, set())
    assert (trips.seconds("copied"), trips.seconds("started"), trips.seconds("finished")) == ([1.0], [2.0], [5.0])


@pytest.mark.parametrize(("began", "doubled"), [(4.0, True), (5.5, False)])
def test_a_second_copy_is_noticed(began: float, *, doubled: bool) -> None:
    """Beside the first or after it: the Job has not finished exactly once."""
    trips = sent()
    trips.saw_copy("west", "ADDED", seen("u-2"), began)
    trips.saw_job("MODIFIED", seen("here", status=COMPLETE), 6.0)
    assert (trips.by_name["a"].once, trips.by_name["a"].doubled) == (False, doubled)


def test_a_copy_that_was_only_created_does_not_run() -> None:
    """It was suspended until it was deleted."""
    trips = sent()
    trips.saw_copy("west", "ADDED", seen("u-2", suspend=True), 4.0)
    trips.saw_copy("west", "DELETED", seen("u-2", suspend=True), 4.5)
    assert not trips.by_name["a"].doubled


def test_a_workload_belongs_to_the_job_in_its_name() -> None:
    """Its admission counts for that."""
    trips = sent()
    workload = Seen(Meta("job-a-1f2e3", "w"), status=Status([Condition("Admitted", "True")]))
    trips.saw_workload("east", "ADDED", workload, 1.5)
    assert (trips.seconds("sent"), trips.seconds("admitted")) == ([0.5], [0.5])
