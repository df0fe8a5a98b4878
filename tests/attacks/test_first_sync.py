"""Eviction while the Job controller creates the first pods of a Job, which it does up to 500 at a time before it writes
anything to the Job's status. With its default limit of 20 requests a second that takes seconds."""

from collections.abc import Iterator

import pytest

from testbed.client import condition, resource_path
from tests.attacks.conftest import Tenant, installed, pod_spec, tenant_of
from tests.cluster.scenario import QUEUE
from tests.turnstile import Turnstile

PODS = 50
BUSY = 400
"""Pods that take up all requests of the Job controller for 20 s: longer than the eviction takes on a busy machine."""


@pytest.fixture(scope="module")
def slow() -> Iterator[Turnstile]:
    """Turnstile beside a kube-controller-manager with its default rate limits."""
    with installed(kube_api_qps=None) as turnstile:
        yield turnstile


@pytest.fixture
def tenant(slow: Turnstile) -> Iterator[Tenant]:
    """A tenant whose Jobs of higher priority preempt others."""
    with tenant_of(slow, preemption={"withinClusterQueue": "LowerPriority"}) as made:
        made.world.priority_class("high", 100)
        yield made


def of_high_priority(tenant: Tenant) -> None:
    """Create a Job as large as the quota that preempts every other one."""
    labels = {QUEUE: "main", "kueue.x-k8s.io/priority-class": tenant.world.named("high")}
    tenant.job("high", cpu="40m", pods=PODS, labels=labels)
    tenant.world.wait_workload("low", lambda w: condition(w, "Evicted").get("status") == "True")


def test_pods_that_are_being_created_are_charged(tenant: Tenant) -> None:
    """Preempt a Job of which only some pods were created: the rest follows although it is suspended."""
    tenant.job("low", cpu="40m", pods=PODS)
    tenant.wait(lambda: tenant.sentry.runs > 0, describe=lambda: "no pod runs")
    of_high_priority(tenant)
    tenant.world.wait_started("high", timeout=60)
    tenant.wait_runs(2, timeout=60)
    tenant.within_quota()


def test_pods_that_will_be_created_are_charged(tenant: Tenant) -> None:
    """Preempt a Job that the Job controller has read but not created a pod of: another Job is in its way."""
    cluster_queue = tenant.world.named("main")
    tenant.world.patch_queue(cluster_queue, {"stopPolicy": "Hold"})
    tenant.job("low", cpu="40m", pods=PODS)
    path = tenant.path("batch/v1", "jobs", "low")
    tenant.world.api.wait_for(path, lambda job: condition(job, "Suspended").get("status") == "True")
    namespace = tenant.turnstile.installation.control_plane.namespace("busy")
    pods = resource_path("v1", "pods", namespace=namespace)
    body = tenant.job_body("busy", cpu="1m", pods=BUSY, labels={}, namespace=namespace)
    body["spec"]["template"]["spec"] = {**pod_spec("1m"), "schedulingGates": [{"name": "example.com/never"}]}
    tenant.world.api.create(body)
    tenant.wait(lambda: len(tenant.world.api.items(pods)) > 62, timeout=30, describe=lambda: "it is not busy")
    tenant.world.patch_queue(cluster_queue, {"stopPolicy": "None"})
    tenant.world.wait_started("low")
    of_high_priority(tenant)
    assert not tenant.pods()
    tenant.world.wait_started("high", timeout=90)
    tenant.wait_runs(2, timeout=60)
    tenant.within_quota()
    tenant.world.api.delete(resource_path("v1", "namespaces", namespace))
