"""What the world did while no replica led is in the statuses of the queues soon after the next start."""

from collections.abc import Callable, Iterator

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.installation import Installation
from testbed.processes import Process
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import GROUP, Scenario, resource_groups

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job]
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
leaderElection: {leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}
"""

SOON = 15.0
"""Seconds until a status is right: a second on an idle machine."""


@pytest.fixture(scope="module")
def installed(idle_installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Configured]:
    """Turnstile's objects, and the configuration file to start it with."""
    with configured(idle_installation, tmp_path_factory.mktemp("etc"), FILE) as found:
        yield found


@pytest.fixture
def world(installed: Configured) -> Iterator[Scenario]:
    """An empty managed namespace."""
    with installed.team() as scenario:
        yield scenario


class Queues:
    """Statuses of the queues of a test, by their short name."""

    def __init__(self, world: Scenario) -> None:
        self.world = world

    def wait(self, name: str, right: Callable[[Json, Json], object], *, what: str) -> None:
        """Until the statuses of the ClusterQueue and LocalQueue of that name are right."""
        seen: list[Json] = []

        def look() -> object:
            seen[:] = (
                self.world.api.get(path).get("status", {})
                for path in (
                    resource_path(GROUP, "clusterqueues", self.world.named(name)),
                    resource_path(GROUP, "localqueues", name, namespace=self.world.namespace),
                )
            )
            return right(*seen)

        wait_until(look, timeout=SOON, describe=lambda: f"{name}: {what}: {seen}")

    def counts(self, name: str, pending: int, reserving: int, admitted: int, cpu: str) -> None:
        """Until both statuses have these figures, and this much of their flavor in use."""
        figures = {"pendingWorkloads": pending, "reservingWorkloads": reserving, "admittedWorkloads": admitted}

        def right(*statuses: Json) -> bool:
            return all(figures.items() <= status.items() and _used(status) == [cpu, cpu] for status in statuses)

        self.wait(name, right, what=f"{figures}, {cpu} CPUs")


def _used(status: Json) -> list[str]:
    """CPUs reserved and in use, of the first flavor."""
    return [status[field][0]["resources"][0]["total"] for field in ("flavorsReservation", "flavorsUsage")]


def test_statuses_are_right_after_a_restart(installed: Configured, world: Scenario) -> None:
    """Of queues whose Workloads were deleted, finished or got quota meanwhile. Of a Workload that is gone there is no
    event that would have its queues counted."""
    queues, api = Queues(world), installed.cp.api
    process = installed.start()
    flavor, lost = world.flavor("plain"), world.flavor("lost")
    world.cohort("all")
    for name in ("erased", "ended", "grown", "above", "below"):
        world.queue(name, {lost if name == "below" else flavor: {"cpu": 0 if name == "erased" else 2}}, cohort="all")
    world.job("erased", queue="erased", cpu="2")  # borrows
    world.wait_started("erased", timeout=20)
    for name in ("ended", "grown"):
        world.job(name, queue=name, cpu="2")
        world.wait_started(name, timeout=20)
    world.job("waits", queue="grown", cpu="5")
    queues.counts("erased", 0, 1, 1, "2")
    queues.counts("ended", 0, 1, 1, "2")
    queues.counts("grown", 1, 1, 1, "2")
    queues.wait("erased", lambda cq, _: cq["fairSharing"]["weightedShare"] > 0, what="borrows")
    queues.wait("below", lambda _, lq: condition({"status": lq}, "Active")["reason"] == "Ready", what="ready")
    process.terminate()
    webhook = answering(installed)
    erase(world, "erased")
    world.finish("ended")
    job_ended = lambda job: condition(job, "Complete").get("status") == "True"  # noqa: E731
    api.wait_for(resource_path("batch/v1", "jobs", "ended", namespace=world.namespace), job_ended, timeout=20)
    world.patch_queue(world.named("grown"), {"resourceGroups": resource_groups({flavor: {"cpu": 20}})})
    api.patch(resource_path(GROUP, "clusterqueues", world.named("above")), {"metadata": {"finalizers": None}})
    api.delete(resource_path(GROUP, "clusterqueues", world.named("above")))
    api.patch(resource_path(GROUP, "resourceflavors", lost), {"metadata": {"finalizers": None}})
    api.delete(resource_path(GROUP, "resourceflavors", lost))
    webhook.terminate()

    process = installed.start()
    queues.counts("erased", 0, 0, 0, "0")
    queues.wait("erased", lambda cq, _: cq["fairSharing"]["weightedShare"] == 0, what="borrows nothing")
    queues.counts("ended", 0, 0, 0, "0")
    queues.counts("grown", 0, 2, 2, "7")
    path = resource_path(GROUP, "localqueues", "above", namespace=world.namespace)
    gone = lambda found: condition(found, "Active")["reason"] == "ClusterQueueDoesNotExist"  # noqa: E731
    found = api.wait_for(path, gone, timeout=SOON, describe="the ClusterQueue is gone")
    assert "flavorsReservation" not in found["status"]
    queues.wait("below", _misses_its_flavor, what="misses its flavor")
    process.terminate()


def answering(installed: Configured) -> Process:
    """A process that only answers reviews, without which the API server refuses every edit; ready."""
    process = installed.installation.start(role="webhook", arguments=("--config", str(installed.file)), election=())
    installed.started.append(process)
    installed.installation.wait_ready(process)
    return process


def _misses_its_flavor(cluster_queue: Json, local_queue: Json) -> bool:
    reasons = [condition({"status": each}, "Active")["reason"] for each in (cluster_queue, local_queue)]
    return reasons == ["FlavorNotFound", "ClusterQueueIsInactive"]


def erase(world: Scenario, name: str) -> None:
    """Delete a Job and its Workload, with a finalizer that no process removes, so that nothing is left of them."""
    path = world.api.path_of(world.workload_of(name))
    world.delete_job(name)
    world.api.patch(path, {"metadata": {"finalizers": None}})
    world.api.delete(path)
    world.api.wait_gone(path)
    job = resource_path("batch/v1", "jobs", name, namespace=world.namespace)
    world.api.wait_gone(job)
