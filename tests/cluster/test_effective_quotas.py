"""Quota that another controller writes into the status of a ClusterQueue or Cohort holds in the place of the spec's."""

from collections.abc import Iterator

import pytest

from testbed.client import Json, resource_path, wait_until
from testbed.installation import Installation
from tests.cluster.command import turnstile as command
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import GROUP, Scenario, resource_groups

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {DynamicQuotaOrchestration: true}
"""
ORCHESTRATOR = {"apiGroup": "example.com", "kind": "Schedule", "name": "nights"}


@pytest.fixture(scope="module")
def running(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """A Turnstile with the gate."""
    with configured(idle_installation, tmp_path_factory.mktemp("etc"), FILE) as found:
        found.start()
        yield found


def orchestrate(scenario: Scenario, plural: str, name: str, groups: list[Json] | None) -> None:
    """Set the quota that holds; None leaves it to the spec."""
    given = None if groups is None else {"orchestratorRef": ORCHESTRATOR, "resourceGroups": groups}
    path = f"{resource_path(GROUP, plural, name)}/status"
    scenario.api.patch(path, {"status": {"effectiveQuotas": given}})


def test_a_queue_has_the_quota_of_its_status_until_that_is_gone(running: Configured) -> None:
    """More than that of the spec, then nothing at all, which stops nothing that runs."""
    with running.team() as scenario:
        flavor = scenario.flavor("plain")
        queue = scenario.queue("team", {flavor: {"cpu": 1}})
        spec = scenario.api.get(resource_path(GROUP, "clusterqueues", queue))["spec"]
        scenario.job("first", queue="team")
        scenario.wait_started("first")
        scenario.job("second", queue="team")
        scenario.wait_pending("second")
        orchestrate(scenario, "clusterqueues", queue, resource_groups({flavor: {"cpu": 2}}))
        scenario.wait_started("second")
        orchestrate(scenario, "clusterqueues", queue, [])
        scenario.job("third", queue="team")
        assert "resource cpu unavailable in ClusterQueue" in scenario.wait_pending("third")["message"]
        assert [scenario.suspended(each) for each in ("first", "second", "third")] == [False, False, True]
        scenario.delete_job("first")
        scenario.delete_job("second")
        orchestrate(scenario, "clusterqueues", queue, None)
        scenario.wait_started("third", timeout=30)
        found = scenario.api.get(resource_path(GROUP, "clusterqueues", queue))
        assert found["spec"] == spec

        def reserved() -> Json | None:
            status = scenario.api.get(resource_path(GROUP, "clusterqueues", queue))["status"]
            [usage] = status["flavorsReservation"][0]["resources"]
            return status if usage["total"] == "1" and "effectiveQuotas" not in status else None

        wait_until(reserved, timeout=15, describe=lambda: "the status is not that of one Job")


def test_commands_show_the_quota_that_holds_and_whose_it_is(running: Configured) -> None:
    """Without a configuration file. What explain proposes is for the one who sets the quota."""
    with running.team() as scenario:
        flavor = scenario.flavor("plain")
        queue = scenario.queue("team", {flavor: {"cpu": 9}})
        orchestrate(scenario, "clusterqueues", queue, resource_groups({flavor: {"cpu": 2}}))
        scenario.job("wide", queue="team", cpu="3")
        scenario.wait_pending("wide")
        scenario.api.wait_for(
            resource_path(GROUP, "clusterqueues", queue),
            lambda found: found["status"].get("pendingWorkloads") == 1,
            describe="one pending in the queue's status, which top prints",
        )

        def asked(*arguments: str) -> str:
            _, out, err = command(*arguments, "--kubeconfig", str(running.cp.kubeconfig()))
            assert not err, err
            return out

        (row,) = [line for line in asked("top", "--once").splitlines() if line.startswith(queue)]
        assert row.split() == [queue, "(quota", "by", "Schedule", "nights)", flavor, "cpu", "0", "2", "0%", "1", "0"]
        told = asked("explain", "wide", "-n", scenario.namespace)
        assert (
            f"let Schedule nights raise the nominal quota of ClusterQueue {queue} for {flavor} nodes by 1 CPU" in told
        )
        assert f"ClusterQueue {queue}: info QuotaSetElsewhere" in asked("lint", "--live")


def test_a_cohort_lends_the_quota_of_its_status(running: Configured) -> None:
    """A pool that is there for a while; the queue's own status stays as the orchestrator wrote it."""
    with running.team() as scenario:
        flavor = scenario.flavor("plain")
        cohort = scenario.cohort("pool")
        scenario.queue("team", {flavor: {"cpu": 1}}, cohort="pool")
        scenario.job("wide", queue="team", cpu="3")
        scenario.wait_pending("wide")
        orchestrate(scenario, "cohorts", cohort, resource_groups({flavor: {"cpu": 2}}))
        scenario.wait_started("wide")
        status = scenario.api.get(resource_path(GROUP, "cohorts", cohort))["status"]
        assert status["effectiveQuotas"]["orchestratorRef"] == ORCHESTRATOR
