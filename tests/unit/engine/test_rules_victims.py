"""Whom a workload preempts, and by which right.

Expectations are the worked examples of Kueue's preemption. All quota is of cpu; a running workload is written
`name: (queue, priority, cores)`, a tree is a list of
Cohorts and queues.
"""

from typing import Any

import pytest

from tests.unit.engine import builders as b
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.engine import Decision, Options, cycle
from turnstile.engine.options import FairSharing, Gates

Quota = Any
Running = dict[str, tuple[str, int, float]]

ANY = {"reclaimWithinCohort": "Any"}
LOWER_OWN = {"withinClusterQueue": "LowerPriority"}
BOTH = {**ANY, **LOWER_OWN}


def queue(name: str, quota: Quota, cohort: str | None, **preemption: Any) -> ClusterQueue:
    """A queue of cpu: nominal, or nominal, borrowing and lending limit."""
    return b.queue(name, {"default": {"cpu": quota}}, cohort, preemption=preemption)


def cohort(name: str, parent: str | None = None, quota: Quota = None) -> Any:
    """A cohort of cpu."""
    return b.cohort(name, {"default": {"cpu": quota}} if quota is not None else None, parent)


def decide(
    nodes: list[Any], running: Running, incoming: tuple[str, int, float], options: Options | None = None
) -> Decision:
    """What the first cycle decides about the incoming workload: queue, priority, cores."""
    state = b.world(*(node for node in nodes if isinstance(node, ClusterQueue)), options=options)
    for node in nodes:
        if not isinstance(node, ClusterQueue):
            state.put_cohort(node)
    for index, (name, (where, priority, cores)) in enumerate(running.items()):
        state.put_workload(b.held(name, where, {"cpu": str(cores)}, priority=priority, second=index, at=index), b.NOW)
    where, priority, cores = incoming
    state.put_workload(b.workload("in", where, cpu=cores, priority=priority, second=100), b.NOW)
    return next(decision for decision in cycle(state, b.NOW) if decision.key == "team/in")


def victims(*args: Any, **kwargs: Any) -> dict[str, str]:
    """Reason by victim."""
    return {victim.key.removeprefix("team/"): victim.reason for victim in decide(*args, **kwargs).victims}


OWN = "InClusterQueue"
RECLAIM = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
FAIR = "InCohortFairSharing"


class TestClassical:
    """Without fair sharing."""

    def test_nobody_more_than_needed(self) -> None:
        """The lowest go first, and those that are not needed in the end stay."""
        nodes = [queue("a", 6, None, **LOWER_OWN)]
        assert victims(nodes, {"low": ("a", -1, 1), "mid": ("a", 0, 1), "high": ("a", 1, 3)}, ("a", 1, 2)) == {
            "low": OWN
        }
        assert victims(nodes, {"low": ("a", -1, 1), "mid": ("a", 0, 2), "high": ("a", 1, 3)}, ("a", 1, 2)) == {
            "mid": OWN
        }

    def test_of_equals_the_last_admitted_goes(self) -> None:
        """Then by UID."""
        nodes = [queue("a", 2, None, **LOWER_OWN)]
        assert victims(nodes, {"old": ("a", 0, 1), "new": ("a", 0, 1)}, ("a", 1, 1)) == {"new": OWN}

    @pytest.mark.parametrize(("priority", "found"), [(0, {"newer": OWN}), (1, {"newer": OWN}), (-1, {})])
    def test_newer_of_equal_priority(self, priority: int, found: dict[str, str]) -> None:
        """With LowerOrNewerEqualPriority, by the time since when they stand in line."""
        state = b.world(
            b.queue("a", {"default": {"cpu": 2}}, preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
        )
        state.put_workload(b.held("older", "a", {"cpu": "1"}, second=0), b.NOW)
        state.put_workload(b.held("same", "a", {"cpu": "0"}, second=5), b.NOW)
        state.put_workload(b.held("newer", "a", {"cpu": "1"}, second=9), b.NOW)
        state.put_workload(b.workload("in", priority=priority, second=5), b.NOW)
        decision = cycle(state, b.NOW).decisions[0]
        assert {victim.key.removeprefix("team/"): victim.reason for victim in decision.victims} == found

    @pytest.mark.parametrize("written", [False, True])
    def test_an_eviction_that_is_over_makes_nobody_newer(self, written: bool) -> None:
        """Once it is admitted again it counts by its creation, before that is written as well as after."""
        policy = {"withinClusterQueue": "LowerOrNewerEqualPriority"}
        state = b.world(b.queue("a", {"default": {"cpu": 1}}, preemption=policy))
        again = b.with_conditions(b.workload("again", second=0), Evicted=("True", "PodsReadyTimeout"))
        state.put_workload(again, b.NOW)
        assert cycle(state, b.NOW).decisions[0].outcome == "admit"
        if written:
            state.put_workload(b.with_conditions(b.reserved(again, state), drop=("Evicted",)), b.NOW)
        state.put_workload(b.workload("later", second=3), b.NOW)
        assert [decision.requeue_reason for decision in cycle(state, b.NOW)] == ["PreemptionNoCandidates"]

    SHARED = (
        cohort("x", quota=10),
        queue(
            "a-standard",
            (1, 12, None),
            "x",
            reclaimWithinCohort="LowerPriority",
            borrowWithinCohort={"policy": "LowerPriority", "maxPriorityThreshold": 0},
        ),
        queue("a-effort", (1, 12, None), "x"),
        queue("b-standard", (1, 12, None), "x"),
        queue("b-effort", (0, 13, None), "x"),
    )

    @pytest.mark.parametrize(
        ("running", "incoming", "found"),
        [
            ({"a-low": ("a-effort", -1, 10), "b-low": ("b-effort", -1, 1)}, (0, 10), {"a-low": WHILE_BORROWING}),
            ({"b-mid": ("b-standard", 1, 10)}, (2, 10), {}),
            ({"b-mid": ("b-standard", 1, 13)}, (2, 1), {"b-mid": RECLAIM}),
        ],
    )
    def test_borrowing_while_preempting(
        self, running: Running, incoming: tuple[int, float], found: dict[str, str]
    ) -> None:
        """Only those at or below the threshold; those above it only for the preemptor's own quota."""
        assert victims(list(self.SHARED), running, ("a-standard", *incoming)) == found

    def test_guaranteed_quota_is_not_needed_back(self) -> None:
        """What a queue kept for itself is its own; only the rest is reclaimed, and the lowest that suffices."""
        nodes = [
            queue("lend1", (6, None, 4), "x", reclaimWithinCohort="LowerPriority"),
            queue("lend2", (6, None, 2), "x"),
        ]
        running: Running = {"mine": ("lend1", 0, 3), "mid": ("lend2", -1, 3), "high": ("lend2", 1, 4)}
        assert victims(nodes, running, ("lend1", 0, 3)) == {"mid": RECLAIM}

    def test_by_right_of_the_quota_of_the_cohort(self) -> None:
        """Priority does not matter then, and others go before those of the own queue."""
        nodes = [
            cohort("r"),
            cohort("c", "r", 2),
            queue("q", 0, "c", **BOTH),
            queue("borrower", 0, "r"),
        ]
        running: Running = {"own": ("q", -2, 1), "other": ("borrower", 1, 1)}
        assert victims(nodes, running, ("q", 0, 1)) == {"other": RECLAIM}

    def test_within_nominal_is_no_candidate(self) -> None:
        """However low its priority."""
        nodes = [
            cohort("r"),
            cohort("c", "r", 2),
            queue(
                "q",
                0,
                "c",
                reclaimWithinCohort="Any",
                borrowWithinCohort={"policy": "LowerPriority", "maxPriorityThreshold": 0},
            ),
            queue("same", 0, "c"),
            queue("nominal", 2, "r"),
        ]
        running: Running = {"same": ("same", -1, 2), "nominal": ("nominal", -10, 2)}
        assert victims(nodes, running, ("q", 0, 2)) == {"same": WHILE_BORROWING}

    def test_by_both_rights_at_once(self) -> None:
        """Those outside of the cohort that could hold it by right, those inside while borrowing."""
        nodes = [
            cohort("r", quota=1),
            cohort("c", "r", 4),
            queue("q", 0, "c", reclaimWithinCohort="LowerPriority", borrowWithinCohort={"policy": "LowerPriority"}),
            queue("same", 0, "c"),
            queue("borrower", 0, "r"),
        ]
        running: Running = {"same": ("same", -1, 1), "low": ("borrower", -1, 2), "high": ("borrower", 1, 2)}
        assert victims(nodes, running, ("q", 0, 3)) == {"low": RECLAIM, "same": WHILE_BORROWING}

    def test_the_right_begins_at_the_cohort_that_could_hold_the_rest(self) -> None:
        """After what the queue has to itself."""
        nodes = [
            cohort("r", quota=0),
            cohort("c", "r", 2),
            queue("q", (3, None, 2), "c", **ANY),
            queue("borrower", 0, "r"),
        ]
        assert victims(nodes, {"other": ("borrower", 0, 4)}, ("q", -2, 5)) == {"other": RECLAIM}

    def test_a_cohort_back_within_its_quota_is_left_alone(self) -> None:
        """Asked anew before each victim."""
        nodes = [
            cohort("r", None, 4),
            cohort("c11", "r", 4),
            cohort("c12", "r", 4),
            cohort("c21", "c11", 4),
            cohort("c22", "c11", 4),
            cohort("c23", "c11", 4),
            cohort("c31", "c21", 4),
            cohort("c32", "c21", 4),
            queue("q1", 0, "c12"),
            queue("q2", 0, "c23"),
            queue("q3", 0, "c22"),
            queue("q4", 0, "c32"),
            queue("q5", 0, "c31", **ANY),
        ]
        running: Running = {
            f"{where}-{priority}": (where, priority, 4)
            for where, priorities in {"q1": (-6, -5), "q2": (-10, -9), "q3": (-4, -3, -2), "q4": (-1,)}.items()
            for priority in priorities
        }
        assert victims(nodes, running, ("q5", 0, 7)) == {"q2--10": RECLAIM, "q1--6": RECLAIM}

    def test_own_quota_first_when_borrowing_is_forbidden(self) -> None:
        """A queue under its nominal quota reclaims without borrowing, before it would take its own while borrowing."""
        nodes = [queue("a", 4, "x", **BOTH), queue("b", 4, "x")]
        running: Running = {"own": ("a", -5, 1), "other": ("b", 9, 7)}
        assert victims(nodes, running, ("a", 0, 3)) == {"other": RECLAIM}
        assert victims(nodes, running, ("a", 0, 4)) == {"other": RECLAIM, "own": OWN}

    def test_those_on_their_way_out_come_first(self) -> None:
        """Even the own before others, and they are not evicted twice."""
        state = b.world(queue("a", 2, "x", **BOTH), queue("b", 1, "x"))
        state.put_workload(b.held("own", "a", {"cpu": "1"}, priority=-1, evicted=True), b.NOW)
        state.put_workload(b.held("other", "b", {"cpu": "2"}, priority=-9), b.NOW)
        state.put_workload(b.workload("in", "a"), b.NOW)
        decision = cycle(state, b.NOW).decisions[0]
        assert [(victim.key, victim.new) for victim in decision.victims] == [("team/own", False)]
        assert decision.message.endswith(". Pending the preemption of 1 workload(s)")

    def test_those_of_a_stopped_queue_cannot_be_taken(self) -> None:
        """Their queue is not looked at, though its quota still counts."""
        nodes = [queue("a", 2, "x", **ANY), b.queue("b", {"default": {"cpu": 2}}, "x", stopPolicy="Hold")]
        decision = decide(nodes, {"other": ("b", 0, 4)}, ("a", 0, 1))
        assert (decision.requeue_reason, decision.victims) == ("PreemptionNoCandidates", ())

    def test_nobody_of_a_nearer_cohort_is_counted_twice(self) -> None:
        """Each victim there frees what it holds once, however far up the search goes."""
        nodes = [
            cohort("near", "top"),
            queue("a", 4, "near", **ANY),
            queue("same", 0, "near"),
            queue("bank", 4, "top"),
        ]
        running: Running = {"s1": ("same", -2, 2), "s2": ("same", -1, 2), "s3": ("same", 0, 4)}
        assert victims(nodes, running, ("a", 0, 4)) == {"s1": RECLAIM, "s2": RECLAIM}

    def test_a_victim_uses_what_is_needed(self) -> None:
        """Another flavor, or another resource, is of no use."""
        state = b.world(
            b.queue("a", {"one": {"cpu": 2, "gpu": 2}, "two": {"cpu": 2, "gpu": 0}}, preemption=LOWER_OWN),
            flavors=("one", "two"),
        )
        state.put_workload(b.held("gpu", "a", {"gpu": "1"}, flavor="one", priority=-9), b.NOW)
        state.put_workload(b.held("two", "a", {"cpu": "2"}, flavor="two", priority=-9), b.NOW)
        state.put_workload(b.held("one", "a", {"cpu": "2"}, flavor="one", priority=-1), b.NOW)
        state.put_workload(b.workload("in", cpu=2), b.NOW)
        decision = cycle(state, b.NOW).decisions[0]
        assert decision.assignment is not None
        flavor = decision.assignment.pod_sets[0].flavors["cpu"].flavor
        assert [victim.key for victim in decision.victims] == [f"team/{flavor}"]


def units(**counts: int) -> Running:
    """Running workloads of one core each, `<queue><number>`."""
    return {f"{where}{index}": (where, 0, 1) for where, count in counts.items() for index in range(1, count + 1)}


def fair(**weights: str) -> list[Any]:
    """Three queues of 3 in a cohort of 9; weights by queue."""
    return [
        b.queue(
            name,
            {"default": {"cpu": 3}},
            "x",
            preemption=BOTH,
            **({"fairSharing": {"weight": weights[name]}} if name in weights else {}),
        )
        for name in "abc"
    ]


SHARING = Options(fair_sharing=FairSharing())


class TestFairSharing:
    """With both strategies."""

    @pytest.mark.parametrize(
        ("weights", "running", "incoming", "found"),
        [
            ({}, units(a=3, b=5, c=1), ("c", 1), {"b": RECLAIM}),
            ({}, units(a=3, b=5, c=1), ("a", 1), {"b": FAIR}),
            ({}, units(a=3, b=5), ("a", 2), {}),
            (
                {},
                {"b2a": ("b", 0, 2), "b1": ("b", 0, 1), "b2b": ("b", 0, 2), "c1": ("c", 0, 1)},
                ("a", 3.5),
                {"b1": FAIR},
            ),
            (
                {},
                {"b2": ("b", 0, 2), "b25": ("b", 0, 2.5), "c2": ("c", 0, 2), "c25": ("c", 0, 2.5)},
                ("a", 3.5),
                {"b": FAIR, "c": FAIR},
            ),
            ({}, {"a": ("a", 0, 3.5), "b": ("b", 0, 2.5), "c": ("c", 0, 2.5)}, ("b", 2), {}),
            ({}, {"b9": ("b", 0, 9)}, ("a", 2), {"b9": RECLAIM}),
            ({"a": "2"}, units(a=3, b=6), ("a", 2), {"b": FAIR, "b ": FAIR}),
            ({"b": "0"}, units(a=3, b=6), ("a", 3), {"b": FAIR, "b ": FAIR, "b  ": FAIR}),
        ],
    )
    def test_worked_examples(
        self, weights: dict[str, str], running: Running, incoming: tuple[str, float], found: dict[str, str]
    ) -> None:
        """Victims by the queue they are in, or by name; which of equals in a queue goes is another rule."""
        have = victims(fair(**weights), running, (incoming[0], 0, incoming[1]), SHARING)
        if set(found) <= set(running):
            assert have == found
        else:
            assert sorted((name[0], reason) for name, reason in have.items()) == sorted(
                (name.strip(), reason) for name, reason in found.items()
            )

    def test_own_low_priority_once_the_other_may_give_no_more(self) -> None:
        """One of the other, then one of its own."""
        running: Running = {"low": ("a", -1, 1), "a2": ("a", 0, 1), "a3": ("a", 0, 1), **units(b=6)}
        have = victims(fair(), running, ("a", 0, 2), SHARING)
        assert sorted((name[0], reason) for name, reason in have.items()) == [("b", FAIR), ("l", OWN)]

    def test_borrowing_with_weight_zero_takes_nothing(self) -> None:
        """Its share is past every other."""
        nodes = [
            b.queue("a", {"default": {"cpu": 1}}, "x", preemption=BOTH, fairSharing={"weight": "0"}),
            b.queue("b", {"default": {"cpu": 1}}, "x"),
        ]
        assert victims(nodes, units(a=1, b=2), ("a", 0, 1), SHARING) == {}
        assert victims(nodes, units(b=2), ("a", 0, 1), SHARING) == {"b2": RECLAIM}

    def test_one_strategy_alone(self) -> None:
        """The first only lets those go that leave the other with at least as much; the second asks what it has now."""
        running: Running = {"b2": ("b", 0, 2), "b25": ("b", 0, 2.5), "c2": ("c", 0, 2), "c25": ("c", 0, 2.5)}
        final = Options(fair_sharing=FairSharing(strategies=("LessThanOrEqualToFinalShare",)))
        initial = Options(fair_sharing=FairSharing(strategies=("LessThanInitialShare",)))
        assert victims(fair(), running, ("a", 0, 3.5), final) == {}
        assert sorted(victims(fair(), running, ("a", 0, 3.5), initial).values()) == [FAIR, FAIR]

    def test_within_nominal_needs_no_shares(self) -> None:
        """Unless the feature gate is off."""
        running: Running = {"b9": ("b", 0, 9)}
        off = Options(fair_sharing=FairSharing(), gates=Gates(fair_sharing_preempt_within_nominal=False))
        assert victims(fair(), running, ("a", 0, 3), SHARING) == {"b9": RECLAIM}
        assert victims(fair(), running, ("a", 0, 3), off) == {"b9": FAIR}

    def test_a_tree_of_cohorts(self) -> None:
        """The share of the side is what counts, and who borrows inside of a cohort that does not is left alone."""

        def member(name: str, where: str, weight: str = "1") -> ClusterQueue:
            return b.queue(name, {"default": {"cpu": 1}}, where, preemption=BOTH, fairSharing={"weight": weight})

        def level(name: str, parent: str | None, weight: str = "1") -> Any:
            made = cohort(name, parent, 5)
            made.spec.fair_sharing = member("none", "x", weight).spec.fair_sharing
            return made

        nodes = [
            level("root", None),
            level("left", "root", "2"),
            level("right", "root"),
            member("a", "left", "2"),
            member("b", "left"),
            member("c", "root"),
            member("d", "right"),
            member("e", "right", "0.99"),
        ]
        have = victims(nodes, units(b=5, c=5, d=5, e=5), ("a", 0, 5), SHARING)
        assert sorted((name[0], reason) for name, reason in have.items()) == [
            ("b", FAIR),
            ("b", FAIR),
            ("c", FAIR),
            ("c", FAIR),
            ("e", FAIR),
        ]
        inside = [
            cohort("root", None, 4),
            cohort("calm", "root", 8),
            queue("mine", 1, "root", **ANY),
            queue("loud", 0, "calm"),
        ]
        assert victims(inside, units(loud=8), ("mine", 0, 5), SHARING) == {}
