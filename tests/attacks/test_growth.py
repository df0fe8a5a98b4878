"""What raises the use of resources after the admission is refused, queued again, or queued by itself."""

from contextlib import suppress
from typing import Any

import pytest

from testbed.client import Json, condition, wait_until
from testbed.errors import ApiError
from tests.attacks.conftest import Tenant, may, pod_spec
from tests.cluster.scenario import QUEUE

APPS = "apps/v1"
JOBS = ("batch/v1", "jobs")
ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
MINIMUM = "kueue.x-k8s.io/job-min-parallelism"


def refused(call: Any, *arguments: Any, field: str) -> None:
    """Assert that the API server refuses a write, and names the field."""
    with pytest.raises(ApiError) as error:
        call(*arguments)
    assert field in str(error.value)


@pytest.fixture
def resizer(tenant: Tenant) -> Tenant:
    """The tenant, who may also resize pods in place, as newer clusters let all editors do."""
    group = "rbac.authorization.k8s.io"
    api = tenant.world.api
    meta = {"name": "resize", "namespace": tenant.namespace}
    rules = [{"apiGroups": [""], "resources": ["pods/resize", "pods/ephemeralcontainers"], "verbs": ["patch"]}]
    api.create({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules})
    role = {"apiGroup": group, "kind": "Role", "name": "resize"}
    subjects = [{"apiGroup": group, "kind": "User", "name": "eve"}]
    api.create(
        {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": subjects}
    )
    wait_until(
        lambda: may(tenant, verb="patch", resource="pods", subresource="resize"),
        timeout=10,
        describe=lambda: "the tenant may not resize pods",
    )
    return tenant


def resize(tenant: Tenant, pod: str, cpu: str) -> Json:
    """Ask for so much CPU in place."""
    path = tenant.path("v1", "pods", pod) + "/resize"
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return tenant.api.patch(path, {"spec": {"containers": [container]}}, kind="strategic")


def _bound(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName"))


def running_pod(tenant: Tenant) -> str:
    """The name of a pod that runs, on a node that supports in-place resize: its kubelet reports actual resources."""
    api = tenant.world.api
    name = wait_until(
        lambda: next((k["metadata"]["name"] for k in api.items(tenant.path("v1", "pods")) if _bound(k)), None),
        timeout=10,
        describe=lambda: "no pod runs",
    )
    path = tenant.path("v1", "pods", name)
    pod = api.wait_for(path, lambda found: found["status"].get("phase") == "Running", describe="running")
    resources = pod["spec"]["containers"][0]["resources"]
    statuses = [{**each, "resources": resources} for each in pod["status"]["containerStatuses"]]
    api.patch(f"{path}/status", {"status": {"containerStatuses": statuses}})
    return name


class TestAJob:
    """A Job that runs, changed by the tenant."""

    def test_does_not_get_more_pods_while_it_runs(self, tenant: Tenant) -> None:
        """Raise the parallelism of a running Job."""
        tenant.job("a", pods=1)
        tenant.wait_runs(1)
        refused(tenant.patch, *JOBS, "a", {"spec": {"parallelism": 6}}, field="spec.parallelism")
        tenant.within_quota()

    def test_is_queued_again_with_more_pods(self, tenant: Tenant) -> None:
        """Raise the parallelism of a running Job and suspend it in the same change: more than the quota waits."""
        tenant.job("a", pods=1)
        tenant.wait_runs(1)
        tenant.patch(*JOBS, "a", {"spec": {"parallelism": 6, "completions": 1, "suspend": True}})
        tenant.patch(*JOBS, "a", {"spec": {"parallelism": 2}})
        tenant.wait_runs(1)
        tenant.within_quota()

    def test_that_is_larger_than_the_quota_after_a_change_waits(self, tenant: Tenant) -> None:
        """Raise the parallelism of a Job without completions beyond the quota, with the suspension it needs."""
        body = tenant.job_body("a", pods=1)
        del body["spec"]["completions"]
        tenant.api.create(body)
        tenant.wait_runs(1)
        tenant.patch(*JOBS, "a", {"spec": {"parallelism": 6, "suspend": True}})
        tenant.world.wait_workload(
            "a",
            lambda found: (
                found["spec"]["podSets"][0]["count"] == 6 and condition(found, "QuotaReserved").get("status") == "False"
            ),
        )
        assert tenant.world.suspended("a")
        tenant.within_quota()

    def test_does_not_escape_by_its_minimum_parallelism(self, tenant: Tenant) -> None:
        """Remove the annotation that makes the parallelism of a partially admitted Job immutable, then raise it."""
        tenant.job("a", pods=6, annotations={MINIMUM: "1"})
        tenant.wait_runs(2)
        change = {"metadata": {"annotations": {MINIMUM: None}}, "spec": {"parallelism": 6}}
        refused(tenant.patch, *JOBS, "a", change, field="spec.parallelism")
        tenant.patch(*JOBS, "a", {"metadata": {"annotations": {MINIMUM: None}}})
        tenant.within_quota()

    def test_that_asks_to_be_elastic_gets_no_more(self, tenant: Tenant) -> None:
        """Raise the parallelism of a running elastic Job beyond the quota, lower it, and raise it again."""
        body = tenant.job_body("a", pods=1, annotations=ELASTIC)
        body["spec"]["completions"] = 100
        tenant.api.create(body)
        tenant.wait_runs(1)
        for parallelism in (6, 1, 2, 9, 1, 6, 2):
            tenant.patch(*JOBS, "a", {"spec": {"parallelism": parallelism}})
        tenant.wait_runs(2)
        tenant.patch(*JOBS, "a", {"spec": {"parallelism": 9}})
        tenant.within_quota()

    def test_that_is_elastic_keeps_its_gates(self, tenant: Tenant) -> None:
        """Lift the gate of a pod of an elastic Job that waits for quota; as an administrator may, too: the Job does not
        run with more pods than it is charged for."""
        body = tenant.job_body("a", pods=1, annotations=ELASTIC)
        body["spec"]["completions"] = 100
        tenant.api.create(body)
        tenant.wait_runs(1)
        tenant.patch(*JOBS, "a", {"spec": {"parallelism": 6}})
        tenant.wait(lambda: len(tenant.pods()) == 6, describe=lambda: "no more pods are made")
        gated = [each for each in tenant.pods() if each["spec"].get("schedulingGates")]
        assert len(gated) >= 4
        path = tenant.path("v1", "pods", gated[0]["metadata"]["name"])
        with pytest.raises(ApiError, match="Turnstile removes the gate"):
            tenant.api.patch(path, {"spec": {"schedulingGates": None}})
        tenant.within_quota()

    def test_that_says_so_of_itself_needs_the_gates(self, tenant: Tenant) -> None:
        """Make a running Job elastic whose pods are not gated, and raise its parallelism."""
        tenant.job("a", pods=1)
        tenant.wait_runs(1)
        with suppress(ApiError):
            tenant.patch(*JOBS, "a", {"metadata": {"annotations": ELASTIC}})
        change = {"metadata": {"annotations": ELASTIC}, "spec": {"parallelism": 6}}
        refused(tenant.patch, *JOBS, "a", change, field="spec.parallelism")
        tenant.within_quota()

    def test_of_no_pods_gets_none_for_free(self, tenant: Tenant) -> None:
        """Have a Job of no pods admitted, then raise its parallelism."""
        body = tenant.job_body("a", pods=6)
        body["spec"]["parallelism"] = 0
        tenant.api.create(body)
        tenant.world.wait_started("a")
        refused(tenant.patch, *JOBS, "a", {"spec": {"parallelism": 6}}, field="spec.parallelism")
        tenant.within_quota()

    def test_that_is_edited_between_admission_and_start_is_not_started_so(self, tenant: Tenant) -> None:
        """Suspend an admitted Job and raise the requests of its template, before Turnstile resumes the Job."""
        tenant.job("a", cpu="1", pods=2)
        tenant.wait_runs(2)
        template = {"spec": {"containers": pod_spec("4")["containers"]}}
        for change in ({"suspend": True}, {"template": template}, {"suspend": True, "template": template}):
            with suppress(ApiError):  # the template is immutable while the Job has pods
                tenant.patch(*JOBS, "a", {"spec": change})
        tenant.within_quota()

    def test_that_is_suspended_by_hand_is_resumed_when_its_pods_are_gone(self, tenant: Tenant) -> None:
        """Suspend an admitted Job again and again: new pods do not run beside those that terminate."""
        tenant.job("a", cpu="1", pods=2)
        tenant.wait_runs(2)
        for _ in range(3):
            tenant.patch(*JOBS, "a", {"spec": {"suspend": True}})
            tenant.wait(lambda: tenant.sentry.runs < 2, describe=lambda: "it is not stopped")
            tenant.wait_runs(2)
        tenant.within_quota()

    def test_that_waits_is_not_started_by_hand(self, tenant: Tenant) -> None:
        """Resume a Job that waits for quota."""
        tenant.job("a", pods=9)
        tenant.world.wait_pending("a")
        refused(tenant.patch, *JOBS, "a", {"spec": {"suspend": False}}, field="spec.suspend")
        tenant.within_quota()

    def test_that_waits_is_not_started_in_the_name_of_an_owner(self, tenant: Tenant) -> None:
        """Give a Job that waits a controller, whose controller would resume it, and resume it as a service account."""
        tenant.job("a", pods=9)
        tenant.world.wait_pending("a")
        owner = tenant.api.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own", "namespace": tenant.namespace}}
        )
        uid = owner["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "own", "uid": uid, "controller": True}
        change = {"metadata": {"ownerReferences": [reference]}, "spec": {"suspend": False}}
        refused(tenant.patch, *JOBS, "a", change, field="spec.suspend")
        tenant.within_quota()


class TestResizedInPlace:
    """A running pod, whose requests the tenant may change through `pods/resize`."""

    def test_a_pod_of_a_job_does_not_grow(self, resizer: Tenant) -> None:
        """Raise the CPU of a Job's pod."""
        resizer.job("a", pods=2)
        resizer.wait_runs(2)
        refused(resize, resizer, running_pod(resizer), "8", field="resources.requests")
        resizer.within_quota()

    def test_a_plain_pod_does_not_grow(self, resizer: Tenant) -> None:
        """Raise the CPU of a Pod that is queued by itself."""
        resizer.pod("a", cpu="1")
        resizer.wait_runs(1)
        refused(resize, resizer, running_pod(resizer), "8", field="resources.requests")
        resizer.within_quota()

    def test_a_pod_of_a_deployment_does_not_grow(self, resizer: Tenant) -> None:
        """Raise the CPU of a Deployment's pod, which is charged like a plain Pod."""
        resizer.api.create(parent(resizer, "Deployment", replicas=1))
        resizer.wait_runs(1)
        refused(resize, resizer, running_pod(resizer), "8", field="resources.requests")
        resizer.within_quota()

    def test_a_pod_that_requests_nothing_does_not_grow(self, resizer: Tenant) -> None:
        """Give requests to the pod of a Job that was admitted without any."""
        body = resizer.job_body("a", pods=1)
        body["spec"]["template"]["spec"]["containers"][0]["resources"] = {}
        resizer.api.create(body)
        resizer.world.wait_started("a")
        with pytest.raises(ApiError):
            resize(resizer, running_pod(resizer), "8")
        resizer.within_quota()

    def test_a_pod_may_shrink(self, resizer: Tenant) -> None:
        """Make the request of a running pod smaller, which is allowed; it stays charged as it was admitted."""
        resizer.job("a", pods=1)
        resizer.wait_runs(1)
        resized = resize(resizer, running_pod(resizer), "500m")
        assert resized["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "500m"
        resizer.wait(lambda: resizer.reserved == 1, describe=lambda: f"{resizer.reserved} CPUs are reserved, not 1")


def test_an_ephemeral_container_requests_nothing(resizer: Tenant) -> None:
    """Add an ephemeral container to a running Pod: with requests it is refused, without them the Pod runs on."""
    resizer.pod("a", cpu="2")
    resizer.wait_runs(2)
    path = resizer.path("v1", "pods", "a") + "/ephemeralcontainers"
    debugger: Json = {"name": "debug", "image": "registry.example/debug:1"}

    def add(**more: Json) -> None:
        resizer.api.patch(path, {"spec": {"ephemeralContainers": [{**debugger, **more}]}}, kind="strategic")

    with pytest.raises(ApiError):
        add(resources={"requests": {"cpu": "8"}})
    add()
    resizer.within_quota()
    assert resizer.sentry.runs == 2


def parent(tenant: Tenant, kind: str, *, replicas: int) -> Json:
    """A controller of pods in queue `main`."""
    labels = {"app": "a"}
    spec = {**pod_spec("1"), "restartPolicy": "Always"}
    template: Json = {"metadata": {"labels": {**labels, QUEUE: "main"}}, "spec": spec}
    body: Json = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        body |= {"serviceName": "a", "podManagementPolicy": "Parallel"}
    meta = {"name": "a", "namespace": tenant.namespace, "labels": {QUEUE: "main"}}
    return {"apiVersion": APPS, "kind": kind, "metadata": meta, "spec": body}


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "StatefulSet"])
def test_what_is_scaled_runs_within_the_quota(tenant: Tenant, kind: str) -> None:
    """Scale a controller of pods through its subresource: each new pod waits for quota, of a StatefulSet for ever."""
    tenant.api.create(parent(tenant, kind, replicas=1))
    tenant.wait_runs(1)
    path = tenant.path(APPS, f"{kind.lower()}s", "a") + "/scale"
    tenant.api.patch(path, {"spec": {"replicas": 9}})
    tenant.wait_runs(1 if kind == "StatefulSet" else 2)  # the pods of a StatefulSet have one Workload, of one pod
    tenant.within_quota()


def test_an_elastic_stateful_set_grows_within_the_quota(tenant: Tenant) -> None:
    """Scale an elastic StatefulSet up and down, and have other pods say that they are its own, with the ordinals of
    those that run: nothing runs on the quota of another pod."""
    body = parent(tenant, "StatefulSet", replicas=1)
    body["metadata"]["annotations"] = ELASTIC
    made = tenant.api.create(body)
    tenant.wait_runs(1)
    path = tenant.path(APPS, "statefulsets", "a") + "/scale"
    for replicas in (9, 1, 3, 0, 9):
        tenant.api.patch(path, {"spec": {"replicas": replicas}})
    tenant.wait_runs(2)
    reference = {"apiVersion": APPS, "kind": "StatefulSet", "name": "a", "uid": made["metadata"]["uid"]}
    charged = [each["metadata"]["name"] for each in tenant.workloads()]
    for ordinal, name in enumerate(charged):
        marks = {"kueue.x-k8s.io/pod-group-name": name, "kueue.x-k8s.io/prebuilt-workload-name": name}
        owners = [{**reference, "controller": True}]
        with suppress(ApiError):
            tenant.pod(f"x-{ordinal}", ownerReferences=owners, annotations=marks)
        with suppress(ApiError):
            tenant.pod(f"x-{ordinal}", ownerReferences=owners, labels={"app": "a"})
    tenant.within_quota()


def test_the_replicas_of_a_deployment_are_scaled_behind_its_back(tenant: Tenant) -> None:
    """Scale the ReplicaSet of a Deployment; its Deployment scales it down again."""
    tenant.api.create(parent(tenant, "Deployment", replicas=1))
    tenant.wait_runs(1)
    (owned,) = tenant.api.items(tenant.path(APPS, "replicasets"))
    tenant.api.patch(tenant.path(APPS, "replicasets", owned["metadata"]["name"]) + "/scale", {"spec": {"replicas": 9}})
    tenant.within_quota()


def test_a_larger_template_of_a_deployment_is_queued(tenant: Tenant) -> None:
    """Raise the requests in the template of a running Deployment: the new pods wait."""
    tenant.api.create(parent(tenant, "Deployment", replicas=1))
    tenant.wait_runs(1)
    containers = pod_spec("8")["containers"]
    tenant.patch(APPS, "deployments", "a", {"spec": {"template": {"spec": {"containers": containers}}}})
    tenant.wait(lambda: len(tenant.workloads()) == 2, describe=lambda: "the new pod has no Workload")
    tenant.within_quota()
