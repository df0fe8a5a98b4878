"""A new leader keeps what the one before it promised to preemptors: the conditions of victims name them."""

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.api.workload import Workload
from turnstile.engine import State, cycle
from turnstile.engine.decisions import preempted_message

LOWER = {"withinClusterQueue": "LowerPriority"}


def preempted(victim: Workload, preemptor: Workload, *, second: int = 5) -> Workload:
    """The victim with the conditions that its eviction writes."""
    body = msgspec.to_builtins(victim)
    message = preempted_message(preemptor, "InClusterQueue", "/main", "/main")
    kinds = {"Evicted": "Preempted", "Preempted": "InClusterQueue"}
    body["status"]["conditions"] = [each for each in body["status"]["conditions"] if each["type"] not in kinds] + [
        {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": b.stamp(second)}
        for kind, reason in kinds.items()
    ]
    return msgspec.convert(body, Workload)


def stopped(victim: Workload, *, second: int = 6) -> Workload:
    """The evicted Workload once its quota is released."""
    body = msgspec.to_builtins(victim)
    del body["status"]["admission"]
    for each in body["status"]["conditions"]:
        if each["type"] in {"QuotaReserved", "Admitted"}:
            each |= {"status": "False", "reason": "Pending", "lastTransitionTime": b.stamp(second)}
    return msgspec.convert(body, Workload)


def leader(*workloads: Workload, flavors: dict[str, int] | None = None, **spec: object) -> State:
    """One that begins with a list of these Workloads."""
    quotas = {name: {"cpu": cpu} for name, cpu in (flavors or {"default": 10}).items()}
    state = b.world(b.queue("main", quotas, preemption=LOWER, **spec), flavors=tuple(quotas))
    for item in workloads:
        state.put_workload(item, b.NOW)
    return state


def decided(state: State) -> dict[str, tuple[str, list[str]]]:
    """By name what the next cycle decides, and whom it preempts that was not preempted yet."""
    return {
        each.key.removeprefix("team/"): (each.outcome, [victim.key for victim in each.victims if victim.new])
        for each in cycle(state, b.NOW)
    }


LOW = b.held("low", "main", {"cpu": "6"})
HIGH = b.workload("high", cpu=8, priority=5, second=1)
HIGHER = b.workload("higher", cpu=8, priority=9, second=10)


@pytest.mark.parametrize("gone", [False, True])
def test_the_preemptor_is_the_head(gone: bool) -> None:
    """It waits for its victim, or gets the quota of it, before a Workload of higher priority that came later."""
    victim = preempted(LOW, HIGH)
    state = leader(HIGHER, HIGH, stopped(victim) if gone else victim)
    assert decided(state)["high"] == ("admit" if gone else "preempting", [])
    if not gone:
        assert state.questions.comes_first("main") == "team/high"


def test_in_a_strict_queue_it_waits_for_its_turn() -> None:
    """As under the leader before."""
    state = leader(HIGHER, HIGH, stopped(preempted(LOW, HIGH)), queueingStrategy="StrictFIFO")
    assert decided(state) == {"higher": ("admit", [])}


def test_victims_come_after_it() -> None:
    """In Kueue the victim that does not borrow would get back what it released before its preemptor, which does."""
    state = b.world(
        b.queue("own", {"default": {"cpu": 2}}, "all", preemption={**LOWER, "reclaimWithinCohort": "Any"}),
        b.queue("other", {"default": {"cpu": 4}}, "all", preemption=LOWER),
    )
    big = b.workload("big", "own", cpu=4, priority=5, second=1)
    small = stopped(preempted(b.held("small", "other", {"cpu": "4"}), big))
    status = msgspec.to_builtins(small)["status"]
    for item in (big, b.changed(b.workload("small", "other", cpu=4), status=status)):
        state.put_workload(item, b.NOW)
    assert [each.key for each in cycle(state, b.NOW) if each.outcome == "admit"] == ["team/big"]


def test_it_keeps_its_flavor() -> None:
    """Others are preempted in no other flavor, though that is tried first."""
    first = b.held("first", "main", {"cpu": "6"}, flavor="first")
    second = b.held("second", "main", {"cpu": "6"}, flavor="second")
    state = leader(first, preempted(second, HIGH), HIGH, flavors={"first": 8, "second": 8})
    assert decided(state)["high"] == ("preempting", [])
    state.put_workload(stopped(preempted(second, HIGH)), b.NOW)
    assert decided(state)["high"] == ("admit", [])
    holder = state.ledger.holder("team/high")
    assert holder is not None
    assert holder.totals[0].flavors == {"cpu": "second"}


def test_who_was_served_has_no_precedence_any_more() -> None:
    """It had quota after its victim was evicted, and lost it."""
    again = stopped(preempted(b.held("high", "main", {"cpu": "8"}, priority=5, at=7), HIGHER, second=8), second=9)
    state = leader(stopped(preempted(LOW, HIGH)), again)
    state.put_workload(b.workload("mid", cpu=4, priority=7, second=2), b.NOW)
    assert list(decided(state)) == ["mid"]


def test_of_several_the_last_that_had_others_preempted_comes_first() -> None:
    """Each ClusterQueue has one nomination at most."""
    other = b.held("other", "main", {"cpu": "2"})
    state = leader(HIGHER, HIGH, preempted(LOW, HIGHER, second=4), preempted(other, HIGH, second=5))
    cycle(state, b.NOW)
    assert state.questions.comes_first("main") == "team/high"


def test_other_evictions_nominate_no_workload() -> None:
    """An eviction for another reason names no preemptor, whatever its message says."""
    body = msgspec.to_builtins(preempted(LOW, HIGH))
    for each in body["status"]["conditions"]:
        if each["type"] == "Evicted":
            each["reason"] = "PodsReadyTimeout"
    state = leader(HIGHER, HIGH, stopped(msgspec.convert(body, Workload)))
    assert list(decided(state)) == ["higher"]
