"""For a preemptor that needs a rack those are preempted whose going frees it: fewer than in Kueue's order, or less
important ones, and never more."""

from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.engine import builders as b
from tests.unit.engine.test_topology_cycles import RACK, free, put, running, workload, world
from turnstile.api.workload import Workload
from turnstile.engine import Options, State
from turnstile.engine.options import FairSharing
from turnstile.engine.preemption.domains import OneDomain
from turnstile.engine.preemption.targets import Target

ANY = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def victims(state: State, name: str = "head") -> set[str]:
    """Names of the victims of a Workload in the next cycle."""
    return {victim.key.partition("/")[2] for victim in b.decide(state, name).victims}


def racks(*, quota: int, **more: Any) -> State:
    """Three racks of a node with 4 CPUs each."""
    queues = b.queue("main", {"gpu": {"cpu": quota}}, preemption=ANY), *more.pop("queues", ())
    return world(*queues, racks={"r1": [4], "r2": [4], "r3": [4]}, **more)


def head(count: int = 4, **request: Any) -> Workload:
    """A Workload of a higher priority than all others, for one rack."""
    return workload("head", count, priority=5, second=60, **(request or {"required": RACK}))


def two_racks(state: State, *, third: dict[str, int], priority: int = 0) -> None:
    """In Kueue's order victims in two racks free quota for four pods, and the second rack. So do those in the third
    rack: by name, with so many pods."""
    put(state, running("kept", {"r1-0": 2}, priority=9), running("first", {"r1-0": 2}, second=50))
    put(state, running("second", {"r2-0": 2}, second=40))
    for number, (name, pods) in enumerate(third.items()):
        put(state, running(name, {"r3-0": pods}, second=number, priority=priority))
    put(state, head())


@pytest.mark.parametrize(
    ("third", "priority", "expected"),
    [
        pytest.param({"all": 4}, 0, {"all"}, id="fewer Workloads"),
        pytest.param({"all": 4}, 1, {"first", "second"}, id="fewer, of higher priority"),
        pytest.param({"half": 2, "other": 2}, 0, {"first", "second"}, id="the same"),
        pytest.param({"half": 2, "other": 2}, -1, {"half", "other"}, id="lower priority, which Kueue takes first too"),
        pytest.param({"half": 2, "one": 1, "other": 1}, 0, {"first", "second"}, id="more Workloads"),
    ],
)
def test_victims_in_one_rack_make_way_instead_of_some_in_two(
    third: dict[str, int], priority: int, expected: set[str]
) -> None:
    """If they are fewer, and of no higher priority."""
    state = racks(quota=10)
    two_racks(state, third=third, priority=priority)
    assert victims(state) == expected
    assert free(state)["r3-0"] == 0


def test_what_they_hold_is_no_more() -> None:
    """Two in two racks hold more than two in one rack do: these are preempted, and not the other way round."""
    state = world(b.queue("main", {"gpu": {"cpu": 11}}, preemption=ANY), racks={"r1": [3, 1], "r2": [4], "r3": [4]})
    put(state, running("kept", {"r1-1": 1}, priority=9), running("first", {"r1-0": 3}, second=50))
    put(state, running("second", {"r2-0": 3}, second=40))
    put(state, running("half", {"r3-0": 2}, second=1), running("other", {"r3-0": 2}, second=2), head())
    assert victims(state) == {"half", "other"}


def test_large_workloads_are_not_preempted_for_more_that_are_small() -> None:
    """They are fewer, and hold more."""
    state = world(b.queue("main", {"gpu": {"cpu": 12}}, preemption=ANY), racks={"r1": [2, 2], "r2": [4], "r3": [4, 2]})
    put(state, running("kept", {"r1-1": 2}, priority=9), running("first", {"r1-0": 2}, second=50))
    put(state, running("second", {"r2-0": 1}, second=40), running("third", {"r2-0": 1}, second=30))
    put(state, running("large", {"r3-0": 3}), running("larger", {"r3-0": 1, "r3-1": 2}), head())
    assert victims(state) == {"first", "second", "third"}


def test_each_priority_counts() -> None:
    """Not only the highest: of two victims in two racks one is less important than both in the third rack."""
    state = racks(quota=10)
    two_racks(state, third={"half": 2, "other": 2}, priority=1)
    put(state, running("first", {"r1-0": 2}, priority=1, second=50))
    assert victims(state) == {"first", "second"}


def test_of_victims_in_one_rack_those_that_were_admitted_last_make_way() -> None:
    """Though as many in another rack hold less."""
    state = racks(quota=100)
    put(state, running("kept", {"r3-0": 4}, priority=9))
    put(state, running("first", {"r1-0": 2}, second=50), running("second", {"r1-0": 2}, second=40))
    put(state, running("half", {"r2-0": 2}), running("quarter", {"r2-0": 1}), head())
    assert victims(state) == {"first", "second"}


def test_one_of_a_rack_makes_way_for_several_of_another() -> None:
    """Though those are in one rack too, and were admitted later."""
    state = racks(quota=100)
    put(state, running("kept", {"r3-0": 4}, priority=9), running("whole", {"r2-0": 4}))
    put(state, *(running(f"quarter-{number}", {"r1-0": 1}, second=10 + number) for number in range(4)), head())
    assert victims(state) == {"whole"}


def test_a_single_victim_is_the_one_that_was_admitted_last() -> None:
    """For quota, for a rack is free. Another one holds less, but has run for longer."""
    state = world(b.queue("main", {"gpu": {"cpu": 7}}, preemption=ANY), racks={"r1": [4], "r2": [3], "r3": [4]})
    put(state, running("last", {"r2-0": 3}, second=30), running("smaller", {"r3-0": 2}), head())
    assert victims(state) == {"last"}


def test_who_was_preempted_before_is_not_again() -> None:
    """In the place of two that were not."""
    state = racks(quota=10)
    two_racks(state, third={"all": 4})
    again = running("all", {"r3-0": 4})
    stats = {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 1}]}
    state.put_workload(b.changed(again, status={**msgspec.to_builtins(again.status), "schedulingStats": stats}), b.NOW)
    assert victims(state) == {"first", "second"}


def test_who_leaves_anyway_is_no_loss() -> None:
    """Of two victims in two racks one is on its way out already: nobody else is preempted instead."""
    state = racks(quota=10)
    two_racks(state, third={"all": 4})
    put(state, running("first", {"r1-0": 2}, second=50, evicted=True))
    assert victims(state) == {"first", "second"}


def test_nobody_is_preempted_where_no_choice_frees_a_rack() -> None:
    """Though quota could be freed."""
    state = racks(quota=9)
    for rack in ("r1", "r2", "r3"):
        put(state, running(f"kept-{rack}", {f"{rack}-0": 1}, priority=9))
        put(state, running(f"low-{rack}", {f"{rack}-0": 2}))
    put(state, head())
    decision = b.decide(state, "head")
    assert not decision.victims
    assert decision.outcome == "pending"


def test_where_the_order_of_kueue_finds_nobody_nobody_is_preempted() -> None:
    """A lender gets back what was borrowed and no more: after the first victim the borrower is within its own quota.
    Another victim would have freed a rack."""
    borrower = b.queue("other", {"gpu": {"cpu": 4}}, "all")
    policy = {"reclaimWithinCohort": "Any"}
    state = world(
        b.queue("main", {"gpu": {"cpu": 8}}, "all", preemption=policy), borrower, racks={"r1": [4], "r2": [4]}
    )
    put(state, running("useless", {"r1-0": 2}, queue="other", second=50))
    put(state, running("kept", {"r1-0": 2}), running("useful", {"r2-0": 4}, queue="other"), head())
    assert victims(state) == set()


@pytest.mark.parametrize("fair", [False, True], ids=["classical", "fair sharing"])
def test_the_own_queue_gives_only_what_it_does_in_the_order_of_kueue(fair: bool) -> None:
    """Quota is taken back from borrowers first: here from two, in two racks."""
    queues = [b.queue("other", {"gpu": {"cpu": 0}}, "all")]
    own = b.queue("main", {"gpu": {"cpu": 10}}, "all", preemption=ANY)
    options = Options(fair_sharing=FairSharing()) if fair else None
    state = world(own, *queues, racks={"r1": [4], "r2": [4], "r3": [4]}, options=options)
    put(state, running("kept", {"r1-0": 2}, priority=9), running("own", {"r3-0": 4}))
    put(state, running("first", {"r1-0": 2}, queue="other", second=50))
    put(state, running("second", {"r2-0": 2}, queue="other", second=40), head())
    assert victims(state) == {"first", "second"}


@pytest.mark.parametrize(("fair", "expected"), [(False, {"all"}), (True, {"first", "second"})])
def test_under_fair_sharing_the_same_queues_give(fair: bool, expected: set[str]) -> None:
    """The largest share is cut, though one of another ClusterQueue would do. Without fair sharing that one is taken."""
    queues = [b.queue(name, {"gpu": {"cpu": 0}}, "all", preemption=ANY) for name in ("large", "small")]
    own = b.queue("main", {"gpu": {"cpu": 14}}, "all", preemption=ANY)
    options = Options(fair_sharing=FairSharing()) if fair else None
    state = world(own, *queues, racks={"r1": [4], "r2": [4], "r3": [4], "r4": [4]}, options=options)
    put(state, running("kept", {"r1-0": 2}, queue="large", priority=9))
    put(state, running("more", {"r4-0": 4}, queue="large", priority=9))
    put(state, running("first", {"r1-0": 2}, queue="large", second=50))
    put(state, running("second", {"r2-0": 2}, queue="large", second=40))
    put(state, running("all", {"r3-0": 4}, queue="small"), head())
    assert victims(state) == expected


def test_under_fair_sharing_a_rack_of_the_same_queue_is_freed() -> None:
    """By one victim instead of two."""
    queues = [b.queue("other", {"gpu": {"cpu": 0}}, "all", preemption=ANY)]
    own = b.queue("main", {"gpu": {"cpu": 10}}, "all", preemption=ANY)
    state = world(own, *queues, racks={"r1": [4], "r2": [4], "r3": [4]}, options=Options(fair_sharing=FairSharing()))
    put(state, running("kept", {"r1-0": 2}, queue="other", priority=9))
    put(state, running("first", {"r1-0": 2}, queue="other", second=50))
    put(state, running("second", {"r2-0": 2}, queue="other", second=40))
    put(state, running("all", {"r3-0": 4}, queue="other"), head())
    assert victims(state) == {"all"}


# Drawn states


class Runs(NamedTuple):
    """A Workload that runs: how many pods it wants on each host, at most as many as are free."""

    wants: tuple[int, ...]
    queue: str
    priority: int
    second: int
    evicted: bool


class Drawn(NamedTuple):
    """Racks of one host or two, what runs there, and a Workload that waits."""

    hosts: tuple[tuple[int, ...], ...]
    runs: tuple[Runs, ...]
    quota: int
    lent: int
    policy: str
    fair: bool
    pods: int
    level: str


SPREAD = Drawn(
    ((4,), (4,), (4,)),
    (
        Runs((2,), "main", 2, 0, False),
        Runs((2,), "main", 0, 50, False),
        Runs((0, 2), "main", 0, 40, False),
        Runs((0, 0, 4), "main", 0, 0, False),
    ),
    10,
    0,
    "Any",
    False,
    4,
    "required",
)


def drawn_state(drawn: Drawn) -> State:
    """The state, in which the head waits."""
    policy: dict[str, Any] = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": drawn.policy}
    if not drawn.fair:
        policy["borrowWithinCohort"] = {"policy": "LowerPriority"}
    queues = [
        b.queue(name, {"gpu": {"cpu": quota}}, "all", preemption=policy)
        for name, quota in (("main", drawn.quota), ("other", drawn.lent))
    ]
    options = Options(fair_sharing=FairSharing()) if drawn.fair else None
    named = {f"r{number}": list(hosts) for number, hosts in enumerate(drawn.hosts)}
    state = world(*queues, racks=named, options=options)
    left = {f"{rack}-{number}": cpus for rack, hosts in named.items() for number, cpus in enumerate(hosts)}
    for number, each in enumerate(drawn.runs):
        at = {host: min(wants, left[host]) for host, wants in zip(left, each.wants, strict=False)}
        at = {host: pods for host, pods in at.items() if pods}
        for host, pods in at.items():
            left[host] -= pods
        if at:
            put(
                state,
                running(
                    f"w{number}",
                    at,
                    queue=each.queue,
                    priority=each.priority,
                    second=each.second,
                    evicted=each.evicted,
                ),
            )
    put(state, head(drawn.pods, **{drawn.level: RACK}))
    return state


def as_in_kueue(self: OneDomain, targets: list[Target]) -> Iterator[None]:
    """The victims in Kueue's order."""
    return targets
    yield


def lost(state: State, names: set[str]) -> tuple[list[int], int]:
    """Priorities of Workloads, the highest first, and the CPUs that they hold together."""
    held = [info for name in names if (info := state.ledger.holder(f"team/{name}")) is not None]
    cpus = sum(totals.requests["cpu"] for info in held for totals in info.totals)
    return sorted((info.priority for info in held), reverse=True), cpus


runs = st.builds(
    Runs,
    wants=st.lists(st.sampled_from([0, 0, 1, 2, 4]), min_size=1, max_size=6).map(tuple),
    queue=st.sampled_from(["main", "other"]),
    priority=st.integers(0, 2),
    second=st.integers(0, 50),
    evicted=st.sampled_from([False] * 9 + [True]),
)


@settings(max_examples=150)
@example(SPREAD)
@given(
    st.builds(
        Drawn,
        hosts=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=2).map(tuple), min_size=2, max_size=4).map(
            tuple
        ),
        runs=st.lists(runs, min_size=2, max_size=9).map(tuple),
        quota=st.integers(0, 16),
        lent=st.integers(0, 8),
        policy=st.sampled_from(["Any", "LowerPriority"]),
        fair=st.booleans(),
        pods=st.integers(1, 6),
        level=st.sampled_from(["required", "required", "preferred"]),
    )
)
def test_nobody_loses_more_than_in_the_order_of_kueue(drawn: Drawn) -> None:
    """Neither more Workloads, nor one of higher priority, nor more of a resource; and a rack is free once they have
    gone."""
    with patch.object(OneDomain, "instead_of", as_in_kueue):
        kueue = victims(drawn_state(drawn))
    state = drawn_state(drawn)
    found = victims(state)
    assert bool(found) == bool(kueue)
    (priorities, cpus), (most, most_cpus) = lost(state, found), lost(state, kueue)
    assert all(mine <= theirs for mine, theirs in zip_longest(priorities, most, fillvalue=-1) if mine >= 0)
    assert len(priorities) <= len(most)
    assert cpus <= most_cpus
    if found and drawn.level == "required":
        by_rack: Counter[str] = Counter({host.partition("-")[0]: 0 for host in free(state)})
        for host, cpu in free(state).items():
            by_rack[host.partition("-")[0]] += cpu // 1000
        for name in found:
            info = state.ledger.holder(f"team/{name}")
            assert info is not None
            assert info.usage.places is not None
            for leaf in state.surroundings.nodes.trees["gpu"].leaves:
                by_rack[leaf.values[0]] += ((info.usage.places.amounts(leaf.capacity) or {}).get("cpu", 0)) // 1000
        assert max(by_rack.values()) >= drawn.pods
    if drawn is SPREAD:
        assert (found, kueue) == ({"w3"}, {"w1", "w2"})
