"""Victims stop in their own time. Whoever had them preempted gets their room, in whatever order they go."""

import random
from itertools import permutations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from tests.unit.engine import told
from turnstile.api.workload import Workload
from turnstile.engine import Options, State, cycle
from turnstile.engine.options import FairSharing

LOWER = {
    "withinClusterQueue": "LowerPriority",
    "reclaimWithinCohort": "LowerPriority",
    "borrowWithinCohort": {"policy": "LowerPriority"},
}


class Play:
    """Workloads that arrive one after the other, are let in, evicted, and give their quota back when they are told."""

    def __init__(self, *, fair: bool = False) -> None:
        self.state = State(Options(fair_sharing=FairSharing() if fair else None))
        self.state.put_namespace("team", {})
        self.state.put_flavor(b.flavor())
        self.workloads: dict[str, Workload] = {}
        self.going: list[str] = []
        self.evictions: list[tuple[str, str]] = []
        """Victim and preemptor."""
        self.now = b.NOW

    def queue(self, name: str, cpu: object, cohort: str, preemption: b.Json) -> None:
        """A ClusterQueue with a LocalQueue of its name."""
        self.state.put_cluster_queue(b.queue(name, {"default": {"cpu": cpu}}, cohort, preemption=preemption), self.now)
        self.state.put_local_queue(b.local(name, name), self.now)

    def arrive(self, name: str, queue: str, cpu: int, *, priority: int = 0) -> None:
        """A Workload, a second after the one before."""
        made = b.workload(name, queue, cpu=cpu, priority=priority, second=len(self.workloads))
        self.enter(name, made)

    def enter(self, name: str, workload: Workload) -> None:
        """The watch shows a Workload, and cycles follow until there is nothing to decide."""
        self.workloads[name] = workload
        self.state.put_workload(workload, self.now)
        self.run()

    def run(self) -> None:
        """Cycles until there is nothing to decide."""
        while self.state.has_work:
            self.cycle()

    def cycle(self) -> None:
        """One cycle; admissions and evictions are written at once."""
        self.now += 1
        for decision in cycle(self.state, self.now):
            name = decision.key.removeprefix("team/")
            if decision.outcome == "admit":
                made = b.reserved(self.workloads[name], self.state)
                self.workloads[name] = b.with_conditions(made, Evicted=("False", "QuotaReserved"))
                self.state.put_workload(self.workloads[name], self.now)
            for victim in decision.victims:
                if victim.new:
                    evicted = victim.key.removeprefix("team/")
                    self.going.append(evicted)
                    self.evictions.append((evicted, name))
                    before = self.workloads[evicted]
                    self.workloads[evicted] = b.with_conditions(before, Evicted=("True", "Preempted"))
                    self.state.put_workload(self.workloads[evicted], self.now)

    def gone(self, name: str) -> None:
        """Its pods are gone: it gives its quota back and is in line again."""
        self.going.remove(name)
        body = msgspec.to_builtins(
            b.with_conditions(
                self.workloads[name],
                drop=("Admitted",),
                QuotaReserved=("False", "PendingEvaluation"),
                Requeued=("True", "Preempted"),
            )
        )
        del body["status"]["admission"]
        self.enter(name, msgspec.convert(body, Workload))

    def holding(self) -> set[str]:
        """Who has quota and need not go."""
        held = {name for name in self.workloads if self.state.ledger.holder(f"team/{name}") is not None}
        return held.difference(self.going)


def test_a_victim_that_borrows_less_is_not_let_in_before_its_preemptor() -> None:
    """It fits into the smaller cohort and the preemptor only into the whole tree; still the room is the preemptor's."""
    play = Play()
    play.state.put_cohort(b.cohort("left", parent="org"))
    play.queue("urgent", 3, "left", LOWER)
    play.queue("other", 3, "left", {})
    play.queue("lender", 2, "org", {})
    play.arrive("victim", "other", 4)
    play.arrive("big", "urgent", 7, priority=20)
    assert play.evictions == [("victim", "big")]
    play.gone("victim")
    assert play.holding() == {"big"}


def test_nobody_else_borrows_the_room_that_victims_leave() -> None:
    """The head of a sibling makes the preemptor's side look greedy, and another queue's turn comes: it has to wait."""
    play = Play(fair=True)
    policy = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
    play.state.put_cohort(b.cohort("org", {"default": {"cpu": 3}}))
    play.state.put_cohort(b.cohort("left", {"default": {"cpu": (1, 4, 4)}}, parent="org"))
    play.state.put_cohort(b.cohort("right", parent="org"))
    play.queue("a", (3, 3, None), "left", {**policy, "reclaimWithinCohort": "Any"})
    play.queue("b", (3, None, 2), "left", policy)
    play.queue("c", (2, 4, 2), "org", {"reclaimWithinCohort": "Any"})
    play.queue("d", 5, "right", {})
    for name, cpu in (("a", 1), ("b", 4), ("d", 5), ("c", 2)):
        play.arrive(f"in-{name}", name, cpu, priority=20)
    play.arrive("victim", "c", 4)
    play.arrive("greedy", "a", 6, priority=10)
    play.arrive("next", "c", 3, priority=5)
    play.arrive("big", "b", 4, priority=10)
    assert play.evictions == [("victim", "big")]
    play.gone("victim")
    assert "big" in play.holding()
    assert "next" not in play.holding()


@pytest.mark.parametrize("order", list(permutations(["first", "second"])))
def test_victims_stay_victims_when_others_have_gone_before(order: tuple[str, ...]) -> None:
    """With one of two gone, the queue of the other is within its quota: it is on its way out all the same."""
    play = Play()
    play.state.put_cohort(b.cohort("org", {"default": {"cpu": 2}}))
    play.state.put_cohort(b.cohort("left", {"default": {"cpu": 1}}, parent="org"))
    for name, cpu, cohort in (("a", 4, "left"), ("b", 3, "left"), ("c", 3, "org"), ("d", 6, "org")):
        play.queue(name, cpu, cohort, LOWER)
    for name, queue, cpu in (("in-d", "d", 6), ("in-c", "c", 2), ("in-a", "a", 3), ("in-b", "b", 2)):
        play.arrive(name, queue, cpu, priority=20)
    play.arrive("first", "a", 2)
    play.arrive("second", "b", 4, priority=10)
    play.arrive("big", "d", 6, priority=20)
    assert sorted(play.evictions) == [("first", "big"), ("second", "big")]
    for name in order:
        play.gone(name)
    assert "big" in play.holding()
    assert len(set(play.evictions)) == len(play.evictions)


@pytest.mark.parametrize("more", [0, 1])
def test_a_victim_is_not_let_in_again_while_its_preemptor_tries_other_flavors(more: int) -> None:
    """It takes the preemptor two cycles to come to its flavors, as its second pod set needs all of the first one; when
    the victim is gone it goes straight to them, whichever of the two comes next."""
    play = Play()
    for name in told.FLAVORS:
        play.state.put_flavor(b.flavor(name))
    quotas = {"wide": told.groups(8, 1, 3), "lent": told.groups(0, 3, 0)}
    for name, groups in quotas.items():
        preemption = {"reclaimWithinCohort": "Any"}
        play.state.put_cluster_queue(told.cluster_queue(name, groups, "org", preemption=preemption), play.now)
        play.state.put_local_queue(b.local(name, name), play.now)
    play.enter("victim", told.workload("victim", "lent", pod_sets=[(3, 3, 1, None)], second=0))
    play.enter("big", told.workload("big", "wide", pod_sets=[(1, 1, 1, None), (8, 2, 1, None)], second=1))
    assert play.evictions == [("victim", "big")]
    for _ in range(more):
        play.cycle()
    play.gone("victim")
    assert play.holding() == {"big"}


@pytest.mark.parametrize("goes", ["comes back", "is deleted"])
def test_others_make_way_for_a_part_and_not_for_the_whole(goes: str) -> None:
    """Only so much is its own. What is left when they are gone it would borrow, and they would preempt it again; if
    they want it no more it may have it."""
    play = Play()
    for name in told.FLAVORS:
        play.state.put_flavor(b.flavor(name))
    for name, gpu, policy in (
        ("own", 1, {"reclaimWithinCohort": "Any"}),
        ("big", 3, {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}),
        ("lender", 2, {}),
    ):
        made = told.cluster_queue(name, told.groups(gpu, 0, 0), "org", preemption=policy)
        play.state.put_cluster_queue(made, play.now)
        play.state.put_local_queue(b.local(name, name), play.now)
    play.enter("victim", told.workload("victim", "big", pod_sets=[(6, 0, 1, None)], priority=5, second=0))
    play.enter("part", told.workload("part", "own", pod_sets=[(1, 0, 3, 1)], second=1))
    assert play.evictions == [("victim", "part")]
    if goes == "comes back":
        play.gone("victim")
    else:
        play.going.remove("victim")
        del play.workloads["victim"]
        play.state.drop_workload("team/victim")
        play.run()
    assert play.evictions == [("victim", "part")]
    assert play.holding() == {"part"}
    holder = play.state.ledger.holder("team/part")
    assert holder is not None
    assert holder.totals[0].count == (1 if goes == "comes back" else 3)


def test_the_preemptor_takes_what_is_left_for_it_rather_than_borrow_elsewhere() -> None:
    """The flavor it would borrow in has room again when its victim is gone. Kueue takes that, the victim takes its old
    place, and both may have to go again."""
    play = Play()
    for name in told.FLAVORS:
        play.state.put_flavor(b.flavor(name))
    fungibility = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
    for name, groups in (("own", (0, 1, 0)), ("other", (0, 0, 0)), ("lender", (2, 0, 0))):
        preemption = {"reclaimWithinCohort": "Any"}
        made = told.cluster_queue(
            name, told.groups(*groups), "org", preemption=preemption, flavorFungibility=fungibility
        )
        play.state.put_cluster_queue(made, play.now)
        play.state.put_local_queue(b.local(name, name), play.now)
    play.enter("lent", told.workload("lent", "lender", pod_sets=[(2, 0, 1, None)], second=0))
    play.enter("victim", told.workload("victim", "other", pod_sets=[(1, 0, 1, None)], second=1))
    play.enter("owner", told.workload("owner", "own", pod_sets=[(1, 0, 1, None)], second=2))
    assert play.evictions == [("victim", "owner")]
    play.state.drop_workload("team/lent")
    del play.workloads["lent"]
    play.gone("victim")
    assert play.holding() == {"owner", "victim"}
    holders = {name: play.state.ledger.holder(f"team/{name}") for name in ("owner", "victim")}
    assert {name: held.totals[0].flavors for name, held in holders.items() if held is not None} == {
        "owner": {"gpu": "y"},
        "victim": {"gpu": "x"},
    }


@settings(max_examples=examples(20))
@given(st.integers(0, 2**32))
def test_nobody_is_preempted_twice_for_the_same_one(seed: int) -> None:
    """Over random trees, policies and workloads that only ever arrive, with victims that go in any order."""
    lots = random.Random(seed)
    play = Play(fair=lots.random() < 0.4)

    def limit() -> int | None:
        return lots.choice([None, None, 0, 1, 2, 4])

    play.state.put_cohort(b.cohort("org", {"default": {"cpu": lots.randint(0, 2)}}))
    for name, parent in (("left", "org"), ("right", "org"), ("inner", "left")):
        play.state.put_cohort(b.cohort(name, {"default": {"cpu": (lots.randint(0, 2), limit(), limit())}}, parent))
    for name, cohort in (("a", "left"), ("b", "left"), ("c", "org"), ("d", "right"), ("e", "inner")):
        policy: b.Json = {
            "withinClusterQueue": lots.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
            "reclaimWithinCohort": lots.choice(["Never", "LowerPriority", "Any"]),
        }
        if policy["reclaimWithinCohort"] != "Never" and lots.random() < 0.6:
            policy["borrowWithinCohort"] = {
                "policy": "LowerPriority",
                **lots.choice([{}, {"maxPriorityThreshold": 10}]),
            }
        play.queue(name, (lots.randint(0, 5), limit(), limit()), cohort, policy)
    for number in range(18):
        play.arrive(f"w-{number}", lots.choice("abcde"), lots.randint(1, 7), priority=lots.choice([0, 10, 20]))
        while play.going and lots.random() < 0.5:
            play.gone(lots.choice(play.going))
    while play.going:
        play.gone(lots.choice(play.going))
        assert len(play.evictions) == len(set(play.evictions))
