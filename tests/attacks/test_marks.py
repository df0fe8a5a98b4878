"""What a tenant takes off a pod, or puts on it, changes nothing about its quota."""

from functools import partial

import pytest

from testbed.client import wait_until
from testbed.errors import ApiError
from tests.attacks.conftest import Tenant

MANAGED = "kueue.x-k8s.io/managed"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
HOOKS = f"{WEBHOOKS}/turnstile-validating-webhook-configuration"


def test_the_managed_label_cannot_be_taken_off(tenant: Tenant) -> None:
    """Take the managed label off running Pods, so that no selective watch sees them, and create other Pods."""
    for name in ("a", "b"):
        tenant.pod(name)
    tenant.wait_runs(2)
    for name in ("a", "b"):
        with pytest.raises(ApiError, match="Forbidden"):
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


def test_pods_without_any_mark_are_charged_while_no_webhook_answers(tenant: Tenant) -> None:
    """Have label and finalizer taken off running Pods by an administrator while Turnstile does not run."""
    api = tenant.world.api
    for name in ("a", "b"):
        tenant.pod(name)
    tenant.wait_runs(2)
    tenant.turnstile.kill()
    hooks = api.get(HOOKS)
    api.delete(HOOKS)
    for name in ("a", "b"):
        wait_until(partial(unmarked, tenant, name), timeout=10, describe=lambda: "the webhook is still asked")
    for field in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
        hooks["metadata"].pop(field)
    api.create(hooks)
    tenant.turnstile.start()
    for name in ("c", "d"):
        tenant.pod(name)
    tenant.world.workload_of("d", kind="Pod")
    tenant.within_quota()
    tenant.end_pods()
    tenant.wait(lambda: tenant.pod_runs("c") and tenant.pod_runs("d"), describe=lambda: "the next Pods do not run")
    tenant.within_quota()


def unmarked(tenant: Tenant, name: str) -> bool:
    """Whether the marks of a Pod could be taken off; administrators are not bound by the policies."""
    try:
        path = tenant.path("v1", "pods", name)
        tenant.world.api.patch(path, {"metadata": {"labels": {MANAGED: None}, "finalizers": None}})
    except ApiError:
        return False
    return True
