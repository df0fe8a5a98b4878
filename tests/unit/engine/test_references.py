"""Whether a ClusterQueue admits follows its flavors, topologies and checks; an event judges no other ClusterQueue."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from turnstile.engine import Options, State, cycle, cycle_steps
from turnstile.engine.options import Gates
from turnstile.engine.queue.activity import problems

QUEUES = ("q0", "q1", "q2")
OTHERS = ("x", "y")

event = st.one_of(
    st.tuples(
        st.just("queue"), st.sampled_from(QUEUES), st.sets(st.sampled_from(OTHERS)), st.sets(st.sampled_from(OTHERS))
    ),
    st.tuples(st.just("no queue"), st.sampled_from(QUEUES)),
    st.tuples(st.just("flavor"), st.sampled_from(OTHERS), st.sampled_from([None, *OTHERS])),
    st.tuples(st.just("no flavor"), st.sampled_from(OTHERS)),
    st.tuples(st.just("topology"), st.sampled_from(OTHERS), st.sampled_from([None, ("node",)])),
    st.tuples(st.just("no topology"), st.sampled_from(OTHERS)),
    st.tuples(st.just("check"), st.sampled_from(OTHERS), st.booleans()),
    st.tuples(st.just("no check"), st.sampled_from(OTHERS)),
)


def happen(state: State, what: str, name: str, *more: Any) -> None:
    """One event."""
    match what:
        case "queue":
            flavors, checks = more
            spec = {"admissionChecksStrategy": {"admissionChecks": [{"name": each} for each in sorted(checks)]}}
            quota = {each: {"cpu": 4} for each in sorted(flavors)}
            state.put_cluster_queue(b.queue(name, quota, **spec), b.NOW)
        case "no queue":
            state.drop_cluster_queue(name)
        case "flavor":
            state.put_flavor(b.flavor(name, **({"topologyName": more[0]} if more[0] else {})))
        case "no flavor":
            state.drop_flavor(name)
        case "topology":
            state.put_topology(name, more[0])
        case "no topology":
            state.drop_topology(name)
        case "check":
            state.put_admission_check(name, active=more[0])
        case "no check":
            state.drop_admission_check(name)


@settings(max_examples=examples(100))
@given(st.lists(event, max_size=30))
def test_whatever_happens_each_cluster_queue_has_the_problems_that_a_new_leader_would_find(events: list[Any]) -> None:
    """Judged by the objects that exist, all anew."""
    state = State(Options(gates=Gates(topology_aware_scheduling=True)))
    for what, name, *more in events:
        happen(state, what, name, *more)
    for queue in state.cluster_queues.values():
        found = problems(
            queue, flavors=state.activity.flavors, checks=state.activity.checks, topologies=state.activity.topologies
        )
        assert queue.problems == list(found)


@pytest.mark.parametrize(
    "again",
    [
        ("flavor", "x", None),
        ("check", "x", True),
        ("topology", "x", ("node",)),
        ("flavor", "y", None),
        ("check", "y", False),
    ],
)
def test_an_event_that_concerns_no_cluster_queue_judges_none(again: tuple[Any, ...]) -> None:
    """An object that is written again as it was, as its status changes, and one that no ClusterQueue names."""
    state = State(Options())
    for each in (
        ("flavor", "x", None),
        ("check", "x", True),
        ("topology", "x", ("node",)),
        ("queue", "q0", {"x"}, {"x"}),
    ):
        happen(state, *each)
    b.retried(state, b.NOW)
    happen(state, *again)
    assert not state.activity.due
    assert not state.retries.cluster_queues


def wide() -> State:
    """Two ClusterQueues with quota of a flavor, and an AdmissionCheck, which the first names too."""
    state = State(Options())
    for each in (
        ("flavor", "x", None),
        ("check", "x", True),
        ("queue", "q0", {"x"}, {"x"}),
        ("queue", "q1", {"x"}, ()),
    ):
        happen(state, *each)
    b.retried(state, b.NOW)
    return state


def marked(state: State) -> set[str]:
    """ClusterQueues that are to be judged."""
    return {name for name in QUEUES if state.activity.is_marked(name)}


def test_an_event_leaves_the_judgement_to_the_next_cycle() -> None:
    """However many ClusterQueues reference the object. The cycle judges them all."""
    state = wide()
    happen(state, "no flavor", "x")
    assert marked(state) == {"q0", "q1"}
    assert state.has_work
    cycle(state, b.NOW)
    assert not state.activity.due
    assert not any(queue.active for queue in state.cluster_queues.values())


def test_an_event_of_an_object_that_no_queue_names_any_more_leaves_nothing_to_do() -> None:
    """The ClusterQueues that named it were deleted before the next cycle."""
    state = wide()
    happen(state, "no flavor", "x")
    for name in ("q0", "q1"):
        happen(state, "no queue", name)
    b.retried(state, b.NOW)
    assert not state.activity.due
    assert not state.behind


def test_whoever_reads_the_problems_before_that_cycle_sees_them() -> None:
    """The status of a ClusterQueue is written between cycles."""
    state = wide()
    happen(state, "check", "x", False)
    assert state.questions.active_reason("q0").reason == "AdmissionCheckInactive"
    assert state.questions.active_reason("q1").active
    assert not state.activity.due


def test_a_cycle_that_is_left_early_judges_the_rest_in_the_next() -> None:
    """What it did not come to is still marked."""
    state = wide()
    happen(state, "no flavor", "x")
    steps = cycle_steps(state, b.NOW, stretch=0.1)
    next(steps)
    steps.close()
    assert len(marked(state)) == 1
    cycle(state, b.NOW)
    assert not any(queue.active for queue in state.cluster_queues.values())
