"""Who lends to whom: what is borrowed is lent by some member, and no member lends more than it has unused."""

from collections.abc import Iterator

from app.engine import Options, State
from app.engine.quota.amounts import FlavorResource
from app.engine.quota.tree import Node
from app.insight.lending import borrowed, lendings, unused
from tests.unit.engine import builders as b
from tests.unit.insight.pending_worlds import world


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
