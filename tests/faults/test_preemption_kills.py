"""A controller that is killed in the middle of a preemption: the next one brings it to its end, and evicts nobody else.

What the killed one was about to write is held in a proxy, so that it dies between two certain writes.
"""

from collections.abc import Callable

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.components import STOP_FOR
from testbed.controlplane import ControlPlane
from tests.audits import assert_passes
from tests.cluster.scenario import Scenario, job
from tests.faults.background import background_proxy, kubeconfig_of
from tests.faults.proxy import Request, black_hole
from tests.turnstile import Turnstile

pytestmark = pytest.mark.cluster

PRIORITY = "kueue.x-k8s.io/priority-class"


def stops_the_job(request: Request) -> bool:
    """Evicted is written; the Job runs still."""
    return request.method == "PATCH" and request.path.endswith("/jobs/low") and b'"suspend":true' in request.raw


def gives_the_quota_back(request: Request) -> bool:
    """The Job is stopped; the Workload holds its quota still."""
    status = request.method == "PATCH" and request.path.endswith("/status") and "/workloads/job-low" in request.path
    return status and b'"Requeued"' in request.raw


@pytest.mark.parametrize("next_write", [stops_the_job, gives_the_quota_back])
def test_a_preemption_is_brought_to_its_end(
    control_plane: ControlPlane, scenario: Scenario, turnstile: Turnstile, next_write: Callable[[Request], bool]
) -> None:
    """The victim is stopped and waits, evicted once; the preemptor runs; a third one is left alone."""
    flavor = scenario.flavor("plain")
    scenario.queue("team", {flavor: {"cpu": 4}}, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = scenario.priority_class("low", 10), scenario.priority_class("high", 100)
    turnstile.stop()
    try:
        with background_proxy(control_plane.kubeconfig()) as proxy:
            proxy.plan(black_hole, applies=next_write, times=float("inf"))
            arguments = ("--kubeconfig", str(kubeconfig_of(proxy, control_plane.directory)))
            process = turnstile.installation.start(arguments=arguments)
            turnstile.installation.wait_ready(process)
            scenario.job("other", queue="team", cpu="1", labels={PRIORITY: high})
            scenario.job("low", queue="team", cpu="2", labels={PRIORITY: low})
            for name in ("other", "low"):
                scenario.wait_started(name, timeout=20)
            scenario.job("high", queue="team", cpu="3", labels={PRIORITY: high})
            wait_until(lambda: any(map(next_write, proxy.requests)), timeout=10, describe=lambda: "not under way")
            process.kill()
            before = scenario.workload_of("low")
            assert condition(before, "Evicted")["status"] == "True"
            assert scenario.suspended("high")
    finally:
        turnstile.start()
    scenario.wait_started("high", timeout=20)
    after = scenario.wait_workload("low", lambda w: condition(w, "Requeued").get("status") == "True")
    assert _evictions(after) == [{"reason": "Preempted", "underlyingCause": "", "count": 1}]
    assert condition(after, "Preempted")["message"] == condition(before, "Preempted")["message"]
    assert scenario.suspended("low")
    assert not scenario.suspended("other")
    assert not condition(scenario.workload_of("other"), "Evicted")
    assert_passes(scenario.api, scenario.namespace)


def test_the_next_leader_knows_the_preemptor_of_a_victim(scenario: Scenario, turnstile: Turnstile) -> None:
    """The quota of the victim goes to its preemptor, and not to a Job of higher priority that came later."""
    flavor = scenario.flavor("plain")
    scenario.queue("team", {flavor: {"cpu": 3}}, preemption={"withinClusterQueue": "LowerPriority"})
    low, high, higher = (scenario.priority_class(name, value) for name, value in (("low", 1), ("high", 5), ("top", 9)))
    victim = job("low", namespace=scenario.namespace, queue="team", cpu="2", labels={PRIORITY: low})
    victim["spec"]["template"]["metadata"].setdefault("annotations", {})[STOP_FOR] = "1h"
    scenario.create(victim)
    wait_until(
        lambda: any(pod["status"].get("phase") == "Running" for pod in scenario.pods_of("low")),
        timeout=20,
        describe=lambda: "low does not run",
    )
    scenario.job("high", queue="team", cpu="3", labels={PRIORITY: high})
    scenario.wait_workload("low", lambda w: condition(w, "Evicted").get("status") == "True")
    scenario.job("later", queue="team", cpu="3", labels={PRIORITY: higher})
    scenario.wait_pending("later")
    turnstile.kill()
    turnstile.start()
    for pod in scenario.pods_of("low"):
        path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=scenario.namespace)
        scenario.api.delete(path, grace_seconds=0)
    scenario.wait_started("high", timeout=20)
    assert scenario.suspended("later")


def _evictions(workload: Json) -> list[Json]:
    found: list[Json] = workload["status"]["schedulingStats"]["evictions"]
    return found
