"""Every event that a ledger takes is in its decision log, and makes the same of another ledger."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from tests.unit.engine.pictures import differences, essence
from turnstile.api.core import LimitRange, RuntimeClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.controllers.scheduling.decisionlog import TermLog
from turnstile.engine import Options, State, cycle
from turnstile.engine.options import AdmissionFairSharing, WaitForPodsReady
from turnstile.insight.replay import Line, take_event

SCOPE = {"admissionMode": "UsageBasedAdmissionFairSharing"}
LOWER = {"withinClusterQueue": "LowerPriority"}
CHECKS = {"admissionChecks": [{"name": "check"}]}
QUOTA = {"one": {"cpu": (4, 1, 2)}, "two": {"cpu": 2}}
LIMITS = msgspec.convert(
    {"metadata": {"name": "l", "namespace": "team"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "9"}}]}},
    LimitRange,
)
OVERHEAD = msgspec.convert(
    {"metadata": {"name": "heavy"}, "handler": "h", "overhead": {"podFixed": {"cpu": "1"}}}, RuntimeClass
)


class Twin:
    """A ledger that takes each line of a decision log as soon as it is written."""

    def __init__(self, options: Options) -> None:
        self.state = State(options)

    def append(self, line: Line) -> None:
        """Take an event, or run a cycle at the time of the log."""
        read: dict[str, Any] = json.loads(json.dumps(line))
        if "event" in read:
            take_event(self.state, read)
        elif "cycled" in read:
            cycle(self.state, read["now"])

    def flush(self) -> None:
        """Nothing is buffered."""


def seen_line(name: str) -> LocalQueue:
    """A LocalQueue whose status says what it consumed."""
    sharing = {"consumedResources": {"cpu": "5"}, "lastUpdate": b.STAMP}
    status = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": sharing}}
    return msgspec.convert({**msgspec.to_builtins(b.local(name, "a")), "status": status}, LocalQueue)


OPTIONS = Options(
    admission_fair_sharing=AdmissionFairSharing(usage_half_life=60.0, usage_sampling_interval=60.0),
    wait_for_pods_ready=WaitForPodsReady(block_admission=True),
)


def bed(state: State) -> State:
    """Two queues in one of two nested cohorts, one in a cohort that nobody declared, and one alone; of workloads some
    run, wait, are parked, assumed, on their way out, or hold quota in a queue that is missing. Quota of a cohort was
    changed since the last cycle."""
    b.furnish(
        state,
        b.queue("a", QUOTA, "x", admissionScope=SCOPE, preemption=LOWER),
        b.queue("z", QUOTA, "x", preemption=LOWER, queueingStrategy="StrictFIFO"),
        b.queue("lone", QUOTA, preemption=LOWER),
        b.queue("single", QUOTA, "undeclared"),
        flavors=("one", "two"),
    )
    state.put_cohort(b.cohort("x", {"one": {"cpu": 1}}, "top"))
    state.put_cohort(b.cohort("top"))
    state.put_topology("t", ("rack",))
    state.put_admission_check("check", active=True)
    state.put_limit_range(LIMITS, b.NOW)
    state.put_runtime_class(OVERHEAD, b.NOW)
    state.put_local_queue(b.local("other", "a"), b.NOW)
    state.put_workload(b.workload("assumed", "other"), b.NOW)
    cycle(state, b.NOW)
    state.put_workload(b.held("runs", "a", {"cpu": "2"}, flavor="one"), b.NOW)
    state.put_workload(b.held("low", "lone", {"cpu": "4"}, flavor="one"), b.NOW)
    state.put_workload(b.held("full", "lone", {"cpu": "2"}, flavor="two", priority=9), b.NOW)
    state.put_workload(b.held("lost", "missing", {"cpu": "2"}, flavor="one"), b.NOW)
    for name, line, cpu, priority in (
        ("high", "lone", 4, 5),
        ("huge", "z", 99, 0),
        ("also-huge", "z", 99, 0),
        ("too-much", "a", 99, 0),
        ("as-much", "a", 99, 0),
    ):
        state.put_workload(b.workload(name, line, cpu=cpu, priority=priority), b.NOW)
        cycle(state, b.NOW)
    state.put_workload(b.workload("waits", "other"), b.NOW)
    state.put_workload(b.workload("stray", "nowhere"), b.NOW)
    state.put_cohort(b.cohort("top", {"two": {"cpu": 1}}))
    assert set(state.reservations.assumed) == {"team/assumed"}
    assert set(state.reservations.evicting) == {"team/low"}
    return state


def running(state: State, name: str) -> Workload:
    """The workload as the API has it."""
    return state.workloads[f"team/{name}"].workload


EVENTS: dict[str, Callable[[State], object]] = {
    "a flavor comes": lambda s: s.put_flavor(b.flavor("new")),
    "a flavor changes": lambda s: s.put_flavor(b.flavor("one", nodeLabels={"x": "y"})),
    "a flavor goes": lambda s: s.drop_flavor("one"),
    "a topology comes": lambda s: s.put_topology("other", ("rack",)),
    "a topology goes": lambda s: s.drop_topology("t"),
    "a check comes": lambda s: s.put_admission_check("new", active=True),
    "a check goes": lambda s: s.drop_admission_check("check"),
    "a queue comes": lambda s: s.put_cluster_queue(b.queue("missing", QUOTA, "y"), b.NOW),
    "a queue gets more": lambda s: s.put_cluster_queue(b.queue("a", {"one": {"cpu": 9}}, "x"), b.NOW),
    "a queue moves": lambda s: s.put_cluster_queue(b.queue("a", QUOTA, "y", admissionScope=SCOPE), b.NOW),
    "a queue leaves its cohort": lambda s: s.put_cluster_queue(b.queue("z", QUOTA), b.NOW),
    "a queue gets checks": lambda s: s.put_cluster_queue(
        b.queue("a", QUOTA, "x", admissionChecksStrategy=CHECKS, stopPolicy="Hold"), b.NOW
    ),
    "a queue becomes strict": lambda s: s.put_cluster_queue(
        b.queue("a", QUOTA, "x", queueingStrategy="StrictFIFO"), b.NOW
    ),
    "a queue goes": lambda s: s.drop_cluster_queue("a"),
    "the last queue of a cohort goes": lambda s: s.drop_cluster_queue("single"),
    "a lone queue goes": lambda s: s.drop_cluster_queue("lone"),
    "a cohort comes": lambda s: s.put_cohort(b.cohort("new", {"one": {"cpu": 3}}, "top")),
    "a cohort gets more": lambda s: s.put_cohort(b.cohort("x", {"one": {"cpu": 30}}, "top")),
    "a cohort leaves": lambda s: s.put_cohort(b.cohort("x", {"one": {"cpu": 1}})),
    "a cohort moves": lambda s: s.put_cohort(b.cohort("x", {"one": {"cpu": 1}}, "elsewhere")),
    "cohorts form a cycle": lambda s: s.put_cohort(b.cohort("top", None, "x")),
    "a cohort goes": lambda s: s.drop_cohort("x"),
    "a namespace changes": lambda s: s.put_namespace("team", {"x": "y"}),
    "a namespace comes": lambda s: s.put_namespace("new", {}),
    "a namespace goes": lambda s: s.drop_namespace("team"),
    "a line comes": lambda s: s.put_local_queue(b.local("new", "a"), b.NOW),
    "a line moves": lambda s: s.put_local_queue(b.local("other", "z"), b.NOW),
    "a line is stopped": lambda s: s.put_local_queue(b.local("other", "a", stopPolicy="Hold"), b.NOW),
    "a line weighs more": lambda s: s.put_local_queue(b.local("other", "a", fairSharing={"weight": "7"}), b.NOW),
    "a line is seeded": lambda s: s.put_local_queue(seen_line("seeded"), b.NOW),
    "a line goes": lambda s: s.drop_local_queue("team/other"),
    "an empty line goes": lambda s: s.drop_local_queue("team/main"),
    "limits change": lambda s: s.put_limit_range(msgspec.structs.replace(LIMITS, spec=type(LIMITS.spec)()), b.NOW),
    "limits go": lambda s: s.drop_limit_range("team/l", b.NOW),
    "an overhead goes": lambda s: s.drop_runtime_class("heavy", b.NOW),
    "a workload comes": lambda s: s.put_workload(b.workload("new", version=7), b.NOW),
    "a workload without a line comes": lambda s: s.put_workload(b.workload("new", "nowhere"), b.NOW),
    "a workload moves": lambda s: s.put_workload(b.workload("waits", "z"), b.NOW),
    "a workload changes": lambda s: s.put_workload(b.workload("waits", "other", priority=3), b.NOW),
    "the last of a missing line goes": lambda s: s.drop_workload("team/stray"),
    "a parked one changes": lambda s: s.put_workload(b.workload("too-much", "a", cpu=1), b.NOW),
    "a parked one goes": lambda s: s.drop_workload("team/huge"),
    "a workload runs": lambda s: s.put_workload(b.held("new", "z", {"cpu": "1"}, flavor="one"), b.NOW),
    "a workload runs nowhere": lambda s: s.put_workload(b.held("new", "missing", {"cpu": "1"}, flavor="one"), b.NOW),
    "a workload runs in a queue unheard of": lambda s: s.put_workload(
        b.held("new", "unheard-of", {"cpu": "1"}, flavor="one"), b.NOW
    ),
    "one runs elsewhere": lambda s: s.put_workload(b.held("runs", "z", {"cpu": "1"}, flavor="one"), b.NOW),
    "one has its pods": lambda s: s.put_workload(
        b.with_conditions(running(s, "runs"), PodsReady=("True", "Started")), b.NOW
    ),
    "one is evicted": lambda s: s.put_workload(
        b.with_conditions(running(s, "low"), Evicted=("True", "Preempted")), b.NOW
    ),
    "one is released": lambda s: s.put_workload(b.released(running(s, "low")), b.NOW),
    "one finishes": lambda s: s.put_workload(
        b.with_conditions(running(s, "runs"), Finished=("True", "Succeeded")), b.NOW
    ),
    "a lost one goes": lambda s: s.drop_workload("team/lost"),
    "one that runs goes": lambda s: s.drop_workload("team/runs"),
    "a preemptor goes": lambda s: s.drop_workload("team/high"),
    "a preemptor runs": lambda s: s.put_workload(b.held("high", "lone", {"cpu": "4"}, flavor="one"), b.NOW),
    "a write is seen": lambda s: s.put_workload(b.reserved(running(s, "assumed"), s), b.NOW),
    "a write comes back": lambda s: s.confirm("team/assumed", "12"),
    "a write fails": lambda s: s.forget("team/assumed", b.NOW),
    "an eviction fails": lambda s: s.forget_eviction("team/low"),
    "usage is sampled": lambda s: s.sample_usage("team/other", b.NOW + 100),
    "a cycle runs": lambda s: cycle(s, b.NOW),
    "all cycles run": b.settle,
}


@pytest.fixture
def twin() -> Twin:
    """A ledger that follows `state`."""
    return Twin(OPTIONS)


@pytest.fixture
def state(twin: Twin) -> State:
    """A busy one."""
    return bed(State(OPTIONS, TermLog(twin, OPTIONS, identity="one", epoch=1, objects=True)))


def assert_equal(state: State, twin: Twin) -> None:
    """All that a cycle reads is the same in both."""
    found = list(differences(essence(state), essence(twin.state)))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_logged(name: str, state: State, twin: Twin) -> None:
    """With its consequences: the next cycles run on the twin as well."""
    assert_equal(state, twin)
    EVENTS[name](state)
    assert_equal(state, twin)
    b.settle(state)
    assert_equal(state, twin)


def test_a_series_of_events_is_logged(state: State, twin: Twin) -> None:
    """Each event after all that came before it."""
    for name, event in EVENTS.items():
        if name not in {"a write is seen", "one finishes", "one has its pods", "one is evicted", "one is released"}:
            event(state)
            assert_equal(state, twin)
