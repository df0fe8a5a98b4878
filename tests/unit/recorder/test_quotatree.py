"""The quota tree of a moment, from recorded quotas, and who lends what ClusterQueues hold past their nominal quotas."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.recorder.facts import Pair, Quota
from turnstile.recorder.quotatree import Tree

PAIR: Pair = ("default", "gpu")
CPU: Pair = ("default", "cpu")
Member = tuple[str, str, int, int | None]
"""A ClusterQueue, or a Cohort with `cohort ` before its name; its parent, nominal quota and lending limit."""


def quota(member: Member, *, pair: Pair = PAIR, gone: bool = False) -> Quota:
    """Its record."""
    name, parent, nominal, lending = member
    if name.startswith("cohort "):
        return Quota("Cohort", name.removeprefix("cohort "), 0.0, parent, ((*pair, nominal, None, lending),), gone)
    return Quota("ClusterQueue", name, 0.0, parent, ((*pair, nominal, None, lending),), gone)


def tree(held: dict[str, int], *members: Member) -> Tree:
    """A tree in which ClusterQueues hold so much."""
    made = Tree()
    made.put(*(quota(member) for member in members))
    for name, amount in held.items():
        made.use(name, PAIR, amount)
    return made


def lenders(made: Tree, *, below: str = "a") -> dict[str, float]:
    """Who lends how much in the tree around a ClusterQueue."""
    root = made.root(below)
    if root is None:
        return {}
    return {each.name if each.is_queue else f"cohort {each.name}": amount
            for each, amount in made.lent(root, PAIR).items()}  # fmt: skip


def test_without_a_borrower_nothing_is_lent() -> None:
    """Every ClusterQueue holds what is its own."""
    assert lenders(tree({"a": 4, "b": 1}, ("a", "top", 4, None), ("b", "top", 4, None))) == {}


def test_the_unused_quota_of_the_others_is_lent() -> None:
    """In proportion to what is unused."""
    made = tree({"a": 7, "b": 4, "c": 2}, ("a", "top", 4, None), ("b", "top", 8, None), ("c", "top", 4, None))
    assert lenders(made) == {"b": 2, "c": 1}
    assert (made.borrowed("a", PAIR), made.borrowed("b", PAIR)) == (3, 0)


def test_not_above_the_lending_limit() -> None:
    """What is kept back is lent to nobody."""
    made = tree({"a": 13}, ("a", "top", 4, None), ("b", "top", 8, 1), ("c", "top", 8, None))
    assert lenders(made) == {"b": 1, "c": 8}


def test_the_quota_of_the_cohort_comes_first() -> None:
    """It belongs to no ClusterQueue."""
    made = tree({"a": 7}, ("cohort top", "", 2, None), ("a", "top", 4, None), ("b", "top", 4, None))
    assert lenders(made) == {"cohort top": 2, "b": 1}


@pytest.mark.parametrize(("held", "lent"), [(3, {"b": 2}), (6, {"b": 2, "c": 3})])
def test_the_nearest_lend_first(held: int, lent: dict[str, float]) -> None:
    """A ClusterQueue of the same Cohort before one above."""
    left = ("cohort left", "top", 0, None)
    assert (
        lenders(tree({"a": held}, left, ("a", "left", 1, None), ("b", "left", 2, None), ("c", "top", 9, None))) == lent
    )


def test_without_a_cohort_nothing_is_borrowed() -> None:
    """A ClusterQueue that holds more than its quota, because that was reduced, takes it from nobody."""
    made = tree({"a": 7}, ("a", "", 4, None))
    assert (made.borrowed("a", PAIR), lenders(made)) == (0, {})


def test_a_cohort_that_is_only_named_exists() -> None:
    """As in the engine."""
    assert lenders(tree({"a": 5}, ("a", "named", 4, None), ("b", "named", 4, None))) == {"b": 1}


def test_cohorts_in_a_cycle_lend_nothing() -> None:
    """A mistake that the API does not refuse; the ClusterQueue still holds what it holds when the cycle is gone."""
    above = ("cohort left", "top", 0, None)
    made = tree({}, ("cohort top", "left", 0, None), above, ("a", "left", 1, None), ("b", "top", 5, None))
    made.use("a", PAIR, 3)
    assert lenders(made) == {}
    made.put(quota(("cohort top", "", 0, None)))
    assert lenders(made) == {"b": 2}


def test_a_queue_that_was_deleted_lends_nothing_and_comes_back_with_what_it_holds() -> None:
    """What its Workloads still held is known to who asks."""
    made = tree({"a": 7, "b": 2}, ("a", "top", 4, None), ("b", "top", 8, None))
    made.put(quota(("b", "", 0, None), gone=True))
    assert lenders(made) == {}
    made.put(quota(("b", "top", 8, None)), held={"b": {PAIR: 2}})
    assert lenders(made) == {"b": 3}
    made.put(quota(("b", "top", 4, None)))
    assert lenders(made) == {"b": 2}


AMOUNTS = st.integers(0, 20)


@given(
    st.lists(st.tuples(st.sampled_from(["top", "left", "right"]), AMOUNTS, st.none() | AMOUNTS, AMOUNTS), min_size=1),
    st.tuples(AMOUNTS, AMOUNTS, AMOUNTS),
)
def test_no_more_is_lent_than_is_borrowed_and_unused(
    queues: list[tuple[str, int, int | None, int]], own: tuple[int, int, int]
) -> None:
    """In any tree; and all of the smaller amount is."""
    cohorts: list[Member] = [
        ("cohort top", "", own[0], None), ("cohort left", "top", own[1], None), ("cohort right", "left", own[2], None),
    ]  # fmt: skip
    held = {f"q{n}": each[3] for n, each in enumerate(queues)}
    made = tree(held, *cohorts, *((f"q{n}", *each[:3]) for n, each in enumerate(queues)))
    found = lenders(made, below="q0")
    borrowed = sum(max(0, each[3] - each[1]) for each in queues)
    spare = {
        f"q{n}": min(max(0, each[1] - each[3]), each[1] if each[2] is None else each[2])
        for n, each in enumerate(queues)
    } | {"cohort top": own[0], "cohort left": own[1], "cohort right": own[2]}
    assert all(0 < amount <= spare[name] + 1e-9 for name, amount in found.items())
    assert sum(found.values()) == pytest.approx(min(borrowed, sum(spare.values())))
