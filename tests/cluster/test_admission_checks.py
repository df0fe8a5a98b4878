"""A ClusterQueue with an admission check: the job waits for the answer, and follows it."""

from typing import Any

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.errors import ApiError
from tests.cluster.scenario import GROUP, QUEUE, Scenario, job_path

pytestmark = pytest.mark.cluster


def check(scenario: Scenario, name: str, *, active: bool = True) -> str:
    """An AdmissionCheck that the test answers itself; returns its full name."""
    full = scenario.named(name)
    spec = {"controllerName": "example.com/budget"}
    scenario.create({"apiVersion": GROUP, "kind": "AdmissionCheck", "metadata": {"name": full}, "spec": spec})
    answers(scenario, full, active=active)
    return full


def answers(scenario: Scenario, full: str, *, active: bool) -> None:
    """Say whether somebody answers for a check."""
    told = {
        "type": "Active",
        "status": "True" if active else "False",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    path = resource_path(GROUP, "admissionchecks", full, subresource="status")
    scenario.api.patch(path, {"status": {"conditions": [told]}})


def states(workload: Json) -> dict[str, Json]:
    """States of the checks by name."""
    return {state["name"]: state for state in workload.get("status", {}).get("admissionChecks", [])}


def answer(
    scenario: Scenario, job: str, full: str, state: str, *, reserved: str = "True", kind: str = "Job", **more: Any
) -> None:
    """Answer a check of the Workload of a job once that holds quota, or waits for it."""
    seen: Json = {}

    def told() -> bool:
        nonlocal seen
        seen = scenario.wait_workload(
            job,
            lambda w: full in states(w) and condition(w, "QuotaReserved").get("status") == reserved,
            timeout=15,
            kind=kind,
        )
        given = [{**each, "state": state, **more} if name == full else each for name, each in states(seen).items()]
        meta = seen["metadata"]
        path = resource_path(GROUP, "workloads", meta["name"], namespace=scenario.namespace, subresource="status")
        body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": {"admissionChecks": given}}
        try:
            scenario.api.patch(path, body)
        except ApiError as error:
            if error.code != 409:
                raise
            return False
        return True

    wait_until(told, timeout=15, describe=lambda: f"{seen.get('status')}")


def test_a_job_starts_when_its_check_is_ready(scenario: Scenario) -> None:
    """Until then it holds quota and says what it waits for; what the check adds is given to its pods."""
    full = check(scenario, "budget")
    checks = {"admissionChecks": [{"name": full}]}
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}}, admissionChecksStrategy=checks)
    scenario.job("asks", queue="team", cpu="2")
    waiting = scenario.wait_workload(
        "asks", lambda w: condition(w, "Admitted").get("reason") == "UnsatisfiedAdmissionChecks", timeout=15
    )
    assert condition(waiting, "QuotaReserved")["status"] == "True"
    assert scenario.suspended("asks")
    answer(scenario, "asks", full, "Ready", podSetUpdates=[{"name": "main", "labels": {"budget": "granted"}}])
    started = scenario.wait_started("asks", timeout=15)
    assert started["spec"]["template"]["metadata"]["labels"]["budget"] == "granted"
    assert condition(scenario.workload_of("asks"), "Admitted")["status"] == "True"


def test_a_check_that_wants_to_try_again_gives_the_quota_to_others(scenario: Scenario) -> None:
    """The evicted one waits as long as the check asked, with a check that is pending again."""
    full = check(scenario, "budget")
    checks = {"admissionChecks": [{"name": full}]}
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}}, admissionChecksStrategy=checks)
    scenario.job("first", queue="team", cpu="2")
    scenario.wait_workload("first", lambda w: condition(w, "QuotaReserved").get("status") == "True")
    scenario.job("second", queue="team", cpu="2")
    answer(scenario, "first", full, "Retry", requeueAfterSeconds=3600, lastTransitionTime="2099-01-01T00:00:00Z")
    evicted = scenario.wait_workload("first", lambda w: condition(w, "Requeued").get("status") == "False", timeout=15)
    assert condition(evicted, "Evicted")["reason"] == "AdmissionCheck"
    assert evicted["status"]["requeueState"]["requeueAt"] == "2099-01-01T01:00:00Z"
    assert (states(evicted)[full]["state"], states(evicted)[full]["retryCount"]) == ("Pending", 1)
    answer(scenario, "second", full, "Ready")
    scenario.wait_started("second", timeout=15)
    assert scenario.suspended("first")


def test_a_job_comes_back_after_the_time_its_check_asked_for(scenario: Scenario) -> None:
    """It is asked again then."""
    full = check(scenario, "budget")
    checks = {"admissionChecks": [{"name": full}]}
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}}, admissionChecksStrategy=checks)
    scenario.job("asks", queue="team", cpu="2")
    answer(scenario, "asks", full, "Retry", requeueAfterSeconds=2)
    scenario.wait_workload("asks", lambda w: condition(w, "Requeued").get("reason") == "BackoffFinished", timeout=20)
    answer(scenario, "asks", full, "Ready")
    scenario.wait_started("asks", timeout=15)


def test_a_rejected_job_is_deactivated_until_somebody_activates_it(scenario: Scenario) -> None:
    """It keeps no quota; its Workload says who rejected it and why."""
    full = check(scenario, "budget")
    checks = {"admissionChecks": [{"name": full}]}
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}}, admissionChecksStrategy=checks)
    scenario.job("asks", queue="team", cpu="2")
    answer(scenario, "asks", full, "Rejected", message="no money")
    seen = scenario.wait_workload("asks", lambda w: condition(w, "QuotaReserved").get("status") == "False", timeout=15)
    assert seen["spec"]["active"] is False
    assert condition(seen, "Evicted")["reason"] == "DeactivatedDueToAdmissionCheck"
    assert f'"{full}" (no money)' in condition(seen, "Evicted")["message"]


@pytest.mark.parametrize("told", ["Retry", "Rejected"])
def test_an_answer_before_there_is_quota_leaves_the_workload_alone(scenario: Scenario, told: str) -> None:
    """It is neither evicted nor deactivated, only not considered, and goes on when the check says otherwise."""
    full = check(scenario, "budget")
    checks = {"admissionChecks": [{"name": full}]}
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}}, admissionChecksStrategy=checks)
    scenario.job("first", queue="team", cpu="2")
    scenario.wait_workload("first", lambda w: condition(w, "QuotaReserved").get("status") == "True")
    scenario.job("second", queue="team", cpu="2")
    answer(scenario, "second", full, told, reserved="False", message="not now")
    scenario.api.delete(job_path(scenario.namespace, "first"))

    def failed(workload: Json) -> bool:
        waits = condition(workload, "QuotaReserved")
        return waits["status"] == "False" and "failed admission checks" in waits["message"]

    seen = scenario.wait_workload("second", failed, timeout=15)
    assert seen["spec"]["active"] is True
    assert not condition(seen, "Evicted")
    assert not condition(seen, "DeactivationTarget")
    answer(scenario, "second", full, "Ready", reserved="False")
    scenario.wait_started("second", timeout=15)


def test_a_queue_is_open_while_its_check_is_answered(scenario: Scenario) -> None:
    """Its status follows the check."""
    full = check(scenario, "budget", active=False)
    checks = {"admissionChecks": [{"name": full}]}
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}}, admissionChecksStrategy=checks)

    def reason() -> str:
        found: str = condition(scenario.api.get(resource_path(GROUP, "clusterqueues", queue)), "Active").get(
            "reason", ""
        )
        return found

    wait_until(lambda: reason() == "AdmissionCheckInactive", timeout=10, describe=reason)
    answers(scenario, full, active=True)
    wait_until(lambda: reason() == "Ready", timeout=10, describe=reason)


def test_a_check_for_one_flavor_asks_only_who_gets_it(scenario: Scenario) -> None:
    """The first Job gets the flavor without the check and starts; the second waits for the check of its flavor."""
    full = check(scenario, "budget")
    free, dear = scenario.flavor("free"), scenario.flavor("dear")
    strategy = {"admissionChecks": [{"name": full, "onFlavors": [dear]}]}
    scenario.queue("team", {free: {"cpu": 1}, dear: {"cpu": 1}}, admissionChecksStrategy=strategy)
    scenario.job("first", queue="team")
    scenario.wait_started("first")
    assert states(scenario.workload_of("first")) == {}
    scenario.job("second", queue="team")
    answer(scenario, "second", full, "Ready")
    scenario.wait_started("second", timeout=15)
    [given] = scenario.workload_of("second")["status"]["admission"]["podSetAssignments"]
    assert given["flavors"] == {"cpu": dear}


def test_updates_that_contradict_the_pods_end_the_workload(scenario: Scenario) -> None:
    """The message names the check, the key and both values; what agrees is added once."""
    full = check(scenario, "budget")
    checks = {"admissionChecks": [{"name": full}]}
    scenario.queue("team", {scenario.flavor("plain", labels={"pool": "a"}): {"cpu": 2}}, admissionChecksStrategy=checks)
    scenario.job("agrees", queue="team")
    scenario.job("contradicts", queue="team")
    for name, pool in (("agrees", "a"), ("contradicts", "b")):
        answer(scenario, name, full, "Ready", podSetUpdates=[{"name": "main", "nodeSelector": {"pool": pool}}])
    assert scenario.wait_started("agrees", timeout=15)["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "a"}
    seen = scenario.wait_workload("contradicts", lambda w: condition(w, "Finished").get("status") == "True", timeout=15)
    told = condition(seen, "Finished")
    assert told["reason"] == "FailedToStart"
    assert f'in admission check "{full}": invalid admission check PodSetUpdate' in told["message"]
    assert "conflict for key=pool, value1=a, value2=b" in told["message"]


def test_the_longest_wait_of_two_checks_counts(scenario: Scenario) -> None:
    """Both want to try again: the Workload waits for the later one, and both are pending again."""
    one, two = check(scenario, "one"), check(scenario, "two")
    checks = {"admissionChecks": [{"name": one}, {"name": two}]}
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}}, admissionChecksStrategy=checks)
    scenario.job("asks", queue="team")
    workload = scenario.wait_workload("asks", lambda w: states(w).keys() == {one, two})
    since = "2099-01-01T00:00:00Z"
    told = [
        {"name": name, "state": "Retry", "message": "", "lastTransitionTime": since, "requeueAfterSeconds": seconds}
        for name, seconds in ((one, 3600), (two, 60))
    ]
    path = resource_path(
        GROUP, "workloads", workload["metadata"]["name"], namespace=scenario.namespace, subresource="status"
    )
    scenario.api.patch(path, {"status": {"admissionChecks": told}})
    seen = scenario.wait_workload("asks", lambda w: condition(w, "Requeued").get("status") == "False", timeout=15)
    assert seen["status"]["requeueState"]["requeueAt"] == "2099-01-01T01:00:00Z"
    assert [(each["state"], each["retryCount"]) for each in states(seen).values()] == [("Pending", 1), ("Pending", 1)]


def test_a_check_that_asks_for_another_try_too_late_holds_nobody_up(scenario: Scenario) -> None:
    """Two checks ask for another try, the second after the eviction: the Workload is tried again, and both checks are
    asked again, although their controllers answer only while the Workload has quota."""
    one, two = check(scenario, "one"), check(scenario, "two")
    checks = {"admissionChecks": [{"name": one}, {"name": two}]}
    scenario.queue("team", {scenario.flavor("plain"): {"cpu": 2}}, admissionChecksStrategy=checks)
    scenario.job("asks", queue="team")
    answer(scenario, "asks", one, "Retry", requeueAfterSeconds=3)
    scenario.wait_workload("asks", lambda w: condition(w, "QuotaReserved").get("status") == "False", timeout=15)
    answer(scenario, "asks", two, "Retry", reserved="False", requeueAfterSeconds=1)
    answer(scenario, "asks", one, "Ready")
    answer(scenario, "asks", two, "Ready")
    scenario.wait_started("asks", timeout=15)
    assert states(scenario.workload_of("asks"))[two]["retryCount"] == 1


def test_a_job_that_waits_for_its_check_is_moved_to_another_queue(scenario: Scenario) -> None:
    """It gives its reservation back, and is admitted through the queue that its label names."""
    full = check(scenario, "budget")
    flavor = scenario.flavor("plain")
    scenario.queue("slow", {flavor: {"cpu": 2}}, admissionChecksStrategy={"admissionChecks": [{"name": full}]})
    free = scenario.queue("free", {flavor: {"cpu": 2}})
    scenario.job("asks", queue="slow")
    scenario.wait_workload("asks", lambda w: condition(w, "QuotaReserved").get("status") == "True", timeout=15)
    scenario.api.patch(job_path(scenario.namespace, "asks"), {"metadata": {"labels": {QUEUE: "free"}}})
    scenario.wait_started("asks", timeout=15)
    workload = scenario.workload_of("asks")
    assert (workload["spec"]["queueName"], workload["status"]["admission"]["clusterQueue"]) == ("free", free)
