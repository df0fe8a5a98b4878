"""What if: the decisions of the next cycles, on the ledger as it is or with some objects changed.

The engine decides, as it does for the scheduler. Between two cycles the world is as kind as it can be: all writes
succeed, victims end at once, no admission check answers, and no Workload finishes. Must never decide anything itself.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from turnstile.api.conditions import set_condition
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import ConditionStatus, Kind
from turnstile.api.workload import ADMITTED, EVICTED, PREEMPTED, QUOTA_RESERVED, Workload, WorkloadStatus
from turnstile.engine import Cycle, Decision, State, Victim, cycle
from turnstile.engine.decisions import admission_of
from turnstile.engine.instants import Instant, stamp
from turnstile.engine.intake import FEEDING, Feed
from turnstile.engine.reasons import PREEMPTION_TEXT
from turnstile.wording.causes import waiting
from turnstile.wording.shortage import explained, of_figures

CYCLES: Final = 100
"""Cycles that are run at most, unless the question says otherwise."""
LISTED: Final = 100
"""Fates of each outcome that are part of an answer, unless the question says otherwise."""

Outcome = Literal["admitted", "reserved", "preempted", "pending"]
"""`reserved` holds quota and waits for its admission checks. `preempted` had quota and lost it."""


class Fate(NamedTuple):
    """The fate of one Workload. The cycles are numbered from 1; a pending Workload has the last one's number.

    A Workload may be admitted in one cycle and preempted in a later one: what is said last holds.
    """

    key: str
    cluster_queue: str
    outcome: Outcome
    cycle: int
    reason: str = ""
    message: str = ""
    explanation: str = ""
    """Why it is pending, in a sentence with amounts."""
    flavors: tuple[dict[str, str], ...] = ()
    """Flavor of each resource, by pod set, of a Workload that holds quota."""
    preemptor: str = ""


class Outlook(NamedTuple):
    """The last part of an answer: how many Workloads were admitted (or reserved) and preempted, how many are pending in
    the end, after how many cycles, and whether another cycle would decide nothing new."""

    admitted: int
    preempted: int
    pending: int
    cycles: int
    settled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Which Workloads the next cycles admit and preempt, and which stay pending, if the objects in `put` existed as
    given and those in `drop` (by kind and key) did not.

    The first cycle is exactly what the scheduler would decide next. With `cycles` of 1 nothing else is told; otherwise
    cycles follow, in each of which the victims of those before are gone, until nothing new is decided.
    """

    now: Instant
    put: Sequence[Kind] = ()
    drop: Sequence[tuple[type[Kind], str]] = ()
    cycles: int = CYCLES
    listed: int = LISTED
    """So many fates of each outcome are listed, besides those of Workloads in `put`; all are counted."""

    def answer(self, state: State) -> Iterator[Fate | Outlook]:
        """Fates as they are decided, then those who stay pending, then the Outlook."""
        self._change(state)
        asked = {given.metadata.key: None for given in self.put if isinstance(given, Workload)}
        counts: Counter[Outcome] = Counter()
        cycles = 0
        for cycles, fates in decided(state, self.now, cycles=self.cycles):  # noqa: B007 (the last one is told)
            for fate in fates:
                counts[fate.outcome] += 1
                if counts[fate.outcome] <= self.listed or fate.key in asked:
                    yield fate
        named = [key for key in asked if key in state.queues.waiting]
        others = (key for key in state.queues.waiting if key not in asked)
        for key in (*named, *islice(others, self.listed)):
            yield pending(state, key, cycles)
        yield Outlook(
            admitted=counts["admitted"] + counts["reserved"],
            preempted=counts["preempted"],
            pending=len(state.queues.waiting),
            cycles=cycles,
            settled=not state.has_work,
        )

    def _change(self, state: State) -> None:
        for given in self.put:
            feed = _feed("put", type(given))
            if isinstance(given, Workload):
                _put_workload(state, given, self.now)
            else:
                feed.put(state, given, self.now)
        for kind, key in self.drop:
            if kind is Workload:
                state.node_table.drop_pods_of(key)
            _feed("drop", kind).drop(state, key, self.now)


def decided(state: State, now: Instant, *, cycles: int | None = None) -> Iterator[tuple[int, list[Fate]]]:
    """The fates that the next cycles decide, with the number of the cycle, until nothing new is decided. The victims of
    a cycle are gone before the next."""
    number = 0
    while number != cycles and state.has_work:
        number += 1
        yield number, list(_fates(cycle(state, now), number))
        if number != cycles:
            let_victims_go(state, now)


def _feed(field: str, kind: type[Kind]) -> Feed:
    found = FEEDING.get(kind)
    if found is None:
        raise InvalidValue(field, kind.__name__, f"use one of {', '.join(each.KIND for each in FEEDING)}")
    return found


def _put_workload(state: State, workload: Workload, now: Instant) -> None:
    """Put a Workload that need not exist: created now, unless it says when, and newer than any version known."""
    meta = workload.metadata
    created = meta.creation_timestamp or stamp(now)
    state.put_workload(replace(workload, metadata=replace(meta, resource_version="", creation_timestamp=created)), now)


def _fates(result: Cycle, number: int) -> Iterator[Fate]:
    for decision in result:
        if decision.outcome == "admit":
            flavors = tuple(dict(item.flavors or {}) for item in decision.info.totals)
            outcome: Outcome = "admitted" if decision.admitted else "reserved"
            yield Fate(decision.key, decision.cluster_queue, outcome, number, flavors=flavors)
        for victim in decision.victims:
            if victim.new:
                yield _preempted(victim, decision, number)


def _preempted(victim: Victim, decision: Decision, number: int) -> Fate:
    return Fate(
        victim.key,
        victim.cluster_queue,
        "preempted",
        number,
        reason=victim.reason,
        message=victim.message,
        preemptor=decision.key,
    )


def pending(state: State, key: str, number: int) -> Fate:
    """The fate of a Workload that waits, after so many cycles."""
    why = state.questions.why(key)
    assert why is not None
    queue = state.queues.local_queues[state.queues.waiting[key].local_queue].cluster_queue
    return Fate(
        key,
        queue,
        "pending",
        number,
        why.reason,
        why.message,
        explained(of_figures(why.figures)) or waiting(why.message),
    )


# Between two cycles

_Conditions = dict[str, tuple[ConditionStatus, str]]
"""Status and reason by type."""


def let_victims_go(state: State, now: Instant) -> None:
    """Those that are to leave are gone with their pods, and wait again."""
    for key in sorted({*state.reservations.evicting, *state.reservations.leaving}):
        assumed = state.reservations.assumed.get(key)
        if assumed is not None:  # seen with its reservation first, as a write that was under way would be
            state.put_workload(_reserved(assumed.waiting.workload, state, now), now)
        info = state.workloads.get(key)
        if info is not None:
            state.node_table.drop_pods_of(key)
            state.put_workload(released(info.workload, state.reservations.evicting.get(key, ""), now), now)


def _reserved(workload: Workload, state: State, now: Instant) -> Workload:
    assumed = state.reservations.assumed[workload.metadata.key]
    status = replace(workload.status, admission=admission_of(assumed.info, assumed.cluster_queue))
    return _with(workload, status, now, {QUOTA_RESERVED: ("True", QUOTA_RESERVED)})


def admitted(workload: Workload, state: State, at: Instant) -> Workload:
    """A Workload whose admission is assumed, as it is once its admission at an instant is written."""
    reserved = _reserved(workload, state, at)
    return _with(reserved, reserved.status, at, {ADMITTED: ("True", ADMITTED)})


def released(workload: Workload, reason: str, now: Instant) -> Workload:
    """A Workload whose eviction is over."""
    conditions: _Conditions = {
        QUOTA_RESERVED: ("False", "Pending"),
        ADMITTED: ("False", "NoReservation"),
    }
    if not workload.evicted:
        by_preemption = reason in PREEMPTION_TEXT
        conditions[EVICTED] = ("True", PREEMPTED if by_preemption else reason)
        if by_preemption:
            conditions[PREEMPTED] = ("True", reason)
    return _with(workload, replace(workload.status, admission=None, admission_checks=[]), now, conditions)


def _with(workload: Workload, status: WorkloadStatus, now: Instant, given: _Conditions) -> Workload:
    conditions = status.conditions
    for kind, (value, reason) in given.items():
        conditions = set_condition(conditions, type=kind, status=value, reason=reason, now=stamp(now))
    metadata = replace(workload.metadata, resource_version="")
    return replace(workload, metadata=metadata, status=replace(status, conditions=conditions))
