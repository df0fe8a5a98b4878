"""A victim that does not go holds up its preemptor for a bounded time, and nobody who fits beside their quota."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from tests.unit.engine.test_preemption_ends import Lots
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle
from turnstile.engine.options import FairSharing

LOWER = {"withinClusterQueue": "LowerPriority"}
PATIENCE = 300.0


def waiting_preemptor(
    state: State, *, cpu: int = 8, victim: int = 6, queue: str = "main", namespace: str = "team"
) -> Workload:
    """`low` runs and is evicted for `high` of a namespace, as the API shows it, and does not go. Returns the victim."""
    low = b.held("low", queue, {"cpu": str(victim)})
    state.put_workload(low, b.NOW)
    state.put_workload(b.workload("high", queue, cpu=cpu, priority=5, second=1, namespace=namespace), b.NOW)
    found = [each.key for decision in b.settle(state) for each in decision.victims if each.new]
    assert found == ["team/low"]
    evicted = evict(low, preemptor="high")
    state.put_workload(evicted, b.NOW)
    b.settle(state)
    return evicted


def evict(victim: Workload, *, preemptor: str) -> Workload:
    """The victim with the conditions that its eviction writes."""
    made = b.with_conditions(victim, Evicted=("True", "Preempted"), Preempted=("True", "InClusterQueue"))
    for each in made.status.conditions:
        if each.type in {"Evicted", "Preempted"}:
            each.message = f"Preempted to accommodate a workload (UID: uid-{preemptor}, JobUID: UNKNOWN) due to reasons"
    return made


def arrive(state: State, name: str, **given: int | str) -> None:
    """A Workload comes, and cycles run until there is nothing to decide."""
    state.put_workload(b.workload(name, **given), b.NOW)  # type: ignore[arg-type]
    b.settle(state)


def waits(state: State, name: str) -> bool:
    """Whether the Workload holds no quota."""
    return f"team/{name}" not in b.admitted(state)


@pytest.mark.parametrize("fair", [False, True])
def test_a_later_workload_passes_beside_the_claim(fair: bool) -> None:
    """It fits free nominal quota and leaves to the preemptor what the preemptor needs; the next does not."""
    options = Options(fair_sharing=FairSharing() if fair else None)
    state = b.world(b.queue("main", {"default": {"cpu": 10}}, preemption=LOWER), options=options)
    victim = waiting_preemptor(state)
    arrive(state, "small", cpu=2, second=2)
    assert not waits(state, "small")
    arrive(state, "tiny", cpu=1, second=3)
    assert waits(state, "tiny")
    state.put_workload(b.released(victim), b.NOW)
    b.settle(state)
    assert not waits(state, "high")
    assert waits(state, "tiny")


def test_whoever_waits_behind_others_that_do_not_fit_passes_too() -> None:
    """Neither equals of the preemptor nor others that are too large hold up a Workload that fits."""
    state = b.world(b.queue("main", {"default": {"cpu": 10}}, preemption=LOWER))
    for number in range(3):
        state.put_workload(b.workload(f"equal-{number}", cpu=8, priority=5, second=10 + number), b.NOW)
        state.put_workload(b.workload(f"large-{number}", cpu=5 + number, second=20 + number), b.NOW)
    state.put_workload(b.workload("small", cpu=2, second=30), b.NOW)
    waiting_preemptor(state)
    assert b.admitted(state) == {"team/low", "team/small"}


def test_in_a_strict_queue_nobody_passes() -> None:
    """StrictFIFO: nothing passes a head that waits, as in Kueue."""
    state = b.world(b.queue("main", {"default": {"cpu": 10}}, preemption=LOWER, queueingStrategy="StrictFIFO"))
    waiting_preemptor(state)
    arrive(state, "small", cpu=2, second=2)
    assert waits(state, "small")


def test_it_takes_the_flavor_that_the_preemptor_does_not_need() -> None:
    """The first flavor has room now, and none beside the claim."""
    queue = b.queue("main", {"first": {"cpu": 8}, "second": {"cpu": 3}}, preemption=LOWER)
    state = b.world(queue, flavors=("first", "second"))
    low = b.held("low", "main", {"cpu": "6"}, flavor="first")
    state.put_workload(low, b.NOW)
    state.put_workload(b.workload("high", cpu=8, priority=5, second=1), b.NOW)
    b.settle(state)
    arrive(state, "small", cpu=2, second=2)
    assert not waits(state, "small")
    held = state.ledger.holder("team/small")
    assert held is not None
    assert held.totals[0].flavors == {"cpu": "second"}


def test_it_does_not_borrow_beside_the_claim() -> None:
    """What the ClusterQueue borrows for others, the preemptor would have to borrow in its turn."""
    state = b.world(b.queue("main", {"default": {"cpu": 10}}, "org", preemption=LOWER), b.queue("other", cohort="org"))
    state.put_workload(b.held("lent", "other", {"cpu": "8"}), b.NOW)
    waiting_preemptor(state)
    arrive(state, "small", cpu=3, second=2)
    assert waits(state, "small")
    arrive(state, "tiny", cpu=2, second=3)
    assert not waits(state, "tiny")


def test_nobody_who_passes_has_others_preempted() -> None:
    """The turn to preempt is the preemptor's until it is admitted or gives up."""
    state = b.world(b.queue("main", {"default": {"cpu": 10}}, preemption=LOWER))
    victim = waiting_preemptor(state, victim=4, cpu=8)
    state.put_workload(b.held("other", "main", {"cpu": "1"}, priority=1), b.NOW)
    state.put_workload(b.workload("next", cpu=2, priority=3, second=2), b.NOW)
    victims = [each.key for decision in b.settle(state) for each in decision.victims if each.new]
    assert not victims
    state.put_workload(b.released(victim), b.NOW)
    victims = [each.key for decision in b.settle(state) for each in decision.victims if each.new]
    assert not waits(state, "high")
    assert victims == ["team/other"]


@pytest.mark.parametrize("how", ["deleted", "deactivated", "moved", "smaller"])
def test_those_that_were_passed_over_are_tried_when_the_claim_ends(how: str) -> None:
    """A Workload that the claim left no room waits for the claim, not for quota."""
    state = b.world(b.queue("main", {"default": {"cpu": 10}}, preemption=LOWER), b.queue("other"))
    waiting_preemptor(state)
    arrive(state, "mid", cpu=4, second=2)
    assert waits(state, "mid")
    high = state.workloads["team/high"].workload
    if how == "deleted":
        state.drop_workload("team/high")
    elif how == "deactivated":
        state.put_workload(b.changed(high, spec={"active": False}), b.NOW)
    elif how == "moved":
        state.put_workload(b.changed(high, spec={"queueName": "other"}), b.NOW)
    else:
        smaller = b.workload("high", cpu=6, priority=5, second=1)
        state.put_workload(b.changed(smaller, metadata={"generation": 2}), b.NOW)
    b.settle(state)
    assert not waits(state, "mid")


def test_after_a_time_other_victims_are_tried() -> None:
    """The quota of the victim that does not go stays counted; the preemptor gets that of another."""
    state = b.world(b.queue("main", {"default": {"cpu": 10}}, preemption=LOWER))
    other = b.held("other", "main", {"cpu": "4"}, priority=1)
    state.put_workload(other, b.NOW)
    victim = waiting_preemptor(state, cpu=4)
    assert state.reservations.next_overdue() == b.NOW + PATIENCE
    state.note_overdue(b.NOW + PATIENCE - 1)
    assert not [each for decision in b.settle(state) for each in decision.victims if each.new]
    state.note_overdue(b.NOW + PATIENCE)
    assert state.reservations.next_overdue() is None
    assert [each.key for decision in b.settle(state) for each in decision.victims if each.new] == ["team/other"]
    state.put_workload(b.released(evict(other, preemptor="high")), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/low", "team/high"}
    state.put_workload(b.released(victim), b.NOW)
    assert not state.reservations.overdue
    b.settle(state)


def test_without_other_victims_the_preemptor_waits_until_something_changes() -> None:
    """It gives its claim up, says for whom it waits, and lets others in; when its victim goes it is tried again."""
    state = b.world(b.queue("main", {"default": {"cpu": 10}}, preemption=LOWER))
    victim = waiting_preemptor(state)
    arrive(state, "mid", cpu=4, second=2)
    assert waits(state, "mid")
    state.note_overdue(b.NOW + PATIENCE)
    said = {decision.key: decision.message for decision in b.settle(state)}
    assert said["team/high"].endswith(f"Workload team/low was preempted for it at {b.STAMP} and still holds quota"), (
        said
    )
    assert not state.has_work
    assert not waits(state, "mid")
    state.put_workload(b.released(victim), b.NOW)
    state.drop_workload("team/mid")
    b.settle(state)
    assert not waits(state, "high")


def test_a_late_victim_of_another_namespace_is_not_named() -> None:
    """The preemptor's condition is read by users who may not see the other namespace."""
    state = b.world(b.queue("main", {"default": {"cpu": 10}}, preemption=LOWER))
    state.put_namespace("rival", {})
    state.put_local_queue(b.local("main", "main", namespace="rival"), b.NOW)
    waiting_preemptor(state, namespace="rival")
    state.note_overdue(b.NOW + PATIENCE)
    (said,) = [decision.message for decision in b.settle(state) if decision.key == "rival/high"]
    assert said.endswith(f"A Workload of another namespace was preempted for it at {b.STAMP} and still holds quota")


def test_a_new_leader_knows_since_when_a_victim_has_been_leaving() -> None:
    """From the objects alone: the time of the Evicted condition."""
    state = b.world(b.queue("main", {"default": {"cpu": 10}}, preemption=LOWER))
    waiting_preemptor(state)
    fresh = b.world(b.queue("main", {"default": {"cpu": 10}}, preemption=LOWER))
    for key in ("team/low", "team/high"):
        fresh.put_workload(state.workloads[key].workload, b.NOW)
    assert fresh.reservations.next_overdue() == b.NOW + PATIENCE
    fresh.note_overdue(b.NOW + PATIENCE)
    decisions = [decision for decision in cycle(fresh, b.NOW + PATIENCE) if decision.key == "team/high"]
    assert "Workload team/low was preempted for it" in decisions[0].message


def test_the_wait_can_be_endless() -> None:
    """Without a limit the preemptor waits for its victim for ever, as in Kueue."""
    options = Options(victim_patience=None)
    state = b.world(b.queue("main", {"default": {"cpu": 10}}, preemption=LOWER), options=options)
    waiting_preemptor(state)
    assert state.reservations.next_overdue() is None


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 2**64))
def test_whatever_the_quotas_and_policies(seed: int) -> None:
    """Some victims go only in the end. Nobody waits for what is free, or for ever; quota is never exceeded, and
    preemption comes to an end, with their time over as before."""
    lots = Lots(seed, crowded=True)
    world = lots.world
    numbers = [f"team/w{number:02}" for number in range(1, 17)]
    world.stubborn = {key for key in numbers if lots.lots.random() < 0.5}
    lots.play()
    while (due := world.state.reservations.next_overdue()) is not None:
        world.state.note_overdue(due)
        world.everyone_does_their_part()
        world.come_to_rest()
    world.stubborn.clear()
    world.everyone_does_their_part()
    world.come_to_rest()
    assert not world.state.reservations.leaving
    assert not world.state.reservations.overdue
