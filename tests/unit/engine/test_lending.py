"""Who lends to whom: what is borrowed is lent by some member, and no member lends more than it has unused."""

from collections.abc import Iterator

import pytest

from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import world
from turnstile.engine import Options, State
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.lending import borrowed, lendings, lent, unused
from turnstile.engine.quota.tree import Node


def trees(seeds: range) -> Iterator[tuple[State, Node]]:
    """Topmost Cohorts of random clusters."""
    for seed in seeds:
        state, _ = world(seed)[0].state(Options(), b.NOW)
        state.ledger.settle()
        for cohort in state.ledger.cohorts.values():
            if cohort.parent is None:
                yield state, cohort


def test_what_is_borrowed_is_lent() -> None:
    """In every Cohort of 250 random clusters the sums are equal, unless quota is short of what is in use."""
    seen = 0
    for _, root in trees(range(250)):
        for pair in root.subtree:
            for cohort, lending in lendings(root, pair).items():
                wanted = sum(amount for _, amount in lending.borrowers)
                given = sum(amount for _, amount in lending.lenders)
                short = max(0, root.usage.get(pair, 0) - root.subtree.get(pair, 0))
                assert given <= wanted <= given + short, (cohort, pair)
                seen += 1
    assert seen > 20


def test_no_member_lends_what_is_in_use() -> None:
    """A member lends at most what it has unused, a Cohort at most its own quota."""
    for _, root in trees(range(250)):
        for pair in root.subtree:
            for cohort, lending in lendings(root, pair).items():
                for lender, amount in lending.lenders:
                    if lender is cohort.parent:
                        assert amount == borrowed(cohort, pair)
                    elif lender is cohort:
                        assert amount <= cohort.nominal[pair]
                    else:
                        assert amount <= unused(lender, pair)


def test_the_parts_over_time_are_those_of_the_moment() -> None:
    """Exact parts and whole pieces add up to the same, and no part is more than its lender has."""
    seen = 0
    for state, root in trees(range(250)):
        for pair in root.subtree:
            exact = lent(root, pair)
            pieces: dict[Node, int] = {}
            for cohort, lending in lendings(root, pair).items():
                for lender, amount in lending.lenders:
                    if lender.is_queue or lender is cohort:
                        pieces[lender] = pieces.get(lender, 0) + amount
            assert sum(exact.values()) == pytest.approx(sum(pieces.values()))
            assert all(amount <= (unused(node, pair) if node.is_queue else node.nominal[pair]) + 1e-6
                       for node, amount in exact.items())  # fmt: skip
            borrowing = sum(
                borrowed(queue.node, pair) for queue in state.cluster_queues.values() if queue.node.root is root
            )
            assert sum(exact.values()) <= borrowing + 1e-6
            seen += len(exact) > 1
    assert seen > 2


def cohort(*lenders: tuple[str, int, int]) -> tuple[Node, FlavorResource]:
    """A Cohort of ClusterQueues, each with its name, its quota of cpu and what it uses of it."""
    state = State(Options())
    state.put_flavor(b.flavor())
    for name, nominal, used in lenders:
        state.put_cluster_queue(b.queue(name, {"default": {"cpu": nominal}}, cohort="all"), b.NOW)
        state.put_local_queue(b.local(name, name), b.NOW)
        if used:
            state.put_workload(b.held(f"in-{name}", name, {"cpu": str(used)}, flavor="default"), b.NOW)
    state.ledger.settle()
    return state.ledger.cohorts["all"], state.surroundings.catalog.pair("default", "cpu")


def names(parts: tuple[tuple[Node, int], ...]) -> dict[str, int]:
    """Amounts by name, in cpus."""
    return {node.name: amount // 1000 for node, amount in parts}


def test_in_proportion_to_what_is_unused() -> None:
    """Two lenders, of which one has three times as much unused."""
    root, pair = cohort(("borrower", 0, 4), ("small", 3, 0), ("large", 11, 2))
    (lending,) = lendings(root, pair).values()
    assert names(lending.borrowers) == {"borrower": 4}
    assert names(lending.lenders) == {"small": 1, "large": 3}


def test_in_whole_pieces() -> None:
    """No third of a cpu is lent."""
    root, pair = cohort(("borrower", 0, 1), ("one", 1, 0), ("other", 2, 0))
    (lending,) = lendings(root, pair).values()
    assert all(amount % 1000 == 0 for _, amount in lending.lenders)
    assert sum(amount for _, amount in lending.lenders) == 1000


def test_nothing_is_lent_within_nominal_quota() -> None:
    """Everybody has enough."""
    root, pair = cohort(("one", 4, 4), ("other", 4, 1))
    assert lendings(root, pair) == {}


def test_the_quota_of_the_cohort_comes_first() -> None:
    """No member has to get it back: the other member could use all of its own quota at once."""
    state = State(Options())
    state.put_flavor(b.flavor())
    state.put_cohort(b.cohort("all", {"default": {"cpu": 2}}))
    for name, used in (("borrower", 4), ("other", 0)):
        state.put_cluster_queue(b.queue(name, {"default": {"cpu": 1}}, cohort="all"), b.NOW)
        state.put_local_queue(b.local(name, name), b.NOW)
        if used:
            state.put_workload(b.held(f"in-{name}", name, {"cpu": str(used)}, flavor="default"), b.NOW)
    state.ledger.settle()
    root, pair = state.ledger.cohorts["all"], state.surroundings.catalog.pair("default", "cpu")
    (lending,) = lendings(root, pair).values()
    assert names(lending.lenders) == {"all": 2, "other": 1}


def test_over_time_each_lends_its_part() -> None:
    """A third of a cpu for an hour is a cpu for twenty minutes; always the same lender would be unjust."""
    root, pair = cohort(("borrower", 0, 1), ("one", 1, 0), ("other", 2, 0))
    assert {node.name: amount for node, amount in lent(root, pair).items()} == {
        "one": pytest.approx(1000 / 3),
        "other": pytest.approx(2000 / 3),
    }
