"""What Kubernetes' roles keep from a tenant: quota is written by administrators, admissions by Turnstile."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from testbed import ApiError
from testbed.client import Json, resource_path, wait_until
from testbed.installation import MANAGED
from tests.attacks.conftest import BATCH_USER, EDIT, Tenant, tenant_of
from tests.attacks.rest import comes_back_within_quota
from tests.cluster.scenario import GROUP
from tests.turnstile import Turnstile

OLD = "kueue.x-k8s.io/v1beta1"
RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io/v1"


def forbidden(call: Callable[..., object], *arguments: object, **options: object) -> None:
    """Assert that the role of the tenant does not allow a request."""
    with pytest.raises(ApiError) as error:
        call(*arguments, **options)
    assert error.value.code == 403


def full(tenant: Tenant) -> None:
    """Fill the quota with Job `a` and let Job `b` wait."""
    tenant.job("a")
    tenant.wait_runs(2)
    tenant.job("b")
    tenant.world.wait_pending("b")


def workload_of_b(tenant: Tenant) -> str:
    """The name of the Workload that waits."""
    name: str = tenant.world.workload_of("b")["metadata"]["name"]
    return name


@pytest.fixture(scope="module", params=[EDIT, BATCH_USER], ids=["edit", "batch user"])
def occupied(attacked: Turnstile, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """The tenant of the attacks whose requests are all refused, so that none of them leaves anything."""
    with tenant_of(attacked, role=request.param) as made:
        full(made)
        yield made


class TestWorkloadsByHand:
    def test_an_admission_is_not_written(self, occupied: Tenant) -> None:
        """Write an admission into the status of a waiting Workload, through both versions of the API."""
        name = workload_of_b(occupied)
        admitted = {
            "type": "Admitted",
            "status": "True",
            "reason": "Admitted",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        queue = occupied.world.named("main")
        status: Json = {"admission": {"clusterQueue": queue, "podSetAssignments": []}, "conditions": [admitted]}
        meta = {"name": name, "namespace": occupied.namespace}
        for version in (GROUP, OLD):
            path = occupied.path(version, "workloads", name) + "/status"
            forbidden(occupied.api.patch, path, {"status": status})
            applied: Json = {"apiVersion": version, "kind": "Workload", "metadata": meta, "status": status}
            for manager in ("kueue-admission", "turnstile"):
                forbidden(occupied.api.apply, applied, field_manager=manager, subresource="status")
        occupied.within_quota()

    def test_a_workload_is_not_created(self, submitter: Tenant) -> None:
        """Create a small Workload by hand, for a large Job that names it as prebuilt."""
        meta = {"name": "mine", "namespace": submitter.namespace}
        for version in (GROUP, OLD):
            body = {"apiVersion": version, "kind": "Workload", "metadata": meta, "spec": {"queueName": "main"}}
            forbidden(submitter.api.create, body)
        labels = {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/prebuilt-workload-name": "mine"}
        submitter.job("a", pods=9, labels=labels)
        assert submitter.world.suspended("a")
        submitter.within_quota()

    def test_a_workload_is_not_changed_or_deleted(self, occupied: Tenant) -> None:
        """Raise the priority of a Workload, deactivate it, take its finalizers, delete it, and all of the namespace."""
        name = workload_of_b(occupied)
        path = occupied.path(GROUP, "workloads", name)
        for patch in ({"spec": {"priority": 1000}}, {"spec": {"active": False}}, {"metadata": {"finalizers": None}}):
            forbidden(occupied.api.patch, path, patch)
        forbidden(occupied.api.delete, path)
        forbidden(occupied.api.delete, occupied.path(GROUP, "workloads"))
        occupied.within_quota()


class TestQuotaByHand:
    def test_queues_are_not_written(self, occupied: Tenant) -> None:
        """Raise the quota of the ClusterQueue, make a LocalQueue to another one, or point the own one elsewhere."""
        cluster_queue = resource_path(GROUP, "clusterqueues", occupied.world.named("main"))
        forbidden(occupied.api.patch, cluster_queue, {"spec": {"resourceGroups": []}})
        meta = {"name": "more", "namespace": occupied.namespace}
        spec = {"clusterQueue": occupied.world.named("main")}
        for version in (GROUP, OLD):
            body = {"apiVersion": version, "kind": "LocalQueue", "metadata": meta, "spec": spec}
            forbidden(occupied.api.create, body)
            forbidden(occupied.patch, version, "localqueues", "main", {"spec": {"stopPolicy": "None"}})
        forbidden(occupied.delete, GROUP, "localqueues", "main")
        occupied.within_quota()

    def test_priority_classes_are_not_written(self, occupied: Tenant) -> None:
        """Create a priority class of the highest value, of Turnstile's kind or of Kubernetes'."""
        meta = {"name": occupied.world.named("mine")}
        mine: Json = {"apiVersion": GROUP, "kind": "WorkloadPriorityClass", "metadata": meta, "value": 10**9}
        forbidden(occupied.api.create, mine)
        forbidden(occupied.api.create, {**mine, "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"})
        occupied.within_quota()

    def test_the_namespace_is_not_relabelled(self, occupied: Tenant) -> None:
        """Take the label off the namespace that makes it managed, or delete the namespace."""
        path = resource_path("v1", "namespaces", occupied.namespace)
        forbidden(occupied.api.patch, path, {"metadata": {"labels": dict.fromkeys(MANAGED)}})
        forbidden(occupied.api.apply, _namespace(occupied))
        forbidden(occupied.api.delete, path)
        occupied.within_quota()


class TestRulesByHand:
    def test_webhooks_and_policies_stay(self, occupied: Tenant) -> None:
        """Delete the webhooks and the admission policies, or their bindings."""
        for plural, name in (
            ("mutatingwebhookconfigurations", "turnstile-mutating-webhook-configuration"),
            ("validatingwebhookconfigurations", "turnstile-validating-webhook-configuration"),
            ("validatingadmissionpolicies", "turnstile-queued"),
            ("validatingadmissionpolicybindings", "turnstile-queued"),
        ):
            forbidden(occupied.api.delete, resource_path(ADMISSION, plural, name))
        occupied.within_quota()

    def test_no_rights_are_given_on(self, occupied: Tenant) -> None:
        """Bind the role of those who write Workloads to oneself, or make such a role."""
        name = workload_of_b(occupied)
        meta = {"name": "more", "namespace": occupied.namespace}
        rules = [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["*"]}]
        forbidden(occupied.api.create, {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": meta, "rules": rules})
        subjects = [{"apiGroup": RBAC, "kind": "User", "name": "eve"}]
        role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "turnstile-workload-editor-role"}
        body: Json = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role}
        forbidden(occupied.api.create, {**body, "subjects": subjects})
        forbidden(occupied.delete, GROUP, "workloads", name)
        occupied.within_quota()


class TestStatusesByHand:
    def test_a_job_does_not_say_that_it_has_stopped(self, occupied: Tenant) -> None:
        """Write into the status of a running Job that it is suspended, has no pods, or is complete."""
        path = occupied.path("batch/v1", "jobs", "a") + "/status"
        for status in ({"active": 0}, {"conditions": [{"type": "Complete", "status": "True"}]}):
            forbidden(occupied.api.patch, path, {"status": status})
        occupied.within_quota()

    def test_a_pod_does_not_say_that_it_has_ended(self, occupied: Tenant) -> None:
        """Write into the status of a running pod that it has succeeded, and let another Job take its place."""
        for pod in occupied.pods():
            path = occupied.path("v1", "pods", pod["metadata"]["name"]) + "/status"
            forbidden(occupied.api.patch, path, {"status": {"phase": "Succeeded"}})
        occupied.within_quota()

    def test_a_pod_is_not_bound_by_hand(self, tenant: Tenant) -> None:
        """Bind a gated Pod to a node through the subresources `binding` of pods and `bindings` of the namespace."""
        tenant.pod("a", cpu="9")
        meta = {"name": "a", "namespace": tenant.namespace}
        target = {"apiVersion": "v1", "kind": "Node", "name": "n0"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        for path in (tenant.path("v1", "pods", "a") + "/binding", tenant.path("v1", "bindings")):
            forbidden(tenant.api.request, "POST", path, binding)
            with pytest.raises(ApiError, match=r"[gG]ate"):
                tenant.world.api.request("POST", path, binding)  # not even an administrator
        tenant.within_quota()


class TestInTheNameOfOthers:
    """Kubernetes' `edit` may act as any service account of its own namespace."""

    @pytest.mark.parametrize(
        "account",
        [
            "system:serviceaccount:kube-system:job-controller",
            "system:serviceaccount:turnstile-system:turnstile-controller",
        ],
        ids=["the Job controller", "Turnstile"],
    )
    def test_of_a_controller(self, occupied: Tenant, account: str) -> None:
        """Impersonate the Job controller or Turnstile, and resume a Job that waits."""
        forbidden(as_account(occupied, account), {"spec": {"suspend": False}})
        occupied.within_quota()

    def test_of_an_own_account(self, tenant: Tenant) -> None:
        """Resume a waiting Job that has an owner as an own service account, as operators resume children."""
        full(tenant)
        account = editing_account(tenant, tenant.namespace)
        with pytest.raises(ApiError, match=r"spec\.suspend"):
            as_account(tenant, account)(owned_and_resumed(tenant))
        tenant.within_quota()

    def test_of_an_account_of_another_namespace(self, tenant: Tenant) -> None:
        """Resume a waiting Job that has an owner as a service account of another namespace with rights in this one."""
        full(tenant)
        other = tenant.second_namespace()
        as_account(tenant, editing_account(tenant, other.namespace))(owned_and_resumed(tenant))
        comes_back_within_quota(tenant)
        assert tenant.world.suspended("b")


def as_account(tenant: Tenant, account: str) -> Callable[[Json], object]:
    """Patches Job `b` in the name of a service account."""
    api = tenant.turnstile.installation.control_plane.api_as("eve", impersonate=account)
    return partial(api.patch, tenant.path("batch/v1", "jobs", "b"))


def may_edit(tenant: Tenant, account: str) -> bool:
    """Whether Job `b` can be patched in the name of a service account."""
    try:
        as_account(tenant, account)({"metadata": {"annotations": {"example.com/touched": "true"}}})
    except ApiError:
        return False
    return True


def _namespace(tenant: Tenant) -> Json:
    labels = {next(iter(MANAGED)): "false"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant.namespace, "labels": labels}}


def owned_and_resumed(tenant: Tenant) -> Json:
    """A patch that gives a Job a ConfigMap as its controller, and resumes it."""
    meta = {"name": "own", "namespace": tenant.namespace}
    uid = tenant.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "own", "uid": uid, "controller": True}
    return {"metadata": {"ownerReferences": [reference]}, "spec": {"suspend": False}}


def editing_account(tenant: Tenant, namespace: str) -> str:
    """A service account of a namespace that may edit the tenant's; the tenant may act as that account."""
    api = tenant.world.api
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": namespace}})
    robot = {"kind": "ServiceAccount", "name": "robot", "namespace": namespace}
    eve = {"apiGroup": RBAC, "kind": "User", "name": "eve"}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"}
    for name, place, subject in (("robot", tenant.namespace, robot), ("eve-here", namespace, eve)):
        meta = {"name": name, "namespace": place}
        body: Json = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role}
        api.create({**body, "subjects": [subject]})
    account = f"system:serviceaccount:{namespace}:robot"
    wait_until(lambda: may_edit(tenant, account), timeout=10, describe=lambda: f"{account} may not edit")
    return account
