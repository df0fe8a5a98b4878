"""What is said of a Workload that somebody keeps from being admitted: by a gate, by a stop, by deactivating it."""

import pytest

from testbed.client import condition
from tests.cluster.scenario import Scenario, job

pytestmark = pytest.mark.cluster

GATED_BY = "kueue.x-k8s.io/admission-gated-by"


def test_the_end_of_a_gate_is_told_and_the_job_starts(scenario: Scenario) -> None:
    """Whoever opens the last gate takes the annotation off the Job; its Workload has an event for both."""
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
    made = job("asks", namespace=scenario.namespace, queue="team", cpu="1")
    made["metadata"]["annotations"] = {GATED_BY: "example.com/budget"}
    scenario.create(made)
    assert scenario.wait_pending("asks", reason="AdmissionGated")["message"] == (
        "Admission is gated by: example.com/budget"
    )
    workload = scenario.workload_of("asks")["metadata"]["name"]
    scenario.wait_event(workload, reason="AdmissionGated")
    scenario.api.patch(scenario.api.path_of(made), {"metadata": {"annotations": {GATED_BY: None}}})
    scenario.wait_started("asks")
    cleared = scenario.wait_event(workload, reason="AdmissionGateCleared")
    assert cleared["note"] == "Admission gate cleared, workload is now admissible"


def test_deactivating_what_is_evicted_already_is_no_second_eviction(scenario: Scenario) -> None:
    """The queue was drained; that stays the reason, and it counts once."""
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}})
    scenario.job("drained", queue="team", cpu="1")
    scenario.wait_started("drained")
    scenario.patch_queue(queue, {"stopPolicy": "HoldAndDrain"})
    scenario.wait_pending("drained", timeout=15)
    workload = scenario.workload_of("drained")
    scenario.api.patch(scenario.api.path_of(workload), {"spec": {"active": False}})
    off = scenario.wait_workload("drained", lambda w: condition(w, "QuotaReserved")["reason"] == "Deactivated")
    assert condition(off, "Evicted")["reason"] == "ClusterQueueStopped"
    assert [(each["reason"], each["count"]) for each in off["status"]["schedulingStats"]["evictions"]] == [
        ("ClusterQueueStopped", 1)
    ]
