"""A mark on a ClusterQueue or a Cohort makes the inadmissible Workloads of the whole tree active, once."""

from tests.unit.engine import builders as b
from turnstile.engine import Options, State
from turnstile.engine.pace import Pace, finish


def full(cohort: str) -> State:
    """Two ClusterQueues of a Cohort without quota, and an inadmissible Workload in each."""
    state = b.world(
        b.queue("a", {"default": {"cpu": 0}}, cohort=cohort),
        b.queue("z", {"default": {"cpu": 0}}, cohort=cohort),
        options=Options(),
    )
    for name in "az":
        state.put_workload(b.workload(f"w-{name}", name), b.NOW)
    b.settle(state)
    assert not state.retries.marked
    return state


def carried_out(state: State) -> bool:
    """Make what is marked active."""
    return finish(state.retries.carry_out(b.NOW, state.log.shape, Pace()))


def active(state: State) -> set[str]:
    """Keys of the active Workloads."""
    return {info.key for queue in state.cluster_queues.values() for info in queue.pending.active_infos()}


def test_a_marked_cluster_queue_stands_for_its_tree() -> None:
    """The quota that one releases may be borrowed by all."""
    state = full("both")
    state.retries.mark("a")
    assert carried_out(state)
    assert active(state) == {"team/w-a", "team/w-z"}


def test_a_marked_cohort_stands_for_its_tree() -> None:
    """By its name, whichever member it has."""
    state = full("both")
    state.retries.mark_cohort("both")
    assert carried_out(state)
    assert active(state) == {"team/w-a", "team/w-z"}


def test_a_mark_counts_once() -> None:
    """It is gone when it was carried out."""
    state = full("both")
    state.retries.mark_all({"a": None, "z": None})
    assert carried_out(state)
    assert not state.retries.marked
    assert not carried_out(state)


def test_other_trees_are_left_alone() -> None:
    """Without a cohort each ClusterQueue is a tree."""
    state = full("")
    state.retries.mark("a")
    carried_out(state)
    assert active(state) == {"team/w-a"}


def test_a_mark_that_was_taken_off_changes_nothing() -> None:
    """A cycle that is abandoned takes off the marks that it made itself."""
    state = full("both")
    state.retries.mark("a")
    state.retries.unmark(["a"])
    assert not carried_out(state)


def test_a_name_that_does_not_exist_is_passed_over() -> None:
    """The ClusterQueue was deleted since."""
    state = full("both")
    state.retries.mark("gone")
    assert not carried_out(state)
    assert not state.retries.marked
