"""The spans of a Workload's life: one trace, the same whoever makes it."""

from uuid import UUID

import pytest

from tests.unit.engine import builders as b
from tests.unit.recorder.lives import T0, life
from turnstile.api.workload import Workload
from turnstile.recorder.facts import Fact, of_change
from turnstile.recorder.spans import Lives, Span, trace_of

UID = "5e3f3d4a-7c1c-4a51-9a39-0a7bb0f2f7d1"


def lived(versions: list[Workload | None], lives: Lives | None = None) -> list[Span]:
    """The spans of a Workload, seen version after version."""
    lives = lives if lives is not None else Lives()
    spans: list[Span] = []
    old: Workload | None = None
    for number, new in enumerate(versions):
        if new is None:
            spans += lives.gone(old, T0 + 100) if old is not None else []
        else:
            new = b.changed(new, metadata={"uid": UID})
            for fact in of_change(old, new, T0 + 8.0 * number):
                spans += lives.follow(new, fact) if isinstance(fact, Fact) else []
        old = new
    return spans


def told(spans: list[Span]) -> list[tuple[str, float, float]]:
    """Names and seconds."""
    return [(each.name, each.begin - T0, each.end - T0) for each in spans]


def test_a_life_is_queued_running_evicted_and_so_on() -> None:
    """It waits, runs, is preempted, stops, waits, runs and ends."""
    assert told(lived(life())) == [
        ("queued", 0, 10),
        ("running", 10, 20),
        ("evicted", 20, 25),
        ("queued", 25, 40),
        ("running", 40, 60),
        ("workload", 0, 60),
    ]


def test_all_spans_are_of_one_trace_with_one_root() -> None:
    """The trace has the bits of the uid; each attempt has a span of its own."""
    spans = lived(life())
    (root,) = [each for each in spans if not each.parent]
    assert {each.trace for each in spans} == {UUID(UID).int}
    assert {each.parent for each in spans if each is not root} == {root.span}
    assert len({each.span for each in spans}) == len(spans)


def test_spans_say_whose_they_are_and_why_they_ended() -> None:
    """By names that stay; the preemptor is not named."""
    _, running, *_ = lived(life())
    assert running.failed == "Preempted"
    assert running.attributes["turnstile.reason"] == "Preempted"
    assert running.attributes["k8s.namespace.name"] == "team"
    assert running.attributes["turnstile.job.name"] == "job-w"
    assert running.attributes["turnstile.cluster_queue"] == "a"
    assert "uid-high" not in str(running)


@pytest.mark.parametrize("cut", range(1, 8))
def test_the_next_leader_goes_on_with_the_same_spans(cut: int) -> None:
    """It begins with the version that the one before saw last, and makes no other span than that one would have."""
    whole = {(each.name, each.span): (each.begin, each.end) for each in lived(life())}
    for each in lived(life()[cut:]):
        assert whole[each.name, each.span] == (each.begin, each.end)


def test_a_life_that_is_over_is_forgotten() -> None:
    """However many there were."""
    lives = Lives()
    lived(life(), lives)
    assert len(lives) == 0


def test_a_uid_that_is_none_still_has_a_trace() -> None:
    """No id of a trace is zero."""
    assert trace_of("no uuid") == trace_of("no uuid") != 0
    assert trace_of("00000000-0000-0000-0000-000000000000") == 1
