"""Who may take quota back from whom, and how the victim goes: stopped, requeued, started again when there is room."""

from datetime import UTC, datetime, timedelta

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.components import STOP_FOR
from tests.cluster.scenario import GROUP, Scenario, job, job_path
from turnstile.api.timeannotations import MINIMUM_RUN_TIME

pytestmark = pytest.mark.cluster

PRIORITY = "kueue.x-k8s.io/priority-class"


def slow_job(scenario: Scenario, name: str, *, queue: str, cpu: str, stop_for: str = "2s", priority: str = "") -> None:
    """A Job whose pod takes its time to stop."""
    labels = {PRIORITY: priority} if priority else {}
    made = job(name, namespace=scenario.namespace, queue=queue, cpu=cpu, labels=labels)
    made["spec"]["template"]["metadata"]["annotations"][STOP_FOR] = stop_for
    scenario.create(made)


def wait_running(scenario: Scenario, name: str) -> None:
    """Wait until the pods of a Job run: only those that do take their time to stop."""
    scenario.wait_started(name)
    wait_until(
        lambda: [pod for pod in scenario.pods_of(name) if pod["status"].get("phase") == "Running"],
        timeout=10,
        describe=lambda: f"{name} has no pod that runs",
    )


def wait_evicted(scenario: Scenario, name: str) -> Json:
    """Wait until the Workload of a Job is told to go."""
    return scenario.wait_workload(name, lambda w: condition(w, "Evicted").get("status") == "True")


def evict_slow(scenario: Scenario, priorities: tuple[str, str], *, stop_for: str = "2s") -> Json:
    """Let the Job `high` preempt `slow`, which runs; returns the victim's Workload as soon as it is told to go."""
    low, high = priorities
    slow_job(scenario, "slow", queue="team", cpu="2", priority=low, stop_for=stop_for)
    wait_running(scenario, "slow")
    scenario.job("high", queue="team", cpu="2", labels={PRIORITY: high})
    return wait_evicted(scenario, "slow")


def events_of(scenario: Scenario, name: str) -> dict[str, str]:
    """Notes by reason of the events about the Workload of that name, and about the Job of that name."""
    path = resource_path("events.k8s.io/v1", "events", namespace=scenario.namespace)
    return {each["reason"]: each["note"] for each in scenario.api.items(path) if each["regarding"]["name"] == name}


def evictions(workload: Json) -> int:
    """How often the Workload was preempted, as it says itself."""
    stats = workload["status"].get("schedulingStats", {}).get("evictions", ())
    return sum(entry["count"] for entry in stats if entry["reason"] == "Preempted")


class TestWithinClusterQueue:
    def test_a_higher_priority_takes_the_place_of_a_lower_one(self, scenario: Scenario) -> None:
        """The victim is told why, stopped, and back in line; when the other is gone it starts again."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 2}}, preemption={"withinClusterQueue": "LowerPriority"})
        low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
        scenario.job("low", queue="team", cpu="2", labels={PRIORITY: low})
        scenario.wait_started("low")
        scenario.job("high", queue="team", cpu="2", labels={PRIORITY: high})
        scenario.wait_started("high", timeout=15)
        assert scenario.suspended("low")
        victim = scenario.wait_workload("low", lambda w: condition(w, "QuotaReserved").get("status") == "False")
        assert condition(victim, "Evicted")["reason"] == "Preempted"
        assert condition(victim, "Preempted")["reason"] == "InClusterQueue"
        assert condition(victim, "Requeued")["status"] == "True"
        assert victim["status"]["schedulingStats"]["evictions"] == [
            {"reason": "Preempted", "underlyingCause": "", "count": 1}
        ]
        scenario.delete_job("high")
        scenario.wait_started("low", timeout=15)
        again = scenario.wait_workload("low", lambda w: condition(w, "Evicted").get("status") == "False")
        assert condition(again, "Evicted")["message"].startswith("Previously: Preempted to accommodate a workload")

    def test_a_minimum_run_time_is_kept(self, scenario: Scenario) -> None:
        """The higher priority waits and says until when, and takes the place as soon as the time is over."""
        flavor = scenario.flavor("plain")
        name = scenario.queue("team", {flavor: {"cpu": 2}}, preemption={"withinClusterQueue": "LowerPriority"})
        path = resource_path(GROUP, "clusterqueues", name)
        scenario.api.patch(path, {"metadata": {"annotations": {MINIMUM_RUN_TIME: "1h"}}})
        low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
        scenario.job("low", queue="team", cpu="2", labels={PRIORITY: low})
        scenario.wait_started("low")
        admitted = condition(scenario.workload_of("low"), "Admitted")["lastTransitionTime"]
        scenario.job("high", queue="team", cpu="2", labels={PRIORITY: high})
        told = "protected by their minimum run time until"
        scenario.wait_workload("high", lambda w: told in condition(w, "QuotaReserved").get("message", ""))
        assert not scenario.suspended("low")
        ran = (datetime.now(UTC) - datetime.fromisoformat(admitted)).total_seconds()
        scenario.api.patch(path, {"metadata": {"annotations": {MINIMUM_RUN_TIME: f"{int(ran) + 10}s"}}})
        scenario.wait_started("high", timeout=60)
        evicted = condition(scenario.workload_of("low"), "Evicted")["lastTransitionTime"]
        least = datetime.fromisoformat(admitted) + timedelta(seconds=int(ran) + 10)
        assert datetime.fromisoformat(evicted) >= least
        preemptor = scenario.workload_of("high")["metadata"]["name"]
        wait_until(
            lambda: "core-minutes of its run" in events_of(scenario, preemptor).get("PreemptionCost", ""),
            timeout=60,
            describe=lambda: f"told of the preemptor: {events_of(scenario, preemptor)}",
        )

    def test_without_a_policy_nobody_is_preempted(self, scenario: Scenario) -> None:
        """The default is Never, whatever the priorities."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 2}})
        high = scenario.priority_class("high", 100)
        scenario.job("low", queue="team", cpu="2")
        scenario.wait_started("low")
        scenario.job("high", queue="team", cpu="2", labels={PRIORITY: high})
        scenario.wait_pending("high")
        assert not scenario.suspended("low")

    def test_an_older_one_takes_the_place_of_a_newer_equal(self, scenario: Scenario) -> None:
        """Under LowerOrNewerEqualPriority age decides among equals, and the newer one cannot take it back."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 2}}, preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"})
        scenario.job("older", queue="team", cpu="2")
        scenario.wait_started("older")
        workload = scenario.workload_of("older")
        path = scenario.api.path_of(workload)
        scenario.api.patch(path, {"spec": {"active": False}})
        scenario.wait_suspended("older")
        created = workload["metadata"]["creationTimestamp"]

        def newer() -> bool:
            """Times of objects are in whole seconds."""
            dry = scenario.api.create(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t", "namespace": scenario.namespace}},
                dry_run=True,
            )
            return bool(dry["metadata"]["creationTimestamp"] > created)

        wait_until(newer, timeout=5, describe=lambda: "time stands still")
        scenario.job("newer", queue="team", cpu="2")
        scenario.wait_started("newer")
        scenario.api.patch(path, {"spec": {"active": True}})
        scenario.wait_started("older")
        assert scenario.suspended("newer")
        scenario.wait_pending("newer", reason="WaitingForQuota")
        assert evictions(scenario.workload_of("newer")) == 1
        assert evictions(scenario.workload_of("older")) == 0


class TestEviction:
    """The way out, step by step."""

    @pytest.fixture
    def priorities(self, scenario: Scenario) -> tuple[str, str]:
        """One queue of 2 cpus in which priority decides; a low one and a high one."""
        flavor = scenario.flavor("plain")
        scenario.queue("team", {flavor: {"cpu": 2}}, preemption={"withinClusterQueue": "LowerPriority"})
        return scenario.priority_class("low", 10), scenario.priority_class("high", 100)

    def test_quota_is_kept_until_the_pods_are_gone(self, scenario: Scenario, priorities: tuple[str, str]) -> None:
        """A victim whose pods take long is stopped and told at once, and gives its quota back when they are gone."""
        low, high = priorities
        slow_job(scenario, "slow", queue="team", cpu="2", priority=low)
        wait_running(scenario, "slow")
        scenario.job("high", queue="team", cpu="2", labels={PRIORITY: high})
        scenario.wait_suspended("slow")
        wait_until(
            lambda: any("deletionTimestamp" in pod["metadata"] for pod in scenario.pods_of("slow")),
            timeout=5,
            describe=lambda: "its pod is not told to stop",
        )
        victim = scenario.workload_of("slow")
        assert condition(victim, "Evicted")["reason"] == "Preempted"
        assert condition(victim, "QuotaReserved")["status"] == "True"
        assert victim["status"]["admission"]["clusterQueue"] == scenario.named("team")
        assert scenario.suspended("high")
        scenario.wait_pending("high", reason="WaitingForPreemptedWorkloads")
        scenario.wait_started("high")
        assert scenario.pods_of("slow") == []
        victim = scenario.workload_of("slow")
        assert "admission" not in victim["status"]
        assert condition(victim, "Admitted")["reason"] == "NoReservation"

    def test_both_sides_are_told(self, scenario: Scenario, priorities: tuple[str, str]) -> None:
        """Events on the victim, its Job and the preemptor; each names the other side."""
        low, high = priorities
        scenario.job("low", queue="team", cpu="2", labels={PRIORITY: low})
        scenario.wait_started("low")
        scenario.job("high", queue="team", cpu="2", labels={PRIORITY: high})
        scenario.wait_started("high")
        victim, preemptor = scenario.workload_of("low"), scenario.workload_of("high")
        path = f"/{scenario.named('team')}"
        said = (
            f"Preempted to accommodate a workload (UID: {preemptor['metadata']['uid']}, JobUID: "
            f"{scenario.read_job('high')['metadata']['uid']}) due to prioritization in the ClusterQueue;"
            f" preemptor path: {path}; preemptee path: {path}"
        )
        assert condition(victim, "Preempted")["message"] == condition(victim, "Requeued")["message"] == said
        wait_until(
            lambda: {"EvictedDueToPreempted", "Preempted"} <= events_of(scenario, victim["metadata"]["name"]).keys(),
            timeout=10,
            describe=lambda: f"told of the victim: {events_of(scenario, victim['metadata']['name'])}",
        )
        assert events_of(scenario, victim["metadata"]["name"])["Preempted"] == said
        wait_until(
            lambda: events_of(scenario, "low").get("Stopped") == said,
            timeout=10,
            describe=lambda: f"told of the Job: {events_of(scenario, 'low')}",
        )
        wait_until(
            lambda: (
                victim["metadata"]["uid"]
                in events_of(scenario, preemptor["metadata"]["name"]).get("PreemptedWorkload", "")
            ),
            timeout=10,
            describe=lambda: f"told of the preemptor: {events_of(scenario, preemptor['metadata']['name'])}",
        )

    def test_a_preemptor_has_one_event_for_all_its_victims(
        self, scenario: Scenario, priorities: tuple[str, str]
    ) -> None:
        """It is a series, as client-go makes it."""
        low, high = priorities
        for name in ("one", "two"):
            scenario.job(name, queue="team", cpu="1", labels={PRIORITY: low})
            scenario.wait_started(name)
        scenario.job("high", queue="team", cpu="2", labels={PRIORITY: high})
        scenario.wait_started("high")
        preemptor = scenario.workload_of("high")["metadata"]["name"]

        def told() -> list[Json]:
            found = scenario.api.items(resource_path("events.k8s.io/v1", "events", namespace=scenario.namespace))
            mine = (each for each in found if each["regarding"]["name"] == preemptor)
            return [each for each in mine if each["reason"] == "PreemptedWorkload"]

        wait_until(
            lambda: [(each.get("series") or {}).get("count") for each in told()] == [2],
            timeout=60,
            describe=lambda: f"told of the preemptor: {told()}",
        )

    def test_a_victim_that_is_deleted_on_its_way_out_holds_nobody_up(
        self, scenario: Scenario, priorities: tuple[str, str]
    ) -> None:
        """Its Job goes while its pods still stop: the preemptor starts, and nothing is left of the victim."""
        victim = evict_slow(scenario, priorities, stop_for="3s")
        scenario.delete_job("slow")
        scenario.wait_started("high")
        scenario.api.wait_gone(job_path(scenario.namespace, "slow"))
        scenario.api.wait_gone(scenario.api.path_of(victim), timeout=60)

    def test_a_victim_whose_workload_is_deleted_by_hand_is_stopped_first(
        self, scenario: Scenario, priorities: tuple[str, str]
    ) -> None:
        """Quota is not given away before its pods are gone; then it waits as a new Workload."""
        victim = evict_slow(scenario, priorities)
        scenario.api.delete(scenario.api.path_of(victim))
        scenario.wait_started("high")
        assert scenario.pods_of("slow") == []
        again = scenario.wait_workload("slow", lambda w: w["metadata"]["uid"] != victim["metadata"]["uid"])
        assert not condition(again, "Evicted")
        assert scenario.suspended("slow")

    def test_victims_come_back_when_their_preemptor_is_deleted(
        self, scenario: Scenario, priorities: tuple[str, str]
    ) -> None:
        """An eviction is not taken back; its victim starts again as soon as its pods are gone, evicted once."""
        evict_slow(scenario, priorities)
        scenario.delete_job("high")
        scenario.wait_suspended("slow")
        scenario.wait_started("slow")
        again = scenario.wait_workload("slow", lambda w: condition(w, "Evicted").get("status") == "False")
        assert condition(again, "Requeued")["status"] == "True"
        assert evictions(again) == 1


class TestReclaim:
    def test_an_owner_takes_back_what_it_lent(self, scenario: Scenario) -> None:
        """A borrower's job is stopped for the owner of the quota, not the borrower's job within its own quota."""
        flavor = scenario.flavor("plain")
        scenario.queue("owner", {flavor: {"cpu": 4}}, cohort="all", preemption={"reclaimWithinCohort": "Any"})
        scenario.queue("borrower", {flavor: {"cpu": 2}}, cohort="all")
        scenario.job("own", queue="borrower", cpu="2")
        scenario.wait_started("own")
        scenario.job("borrowed", queue="borrower", cpu="3")
        scenario.wait_started("borrowed")
        scenario.job("claim", queue="owner", cpu="4")
        scenario.wait_started("claim", timeout=15)
        assert scenario.suspended("borrowed")
        assert not scenario.suspended("own")
        victim = scenario.workload_of("borrowed")
        assert condition(victim, "Preempted")["reason"] == "InCohortReclamation"

    def test_two_owners_have_a_victim_each(self, scenario: Scenario) -> None:
        """Queues of one cohort reclaim side by side. Who comes first may take over a victim that goes already, and the
        other one then evicts another, so a message does not tell who will have that very room."""
        flavor = scenario.flavor("plain")
        for name in ("first", "second"):
            scenario.queue(name, {flavor: {"cpu": 2}}, cohort="all", preemption={"reclaimWithinCohort": "Any"})
        scenario.queue("borrower", {flavor: {"cpu": 0}}, cohort="all")
        for number in range(2):
            slow_job(scenario, f"borrowed-{number}", queue="borrower", cpu="2", stop_for="1s")
            wait_running(scenario, f"borrowed-{number}")
        for name in ("first", "second"):
            scenario.job(f"claim-{name}", queue=name, cpu="2")
        victims = [wait_evicted(scenario, f"borrowed-{number}") for number in range(2)]
        for name in ("first", "second"):
            scenario.wait_started(f"claim-{name}")
        claims = {scenario.workload_of(f"claim-{name}")["metadata"]["uid"] for name in ("first", "second")}
        for victim in victims:
            assert condition(victim, "Preempted")["reason"] == "InCohortReclamation"
            assert any(f"(UID: {claim}," in condition(victim, "Preempted")["message"] for claim in claims)
        assert [evictions(scenario.workload_of(f"borrowed-{number}")) for number in range(2)] == [1, 1]

    def test_one_victim_is_enough_for_two_owners_if_it_held_the_quota_of_both(self, scenario: Scenario) -> None:
        """The second one waits for the same victim and evicts nobody else."""
        flavor = scenario.flavor("plain")
        for name in ("first", "second"):
            scenario.queue(name, {flavor: {"cpu": 2}}, cohort="all", preemption={"reclaimWithinCohort": "Any"})
        scenario.queue("borrower", {flavor: {"cpu": 1}}, cohort="all")
        scenario.job("own", queue="borrower", cpu="1")
        scenario.wait_started("own")
        slow_job(scenario, "borrowed", queue="borrower", cpu="4", stop_for="1s")
        wait_running(scenario, "borrowed")
        for name in ("first", "second"):
            scenario.job(f"claim-{name}", queue=name, cpu="2")
        for name in ("first", "second"):
            scenario.wait_started(f"claim-{name}")
        assert evictions(scenario.workload_of("borrowed")) == 1
        assert not scenario.suspended("own")

    def test_quota_is_reclaimed_across_levels_of_cohorts(self, scenario: Scenario) -> None:
        """The owner and the borrower meet only at the root; the message says where each of them is."""
        flavor = scenario.flavor("plain")
        root = scenario.cohort("root")
        left, right = (scenario.cohort(name, parent=root) for name in ("left", "right"))
        scenario.queue("owner", {flavor: {"cpu": 4}}, cohort="left", preemption={"reclaimWithinCohort": "Any"})
        scenario.queue("borrower", {flavor: {"cpu": 1}}, cohort="right")
        scenario.job("own", queue="borrower", cpu="1")
        scenario.wait_started("own")
        scenario.job("borrowed", queue="borrower", cpu="2")
        scenario.wait_started("borrowed")
        scenario.job("claim", queue="owner", cpu="4")
        scenario.wait_started("claim")
        said = condition(scenario.workload_of("borrowed"), "Preempted")
        assert said["reason"] == "InCohortReclamation"
        owner, borrower = scenario.named("owner"), scenario.named("borrower")
        paths = f"preemptor path: /{root}/{left}/{owner}; preemptee path: /{root}/{right}/{borrower}"
        assert said["message"].endswith(paths)
        assert not scenario.suspended("own")

    def test_nobody_is_evicted_for_what_may_not_be_lent(self, scenario: Scenario) -> None:
        """A lending limit below keeps the rest for its owner, so there is nothing to reclaim for anybody else."""
        flavor = scenario.flavor("plain")
        root = scenario.cohort("root")
        scenario.cohort("left", parent=root)
        keeper = {flavor: {"cpu": {"nominalQuota": 4, "lendingLimit": 1}}}
        scenario.queue("keeper", keeper, cohort="left")
        scenario.queue("owner", {flavor: {"cpu": 1}}, cohort="root", preemption={"reclaimWithinCohort": "Any"})
        scenario.job("mine", queue="keeper", cpu="4")
        scenario.wait_started("mine")
        scenario.job("claim", queue="owner", cpu="2")
        scenario.wait_pending("claim", reason="WaitingForQuota")
        assert not scenario.suspended("mine")
        assert evictions(scenario.workload_of("mine")) == 0

    def test_a_borrower_of_low_priority_gives_way_to_one_that_borrows_too(self, scenario: Scenario) -> None:
        """borrowWithinCohort lets a queue past its own quota preempt others, up to a threshold of priority."""
        flavor = scenario.flavor("plain")
        policy = {
            "reclaimWithinCohort": "LowerPriority",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 10},
        }
        low, middle, high = (scenario.priority_class(name, value) for name, value in [("l", 10), ("m", 20), ("h", 30)])
        scenario.queue("lender", {flavor: {"cpu": 3}}, cohort="all")
        scenario.queue("borrower", {flavor: {"cpu": 0}}, cohort="all")
        scenario.queue("urgent", {flavor: {"cpu": 0}}, cohort="all", preemption=policy)
        scenario.job("low", queue="borrower", cpu="1", labels={PRIORITY: low})
        scenario.job("middle", queue="borrower", cpu="2", labels={PRIORITY: middle})
        scenario.wait_started("low")
        scenario.wait_started("middle")
        scenario.job("big", queue="urgent", cpu="2", labels={PRIORITY: high})
        scenario.wait_pending("big", reason="WaitingForQuota")
        scenario.job("small", queue="urgent", cpu="1", labels={PRIORITY: high})
        scenario.wait_started("small")
        assert condition(scenario.workload_of("low"), "Preempted")["reason"] == "InCohortReclaimWhileBorrowing"
        assert not scenario.suspended("middle")
        assert scenario.suspended("big")
