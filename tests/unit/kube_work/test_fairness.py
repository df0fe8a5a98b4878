"""Flows take turns."""

from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.kube.fairness import FairQueue


def test_flows_take_turns_and_keep_their_own_order() -> None:
    """The two of `b` come second and fourth, however many `a` has."""
    queue: FairQueue[str] = FairQueue()
    for number in range(5):
        queue.add(f"a{number}", "a")
    queue.add("b0", "b")
    queue.add("b1", "b")
    assert [queue.pop() for _ in range(len(queue))] == ["a0", "b0", "a1", "b1", "a2", "a3", "a4"]
    with pytest.raises(KeyError):
        queue.pop()


def test_within_a_flow_the_lower_rank_goes_first() -> None:
    """It does not count between flows."""
    queue: FairQueue[str] = FairQueue()
    for item, flow, rank in (("a2", "a", 2), ("a1", "a", 1), ("b2", "b", 2), ("a0", "a", 0), ("a1 too", "a", 1)):
        queue.add(item, flow, (rank,))
    queue.remove("a2", "a", (1,))
    assert [queue.pop() for _ in range(len(queue))] == ["a0", "b2", "a1", "a1 too", "a2"]


def test_a_barred_flow_keeps_its_turn() -> None:
    """It is passed by, and is next when it is not barred any more."""
    queue: FairQueue[str] = FairQueue()
    for item, flow in (("a0", "a"), ("a1", "a"), ("b0", "b"), ("b1", "b")):
        queue.add(item, flow)
    assert queue.pop(barred=lambda flow: flow == "a") == "b0"
    with pytest.raises(KeyError):
        queue.pop(barred=lambda _: True)
    assert [queue.pop() for _ in range(3)] == ["a0", "b1", "a1"]


steps = st.lists(st.tuples(st.sampled_from(["add", "remove", "pop"]), st.integers(0, 9), st.sampled_from("abc")))


@given(steps)
def test_nothing_is_lost_or_invented_and_no_flow_is_passed_by(history: list[tuple[str, int, str]]) -> None:
    """Over any history: while a flow waits, no other flow is served twice."""
    queue: FairQueue[tuple[str, int]] = FairQueue()
    model: dict[str, deque[tuple[str, int]]] = defaultdict(deque)
    served: dict[str, set[str]] = {}  # flows served since a flow began to wait or was served
    for step, number, flow in history:
        item = (flow, number)
        if step == "add":
            queue.add(item, flow)
            if item not in model[flow]:
                if not model[flow]:
                    served[flow] = set()
                model[flow].append(item)
        elif step == "remove":
            queue.remove(item, flow)
            if item in model[flow]:
                model[flow].remove(item)
        elif len(queue):
            found, _ = got = queue.pop()
            assert model[found].popleft() == got
            for other in model:
                if model[other] and other != found:
                    assert found not in served[other]
                    served[other].add(found)
            served[found] = set()
        assert len(queue) == sum(map(len, model.values()))
        assert set(queue) == {each for items in model.values() for each in items}
