"""Quota is held until pods are gone, whoever deletes their Job and however."""

from tests.attacks.conftest import Tenant


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
