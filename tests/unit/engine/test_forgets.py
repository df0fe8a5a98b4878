"""Workloads that came and went leave nothing behind, however many there were."""

import gc
from types import FunctionType, ModuleType
from typing import Any

from tests.unit.engine import builders as b
from turnstile.engine import State, cycle

PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def reachable(root: Any) -> int:
    """How many objects hang on it, and entries of what they are kept in."""
    seen: dict[int, Any] = {}
    left = [root]
    while left:
        item = left.pop()
        if id(item) in seen or isinstance(item, type | ModuleType | FunctionType):
            continue
        seen[id(item)] = item
        left.extend(gc.get_referents(item))
    return len(seen) + sum(len(item) for item in seen.values() if isinstance(item, dict))  # keys are no referents


def come_and_go(state: State, round_: int) -> None:
    """Eight workloads of two queues: some are preempted, one fails to be written, one is deleted while it waits."""
    names = [f"round-{round_}-{index}" for index in range(8)]
    items = [
        b.workload(name, "ours" if index % 2 else "theirs", cpu=3, priority=index, second=round_)
        for index, name in enumerate(names)
    ]
    for item in items:
        state.put_workload(item, b.NOW)
        for decision in cycle(state, b.NOW):
            for victim in decision.victims:
                before = next(each for each in items if each.metadata.key == victim.key)
                state.put_workload(b.with_conditions(b.reserved(before, state), Evicted=("True", "Preempted")), b.NOW)
                state.put_workload(before, b.NOW)
    b.settle(state)
    state.forget(next(iter(state.reservations.assumed)), b.NOW)
    b.settle(state)
    for key in list(state.reservations.assumed):
        item = next(each for each in items if each.metadata.key == key)
        state.put_workload(b.reserved(item, state), b.NOW)
        state.put_workload(b.with_conditions(item, Finished=("True", "Succeeded")), b.NOW)
    for item in items:
        state.drop_workload(item.metadata.key)
    b.settle(state)


def test_of_whoever_finished_was_preempted_or_deleted() -> None:
    """What the engine keeps does not grow with what it has seen."""
    queues = [b.queue(name, {"default": {"cpu": 7}}, "org", preemption=PREEMPTION) for name in ("ours", "theirs")]
    state = b.world(*queues)
    sizes = []
    for round_ in range(12):
        come_and_go(state, round_)
        sizes.append(reachable(state))
    assert sizes[4:] == [sizes[4]] * 8
