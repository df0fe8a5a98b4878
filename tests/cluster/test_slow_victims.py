"""A victim whose pod never goes holds up its preemptor for a time, and nobody who fits beside their quota."""

import json
from collections.abc import Iterator

import pytest

from testbed.client import condition, resource_path, wait_until
from testbed.components import STOP_FOR
from testbed.installation import Installation
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import GROUP, Scenario, job

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
"""
PRIORITY = "kueue.x-k8s.io/priority-class"
HOLD = "example.com/hold"


@pytest.fixture(scope="module")
def impatient(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """A Turnstile whose preemptors wait four seconds for their victims."""
    directory = tmp_path_factory.mktemp("etc")
    with configured(idle_installation, directory, FILE, "--victim-patience", "4") as found:
        found.start()
        yield found


@pytest.fixture
def world(impatient: Configured) -> Iterator[Scenario]:
    """An empty managed namespace, whose pods lose their finalizers in the end."""
    with impatient.team() as scenario:
        yield scenario
        for pod in scenario.pods_of("stuck"):
            path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=scenario.namespace)
            scenario.api.patch(path, {"metadata": {"finalizers": None}})


def test_a_pod_with_a_foreign_finalizer(world: Scenario) -> None:
    """Another Job of the queue that fits runs meanwhile. In the end the preemptor names the victim that it no longer
    waits for, and takes what another Job leaves; the quota of the victim stays in use."""
    flavor = world.flavor("plain")
    cluster_queue = world.queue("team", {flavor: {"cpu": 6}}, preemption={"withinClusterQueue": "LowerPriority"})
    low, high = world.priority_class("low", 1), world.priority_class("high", 9)
    stuck = job("stuck", namespace=world.namespace, queue="team", cpu="2", labels={PRIORITY: low})
    template = stuck["spec"]["template"]["metadata"]
    template["finalizers"] = [HOLD]
    template.setdefault("annotations", {})[STOP_FOR] = "1h"
    world.create(stuck)
    world.job("other", queue="team", cpu="2", labels={PRIORITY: high})
    wait_until(
        lambda: [pod for pod in world.pods_of("stuck") if pod["status"].get("phase") == "Running"],
        timeout=20,
        describe=lambda: "stuck does not run",
    )
    world.wait_started("other")
    world.job("high", queue="team", cpu="3", labels={PRIORITY: high})
    victim = world.wait_workload("stuck", lambda w: condition(w, "Evicted").get("status") == "True")
    world.job("small", queue="team", cpu="1", labels={PRIORITY: high})
    world.wait_started("small")
    name = victim["metadata"]["name"]
    told = f"Workload {world.namespace}/{name} was preempted for it at"
    world.wait_workload("high", lambda w: told in condition(w, "QuotaReserved").get("message", ""), timeout=20)
    world.wait_event(name, reason="QuotaStillHeld")
    world.delete_job("other")
    world.wait_started("high", timeout=20)
    assert condition(world.workload_of("stuck"), "QuotaReserved")["status"] == "True"
    path = resource_path(GROUP, "clusterqueues", cluster_queue)
    wait_until(
        lambda: world.api.get(path)["status"]["reservingWorkloads"] == 3,
        timeout=10,
        describe=lambda: str(world.api.get(path)["status"]),
    )


def test_nothing_in_a_namespace_names_a_job_of_another(impatient: Configured) -> None:
    """A preemptor takes quota from a Job of another namespace, which does not go in time: no Workload, Job, Pod, queue
    or event of the preemptor's namespace names that namespace, the Job, its Workload or its pods."""
    with impatient.team() as mine, impatient.team() as theirs:
        cluster_queue = mine.queue(
            "team", {mine.flavor("plain"): {"cpu": 2}}, preemption={"withinClusterQueue": "LowerPriority"}
        )
        theirs.local_queue("team", cluster_queue)
        low, high = mine.priority_class("low", 1), mine.priority_class("high", 9)
        stuck = job("secret", namespace=theirs.namespace, queue="team", cpu="2", labels={PRIORITY: low})
        template = stuck["spec"]["template"]["metadata"]
        template["finalizers"] = [HOLD]
        template.setdefault("annotations", {})[STOP_FOR] = "1h"
        theirs.create(stuck)
        wait_until(
            lambda: [pod for pod in theirs.pods_of("secret") if pod["status"].get("phase") == "Running"],
            timeout=20,
            describe=lambda: "the Job of the other namespace does not run",
        )
        mine.job("high", queue="team", cpu="2", labels={PRIORITY: high})
        preemptor = mine.wait_workload("high", lambda w: True)["metadata"]["name"]
        mine.wait_event(preemptor, reason="PreemptedWorkload")
        told = "A Workload of another namespace was preempted for it at"
        mine.wait_workload("high", lambda w: told in condition(w, "QuotaReserved").get("message", ""), timeout=20)
        read = [
            mine.api.get(resource_path(version, kind, namespace=mine.namespace))
            for version, kind in (
                (GROUP, "workloads"),
                (GROUP, "localqueues"),
                ("batch/v1", "jobs"),
                ("v1", "pods"),
                ("events.k8s.io/v1", "events"),
            )
        ]
        said = json.dumps(read)
        for pod in theirs.pods_of("secret"):
            path = resource_path("v1", "pods", pod["metadata"]["name"], namespace=theirs.namespace)
            theirs.api.patch(path, {"metadata": {"finalizers": None}})
        assert theirs.namespace not in said
        assert "secret" not in said
