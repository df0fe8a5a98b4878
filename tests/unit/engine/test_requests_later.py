"""A LimitRange or RuntimeClass may change the requests of many Workloads that wait: the next cycle counts them anew."""

import msgspec

from tests.unit.engine import builders as b
from turnstile.api.core import LimitRange
from turnstile.engine import State, cycle, cycle_steps
from turnstile.engine.pace import Pace, finish


def limits(memory: str) -> LimitRange:
    """A LimitRange that gives containers without a request so much memory."""
    spec = {"limits": [{"type": "Container", "defaultRequest": {"memory": memory}}]}
    return msgspec.convert({"metadata": {"name": "l", "namespace": "team"}, "spec": spec}, LimitRange)


def waiting() -> State:
    """Four Workloads that request no memory wait in a ClusterQueue that admits nothing."""
    state = b.world(b.queue("q", {"default": {"cpu": 3}}, stopPolicy="Hold"))
    for index in range(4):
        state.put_workload(b.workload(f"w{index}", "q"), b.NOW)
    cycle(state, b.NOW)
    return state


def requested(state: State) -> list[int]:
    """Memory that each Workload that waits requests."""
    return [item.requests.get("memory", 0) for info in state.queues.waiting.values() for item in info.totals]


def test_the_event_counts_nothing_and_the_cycle_all() -> None:
    """However many wait, the event only notes the namespace."""
    state = waiting()
    state.put_limit_range(limits("1"), b.NOW)
    assert requested(state) == [0] * 4
    assert state.has_work
    cycle(state, b.NOW)
    assert requested(state) == [1] * 4
    assert not state.behind


def test_a_cycle_that_is_left_early_leaves_the_count_to_the_next() -> None:
    """Nothing is forgotten that was not counted."""
    state = waiting()
    state.put_limit_range(limits("1"), b.NOW)
    steps = cycle_steps(state, b.NOW, stretch=25)
    next(steps)
    steps.close()
    assert state.behind
    cycle(state, b.NOW)
    assert requested(state) == [1] * 4


def test_a_state_that_runs_no_cycles_can_catch_up() -> None:
    """As the page's does after events."""
    state = waiting()
    state.put_limit_range(limits("1"), b.NOW)
    finish(state.catching_up(Pace()))
    assert requested(state) == [1] * 4


def test_a_limit_range_before_all_workloads_leaves_nothing_to_do() -> None:
    """When a state is filled, each Workload is counted once."""
    state = b.world(b.queue("q", {"default": {"cpu": 3}}))
    state.put_limit_range(limits("1"), b.NOW)
    assert not state.behind
