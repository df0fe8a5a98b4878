"""Whatever the quotas and policies, preemption comes to an end, and then nobody who fits is left waiting."""

import random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.engine import builders as b
from tests.unit.engine import told
from tests.unit.engine.test_victims_go_one_by_one import Play
from tests.unit.engine.world import COHORTS, LINES, QUEUES, World
from turnstile.engine import Options
from turnstile.engine.options import FairSharing, Gates

NEXT = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}


class Lots:
    """Trees, policies and workloads drawn by lot: no more than that changes, so what follows is up to the engine."""

    def __init__(self, seed: int, *, crowded: bool = False) -> None:
        self.lots = random.Random(seed)
        self.world = World()
        self.crowded = crowded
        """Whether there are many small workloads, in queues with much quota, which mostly preempt."""

    def quotas(self, most: int, *, one_flavor: bool) -> list[told.Json]:
        """Of gpus in two flavors, or in one, and of tpus."""

        def limit() -> int | None:
            return self.lots.choice([None, None, 0, 1, 2, 3, 4])

        def quota() -> tuple[int, int | None, int | None]:
            return self.lots.randint(0, most), limit(), limit()

        return told.groups(quota(), (0, None, None) if one_flavor else quota(), quota())

    def spec(self) -> dict[str, Any]:
        """Policies of a ClusterQueue."""
        lots = self.lots
        any_stop = {key: lots.choice(["MayStopSearch", "TryNextFlavor"]) for key in NEXT}
        preferring = {**NEXT, "preference": lots.choice(["BorrowingOverPreemption", "PreemptionOverBorrowing"])}
        borrowing = [{"policy": "Never"}, {"policy": "LowerPriority"}]
        borrowing.append({"policy": "LowerPriority", "maxPriorityThreshold": lots.randint(-1, 1)})
        never = [] if self.crowded else ["Never"]
        return {
            "preemption": {
                "withinClusterQueue": lots.choice([*never, "LowerPriority", "LowerOrNewerEqualPriority"]),
                "reclaimWithinCohort": lots.choice([*never, "LowerPriority", "Any", "Any"]),
                "borrowWithinCohort": lots.choice(borrowing),
            },
            "flavorFungibility": lots.choice([any_stop, preferring]),
            "queueingStrategy": lots.choice(["StrictFIFO", *["BestEffortFIFO"] * (4 if self.crowded else 1)]),
            "stopPolicy": "None",
            "fairSharing": {"weight": lots.choice(["1", "1", "0", "2"])},
        }

    def play(self) -> None:
        """Set up, let workloads arrive, and see it come to rest now and then, and in the end."""
        lots, world = self.lots, self.world
        strategies = [("LessThanOrEqualToFinalShare", "LessThanInitialShare"), ("LessThanInitialShare",)]
        fair = FairSharing(strategies=lots.choice(strategies)) if lots.random() < 0.5 else None
        gates = Gates(flavor_fungibility_preserve_scan_progress=lots.random() < 0.5)
        world.begin(Options(fair_sharing=fair, gates=gates))
        one_flavor = lots.random() < 0.5
        for name in COHORTS:
            parent = "outer" if lots.random() < 0.7 else ""
            quotas = self.quotas(2, one_flavor=one_flavor)
            world.put_cohort(name=name, resource_groups=quotas, parent=parent, weight=lots.choice(["1", "1", "0", "2"]))
        for name, cohort in zip(QUEUES, ("left", "left", "right", "outer"), strict=True):
            quotas = self.quotas(12 if self.crowded else 6, one_flavor=one_flavor)
            world.put_queue(name=name, cohort=cohort, resource_groups=quotas, spec=self.spec())
        for line in LINES:
            world.put_line(name=line, stop="None", weight="1")
        in_part, with_tpus = lots.choice([0.2, 0.9]), lots.choice([0, 0.5])
        for _ in range(lots.randint(8, 16) if self.crowded else lots.randint(2, 8)):
            tpus = lots.randint(0, 2) if lots.random() < with_tpus else 0
            sets = [(lots.randint(1, 3), tpus, lots.randint(1, 3), 1 if lots.random() < in_part else None)]
            if lots.random() < 0.2:
                sets.append((lots.randint(1, 3), 0, lots.randint(1, 2), None))
            world.create(line=lots.choice(LINES), pod_sets=sets, priority=lots.randint(0, 2), second=lots.randint(0, 8))
            if lots.random() < 0.5:
                world.everyone_does_their_part()
        world.everyone_does_their_part()
        world.come_to_rest()


@settings(max_examples=examples(50), deadline=None)
@given(st.integers(0, 2**64))
@example(100528)  # a preemptor one of whose pod sets is refused before the other is looked at
@example(176681)  # pod sets whose scans take turns in ending and beginning again
@example(207762)  # the same at the head of a line
def test_whatever_the_quotas_and_policies(seed: int) -> None:
    """Victims go at once, and whoever is let in is seen at once."""
    Lots(seed).play()


def test_three_that_beat_each_other_in_turn() -> None:
    """`owner` reclaims from `borrower` of any priority, `boss` of higher priority preempts `owner` in their queue, and
    the room goes to `borrower`, of higher priority still. Once each had its turn, it stays as it is."""
    play = Play()
    play.queue(
        "own",
        2,
        "org",
        {
            "withinClusterQueue": "LowerPriority",
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 0},
        },
    )
    play.queue("other", 2, "org", {})
    play.arrive("borrower", "other", 4, priority=2)
    play.arrive("boss", "own", 3, priority=1)
    play.arrive("owner", "own", 2)
    for _ in range(12):
        for name in list(play.going):
            play.gone(name)
    assert not play.going
    assert len(set(play.evictions)) == len(play.evictions)
    assert ("borrower", "owner") in play.evictions


def test_a_victim_may_be_preempted_again_once_something_else_changed() -> None:
    """The same two meet again after a third has come, taken the room, and finished."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}, preemption={"withinClusterQueue": "LowerPriority"}))
    low, high = b.workload("low", cpu=4), b.workload("high", cpu=4, priority=5)

    def let_in(workload: told.Workload) -> told.Workload:
        state.put_workload(workload, b.NOW)
        b.settle(state)
        made = b.with_conditions(b.reserved(workload, state), Evicted=("False", "QuotaReserved"))
        state.put_workload(made, b.NOW)
        return made

    def preempts(name: str, victim: told.Workload) -> told.Workload:
        found = [each.key for decision in b.settle(state) for each in decision.victims if each.new]
        assert found == [victim.metadata.key], name
        state.put_workload(b.with_conditions(victim, Evicted=("True", "Preempted")), b.NOW)
        gone = b.with_conditions(b.released(victim), Requeued=("True", "Preempted"))
        state.put_workload(gone, b.NOW)
        return gone

    running = let_in(low)
    state.put_workload(high, b.NOW)
    low = preempts("high", running)
    b.settle(state)
    assert b.admitted(state) == {"team/high"}
    held = b.reserved(high, state)
    state.put_workload(held, b.NOW)
    state.put_workload(b.with_conditions(held, Finished=("True", "Succeeded")), b.NOW)
    running = let_in(low)
    state.drop_workload("team/high")
    state.put_workload(high, b.NOW)
    preempts("high again", running)
