"""What people read in the status of queues, and how soon."""

import pytest

from testbed.client import condition, resource_path
from tests.cluster.scenario import GROUP, Scenario

pytestmark = pytest.mark.cluster


def test_figures_are_right_soon_after_an_admission(scenario: Scenario) -> None:
    """On a server at ease, that is; a burst of changes costs a write every three seconds."""
    queue = scenario.queue("team", {scenario.flavor("plain"): {"cpu": 4}})
    paths = (
        resource_path(GROUP, "clusterqueues", queue),
        resource_path(GROUP, "localqueues", "team", namespace=scenario.namespace),
    )
    for path in paths:
        scenario.api.wait_for(path, lambda found: condition(found, "Active").get("status") == "True", describe="active")
    for number in (1, 2):
        scenario.job(f"job-{number}", queue="team")
        scenario.wait_started(f"job-{number}")
        for path in paths:
            scenario.api.wait_for(
                path,
                lambda found, number=number: found["status"]["admittedWorkloads"] == number,
                timeout=2,  # one second, and one for a machine that does other things as well
                describe="the admission is counted",
            )


def test_missing_flavors_are_named_as_the_spec_has_them(scenario: Scenario) -> None:
    """Not sorted: whoever wrote the spec finds them in it."""
    names = [scenario.named(name) for name in ("small", "big")]
    queue = scenario.cluster_queue("team", {name: {"cpu": 1} for name in names})
    path = resource_path(GROUP, "clusterqueues", queue)
    found = scenario.api.wait_for(path, lambda found: condition(found, "Active"), describe="judged")
    message = f"Can't admit new workloads: references missing ResourceFlavor(s): {','.join(names)}."
    assert condition(found, "Active")["message"] == message


def test_a_queue_without_its_cluster_queue_lists_no_flavors(scenario: Scenario) -> None:
    """The lists are absent, not empty, before the ClusterQueue comes and after it went."""
    queue = scenario.named("team")
    scenario.local_queue("lonely", queue)
    path = resource_path(GROUP, "localqueues", "lonely", namespace=scenario.namespace)

    def settled(reason: str) -> None:
        found = scenario.api.wait_for(path, lambda q: condition(q, "Active").get("reason") == reason, describe=reason)
        assert ("flavorsReservation" in found["status"], "flavorsUsage" in found["status"]) == (
            (True, True) if reason == "Ready" else (False, False)
        )
        assert found["status"]["pendingWorkloads"] == 0

    settled("ClusterQueueDoesNotExist")
    scenario.cluster_queue("team", {scenario.flavor("plain"): {"cpu": 1}})
    settled("Ready")
    scenario.api.delete(resource_path(GROUP, "clusterqueues", queue))
    settled("ClusterQueueDoesNotExist")
