"""The room that victims leave is kept for whoever had them preempted, though he could not be let in just then."""

from tests.unit.engine import builders as b
from turnstile.engine import State, cycle

WITHIN = {"withinClusterQueue": "LowerPriority"}


def outcomes(state: State) -> dict[str, tuple[str, list[tuple[str, bool]]]]:
    """By name what the next cycle decides, and whom it wants gone."""
    return {
        each.key.removeprefix("team/"): (
            each.outcome,
            [(victim.key.removeprefix("team/"), victim.new) for victim in each.victims],
        )
        for each in cycle(state, b.NOW)
    }


def put(state: State, name: str, queue: str, cpu: int, *, priority: int = 0, second: int = 0) -> None:
    """A Workload comes."""
    state.put_workload(b.workload(name, queue, cpu=cpu, priority=priority, second=second), b.NOW)


def leave(state: State, name: str, queue: str, cpu: int) -> None:
    """An evicted Workload gave its quota back."""
    state.put_workload(b.released(b.held(name, queue, {"cpu": str(cpu)})), b.NOW)


def evict(state: State, name: str, queue: str, cpu: int) -> None:
    """The eviction was written."""
    state.put_workload(b.held(name, queue, {"cpu": str(cpu)}, evicted=True), b.NOW)


def test_from_others_when_an_earlier_one_takes_what_came_free_meanwhile() -> None:
    """It would fit beside its last victim; somebody with a right to his own quota comes before, and one who has none
    after."""
    state = b.world(
        b.queue("own", {"default": {"cpu": 4}}, "all", preemption=WITHIN),
        b.queue("other", {"default": {"cpu": 2}}, "all"),
        b.queue("poor", {"default": {"cpu": 0}}, "all"),
    )
    state.put_cohort(b.cohort("all"))
    for name, queue in (("first", "own"), ("second", "own"), ("third", "other")):
        state.put_workload(b.held(name, queue, {"cpu": "2"}), b.NOW)
    put(state, "big", "own", 4, priority=10, second=1)
    assert outcomes(state)["big"] == ("preempting", [("first", True), ("second", True)])
    evict(state, "first", "own", 2)
    evict(state, "second", "own", 2)
    leave(state, "first", "own", 2)
    state.drop_workload("team/third")
    put(state, "rightful", "other", 2, second=2)
    put(state, "greedy", "poor", 2, second=3)
    decided = outcomes(state)
    assert decided["rightful"] == ("admit", [])
    assert decided["big"] == ("preempting", [("second", False)])
    assert decided["greedy"] == ("skipped", [])
    leave(state, "second", "own", 2)
    assert outcomes(state)["big"] == ("admit", [])


def test_when_others_took_what_made_it_worth_while_to_search() -> None:
    """With what they hold a search would not be begun; but it has been, and its victim is on its way out."""
    state = b.world(
        b.queue("a", {"default": {"cpu": (4, 3, None)}}, "left", preemption={**WITHIN, "reclaimWithinCohort": "Any"}),
        b.queue("b", {"default": {"cpu": (2, None, 2)}}, "left"),
        b.queue("c", {"default": {"cpu": (4, 4, 3)}}, "top"),
        b.queue("d", {"default": {"cpu": 2}}, "right"),
    )
    state.put_cohort(b.cohort("top", {"default": {"cpu": 2}}))
    state.put_cohort(b.cohort("left", {"default": {"cpu": (2, 1, 1)}}, "top"))
    state.put_cohort(b.cohort("right", parent="top"))
    state.put_workload(b.held("victim", "a", {"cpu": "2"}), b.NOW)
    state.put_workload(b.held("beside", "d", {"cpu": "2"}), b.NOW)
    put(state, "big", "a", 6, priority=20, second=1)
    put(state, "one", "b", 1, second=2)
    put(state, "two", "c", 2, second=3)
    assert outcomes(state) == {
        "one": ("admit", []),
        "two": ("admit", []),
        "big": ("preempting", [("victim", True)]),
    }
    evict(state, "victim", "a", 2)
    put(state, "late", "a", 3, priority=20, second=4)
    assert outcomes(state) == {"big": ("preempting", [("victim", False)]), "late": ("pending", [])}
    leave(state, "victim", "a", 2)
    assert outcomes(state)["big"] == ("admit", [])


def test_from_its_own_victims_though_others_leave_more_than_is_asked_for() -> None:
    """`large` leaves three cpus too many, so in the end there is room for all; but `two` counts on what is free now and
    on its own victims, and would have the first of them preempted again."""
    reclaim = {"reclaimWithinCohort": "LowerPriority"}
    state = b.world(
        b.queue("a", {"default": {"cpu": 3}}, "org", preemption=reclaim),
        b.queue("c", {"default": {"cpu": 2}}, "org", preemption=reclaim),
        b.queue("d", {"default": {"cpu": 3}}, "org"),
    )
    for name, cpu, priority in (("large", 6, 5), ("first", 1, 0), ("second", 1, 0)):
        state.put_workload(b.held(name, "d", {"cpu": str(cpu)}, priority=priority), b.NOW)
    put(state, "three", "a", 3, priority=10, second=1)
    put(state, "two", "c", 2, priority=3, second=2)
    assert outcomes(state) == {
        "three": ("preempting", [("large", True)]),
        "two": ("preempting", [("first", True), ("second", True)]),
    }
    for name, cpu, priority in (("large", 6, 5), ("first", 1, 0), ("second", 1, 0)):
        state.put_workload(b.held(name, "d", {"cpu": str(cpu)}, priority=priority, evicted=True), b.NOW)
    leave(state, "first", "d", 1)
    assert outcomes(state) == {
        "three": ("preempting", [("large", False)]),
        "two": ("preempting", [("second", False)]),
        "first": ("skipped", []),
    }
    leave(state, "large", "d", 6)
    assert outcomes(state)["first"] == ("admit", [])


def test_nobody_is_preempted_for_one_that_fits_only_by_the_victims_of_another() -> None:
    """`quick` takes of what `three` counts on; what `large` leaves makes up for that, and for `small` too."""
    reclaim = {"reclaimWithinCohort": "LowerPriority"}
    state = b.world(
        b.queue("a", {"default": {"cpu": 4}}, "org", preemption=reclaim),
        b.queue("c", {"default": {"cpu": 3}}, "org", preemption=reclaim),
        b.queue("d", {"default": {"cpu": 1}}, "org"),
        b.queue("e", {"default": {"cpu": 1}}, "org"),
    )
    for name, cpu, priority in (("large", 6, 5), ("small", 1, 0)):
        state.put_workload(b.held(name, "d", {"cpu": str(cpu)}, priority=priority), b.NOW)
    put(state, "four", "a", 4, priority=10, second=1)
    put(state, "three", "c", 3, priority=3, second=2)
    put(state, "quick", "e", 1, priority=20, second=3)
    decided = outcomes(state)
    assert decided == {"quick": ("admit", []), "four": ("preempting", [("large", True)]), "three": ("skipped", [])}
    state.put_workload(b.held("large", "d", {"cpu": "6"}, priority=5, evicted=True), b.NOW)
    assert not [name for _, victims in outcomes(state).values() for name, new in victims if new]
    leave(state, "large", "d", 6)
    decided = outcomes(state)
    assert (decided["four"], decided["three"]) == (("admit", []), ("admit", []))


def test_from_a_head_that_no_preemption_helps() -> None:
    """`waits` keeps free quota for itself, as it may not reclaim it. It comes first in the order, but it takes nothing:
    `big` goes on waiting for its victim, whose quota no other gets."""
    reclaim = {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}
    state = b.world(
        b.queue("a", {"default": {"cpu": 2}}, "org", preemption=reclaim),
        b.queue("b", {"default": {"cpu": 4}}, "org"),
        b.queue("c", {"default": {"cpu": 0}}, "org"),
        b.queue("d", {"default": {"cpu": 0}}, "org", preemption=reclaim),
    )
    state.put_workload(b.held("beside", "c", {"cpu": "3"}, priority=20), b.NOW)
    state.put_workload(b.held("victim", "c", {"cpu": "3"}), b.NOW)
    put(state, "big", "a", 2, second=1)
    assert outcomes(state)["big"] == ("preempting", [("victim", True)])
    state.put_workload(b.held("victim", "c", {"cpu": "3"}, evicted=True), b.NOW)
    put(state, "waits", "b", 4, priority=10, second=2)
    put(state, "other", "d", 2, priority=10, second=3)
    decided = outcomes(state)
    assert decided["waits"] == ("pending", [])
    assert decided["big"] == ("preempting", [("victim", False)])
    assert decided["other"][1] == []
    leave(state, "victim", "c", 3)
    assert outcomes(state)["big"] == ("admit", [])
