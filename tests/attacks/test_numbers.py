"""Nothing is done as often as a number of an object says."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from testbed.client import Json, resource_path
from tests.attacks.conftest import Tenant, pod_spec
from tests.attacks.conftest import Turnstile as Attacked
from tests.cluster.every_kind import definition
from tests.cluster.scenario import GROUP, QUEUE

SETS = "leaderworkerset.x-k8s.io/v1"
MILLION = 1_000_000
MOST_WORKLOADS = 50
"""More than Turnstile creates for groups that have no pods."""
LARGE_JOBS = 15
MOST_MIB = 60
"""What Turnstile may grow by while these wait; the largest part is what is on the way at a time."""
SECONDS = 3.0
"""A Job that can start at once has started after so long, on a busy machine too."""


@pytest.fixture(scope="module", autouse=True)
def defined(attacked: Attacked) -> Iterator[None]:
    """LeaderWorkerSets exist, and their controller does not run: no group ever has a pod."""
    api = attacked.installation.control_plane.api
    api.create(definition(SETS, "LeaderWorkerSet", "leaderworkersets"))
    yield
    api.delete(resource_path("apiextensions.k8s.io/v1", "customresourcedefinitions", f"leaderworkersets.{SETS[:-3]}"))


def large_set(tenant: Tenant, *, size: int = 2, cpu: str = "1") -> Json:
    """A LeaderWorkerSet of a million groups."""
    return {
        "apiVersion": SETS,
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "large", "namespace": tenant.namespace, "labels": {QUEUE: "main"}},
        "spec": {
            "replicas": MILLION,
            "leaderWorkerTemplate": {"size": size, "workerTemplate": {"spec": pod_spec(cpu)}},
        },
    }


def starts(tenant: Tenant, name: str) -> float:
    """Seconds until a new Job of a few thousandths of a CPU has started."""
    began = time.monotonic()
    tenant.job(name, cpu="10m", pods=1)
    tenant.world.wait_started(name)
    return time.monotonic() - began


def of_groups(tenant: Tenant) -> list[Json]:
    """The Workloads of the groups."""
    return [each for each in tenant.workloads() if each["metadata"]["name"].startswith("leaderworkerset-")]


@pytest.mark.parametrize(("size", "cpu"), [(2, "2"), (1, "0")])
def test_by_groups_of_a_set(tenant: Tenant, size: int, cpu: str) -> None:
    """Ask for a million groups of a LeaderWorkerSet, which request more than the quota or nothing."""
    before = [starts(tenant, f"before-{number}") for number in range(10)]
    tenant.world.create(large_set(tenant, size=size, cpu=cpu))
    after = [starts(tenant, f"beside-{number}") for number in range(20)]
    print(f"a Job starts after {median(before):.3f} s alone, {median(after):.3f} beside, {max(after):.3f} at most")
    assert max(after) < SECONDS
    tenant.wait(lambda: len(of_groups(tenant)) > 20, timeout=30, describe=lambda: f"{len(of_groups(tenant))} Workloads")
    tenant.wait(lambda: tenant.sentry.quiet_for(1), timeout=60, describe=lambda: "Workloads come and go")
    assert len(of_groups(tenant)) < MOST_WORKLOADS
    tenant.world.api.delete(resource_path(SETS, "leaderworkersets", "large", namespace=tenant.namespace))
    tenant.wait(lambda: not of_groups(tenant), timeout=60, describe=lambda: "Workloads of groups are left")
    tenant.within_quota()


def resident(tenant: Tenant) -> float:
    """Resident memory of Turnstile in MiB."""
    assert tenant.turnstile.process is not None
    status = Path(f"/proc/{tenant.turnstile.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def waiting(tenant: Tenant) -> int:
    """The Workloads that wait, as the status of the ClusterQueue says."""
    found = tenant.world.api.get(resource_path(GROUP, "clusterqueues", tenant.world.named("main")))
    return int(found["status"].get("pendingWorkloads", 0))


def test_by_the_size_of_jobs(tenant: Tenant) -> None:
    """Let Jobs wait whose environment has a megabyte each, as much as the API server takes."""
    before = resident(tenant)
    for number in range(LARGE_JOBS):
        body = tenant.job_body(f"large-{number}", cpu="3")
        [container] = body["spec"]["template"]["spec"]["containers"]
        container["env"] = [{"name": f"V{each}", "value": f"{number:02}" * 500} for each in range(1000)]
        tenant.api.create(body)
    tenant.wait(lambda: waiting(tenant) == LARGE_JOBS, timeout=60, describe=lambda: f"{waiting(tenant)} wait")
    after = resident(tenant)
    print(f"{LARGE_JOBS} Jobs of a megabyte: {before:.0f} MiB, then {after:.0f} MiB")
    assert after - before < MOST_MIB
    [one, *_] = tenant.world.api.get(f"{tenant.path(GROUP, 'workloads')}?limit=1")["items"]
    assert len(one["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["env"]) == 1000
    starts(tenant, "beside")
    tenant.within_quota()
