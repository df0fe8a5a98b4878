"""waitForPodsReady on a real cluster: who cannot start its pods gives its quota to others, and in the end for good."""

from collections.abc import Iterator

import pytest

from testbed.client import condition
from testbed.installation import Installation
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import Scenario, job

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
waitForPodsReady:
  timeout: 3s
  requeuingStrategy: {backoffBaseSeconds: 2, backoffLimitCount: 1}
"""


@pytest.fixture(scope="module")
def impatient(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """A Turnstile that waits three seconds for pods, and tries once more."""
    with configured(idle_installation, tmp_path_factory.mktemp("etc"), FILE) as found:
        found.start()
        yield found


@pytest.fixture
def world(impatient: Configured) -> Iterator[Scenario]:
    """An empty managed namespace."""
    with impatient.team() as scenario:
        yield scenario


def test_a_job_without_a_node_makes_way_and_is_given_up_in_the_end(world: Scenario) -> None:
    """It is stopped, waits, is tried once more, and deactivated; meanwhile another job has its quota."""
    world.queue("team", {world.flavor("plain"): {"cpu": 2}})
    stuck = job("stuck", namespace=world.namespace, queue="team", cpu="2")
    stuck["spec"]["template"]["spec"]["nodeSelector"] = {"no": "such-node"}
    world.create(stuck)
    world.wait_started("stuck")
    evicted = world.wait_workload("stuck", lambda w: condition(w, "Requeued").get("status") == "False", timeout=15)
    assert condition(evicted, "Evicted")["reason"] == "PodsReadyTimeout"
    assert evicted["status"]["requeueState"]["count"] == 1
    assert evicted["status"]["schedulingStats"]["evictions"] == [
        {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1}
    ]
    world.job("other", queue="team", cpu="2", run_for="3s")
    started = world.wait_workload("other", lambda w: condition(w, "PodsReady").get("status") == "True", timeout=15)
    assert condition(started, "PodsReady")["reason"] == "Started"
    world.wait_workload("stuck", lambda w: w["spec"].get("active") is False, timeout=30)
    told = world.wait_workload(
        "stuck", lambda w: condition(w, "Evicted")["reason"].startswith("Deactivated"), timeout=10
    )
    assert condition(told, "Evicted")["reason"] == "DeactivatedDueToRequeuingLimitExceeded"
    world.wait_suspended("stuck")


def test_a_job_with_ready_pods_stays(world: Scenario) -> None:
    """Long after the time for pods to get ready."""
    world.queue("team", {world.flavor("plain"): {"cpu": 4}})
    world.job("fine", queue="team", cpu="2")
    stuck = job("stuck", namespace=world.namespace, queue="team", cpu="2")
    stuck["spec"]["template"]["spec"]["nodeSelector"] = {"no": "such-node"}
    world.create(stuck)
    world.wait_workload("stuck", lambda w: condition(w, "Evicted").get("status") == "True", timeout=15)
    assert not world.suspended("fine")
    assert condition(world.workload_of("fine"), "Evicted") == {}
