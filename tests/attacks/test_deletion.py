"""Quota is held until pods are gone, whoever deletes their Job and however."""

import pytest

from testbed.client import resource_path
from testbed.components import STOP_FOR
from tests.attacks.conftest import Tenant
from tests.cluster.scenario import GROUP, QUEUE


def test_a_job_deleted_with_orphan_leaves_its_pods_charged(tenant: Tenant) -> None:
    """Delete the Job with `--cascade=orphan`, which leaves its pods running for ever, and create another one."""
    tenant.job("a")
    tenant.wait_runs(2)
    tenant.delete("batch/v1", "jobs", "a", propagation="Orphan")
    tenant.job("b")
    tenant.world.workload_of("b")
    tenant.within_quota()


def test_a_foreign_finalizer_on_a_deleted_job_frees_nothing(tenant: Tenant) -> None:
    """Delete a Job that carries a finalizer of the tenant's, whose pods the garbage collector never touches."""
    tenant.job("a", finalizers=["example.com/keep"])
    tenant.wait_runs(2)
    tenant.delete("batch/v1", "jobs", "a")
    tenant.job("b")
    tenant.world.workload_of("b")
    tenant.within_quota()


def test_a_client_that_names_no_propagation_policy_frees_nothing(tenant: Tenant) -> None:
    """Delete the Job without a propagation policy, which for Jobs means orphan, and let it end by itself later."""
    tenant.job("a")
    tenant.wait_runs(2)
    tenant.api.request("DELETE", tenant.path("batch/v1", "jobs", "a"))
    tenant.job("b")
    tenant.world.workload_of("b")
    tenant.within_quota()
    tenant.end_pods()
    tenant.world.wait_started("b")
    tenant.within_quota()


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
def test_pods_that_take_long_to_stop_are_charged_until_then(tenant: Tenant, propagation: str) -> None:
    """Delete a Job whose pods ignore their signal for two seconds, and delete the pods too."""
    tenant.job("a", annotations_of_pods={STOP_FOR: "2s"})
    tenant.wait_runs(2)
    tenant.delete("batch/v1", "jobs", "a", propagation=propagation)
    tenant.job("b")
    for pod in tenant.pods():
        tenant.delete("v1", "pods", pod["metadata"]["name"])
    tenant.world.wait_started("b", timeout=20)
    tenant.within_quota()


def test_a_pod_with_a_grace_period_of_a_year_is_charged_until_it_has_ended(tenant: Tenant) -> None:
    """Delete a running Pod that has a year to stop, and create another one."""
    year = {"terminationGracePeriodSeconds": 31536000}
    tenant.pod("a", cpu="2", spec=year, annotations={STOP_FOR: "1h"})
    tenant.wait_runs(2)
    tenant.delete("v1", "pods", "a")
    tenant.pod("b", cpu="2")
    tenant.world.workload_of("b", kind="Pod")
    tenant.within_quota()


def test_a_foreign_finalizer_on_a_pod_holds_no_quota_once_it_has_ended(tenant: Tenant) -> None:
    """Delete a running Pod that carries a finalizer of the tenant's: its quota is free when it has stopped."""
    tenant.pod("a", cpu="2", finalizers=["example.com/keep"])
    tenant.wait_runs(2)
    tenant.delete("v1", "pods", "a")
    tenant.pod("b", cpu="2")
    tenant.wait(lambda: tenant.pod_runs("b"), describe=lambda: "the second Pod does not run")
    tenant.within_quota()


def test_pods_of_a_group_are_charged_until_they_have_ended(tenant: Tenant) -> None:
    """Delete all Pods of a group, which take long to stop, and create another group."""
    for group in "gh":
        for name in (f"{group}-0", f"{group}-1"):
            tenant.pod(
                name,
                labels={QUEUE: "main", "kueue.x-k8s.io/pod-group-name": group},
                annotations={"kueue.x-k8s.io/pod-group-total-count": "2", STOP_FOR: "2s"},
            )
        if group == "g":
            tenant.wait_runs(2)
            for pod in tenant.pods():
                tenant.delete("v1", "pods", pod["metadata"]["name"], propagation="Orphan")
    tenant.wait(lambda: tenant.pod_runs("h-0"), timeout=15, describe=lambda: "the second group does not run")
    tenant.within_quota()


def test_the_workload_of_a_running_job_cannot_go_before_its_pods(tenant: Tenant) -> None:
    """Have the Workload of a running Job deleted, whose pods take long to stop."""
    tenant.job("a", annotations_of_pods={STOP_FOR: "2s"})
    tenant.wait_runs(2)
    name = tenant.world.workload_of("a")["metadata"]["name"]
    tenant.world.api.delete(tenant.path(GROUP, "workloads", name))
    tenant.job("b")
    tenant.world.workload_of("b")
    tenant.within_quota()


def test_an_orphaned_workload_keeps_its_quota(tenant: Tenant) -> None:
    """Have the Workload deleted after its Job was deleted with orphan: its pods run on."""
    tenant.job("a")
    tenant.wait_runs(2)
    name = tenant.world.workload_of("a")["metadata"]["name"]
    tenant.delete("batch/v1", "jobs", "a", propagation="Orphan")
    tenant.world.api.delete(tenant.path(GROUP, "workloads", name))
    tenant.job("b")
    tenant.world.workload_of("b")
    tenant.within_quota()
    tenant.end_pods()
    tenant.world.wait_started("b")
    tenant.world.api.wait_gone(tenant.path(GROUP, "workloads", name))
    tenant.within_quota()


def test_the_next_controller_knows_of_orphaned_pods(tenant: Tenant) -> None:
    """Delete a Job with orphan while the controller is restarted."""
    tenant.job("a")
    tenant.wait_runs(2)
    tenant.turnstile.kill()
    tenant.delete("batch/v1", "jobs", "a", propagation="Orphan")
    tenant.turnstile.start()
    # Until a webhook answered, the garbage collector could not write the pods: it tries again less and less often.
    tenant.world.api.wait_gone(tenant.path("batch/v1", "jobs", "a"), timeout=60)
    tenant.job("b")
    tenant.world.workload_of("b")
    tenant.within_quota()


def test_a_job_of_a_deleted_namespace_is_charged_until_its_pods_are_gone(tenant: Tenant) -> None:
    """Delete the namespace, whose pods take long to stop; another namespace shares the ClusterQueue."""
    other = tenant.second_namespace()
    tenant.job("a", annotations_of_pods={STOP_FOR: "3s"})
    tenant.wait_runs(2)
    tenant.world.api.delete(resource_path("v1", "namespaces", tenant.namespace))
    other.job("b", queue="main", cpu="2")
    other.wait_started("b", timeout=30)
    assert tenant.sentry.runs == 0


def test_a_job_that_is_deleted_before_its_first_pod_is_charged_for_the_pods_to_come(tenant: Tenant) -> None:
    """Delete each Job with orphan right after it was admitted, again and again."""
    for number in range(4):
        name = f"j{number}"
        tenant.job(name)
        tenant.world.wait_workload(name, lambda w: bool(w.get("status", {}).get("conditions")))
        tenant.delete("batch/v1", "jobs", name, propagation="Orphan")
    tenant.within_quota()


@pytest.mark.parametrize(
    "finalizers", [[], ["example.com/keep"]], ids=["and it goes", "and a finalizer of the tenant keeps it"]
)
def test_pods_of_a_deleted_job_hold_no_quota_hostage(tenant: Tenant, finalizers: list[str]) -> None:
    """Delete a Job whose pods run for ever, as nothing stops them: a Job of higher priority still takes their place."""
    queue = tenant.world.named("main")
    tenant.world.patch_queue(queue, {"preemption": {"withinClusterQueue": "LowerPriority"}})
    tenant.job("a", finalizers=finalizers)
    tenant.wait_runs(2)
    if finalizers:
        tenant.delete("batch/v1", "jobs", "a", propagation="Background")
    else:
        tenant.delete("batch/v1", "jobs", "a", propagation="Orphan")
        tenant.world.api.wait_gone(tenant.path("batch/v1", "jobs", "a"))
    high = tenant.world.priority_class("high", 100)
    tenant.job("b", labels={QUEUE: "main", "kueue.x-k8s.io/priority-class": high})
    tenant.world.wait_started("b")
    tenant.wait_runs(2)
    tenant.within_quota()
