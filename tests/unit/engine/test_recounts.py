"""An event says where Workloads are to be counted anew, and the next cycle counts them."""

import msgspec

from tests.unit.engine import builders as b
from turnstile.api.core import LimitRange, RuntimeClass
from turnstile.engine import State
from turnstile.engine.pace import Pace, finish

DEFAULTS = {"type": "Container", "defaultRequest": {"memory": "1Gi"}}


def limit_range(namespace: str) -> LimitRange:
    """Containers without a request ask for a gibibyte."""
    meta = {"name": "limits", "namespace": namespace}
    return msgspec.convert({"metadata": meta, "spec": {"limits": [DEFAULTS]}}, LimitRange)


def runtime_class(name: str, cpu: str) -> RuntimeClass:
    """Its pods cost so much more."""
    return msgspec.convert(
        {"metadata": {"name": name}, "handler": "h", "overhead": {"podFixed": {"cpu": cpu}}}, RuntimeClass
    )


def waiting() -> State:
    """A Workload waits in the namespace team."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("w", "a"), b.NOW)
    return state


def test_a_limit_range_concerns_those_who_wait_in_its_namespace() -> None:
    """They ask for more once they are counted."""
    state = waiting()
    recounts = state.recounts
    assert recounts.put_limit_range(limit_range("team"), b.NOW)
    assert recounts.due
    finish(recounts.carry_out(Pace()))
    assert state.queues.waiting["team/w"].totals[0].requests["memory"] == 1 << 30
    assert not recounts.due


def test_the_same_limit_range_again_leaves_nothing_to_do() -> None:
    """Neither does one that nobody waits for."""
    state = b.world(b.queue("a"))
    assert state.recounts.put_limit_range(limit_range("team"), b.NOW)
    assert not state.recounts.due
    assert not state.recounts.put_limit_range(limit_range("team"), b.NOW)


def test_those_of_other_namespaces_are_not_counted() -> None:
    """They are the very objects that they were."""
    state = waiting()
    before = state.queues.waiting["team/w"]
    state.recounts.put_limit_range(limit_range("other"), b.NOW)
    finish(state.recounts.carry_out(Pace()))
    assert state.queues.waiting["team/w"] is before


def test_an_overhead_that_did_not_change_leaves_nothing_to_do() -> None:
    """A RuntimeClass may change in other ways."""
    recounts = waiting().recounts
    assert recounts.put_runtime_class("r", runtime_class("r", "1"), b.NOW)
    assert not recounts.put_runtime_class("r", runtime_class("r", "1"), b.NOW)
    assert recounts.put_runtime_class("r", None, b.NOW)
    assert not recounts.put_runtime_class("r", None, b.NOW)
