"""Who is admitted, where, and what those who wait are told."""

import pytest

from tests.unit.engine import builders as b
from tests.unit.engine import told
from turnstile.engine import Options, State, cycle
from turnstile.engine.options import Gates, WaitForPodsReady


def test_a_workload_that_fits_is_admitted_with_flavor_and_usage() -> None:
    """The decision holds the admission as the API wants it."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("w", cpu="500m", count=3), b.NOW)
    (decision,) = cycle(state, b.NOW)
    assert decision.outcome == "admit"
    assert decision.admitted
    assert decision.admission is not None
    (assigned,) = decision.admission.pod_set_assignments
    assert decision.admission.cluster_queue == "a"
    assert (assigned.flavors, assigned.resource_usage, assigned.count) == ({"cpu": "default"}, {"cpu": "1500m"}, 3)


def test_one_that_does_not_fit_is_told_what_is_missing() -> None:
    """Kueue's message, and ours with requested, available and the limit."""
    state = b.world(b.queue("a", {"default": {"cpu": 4}}))
    state.put_workload(b.workload("first", cpu=3), b.NOW)
    state.put_workload(b.workload("second", cpu=3, second=1), b.NOW)
    decisions = b.settle(state)
    waiting = decisions[-1]
    assert waiting.key == "team/second"
    assert waiting.condition_reason == "WaitingForQuota"
    assert waiting.message == (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more needed"
    )
    assert waiting.short == [("default", "cpu", 3000, 1000)]


def test_one_that_can_never_fit_is_told_the_maximum() -> None:
    """More than the whole tree holds."""
    state = b.world(b.queue("a", {"default": {"cpu": (4, 1, None)}}, "x"), b.queue("b", {"default": {"cpu": 9}}, "x"))
    state.put_workload(b.workload("w", cpu=6), b.NOW)
    (decision,) = b.settle(state)
    assert decision.condition_reason == "ExceedsMaxQuota"
    assert decision.message.endswith("current podset request (6) > maximum capacity (5)")
    (figure,) = decision.figures
    assert (figure.maximum, figure.borrowing_limit) == (5000, 1000)


def test_borrowing_goes_as_far_as_the_limit() -> None:
    """Idle quota of the cohort is used, up to the borrowing limit."""
    state = b.world(b.queue("a", {"default": {"cpu": (2, 3, None)}}, "x"), b.queue("b", {"default": {"cpu": 9}}, "x"))
    for number in range(6):
        state.put_workload(b.workload(f"w{number}", second=number), b.NOW)
    b.settle(state)
    assert len(b.admitted(state)) == 5
    (usage,) = state.questions.queue_usage("a")
    assert (usage.total, usage.borrowed) == (5000, 3000)


def test_taints_and_labels_choose_the_flavor() -> None:
    """A flavor is taken only if the pods tolerate its taints and want its labels."""
    state = b.world(b.queue("a", {"spot": {"cpu": 9}, "demand": {"cpu": 9}}), flavors=())
    taint = {"key": "spot", "effect": "NoSchedule", "value": "true"}
    state.put_flavor(b.flavor("spot", nodeTaints=[taint], nodeLabels={"kind": "spot"}))
    state.put_flavor(b.flavor("demand", nodeLabels={"kind": "demand"}))
    tolerant = {"tolerations": [{"key": "spot", "operator": "Exists"}]}
    state.put_workload(b.workload("plain"), b.NOW)
    state.put_workload(b.workload("tolerant", spec=tolerant), b.NOW)
    state.put_workload(b.workload("picky", spec={**tolerant, "nodeSelector": {"kind": "demand"}}), b.NOW)
    chosen = {
        decision.key: decision.admission.pod_set_assignments[0].flavors["cpu"]
        for decision in b.settle(state)
        if decision.admission is not None
    }
    assert chosen == {"team/plain": "demand", "team/tolerant": "spot", "team/picky": "demand"}


def test_partial_admission_takes_as_many_pods_as_fit() -> None:
    """Between minCount and count."""
    state = b.world(b.queue("a", {"default": {"cpu": 7}}))
    state.put_workload(b.workload("w", cpu=2, count=9, min_count=2), b.NOW)
    (decision,) = b.settle(state)
    assert decision.admission is not None
    assert decision.admission.pod_set_assignments[0].count == 3


def test_a_namespace_that_is_not_selected_waits() -> None:
    """And is tried again once its labels match."""
    state = b.world(b.queue("a", namespaceSelector={"matchLabels": {"team": "yes"}}))
    state.put_workload(b.workload("w"), b.NOW)
    (decision,) = b.settle(state)
    assert decision.message == "workload namespace doesn't match ClusterQueue selector"
    state.put_namespace("team", {"team": "yes"})
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


@pytest.mark.parametrize("policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_queue_admits_nothing(policy: str) -> None:
    """Until it is started again; the same holds for a LocalQueue."""
    state = b.world(b.queue("a", stopPolicy=policy))
    state.put_workload(b.workload("w"), b.NOW)
    assert b.settle(state) == []
    assert state.questions.active_reason("a") == (False, "Stopped", "Can't admit new workloads: is stopped.")
    assert state.questions.why("team/w") == ("Suspended", "ClusterQueue a is inactive", ())
    state.put_cluster_queue(b.queue("a"), b.NOW)
    state.put_local_queue(b.local("main", "a", stopPolicy=policy), b.NOW)
    assert b.settle(state) == []
    assert state.questions.why("team/w") == ("Suspended", "LocalQueue main is inactive", ())
    state.put_local_queue(b.local("main", "a"), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/w"}


def test_objects_may_come_in_any_order() -> None:
    """A workload before its queues, a queue before its flavors, a reservation before its ClusterQueue."""
    state = State()
    first = b.workload("held", cpu=3)
    other = b.world(b.queue("a"))
    other.put_workload(first, b.NOW)
    cycle(other, b.NOW)
    state.put_workload(b.reserved(first, other), b.NOW)
    state.put_workload(b.workload("w", cpu=8), b.NOW)
    state.put_local_queue(b.local("main", "a"), b.NOW)
    state.put_cluster_queue(b.queue("a"), b.NOW)
    assert state.questions.active_reason("a") == (
        False,
        "FlavorNotFound",
        "Can't admit new workloads: references missing ResourceFlavor(s): default.",
    )
    state.put_namespace("team", {})
    state.put_flavor(b.flavor())
    (decision,) = b.settle(state)
    assert decision.condition_reason == "WaitingForQuota"
    assert b.admitted(state) == {"team/held"}


def test_quota_cut_below_usage_admits_no_more_and_takes_nothing_away() -> None:
    """Editing quota down leaves what runs alone."""
    state = b.world(b.queue("a"))
    state.put_workload(b.workload("runs", cpu=8), b.NOW)
    b.settle(state)
    state.put_cluster_queue(b.queue("a", {"default": {"cpu": 4}}), b.NOW)
    state.put_workload(b.workload("w", cpu=1), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/runs"}


def test_admission_waits_for_pods_if_told_to() -> None:
    """One workload at a time, until its pods are ready."""
    state = b.world(b.queue("a"), options=Options(wait_for_pods_ready=WaitForPodsReady(block_admission=True)))
    first, second = b.workload("first"), b.workload("second", second=1)
    state.put_workload(first, b.NOW)
    state.put_workload(second, b.NOW)
    decisions = b.settle(state)
    assert b.admitted(state) == {"team/first"}
    assert decisions[-1].condition_reason == "WaitingForPodsReady"
    ready = b.with_conditions(b.reserved(first, state), PodsReady=("True", "Started"))
    state.put_workload(ready, b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/first", "team/second"}


def test_checks_stand_between_reservation_and_admission() -> None:
    """With a check that is not ready the decision reserves, but does not admit."""
    state = b.world(b.queue("a", admissionChecksStrategy={"admissionChecks": [{"name": "budget"}]}))
    state.put_workload(b.workload("w"), b.NOW)
    assert b.settle(state) == []
    assert state.questions.active_reason("a")[1] == "AdmissionCheckNotFound"
    state.put_admission_check("budget", active=True)
    (decision,) = b.settle(state)
    assert (decision.outcome, decision.admitted) == ("admit", False)


def test_a_neighbour_that_keeps_room_for_itself_and_one_that_starts_over_do_not_take_turns() -> None:
    """The one that fits is admitted, though its scan was interrupted by what the neighbour kept, and cycles end."""
    quota = {"x": {"cpu": 3}, "y": {"cpu": 2}}
    spare = {"x": {"cpu": 1}, "y": {"cpu": 0}}
    state = b.world(*(b.queue(name, quota, "all") for name in "abc"), flavors=("x", "y"))
    state.put_cohort(b.cohort("all", spare))
    for second, (name, line, cpu, count) in enumerate((("w1", "a", 4, 1), ("w2", "a", 4, 1))):
        state.put_workload(b.workload(name, line, cpu=cpu, count=count, second=second), b.NOW)
    b.settle(state)
    for second, (name, line, cpu, count) in enumerate((("w3", "a", 3, 2), ("w4", "a", 1, 1), ("w5", "b", 3, 1)), 2):
        state.put_workload(b.workload(name, line, cpu=cpu, count=count, second=second), b.NOW)
    b.settle(state)
    assert "team/w4" in b.admitted(state)


class TestLostRoom:
    """Others came first in the cycle that found room for `late`, and the scan goes on with the next flavor."""

    def settled(self, lent: tuple[int, int, int], *late: tuple[int, int, int, int | None]) -> State:
        """`first` of higher priority takes two gpus of flavor x and two tpus before `late`, of these pod sets."""
        state = State(Options(gates=Gates(flavor_fungibility_preserve_scan_progress=True)))
        state.put_namespace("team", {})
        for name in told.FLAVORS:
            state.put_flavor(b.flavor(name))
        for name, quotas in (("lender", lent), ("urgent", (0, 0, 0)), ("a", (0, 0, 0))):
            fungibility = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
            made = told.cluster_queue(name, told.groups(*quotas), "org", flavorFungibility=fungibility)
            state.put_cluster_queue(made, b.NOW)
            state.put_local_queue(b.local(name, name), b.NOW)
        state.put_workload(told.workload("first", "urgent", pod_sets=[(2, 2, 1, None)], priority=5), b.NOW)
        state.put_workload(told.workload("late", "a", pod_sets=late), b.NOW)
        b.settle(state)
        return state

    def test_fewer_pods_are_tried_in_all_flavors_again(self) -> None:
        """The next flavor has none, and the whole is refused before it comes to flavors at all: still one pod fits
        where the scan began."""
        state = self.settled((6, 0, 4), (2, 2, 3, 1))
        assert b.admitted(state) == {"team/first", "team/late"}

    def test_pod_sets_are_tried_in_each_mixture_of_flavors(self) -> None:
        """Neither flavor has room for both: one each has."""
        state = self.settled((6, 2, 2), (1, 0, 2, None), (2, 0, 2, None))
        held = state.ledger.holder("team/late")
        assert held is not None
        assert [item.flavors for item in held.totals] == [{"gpu": "y"}, {"gpu": "x"}]


def test_fewer_pods_may_take_a_flavor_that_all_of_them_never_come_to() -> None:
    """All are refused for their tpus. For one pod the scan stops at a flavor whose gpu is its own to reclaim; but as it
    borrows the tpu it may not. The next flavor has room for it."""
    state = State()
    state.put_namespace("team", {})
    for name in told.FLAVORS:
        state.put_flavor(b.flavor(name))
    for name, quotas, preemption in (
        ("a", (1, 1, 0), {"reclaimWithinCohort": "Any"}),
        ("lender", (0, 0, 1), {}),
        ("other", (0, 0, 0), {}),
    ):
        fungibility = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
        made = told.cluster_queue(
            name, told.groups(*quotas), "org", preemption=preemption, flavorFungibility=fungibility
        )
        state.put_cluster_queue(made, b.NOW)
        state.put_local_queue(b.local(name, name), b.NOW)
    state.put_workload(told.workload("holder", "other", pod_sets=[(1, 0, 1, None)]), b.NOW)
    b.settle(state)
    state.put_workload(told.workload("parts", "a", pod_sets=[(1, 1, 2, 1)]), b.NOW)
    b.settle(state)
    assert b.admitted(state) == {"team/holder", "team/parts"}
