"""Who may take quota back from whom, and how the victim goes: stopped, requeued, started again when there is room."""

import pytest

from testbed.client import condition
from tests.cluster.scenario import Scenario

pytestmark = pytest.mark.cluster

PRIORITY = "kueue.x-k8s.io/priority-class"


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
