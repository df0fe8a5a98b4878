"""What the scheduler said about a waiting Workload stays until the scheduler finds something else."""

import json

import pytest

from tests.unit.controllers.worlds import cluster_queue, condition, decode, local_queue, workload, world
from turnstile.api.cohort import Cohort
from turnstile.controllers.runtime.actions import Patch, ReconcileResult
from turnstile.controllers.workloads.workload import decide


def said(decision: ReconcileResult) -> tuple[str, str] | None:
    """Reason and message of QuotaReserved as they are written; None if nothing is."""
    for action in decision.actions:
        if isinstance(action, Patch):
            for item in json.loads(action.body)["status"].get("conditions", ()):
                if item["type"] == "QuotaReserved":
                    return item["reason"], item["message"]
    return None


def refused(reason: str, message: str) -> dict[str, str]:
    """A QuotaReserved condition that is False."""
    return condition("QuotaReserved", "False", reason, message)


NO_RESERVATION = condition("Admitted", "False", "NoReservation", "The workload has no reservation")


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Misconfigured", "resources validation failed: spec.podSets[0]: Invalid value"),
        ("Misconfigured", "resources didn't satisfy LimitRange constraints: spec.podSets[0]: Invalid value"),
        ("Misconfigured", 'workload namespace "ns" does not exist: namespaces "ns" not found'),
        ("AdmissionGated", "Workload requires preemption, but it's gated"),
        ("WaitingForQuota", "insufficient unused quota"),
    ],
)
def test_what_a_cycle_found_is_kept(reason: str, message: str) -> None:
    """Its queues are fine: nobody else knows better."""
    waiting = workload(refused(reason, message), NO_RESERVATION)
    assert said(decide("ns/wl", world(waiting, local_queue(), cluster_queue()))) is None


@pytest.mark.parametrize(
    ("reason", "message", "after"),
    [
        ("Misconfigured", "LocalQueue q doesn't exist", "Workload is pending evaluation in the scheduling queue"),
        ("Suspended", "ClusterQueue q is inactive", "Workload is pending evaluation in the scheduling queue"),
        ("AdmissionGated", "Admission is gated by: x", "AdmissionGatedBy cleared, waiting for quota reservation"),
    ],
)
def test_what_its_queues_said_goes_with_its_cause(reason: str, message: str, after: str) -> None:
    """Then it waits to be looked at."""
    waiting = workload(refused(reason, message), NO_RESERVATION)
    found = said(decide("ns/wl", world(waiting, local_queue(), cluster_queue())))
    assert found == ("PendingEvaluation", after)


def test_a_circle_of_cohorts_makes_the_queue_inactive() -> None:
    """Whatever its own condition says, and as long as the circle is there."""
    queue = cluster_queue(cohortName="a")
    first = decode(Cohort, {"metadata": {"name": "a"}, "spec": {"parentName": "b"}})
    second = decode(Cohort, {"metadata": {"name": "b"}, "spec": {"parentName": "a"}})
    name = queue.metadata.name
    waiting = workload(refused("Suspended", f"ClusterQueue {name} is inactive"), NO_RESERVATION)
    assert said(decide("ns/wl", world(waiting, local_queue(), queue, first, second))) is None
    assert said(decide("ns/wl", world(waiting, local_queue(), queue, first))) is not None
