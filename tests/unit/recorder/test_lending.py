"""Who lends what ClusterQueues hold above their nominal quotas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.recorder.facts import Pair, Quota
from app.recorder.lending import Node, Tree, lent

PAIR: Pair = ("default", "gpu")
A, B, C = ("ClusterQueue", "a"), ("ClusterQueue", "b"), ("ClusterQueue", "c")
TOP, LEFT = ("Cohort", "top"), ("Cohort", "left")


def tree(*quotas: tuple[Node, str, int, int | None]) -> Tree:
    """Nodes with their parents, nominal quotas and lending limits."""
    made = Tree()
    for (kind, name), parent, nominal, lending in quotas:
        assert kind in ("ClusterQueue", "Cohort")
        made.put(Quota(kind, name, 0.0, parent, ((*PAIR, nominal, None, lending),)))  # type: ignore[arg-type]
    return made


def lenders(made: Tree, held: dict[str, int], root: str = "top") -> dict[Node, float]:
    """Who lends how much."""
    members = made.children([name for name, above in made.roots().items() if above == root])
    return lent(made, members, root, PAIR, held)


def test_without_a_borrower_nothing_is_lent() -> None:
    """Whoever holds less than the nominal quota needs nobody."""
    assert lenders(tree((A, "top", 4, None), (B, "top", 4, None)), {"a": 4, "b": 1}) == {}


def test_the_unused_quota_of_the_others_is_lent() -> None:
    """In proportion to what is unused."""
    made = tree((A, "top", 4, None), (B, "top", 8, None), (C, "top", 4, None))
    assert lenders(made, {"a": 7, "b": 4, "c": 2}) == {B: 2, C: 1}


def test_not_above_the_lending_limit() -> None:
    """What is kept back is lent to nobody."""
    made = tree((A, "top", 4, None), (B, "top", 8, 1), (C, "top", 8, None))
    assert lenders(made, {"a": 13}) == {B: 1, C: 8}


def test_the_quota_of_the_cohort_comes_first() -> None:
    """It belongs to no queue."""
    made = tree((TOP, "", 2, None), (A, "top", 4, None), (B, "top", 4, None))
    assert lenders(made, {"a": 7}) == {TOP: 2, B: 1}


def test_the_nearest_lend_first() -> None:
    """A queue of the same Cohort before one above."""
    made = tree(
        (TOP, "", 0, None), (LEFT, "top", 0, None), (A, "left", 1, None), (B, "left", 2, None), (C, "top", 9, None)
    )
    assert lenders(made, {"a": 3}) == {B: 2}
    assert lenders(made, {"a": 6}) == {B: 2, C: 3}


def test_cohorts_in_a_cycle_end() -> None:
    """A mistake that the API does not refuse."""
    made = tree((TOP, "left", 0, None), (LEFT, "top", 0, None), (A, "left", 1, None), (B, "top", 5, None))
    for root in set(made.roots().values()):
        lenders(made, {"a": 3}, root)


AMOUNTS = st.integers(0, 20)


@given(
    st.lists(st.tuples(st.sampled_from(["top", "left", "right"]), AMOUNTS, st.none() | AMOUNTS, AMOUNTS), min_size=1),
    st.tuples(AMOUNTS, AMOUNTS, AMOUNTS),
)
def test_no_more_is_lent_than_is_borrowed_and_unused(
    queues: list[tuple[str, int, int | None, int]], own: tuple[int, int, int]
) -> None:
    """In any tree; and all of the smaller one is, where no lending limit is in the way."""
    cohorts = [(TOP, "", own[0], None), (LEFT, "top", own[1], None), (("Cohort", "right"), "left", own[2], None)]
    nodes = [(("ClusterQueue", f"q{n}"), each[0], each[1], each[2]) for n, each in enumerate(queues)]
    held = {f"q{n}": each[3] for n, each in enumerate(queues)}
    found = lenders(tree(*cohorts, *nodes), held)
    borrowed = sum(max(0, each[3] - each[1]) for each in queues)
    unused = {
        f"q{n}": min(max(0, each[1] - each[3]), each[1] if each[2] is None else each[2])
        for n, each in enumerate(queues)
    }
    above = {"top": own[0], "left": own[1], "right": own[2]}
    for (kind, name), amount in found.items():
        assert 0 < amount <= (unused if kind == "ClusterQueue" else above)[name] + 1e-9
    used = {each[0] for each in queues}
    near = {"right": {"right", "left", "top"}, "left": {"left", "top"}, "top": {"top"}}
    reached = set().union(*(near[each] for each in used))
    most = sum(unused.values()) + sum(above[each] for each in reached)
    assert sum(found.values()) == pytest.approx(min(borrowed, most))
