"""What a tenant takes off a pod, or puts on it, changes nothing about its quota."""

from functools import partial

import pytest

from testbed.client import Api, Json, wait_until
from testbed.errors import ApiError
from tests.attacks.conftest import Tenant

MANAGED = "kueue.x-k8s.io/managed"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
GUARDS = (
    f"{REGISTRATION}/validatingwebhookconfigurations/turnstile-validating-webhook-configuration",
    f"{REGISTRATION}/validatingadmissionpolicybindings/turnstile-pods",
)
"""What refuses to take a mark off a pod: the webhook, and the policy of the API server itself."""


def test_the_managed_label_cannot_be_taken_off(tenant: Tenant) -> None:
    """Take the managed label off running Pods, so that no selective watch sees them, and create other Pods."""
    for name in ("a", "b"):
        tenant.pod(name)
    tenant.wait_runs(2)
    for name in ("a", "b"):
        with pytest.raises(ApiError, match=r"managed\]: Forbidden: '' instead of 'true'"):
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


def test_pods_without_any_mark_are_charged_while_nothing_guards_the_marks(tenant: Tenant) -> None:
    """Take label and finalizer off running Pods while Turnstile does not run, and neither webhook nor policy is there:
    their Workloads still own up to them."""
    api = tenant.world.api
    for name in ("a", "b"):
        tenant.pod(name)
    tenant.wait_runs(2)
    tenant.turnstile.kill()
    guards = [taken_away(api, path) for path in GUARDS]
    for name in ("a", "b"):
        wait_until(partial(unmarked, tenant, name), timeout=10, describe=lambda: "the marks are still guarded")
    for guard in guards:
        api.create(guard)
    tenant.turnstile.start()
    for name in ("c", "d"):
        tenant.pod(name)
    wait_until(
        lambda: not unmarked(tenant, "c", dry_run=True), timeout=10, describe=lambda: "the marks are not guarded again"
    )
    tenant.world.workload_of("d", kind="Pod")
    tenant.within_quota()
    tenant.end_pods()
    tenant.wait(lambda: tenant.pod_runs("c") and tenant.pod_runs("d"), describe=lambda: "the next Pods do not run")
    tenant.within_quota()


def taken_away(api: Api, path: str) -> Json:
    """Delete an object; the manifest to create it again."""
    found: Json = api.get(path)
    api.delete(path)
    for field in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
        found["metadata"].pop(field, None)
    return found


def unmarked(tenant: Tenant, name: str, *, dry_run: bool = False) -> bool:
    """Whether the marks of a Pod could be taken off."""
    marks = {"metadata": {"labels": {MANAGED: None}, "finalizers": None}}
    try:
        tenant.api.patch(tenant.path("v1", "pods", name), marks, params={"dryRun": "All"} if dry_run else None)
    except ApiError:
        return False
    return True
