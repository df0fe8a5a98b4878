"""Admission checks: which a Workload needs, and what follows from their answers."""

from datetime import timedelta
from typing import Any

import pytest

from tests.unit.controllers.worlds import (
    ADMITTED,
    EARLIER,
    NOW,
    RESERVED,
    cluster_queue,
    condition,
    local_queue,
    workload,
    world,
)
from tests.unit.controllers.written import conditions, status
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.controllers.runtime.actions import Emit, RequeueAfter
from turnstile.controllers.workloads.workload import decide

STAMP = NOW.strftime("%Y-%m-%dT%H:%M:%SZ")


def queue(**checks: list[str]) -> ClusterQueue:
    """ClusterQueue `cq` with the flavors `f` and `g`, and these checks by the flavors they are for."""
    rules = [{"name": name, "onFlavors": flavors} for name, flavors in checks.items()]
    return cluster_queue(
        resourceGroups=[
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": name, "resources": [{"name": "cpu", "nominalQuota": "9"}]} for name in ("f", "g")],
            }
        ],
        admissionChecksStrategy={"admissionChecks": rules},
    )


def state(name: str, answer: str, message: str = "", **more: Any) -> dict[str, Any]:
    """The state of one check as JSON."""
    return {"name": name, "state": answer, "message": message, "lastTransitionTime": EARLIER, **more}


def reserved(*checks: dict[str, Any], admitted: bool = False, **more: Any) -> Workload:
    """A Workload that holds quota on flavor `f`, with these states of checks."""
    held = (RESERVED, ADMITTED) if admitted else (RESERVED,)
    return workload(*held, admission=True, more_status={"admissionChecks": list(checks), **more})


class TestWhichAreNeeded:
    def test_one_that_waits_lists_those_for_every_flavor(self) -> None:
        """Which flavors it gets is not known yet."""
        decision = decide("ns/wl", world(workload(), local_queue(), queue(all=[], both=["g", "f"], one=["f"])))
        assert [check["name"] for check in status(decision)["admissionChecks"]] == ["all", "both"]

    def test_with_a_reservation_those_of_its_flavors_count(self) -> None:
        """Others go; new ones are Pending since now; it is not admitted before they are ready."""
        decision = decide(
            "ns/wl",
            world(reserved(state("other", "Ready")), local_queue(), queue(mine=["f"], other=["g"], all=[])),
        )
        assert status(decision)["admissionChecks"] == [
            {"name": name, "state": "Pending", "message": "", "lastTransitionTime": STAMP} for name in ("all", "mine")
        ]
        assert conditions(decision)["Admitted"] == (
            "False",
            "UnsatisfiedAdmissionChecks",
            "The workload has not all checks ready",
        )

    def test_what_a_check_said_is_kept(self) -> None:
        """Only what is missing is added."""
        told = state("a", "Ready", "fine")
        decision = decide("ns/wl", world(reserved(told), local_queue(), queue(a=[], b=[])))
        assert status(decision)["admissionChecks"][0] == told

    def test_nothing_is_written_while_nothing_changes(self) -> None:
        """A second look at what was written writes nothing."""
        waits = condition("Admitted", "False", "UnsatisfiedAdmissionChecks", "The workload has not all checks ready")
        waiting = workload(RESERVED, waits, admission=True, more_status={"admissionChecks": [state("a", "Pending")]})
        assert decide("ns/wl", world(waiting, local_queue(), queue(a=[]))).actions == []


class TestAdmission:
    def test_it_is_admitted_when_all_are_ready(self) -> None:
        """The event tells how long it waited since it got quota."""
        decision = decide("ns/wl", world(reserved(state("a", "Ready")), local_queue(), queue(a=[])))
        assert conditions(decision)["Admitted"] == ("True", "Admitted", "The workload is admitted")
        assert [action.note for action in decision.actions if isinstance(action, Emit)] == [
            "Admitted by ClusterQueue cq, wait time since reservation was 245s"
        ]

    def test_it_is_admitted_when_its_last_check_is_taken_from_the_queue(self) -> None:
        """A queue without checks asks for none."""
        decision = decide("ns/wl", world(reserved(state("a", "Pending")), local_queue(), cluster_queue()))
        assert conditions(decision)["Admitted"][0] == "True"
        assert status(decision)["admissionChecks"] == []

    @pytest.mark.parametrize("left", [local_queue(), queue(a=[])])
    def test_it_is_admitted_although_a_queue_is_gone(self, left: ClusterQueue | LocalQueue) -> None:
        """Its last check came before the end of its queue was seen."""
        decision = decide("ns/wl", world(reserved(state("a", "Ready")), left))
        assert conditions(decision)["Admitted"][0] == conditions(decision)["QuotaReserved"][0] == "True"

    def test_one_on_its_way_out_is_not_admitted(self) -> None:
        """Its checks were reset; whoever is ready at once is not asked."""
        leaving = workload(
            RESERVED,
            condition("Evicted", "True", "Preempted"),
            admission=True,
            more_status={"admissionChecks": [state("a", "Ready")]},
        )
        assert decide("ns/wl", world(leaving, local_queue(), queue(a=[]))).actions == []

    def test_a_check_that_comes_later_stops_nobody_who_runs(self) -> None:
        """It is listed, and Admitted stays True."""
        decision = decide("ns/wl", world(reserved(admitted=True), local_queue(), queue(a=[])))
        assert set(status(decision)) == {"admissionChecks"}


class TestRetry:
    def test_it_is_evicted_and_its_checks_begin_again(self) -> None:
        """The one that asked for it counts a retry; what they gave to pods is dropped; quota stays until it stopped."""
        given = [{"name": "main", "nodeSelector": {"zone": "a"}}]
        checks = (state("a", "Retry", "no room"), state("b", "Ready", podSetUpdates=given))
        decision = decide("ns/wl", world(reserved(*checks, admitted=True), local_queue(), queue(a=[], b=[])))
        message = 'Evicted due to AdmissionCheck in Retry state: "a" (no room)'
        assert conditions(decision)["Evicted"] == ("True", "AdmissionCheck", message)
        assert conditions(decision)["QuotaReserved"][0] == conditions(decision)["Admitted"][0] == "True"
        reset = "Reset to Pending after eviction. Previously: "
        assert status(decision)["admissionChecks"] == [
            {**state("a", "Pending", reset + "Retry", retryCount=1), "lastTransitionTime": STAMP},
            {**state("b", "Pending", reset + "Ready"), "lastTransitionTime": STAMP},
        ]
        assert [a.reason for a in decision.actions if isinstance(a, Emit)] == ["EvictedDueToAdmissionCheck"]

    def test_what_it_asks_to_wait_is_noted_first(self) -> None:
        """The latest time of all checks counts, and only ever moves forward."""
        soon = state("a", "Retry", requeueAfterSeconds=1)
        late = {**state("b", "Retry", requeueAfterSeconds=60), "lastTransitionTime": STAMP}
        decision = decide("ns/wl", world(reserved(soon, late), local_queue(), queue(a=[], b=[])))
        assert status(decision) == {"requeueState": {"requeueAt": "2026-01-02T03:05:05Z"}}

    @pytest.mark.parametrize("kept", ["2026-01-02T03:05:05Z", "2026-01-02T04:00:00Z"])
    def test_a_time_that_is_noted_is_followed_by_the_eviction(self, kept: str) -> None:
        """A later time stands."""
        late = {**state("a", "Retry", requeueAfterSeconds=60), "lastTransitionTime": STAMP}
        held = reserved(late, requeueState={"requeueAt": kept, "count": 2})
        assert conditions(decide("ns/wl", world(held, local_queue(), queue(a=[]))))["Evicted"][0] == "True"

    def test_it_waits_and_then_goes_back_in_line(self) -> None:
        """The time of the back-off is cleared with it."""
        evicted = workload(
            condition("Requeued", "False", "AdmissionCheck"),
            more_status={"requeueState": {"requeueAt": "2026-01-02T03:05:05Z", "count": 2}},
        )
        early = decide("ns/wl", world(evicted, local_queue(), cluster_queue()))
        assert early.actions == [RequeueAfter(60.0)]
        decision = decide("ns/wl", world(evicted, local_queue(), cluster_queue(), now=NOW + timedelta(minutes=1)))
        assert conditions(decision)["Requeued"] == ("True", "BackoffFinished", "The workload backoff was finished")
        assert status(decision)["requeueState"] == {"requeueAt": None}

    def test_one_that_never_held_quota_waits_as_well(self) -> None:
        """It is woken when its time has come."""
        waiting = workload(more_status={"requeueState": {"requeueAt": "2026-01-02T03:05:05Z"}})
        assert decide("ns/wl", world(waiting, local_queue(), cluster_queue())).actions == [RequeueAfter(60.0)]
        decision = decide("ns/wl", world(waiting, local_queue(), cluster_queue(), now=NOW + timedelta(minutes=1)))
        assert conditions(decision)["Requeued"][0] == "True"


@pytest.mark.parametrize("answer", ["Retry", "Rejected"])
def test_a_workload_without_quota_is_neither_evicted_nor_deactivated(answer: str) -> None:
    """There is no attempt that could end; it waits as it is."""
    waits = (
        condition("QuotaReserved", "False", "PendingEvaluation"),
        condition("Admitted", "False", "NoReservation", "The workload has no reservation"),
    )
    told = state("a", answer, "no", requeueAfterSeconds=0)
    waiting = workload(*waits, more_status={"admissionChecks": [told]})
    assert decide("ns/wl", world(waiting, local_queue(), queue(a=[]))).actions == []


@pytest.mark.parametrize("held", [True, False], ids=["stops", "stopped"])
@pytest.mark.parametrize(("answer", "retries"), [("Retry", 3), ("Rejected", 2)])
def test_an_answer_that_comes_after_the_eviction_is_settled(answer: str, retries: int, *, held: bool) -> None:
    """An answer about an attempt that has ended decides nothing about the next attempt: the check is Pending again, and
    a retry is counted, whether or not the evicted job has stopped."""
    evicted = condition("Evicted", "True", "AdmissionCheck")
    quota = RESERVED if held else condition("QuotaReserved", "False", "PendingEvaluation")
    late = state("a", answer, "no", requeueAfterSeconds=0, retryCount=2)
    told = state("b", "Ready")
    left = workload(quota, evicted, admission=held, more_status={"admissionChecks": [late, told]})
    decision = decide("ns/wl", world(left, local_queue(), queue(a=[], b=[])))
    first, second = status(decision)["admissionChecks"]
    assert (first["state"], first["retryCount"]) == ("Pending", retries)
    assert first["message"] == f"Reset to Pending after eviction. Previously: {answer}"
    assert second == told
    assert set(status(decision)) == {"admissionChecks"}


def test_the_delay_of_a_late_retry_counts_for_the_wait() -> None:
    """A Retry that comes while the Workload waits after its eviction moves the next attempt, as one in time does."""
    late = {**state("a", "Retry", requeueAfterSeconds=60), "lastTransitionTime": STAMP}
    waits = condition("QuotaReserved", "False", "PendingEvaluation")
    left = workload(waits, condition("Evicted", "True", "AdmissionCheck"), more_status={"admissionChecks": [late]})
    decision = decide("ns/wl", world(left, local_queue(), queue(a=[])))
    assert status(decision) == {"requeueState": {"requeueAt": "2026-01-02T03:05:05Z"}}


class TestRejection:
    def test_it_is_deactivated(self) -> None:
        """A rejection counts before a retry; all who reject are named."""
        checks = (state("a", "Rejected", "too big"), state("b", "Retry"), state("c", "Rejected"))
        decision = decide("ns/wl", world(reserved(*checks), local_queue(), queue(a=[], b=[], c=[])))
        told = 'AdmissionChecks in Rejected state: "a" (too big); "c"'
        assert conditions(decision)["DeactivationTarget"] == ("True", "AdmissionCheck", told)
        assert [(a.type, a.reason, a.note) for a in decision.actions if isinstance(a, Emit)] == [
            ("Warning", "AdmissionCheckRejected", f"Deactivated due to {told}")
        ]

    def test_the_eviction_resets_its_checks(self) -> None:
        """So that a reactivation begins anew."""
        target = condition("DeactivationTarget", "True", "AdmissionCheck", 'AdmissionCheck in Rejected state: "a"')
        held = workload(
            RESERVED,
            target,
            admission=True,
            spec={"active": False},
            more_status={"admissionChecks": [state("a", "Rejected")]},
        )
        decision = decide("ns/wl", world(held, local_queue(), queue(a=[])))
        assert conditions(decision)["Evicted"][1] == "DeactivatedDueToAdmissionCheck"
        assert status(decision)["admissionChecks"][0]["state"] == "Pending"
