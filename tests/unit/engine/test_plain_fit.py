"""A pod set that fits into the first flavor gets it without a search, and it is the one that a search would find."""

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from turnstile.engine import State
from turnstile.engine.flavors.assigner import Assigner
from turnstile.engine.flavors.assignment import Assignment
from turnstile.engine.flavors.setup import Setup
from turnstile.engine.pace import Sliced, finish
from turnstile.engine.quota.info import Info
from turnstile.engine.reasons import Possibility

amounts = st.integers(0, 3)
limits = st.none() | st.integers(0, 6)
quotas = st.tuples(st.sampled_from([12, 24, 24, 0, 3, 6, 9]), limits, limits)
flavors = st.lists(st.sampled_from(["x", "x", "y", "tainted", "missing"]), min_size=1, max_size=3, unique=True)
of_one_group = st.dictionaries(st.sampled_from(["cpu", "memory"]), amounts, min_size=1)
of_any = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu", "tape"]), amounts)
requests = st.integers(0, 3).flatmap(lambda lot: of_one_group if lot else of_any)
pod_sets = st.lists(st.tuples(requests, st.integers(0, 3)), min_size=1, max_size=3)


def no_candidates(*_: Any) -> Sliced[tuple[Possibility, int]]:
    """There are no Workloads to preempt."""
    yield from ()
    return Possibility.NO_CANDIDATES, 0


@st.composite
def states(draw: st.DrawFn) -> State:
    """Two queues of one cohort, or of none, with two resource groups, and somebody in each."""
    state = b.world(flavors=("x", "y"))
    state.put_flavor(b.flavor("tainted", nodeTaints=[{"key": "spot", "value": "1", "effect": "NoSchedule"}]))
    cohort = draw(st.sampled_from([None, "org"]))
    for name in ("ours", "theirs"):
        first = {flavor: {"cpu": draw(quotas), "memory": draw(quotas)} for flavor in draw(flavors)}
        groups = b.groups(first, {"z": {"gpu": draw(quotas)}})
        if draw(st.integers(0, 4)) == 0:
            groups += b.quotas({"pods": {"pods": draw(quotas)}})
        state.put_cluster_queue(b.queue(name, cohort=cohort, resourceGroups=groups), b.NOW)
        held = {"cpu": str(draw(amounts)), "memory": str(draw(amounts))}
        state.put_workload(b.held(f"in-{name}", name, held, flavor=next(iter(first))), b.NOW)
    for name in ("z", "pods"):
        state.put_flavor(b.flavor(name))
    state.ledger.settle()
    return state


def picture(found: Assignment) -> Any:
    """All that others see of an assignment."""
    sets = [
        (
            item.name,
            item.count,
            item.requests,
            [(name, one.flavor, one.mode, one.borrow, one.tried_index) for name, one in item.flavors.items()],
            list(item.flavor_names.items()),
            list(item.reasons),
            item.error,
            list(item.undeclared),
            item.mode,
            [(each.flavor, each.mode, each.borrow, each.possibility) for each in item.merged_attempts()],
        )
        for item in found.pod_sets
    ]
    usage = [(str(pair), amount) for pair, amount in found.usage.quota.items()]
    return sets, usage, found.borrowing, found.mode, found.last.tried, found.resumed, found.message


@settings(max_examples=examples(60))
@given(state=states(), sets=pod_sets, fungible=st.booleans(), undeclared=st.booleans(), fewer=st.booleans())
def test_what_is_found_without_a_search(
    state: State, sets: list[tuple[dict[str, int], int]], fungible: bool, undeclared: bool, fewer: bool
) -> None:
    """Flavors, usage, reasons and progress of the scan are the same, for all pods and for fewer."""
    specs = [
        {
            "name": f"set-{index}",
            "count": count,
            "template": {
                "spec": {
                    "containers": [
                        {"name": "c", "resources": {"requests": {name: str(value) for name, value in asked.items()}}}
                    ]
                }
            },
        }
        for index, (asked, count) in enumerate(sets)
    ]
    info = Info(b.changed(b.workload("w"), spec={"podSets": specs}), state.surroundings)
    counts = [max(0, count - 1) for _, count in sets] if fewer else None

    def told(replaced: Info | None) -> Any:
        setup = Setup(
            flavors=state.activity.flavors,
            pair=state.surroundings.catalog.pair,
            oracle=no_candidates,
            fungible=fungible,
            ignore_undeclared=undeclared,
        )
        queue = state.cluster_queues["ours"]
        return picture(finish(Assigner(setup).assign(queue, info, counts=counts, replaced=replaced)))

    nothing = Info(b.changed(b.workload("before"), spec={"podSets": []}), state.surroundings)
    expected = told(nothing)  # what takes over quota is always searched for
    event(f"{expected[3].name}, borrowing {expected[2]}")
    assert told(None) == expected
