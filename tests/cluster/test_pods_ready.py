"""waitForPodsReady on a real cluster: who cannot start its pods gives its quota to others, and in the end for good."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from testbed.client import condition, resource_path
from testbed.installation import Installation
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import Scenario, job
from turnstile.api.conditions import timestamp

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
waitForPodsReady:
  timeout: 3s
  blockAdmission: true
  requeuingStrategy: {backoffBaseSeconds: 2, backoffLimitCount: 1}
"""


EVICTED_ONCE = {"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1}


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


def test_a_job_without_a_node_makes_way_and_is_given_up_in_the_end(world: Scenario, impatient: Configured) -> None:
    """It is stopped, waits, is tried once more, and deactivated; meanwhile another job has its quota. While it has no
    ready pods, nothing else is admitted. Turnstile is killed after the eviction, and before the deactivation: each
    eviction is counted once, and the back-off, which a user makes longer and then ends, is waited for. When a user
    activates the Workload again, the job is tried again."""
    world.queue("team", {world.flavor("plain"): {"cpu": 2}})
    world.queue("side", {world.named("plain"): {"cpu": 2}})
    stuck = job("stuck", namespace=world.namespace, queue="team", cpu="2")
    stuck["spec"]["template"]["spec"]["nodeSelector"] = {"no": "such-node"}
    world.create(stuck)
    world.wait_started("stuck")
    world.job("beside", queue="side", cpu="2")
    world.wait_pending("beside", reason="WaitingForPodsReady")
    evicted = world.wait_workload("stuck", lambda w: condition(w, "Evicted").get("status") == "True", timeout=15)
    assert condition(evicted, "Evicted")["reason"] == "PodsReadyTimeout"
    assert evicted["status"]["requeueState"]["count"] == 1
    path = world.api.path_of(world.workload_of("stuck"))
    later, now = (timestamp(datetime.now(UTC) + timedelta(minutes=minutes)) for minutes in (5, 0))
    world.api.patch(f"{path}/status", {"status": {"requeueState": {"requeueAt": later}}})
    impatient.installation.crash(impatient.started[-1])
    impatient.start()
    waits = world.wait_workload("stuck", lambda w: condition(w, "Requeued").get("status") == "False", timeout=15)
    assert waits["status"]["requeueState"] == {"count": 1, "requeueAt": later}
    assert waits["status"]["schedulingStats"]["evictions"] == [EVICTED_ONCE]
    world.wait_workload("beside", lambda w: condition(w, "PodsReady").get("status") == "True", timeout=15)
    world.job("other", queue="team", cpu="2", run_for="3s")
    started = world.wait_workload("other", lambda w: condition(w, "PodsReady").get("status") == "True", timeout=15)
    assert condition(started, "PodsReady")["reason"] == "Started"
    world.api.patch(f"{path}/status", {"status": {"requeueState": {"requeueAt": now}}})
    world.wait_workload("stuck", lambda w: condition(w, "DeactivationTarget") or not w["spec"]["active"], timeout=30)
    impatient.installation.crash(impatient.started[-1])
    impatient.start()
    told = world.wait_workload(
        "stuck", lambda w: condition(w, "Evicted")["reason"].startswith("Deactivated"), timeout=15
    )
    assert condition(told, "Evicted")["reason"] == "DeactivatedDueToRequeuingLimitExceeded"
    assert told["spec"]["active"] is False
    assert not told["status"].get("requeueState")
    given_up = {"reason": "Deactivated", "underlyingCause": "RequeuingLimitExceeded", "count": 1}
    assert told["status"]["schedulingStats"]["evictions"] == [EVICTED_ONCE, given_up]
    world.wait_suspended("stuck")
    world.wait_workload("stuck", lambda w: condition(w, "QuotaReserved")["status"] == "False")
    world.api.patch(path, {"spec": {"active": True}})
    world.wait_workload("stuck", lambda w: condition(w, "Admitted").get("status") == "True", timeout=15)


def test_a_job_with_ready_pods_stays(world: Scenario) -> None:
    """Long after the time for pods to get ready. A job that loses a pod is evicted like a job that never had it."""
    world.queue("team", {world.flavor("plain"): {"cpu": 4}})
    world.job("fine", queue="team", cpu="2")
    world.job("loses", queue="team", cpu="2")
    for name in ("fine", "loses"):
        world.wait_workload(name, lambda w: condition(w, "PodsReady").get("status") == "True", timeout=15)
    (pod,) = world.pods_of("loses")
    others = [each for each in pod["status"]["conditions"] if each["type"] != "Ready"]
    unready = {**condition(pod, "Ready"), "status": "False"}
    path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=world.namespace)
    world.api.patch(f"{path}/status", {"status": {"conditions": [*others, unready]}})
    evicted = world.wait_workload("loses", lambda w: condition(w, "Evicted").get("status") == "True", timeout=15)
    assert evicted["status"]["schedulingStats"]["evictions"] == [{**EVICTED_ONCE, "underlyingCause": "WaitForRecovery"}]
    assert not world.suspended("fine")
    assert condition(world.workload_of("fine"), "Evicted") == {}
