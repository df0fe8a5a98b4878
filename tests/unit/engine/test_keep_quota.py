"""A ClusterQueue with the annotation keeps what comes free for its head, once that has waited for so long."""

from tests.unit.engine import builders as b
from tests.unit.engine.test_minimum_run_time import victims_at
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.timeannotations import KEEP_QUOTA_AFTER
from turnstile.engine import State, cycle


def queue(after: str | None = "10m") -> ClusterQueue:
    """A ClusterQueue of 4 CPUs that never preempts."""
    made = b.queue("main", {"default": {"cpu": 4}})
    if after is not None:
        made.metadata.annotations[KEEP_QUOTA_AFTER] = after
    return made


def beside_a_stream(after: str | None = "10m") -> State:
    """Four Jobs of one CPU run, a gang of four waits since second 1, and another Job waits behind it."""
    state = b.world(queue(after))
    for number in range(4):
        state.put_workload(b.held(f"small-{number}", "main", {"cpu": "1"}), b.NOW)
    state.put_workload(b.workload("gang", cpu=1, count=4, second=1), b.NOW)
    state.put_workload(b.workload("next", second=2), b.NOW)
    assert not victims_at(state, b.NOW)
    return state


def ends(state: State, name: str, now: float) -> set[str]:
    """A Job ends at a time; the Workloads that hold quota then."""
    state.drop_workload(f"team/{name}")
    victims_at(state, now)
    return b.admitted(state)


def test_without_the_annotation_the_stream_goes_on_for_ever() -> None:
    """As in Kueue, and however long the gang has waited."""
    state = beside_a_stream(None)
    assert "team/next" in ends(state, "small-0", b.NOW + 1_000_000)
    assert state.deadlines.next is None


def test_before_the_time_others_are_admitted() -> None:
    """The deadline is known, so that the scheduler need not ask."""
    state = beside_a_stream()
    assert state.deadlines.next == b.NOW - 4 + 600
    assert "team/next" in ends(state, "small-0", b.NOW + 500)


def test_after_the_time_quota_comes_together_for_the_head() -> None:
    """And the Workload behind it says why it waits."""
    state = beside_a_stream()
    for number in range(3):
        assert "team/next" not in ends(state, f"small-{number}", b.NOW + 600 + number)
    why = state.questions.why("team/next")
    assert why is not None
    assert why.message == "ClusterQueue main keeps quota that comes free for a workload that has waited for long"
    gang = state.questions.why("team/gang")
    assert gang is not None
    assert gang.message.endswith(". ClusterQueue main keeps quota that comes free for it since 2026-01-02T03:14:01Z")
    assert ends(state, "small-3", b.NOW + 604) == {"team/gang"}


def test_a_workload_before_that_head_keeps_its_own_reason() -> None:
    """It has a higher priority, and has not waited for so long."""
    state = beside_a_stream()
    state.put_workload(b.workload("high", cpu=3, priority=1, second=300), b.NOW + 300)
    ends(state, "small-0", b.NOW + 601)
    assert state.cluster_queues["main"].pending.kept_for == "team/gang"
    why = state.questions.why("team/high")
    assert why is not None
    assert "insufficient unused quota" in why.message


def test_a_head_that_can_never_fit_keeps_nothing() -> None:
    """Whoever may submit to the ClusterQueue could close it."""
    state = b.world(queue())
    state.put_workload(b.workload("giant", cpu=5), b.NOW)
    state.put_workload(b.workload("next", second=2), b.NOW)
    cycle(state, b.NOW + 700)
    victims_at(state, b.NOW + 700)
    assert b.admitted(state) == {"team/next"}


def test_once_the_head_is_gone_the_others_are_tried() -> None:
    """It was deleted, and nothing is kept for it."""
    state = beside_a_stream()
    assert "team/next" not in ends(state, "small-0", b.NOW + 700)
    assert "team/next" in ends(state, "gang", b.NOW + 701)
