"""Nothing is done as often as a number of an object says."""

import time
from collections.abc import Iterator
from statistics import median

import pytest

from testbed.client import Json, resource_path
from tests.attacks.conftest import Tenant, pod_spec
from tests.attacks.conftest import Turnstile as Attacked
from tests.cluster.every_kind import definition
from tests.cluster.scenario import QUEUE

SETS = "leaderworkerset.x-k8s.io/v1"
MILLION = 1_000_000
MOST_WORKLOADS = 50
"""More than Turnstile creates for groups that have no pods."""
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
