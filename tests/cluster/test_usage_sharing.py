"""Admission fair sharing: of two LocalQueues the one that used less goes first, also after a restart."""

from collections.abc import Iterator
from datetime import UTC, datetime
from fractions import Fraction

import pytest

from testbed.client import Json, condition, resource_path, wait_until
from testbed.installation import Installation
from tests.cluster.configured import Configured, configured
from tests.cluster.scenario import GROUP, Scenario
from turnstile.api.quantity import parse

pytestmark = pytest.mark.cluster

FILE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job]
admissionFairSharing:
  usageHalfLifeTime: 10m
  usageSamplingInterval: 1s
leaderElection: {leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}
"""


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


def consumed(world: Scenario, queue: str) -> tuple[Fraction, str]:
    """How many CPUs a LocalQueue consumed by its status, and when that was counted."""
    found = world.api.get(resource_path(GROUP, "localqueues", queue, namespace=world.namespace))
    sharing: Json = found.get("status", {}).get("fairSharing", {}).get("admissionFairSharingStatus", {})
    return Fraction(parse(sharing.get("consumedResources", {}).get("cpu", "0"))), sharing.get("lastUpdate", "")


def holds_quota(world: Scenario, job: str) -> bool:
    """Whether an unfinished Workload of the Job is left."""
    found = world.api.items(resource_path(GROUP, "workloads", namespace=world.namespace))
    return any(
        each["metadata"]["name"].startswith(f"job-{job}-") and condition(each, "Finished").get("status") != "True"
        for each in found
    )


@pytest.mark.parametrize("forgotten", [False, True], ids=["the status is kept", "the status is wiped"])
def test_the_queue_that_used_more_goes_second(installed: Configured, world: Scenario, *, forgotten: bool) -> None:
    """What a queue used is in its status, and a process that starts anew, when nothing of it runs any more, lets the
    other go first. Without that status the older Job would be first: it is the status that decides."""
    process = installed.start()
    scope = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    shared = world.cluster_queue("shared", {world.flavor("plain"): {"cpu": 4}}, admissionScope=scope)
    greedy, modest = world.local_queue("greedy", shared), world.local_queue("modest", shared)
    world.job("heavy", queue=greedy, cpu="4")
    world.wait_started("heavy")
    wait_until(lambda: consumed(world, greedy)[0] > 0, timeout=15, describe=lambda: "no usage in the status")
    world.patch_queue(shared, {"stopPolicy": "Hold"})
    world.delete_job("heavy")
    world.job("greedy-next", queue=greedy, cpu="4")
    world.wait_pending("greedy-next", timeout=20)
    older = world.workload_of("greedy-next")["metadata"]["creationTimestamp"]
    wait_until(
        lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" > older, timeout=5, describe=lambda: "it is the same second"
    )
    world.job("modest-next", queue=modest, cpu="4")
    world.wait_pending("modest-next", timeout=20)
    wait_until(
        lambda: not holds_quota(world, "heavy"), timeout=15, describe=lambda: "the Workload of heavy still has quota"
    )
    process.terminate()
    if forgotten:
        for name in (greedy, modest):
            path = resource_path(GROUP, "localqueues", name, namespace=world.namespace)
            world.api.patch(f"{path}/status", {"status": {"fairSharing": None}})
    used, _ = consumed(world, greedy)
    assert (used == 0) is forgotten
    process = installed.start()
    wait_until(lambda: consumed(world, greedy)[1], timeout=20, describe=lambda: "usage is not counted anew")
    world.patch_queue(shared, {"stopPolicy": "None"})
    first, second = ("greedy-next", "modest-next") if forgotten else ("modest-next", "greedy-next")
    world.wait_started(first, timeout=20)
    assert world.suspended(second)
    process.terminate()


@pytest.mark.parametrize("scope", [{"admissionMode": "UsageBasedAdmissionFairSharing"}, None], ids=["by usage", "not"])
def test_a_queue_that_used_nothing_says_so(installed: Configured, world: Scenario, *, scope: Json | None) -> None:
    """Zero of each resource, and when that was counted; also where usage orders nothing."""
    process = installed.start()
    quota = {world.flavor("plain"): {"cpu": 4, "memory": "4Gi"}}
    shared = world.cluster_queue("shared", quota, **({"admissionScope": scope} if scope else {}))
    idle = world.local_queue("idle", shared)
    path = resource_path(GROUP, "localqueues", idle, namespace=world.namespace)
    found = world.api.wait_for(path, lambda q: q.get("status", {}).get("fairSharing"), timeout=10, describe="usage")
    sharing = found["status"]["fairSharing"]["admissionFairSharingStatus"]
    assert sharing["consumedResources"] == {"cpu": "0", "memory": "0"}
    assert sharing["lastUpdate"]
    process.terminate()
