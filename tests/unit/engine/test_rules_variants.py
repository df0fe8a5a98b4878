"""Concurrent admission: variants of one workload, each for one flavor, the earlier the better."""

from typing import Any

import msgspec
import pytest

from tests.unit.engine import builders as b
from turnstile.engine import State, cycle
from turnstile.engine.options import Gates, Options


def world(**policy: Any) -> State:
    """One queue with room for one workload in each of three flavors."""
    return b.world(
        b.queue("a", {"one": {"cpu": 1}, "two": {"cpu": 1}, "three": {"cpu": 1}}, **policy),
        flavors=("one", "two", "three"),
        options=Options(gates=Gates(concurrent_admission=True)),
    )


def test_it_takes_only_its_flavor() -> None:
    """Though an earlier one is free; without the feature the annotation means nothing."""
    state = world()
    state.put_workload(b.variant(b.workload("v2"), "two"), b.NOW)
    decision = b.decide(state, "v2")
    assert decision.admission is not None
    assert decision.admission.pod_set_assignments[0].flavors == {"cpu": "two"}
    state = b.world(b.queue("a", {"one": {"cpu": 1}, "two": {"cpu": 1}}), flavors=("one", "two"))
    state.put_workload(b.variant(b.workload("v2"), "two"), b.NOW)
    decision = b.decide(state, "v2")
    assert decision.admission is not None
    assert decision.admission.pod_set_assignments[0].flavors == {"cpu": "one"}


def test_none_of_its_flavors_is_there() -> None:
    """Every flavor is told of."""
    state = world()
    state.put_workload(b.variant(b.workload("v"), "four"), b.NOW)
    decision = b.decide(state, "v")
    assert decision.condition_reason == "NoMatchingFlavor"
    assert decision.message == "couldn't assign flavors to pod set main: " + ", ".join(
        f"skipping flavor {name} due to WorkloadAllowedResourceFlavorAnnotation annotation"
        for name in ("one", "three", "two")
    )


@pytest.mark.parametrize("admitted", [True, False])
def test_a_better_one_that_is_admitted_stops_it(admitted: bool) -> None:
    """One that only holds a reservation does not."""
    state = world()
    better = b.variant(b.held("v1", "a", {"cpu": "1"}, flavor="one"), "one")
    if not admitted:
        better = b.with_conditions(better, Admitted=("False", "UnsatisfiedAdmissionChecks"))
    state.put_workload(better, b.NOW)
    state.put_workload(b.variant(b.workload("v2"), "two"), b.NOW)
    decision = b.decide(state, "v2")
    if admitted:
        assert (decision.outcome, decision.message) == ("skipped", "A more favorable variant is already admitted")
        assert decision.condition_reason == "PendingEvaluation"
    else:
        assert decision.outcome == "admit"


MODE = {"mode": "TryPreferredFlavors"}


def beside_a_worse_one(**policy: Any) -> State:
    """A variant for flavor `three` runs, and one for flavor `two` comes."""
    state = world(**policy)
    state.put_workload(b.variant(b.held("v3", "a", {"cpu": "1"}, flavor="three"), "three"), b.NOW)
    state.put_workload(b.variant(b.workload("v2"), "two"), b.NOW)
    return state


@pytest.mark.parametrize(
    "migration", [None, MODE, {**MODE, "constraints": {"lastAcceptableFlavorName": "two"}}], ids=["", "mode", "good"]
)
def test_a_worse_one_makes_way_first(migration: dict[str, Any] | None) -> None:
    """The better one waits until it has gone, and comes first then."""
    state = beside_a_worse_one(**({"concurrentAdmissionPolicy": {"migration": migration}} if migration else {}))
    decision = b.decide(state, "v2")
    assert (decision.outcome, decision.requeue_reason) == ("migrating", "PendingMigration")
    assert decision.message == ". Pending the migration of 1 workload(s)"
    assert decision.condition_reason == "WaitingForPreemptedWorkloads"
    assert decision.info.last_assignment is None
    (victim,) = decision.victims
    assert (victim.key, victim.reason) == ("team/v3", "FlavorMigration")
    assert victim.message == (
        "Evicted to accommodate a workload (UID: uid-v2) due to migration to more favorable resource flavor"
    )
    assert state.cluster_queues["a"].pending.nominated("team/v2", 0) is not None


@pytest.mark.parametrize("mode", [{}, MODE], ids=["", "mode"])
def test_it_moves_only_to_a_flavor_that_is_good_enough(mode: dict[str, Any]) -> None:
    """As far as lastAcceptableFlavorName."""
    migration = {**mode, "constraints": {"lastAcceptableFlavorName": "one"}}
    decision = b.decide(beside_a_worse_one(concurrentAdmissionPolicy={"migration": migration}), "v2")
    assert decision.outcome == "pending"
    assert decision.message == "Target flavor is below LastAcceptableFlavorName"
    assert decision.condition_reason == "PendingEvaluation"


def test_who_had_others_preempted_before_it_has_nothing_to_do_with_it() -> None:
    """A workload of two pod sets waits for its victims; a variant that comes before it, and has a worse one make way,
    then gets its flavor."""
    state = world(preemption={"withinClusterQueue": "LowerPriority"}, queueingStrategy="StrictFIFO")
    for name in ("one", "two"):
        state.put_workload(b.held(name, "a", {"cpu": "1"}, flavor=name), b.NOW)
    state.put_workload(b.variant(b.held("v3", "a", {"cpu": "1"}, flavor="three", priority=9), "three"), b.NOW)
    pods = [
        {**item, "name": name}
        for name in ("first", "second")
        for item in msgspec.to_builtins(b.workload("pair"))["spec"]["podSets"]
    ]
    state.put_workload(b.changed(b.workload("pair", priority=2), spec={"podSets": pods}), b.NOW)
    assert {victim.key for victim in b.decide(state, "pair").victims} == {"team/one", "team/two"}
    variant = b.variant(b.workload("v2", priority=5), "two")
    state.put_workload(variant, b.NOW)
    state.drop_workload("team/two")
    assert b.decide(state, "v2").outcome == "migrating"
    state.drop_workload("team/v3")
    result = cycle(state, b.NOW)
    assert not result.faults
    assert [decision.outcome for decision in result if decision.key == "team/v2"] == ["admit"]


def test_nobody_takes_the_flavor_while_the_worse_one_leaves() -> None:
    """An older Workload of the same priority in another ClusterQueue waits behind it, until it is admitted."""
    groups = {"two": {"cpu": 0}, "three": {"cpu": 1}}
    state = b.world(
        b.queue("a", groups, cohort="c"),
        b.queue("other", {"two": {"cpu": 0}}, cohort="c"),
        b.queue("lends", {"two": {"cpu": 1}}, cohort="c"),
        flavors=("two", "three"),
        options=Options(gates=Gates(concurrent_admission=True)),
    )
    state.put_workload(b.variant(b.held("v3", "a", {"cpu": "1"}, flavor="three"), "three"), b.NOW)
    state.put_workload(b.variant(b.workload("v2", second=5), "two"), b.NOW)
    assert b.decide(state, "v2").outcome == "migrating"
    state.put_workload(b.workload("older", "other"), b.NOW)
    assert "admit" not in [each.outcome for each in cycle(state, b.NOW)]
    state.drop_workload("team/v3")
    assert [each.key for each in cycle(state, b.NOW) if each.outcome == "admit"] == ["team/v2"]


def test_a_parent_holds_nothing_beside_its_variant() -> None:
    """Both have the admission in their statuses."""
    state = world(concurrentAdmissionPolicy={"migration": MODE})
    held = b.held("v3", "a", {"cpu": "1"}, flavor="three")
    state.put_workload(b.variant(held, "three"), b.NOW)
    labels = {"kueue.x-k8s.io/concurrent-admission-parent": "true"}
    state.put_workload(b.changed(b.held("p", "a", {"cpu": "1"}, flavor="three"), metadata={"labels": labels}), b.NOW)
    assert set(state.cluster_queues["a"].workloads) == {"team/v3"}


def test_a_workload_without_variants_waits_for_them() -> None:
    """It is not marked yet, and must not be admitted itself."""
    state = world(concurrentAdmissionPolicy={"migration": MODE})
    state.put_workload(b.workload("p"), b.NOW)
    assert [each.key for each in cycle(state, b.NOW)] == []
