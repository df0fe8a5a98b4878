"""What a tenant takes off a pod, or puts on it, changes nothing about its quota."""

import pytest

from testbed.errors import ApiError
from tests.attacks.conftest import Tenant

MANAGED = "kueue.x-k8s.io/managed"


def test_the_managed_label_cannot_be_taken_off(tenant: Tenant) -> None:
    """Take the managed label off running Pods, so that no selective watch sees them, and create other Pods."""
    for name in ("a", "b"):
        tenant.pod(name)
    tenant.wait_runs(2)
    for name in ("a", "b"):
        with pytest.raises(ApiError, match="immutable"):
            tenant.patch("v1", "pods", name, {"metadata": {"labels": {MANAGED: None}}})
    for name in ("c", "d"):
        tenant.pod(name)
    tenant.world.workload_of("d", kind="Pod")
    tenant.within_quota()
    for name in ("a", "b"):
        tenant.delete("v1", "pods", name)
        tenant.world.api.wait_gone(tenant.path("v1", "pods", name))
    tenant.wait_runs(2)
    tenant.within_quota()
