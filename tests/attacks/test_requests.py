"""However a write reaches the API server, the same rules hold: the words of a request are the tenant's choice."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from testbed import ApiError
from testbed.client import Json, resource_path
from tests.attacks.conftest import QUOTA, Tenant
from tests.cluster.scenario import GROUP, QUEUE
from turnstile.api import names

JOBS = ("batch/v1", "jobs")
OLD = "kueue.x-k8s.io/v1beta1"


def waiting(tenant: Tenant) -> None:
    """Fill the quota with Job `a`, and let Job `b` wait."""
    tenant.job("a")
    tenant.wait_runs(2)
    tenant.job("b", pods=9)
    tenant.world.wait_pending("b")


def resumed(tenant: Tenant) -> Json:
    """Job `b` with all that it has, resumed."""
    body = tenant.world.read_job("b")
    body["spec"]["suspend"] = False
    return body


def merge(tenant: Tenant) -> None:
    """By merge patch, as `kubectl patch --type=merge`."""
    tenant.patch(*JOBS, "b", {"spec": {"suspend": False}})


def remove(tenant: Tenant) -> None:
    """By a JSON patch that removes the field, whose default is false."""
    tenant.api.patch(tenant.path(*JOBS, "b"), [{"op": "remove", "path": "/spec/suspend"}], kind="json")


def replace(tenant: Tenant) -> None:
    """By PUT, as `kubectl replace`."""
    tenant.api.replace(tenant.path(*JOBS, "b"), resumed(tenant))


def apply(tenant: Tenant) -> None:
    """By server-side apply with force, in the name of the field manager that suspended the Job."""
    body: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "b", "namespace": tenant.namespace}}
    tenant.api.apply({**body, "spec": {"suspend": False}}, field_manager="turnstile")


def subresource(tenant: Tenant) -> None:
    """By the subresource for the status, which writes no spec."""
    tenant.api.patch(tenant.path(*JOBS, "b") + "/status", {"spec": {"suspend": False}})


def test_a_job_is_not_resumed(submitter: Tenant) -> None:
    """Resume a waiting Job by merge patch, JSON patch, PUT, server-side apply with force, or through its status."""
    waiting(submitter)
    for way in (merge, remove, replace, apply, subresource):
        with pytest.raises(ApiError):
            way(submitter)
    submitter.within_quota()
    assert submitter.world.suspended("b")


@pytest.mark.parametrize("suspend", [False, None], ids=["false", "null"])
def test_a_job_is_not_created_running(tenant: Tenant, *, suspend: bool | None) -> None:
    """Create Jobs that say `suspend: false`, by POST and by server-side apply."""
    for name in "ab":
        body = tenant.job_body(name)
        body["spec"]["suspend"] = suspend
        tenant.api.create(body) if name == "a" else tenant.api.apply(body, field_manager="turnstile")
    tenant.wait_runs(2)
    tenant.within_quota()


def test_a_dry_run_starts_nothing(submitter: Tenant) -> None:
    """Create, resume and delete Jobs as a dry run: nothing is charged and nothing is freed."""
    submitter.api.create(submitter.job_body("none"), dry_run=True)
    waiting(submitter)
    with pytest.raises(ApiError):
        submitter.api.patch(submitter.path(*JOBS, "b"), {"spec": {"suspend": False}}, params={"dryRun": "All"})
    submitter.api.request("DELETE", submitter.path(*JOBS, "a"), {"dryRun": ["All"], "propagationPolicy": "Background"})
    submitter.within_quota()
    assert submitter.reserved == QUOTA


def test_generated_names(submitter: Tenant) -> None:
    """Create twelve Jobs at once from twelve connections, with generated names."""

    def create(_: int) -> Json:
        body = submitter.job_body("x", pods=1)
        body["metadata"] = {**body["metadata"], "name": None, "generateName": "x-"}
        made: Json = submitter.api.request("POST", submitter.path(*JOBS), body)
        return made

    with ThreadPoolExecutor(12) as pool:
        made = list(pool.map(create, range(12)))
    submitter.api.close()
    assert len({each["metadata"]["name"] for each in made}) == 12
    submitter.wait_runs(2)
    submitter.within_quota()


def test_names_with_the_same_beginning(tenant: Tenant) -> None:
    """Create Jobs with the longest names, which differ only in their last letter."""
    for end in "ab":
        tenant.job("x" * 62 + end)
    tenant.wait(lambda: len(tenant.workloads()) == 2, describe=lambda: "not each Job has a Workload")
    tenant.within_quota()


def test_pods_and_jobs_at_once_while_turnstile_starts(tenant: Tenant) -> None:
    """Create Jobs and Pods from many connections while Turnstile is killed and started again."""

    def create(number: int) -> None:
        with suppress(ApiError):  # nobody answers the webhook for a while
            tenant.job(f"j{number}", pods=1)
        with suppress(ApiError):
            tenant.pod(f"p{number}")

    with ThreadPoolExecutor(4) as pool:
        first = list(pool.map(create, range(6)))
        tenant.turnstile.kill()
        second = list(pool.map(create, range(6, 10)))
        tenant.turnstile.start()
        third = list(pool.map(create, range(10, 14)))
    tenant.api.close()
    assert len(first + second + third) == 14
    tenant.wait_runs(2)
    tenant.within_quota()


class TestOldVersions:
    def test_a_job_of_an_old_version(self, submitter: Tenant) -> None:
        """Create Jobs and CronJobs of versions that are served no more, and read Workloads of the old version."""
        for version, kind in (
            ("batch/v1beta1", "CronJob"),
            ("batch/v2alpha1", "CronJob"),
            ("extensions/v1beta1", "Job"),
        ):
            body = {**submitter.job_body("old"), "apiVersion": version, "kind": kind}
            with pytest.raises(ApiError) as error:
                submitter.api.request("POST", submitter.path(version, f"{kind.lower()}s"), body)
            assert error.value.code == 404 or error.value.code == 403
        waiting(submitter)
        assert len(submitter.api.items(submitter.path(OLD, "workloads"))) == 2
        submitter.within_quota()


class TestTheQueueName:
    @pytest.mark.parametrize("value", ["", "none"], ids=["empty", "absent"])
    @pytest.mark.parametrize("runs", [True, False], ids=["running", "waiting"])
    def test_of_a_job_changes_to_nothing(self, tenant: Tenant, value: str, *, runs: bool) -> None:
        """Change the queue name of a running or waiting Job to nothing or to no queue; then resume it."""
        tenant.job("a", pods=2 if runs else 9)
        if runs:
            tenant.wait_runs(2)
        else:
            tenant.world.wait_pending("a")
        with suppress(ApiError):
            tenant.patch(*JOBS, "a", {"metadata": {"labels": {QUEUE: value}}})
        with suppress(ApiError):
            tenant.patch(*JOBS, "a", {"spec": {"suspend": False}})
        tenant.job("b")
        tenant.within_quota()

    @pytest.mark.parametrize("value", ["", None], ids=["empty", "removed"])
    def test_of_a_running_pod(self, tenant: Tenant, value: str | None) -> None:
        """Change the queue name of a running Pod, or take it off, and create another Pod."""
        tenant.pod("a", cpu="2")
        tenant.wait_runs(2)
        with suppress(ApiError):
            tenant.patch("v1", "pods", "a", {"metadata": {"labels": {QUEUE: value}}})
        tenant.pod("b")
        tenant.world.workload_of("b", kind="Pod")
        tenant.within_quota()


class TestTheGate:
    def test_of_a_pod_on_its_way_out(self, tenant: Tenant) -> None:
        """Delete a waiting Pod that a finalizer keeps, then lift its gate."""
        tenant.pod("a", cpu="9", finalizers=["example.com/keep"])
        tenant.delete("v1", "pods", "a")
        with pytest.raises(ApiError, match=r"spec\.schedulingGates"):
            tenant.patch("v1", "pods", "a", {"spec": {"schedulingGates": []}})
        tenant.within_quota()
        tenant.patch("v1", "pods", "a", {"metadata": {"finalizers": []}})
        tenant.world.api.wait_gone(tenant.path("v1", "pods", "a"))

    def test_of_a_pod_for_a_node(self, tenant: Tenant) -> None:
        """Create a Pod that names its node, so that no scheduler and no gate is asked."""
        with pytest.raises(ApiError, match="nodeName"):
            tenant.pod("a", cpu="9", spec={"nodeName": "n0"})
        tenant.within_quota()

    def test_of_a_pod_for_another_scheduler(self, tenant: Tenant) -> None:
        """Create a Pod for a scheduler that does not exist: it is charged while it may be scheduled."""
        tenant.pod("a", cpu="2", spec={"schedulerName": "mine"})
        tenant.pod("b", cpu="2")
        tenant.world.wait_pending("b", kind="Pod")
        tenant.within_quota()

    def test_of_a_pod_that_says_it_is_admitted(self, tenant: Tenant) -> None:
        """Create Pods with all marks of an admitted Job's pods: pod set, Workload, queues, managed."""
        tenant.job("a")
        tenant.wait_runs(2)
        workload = tenant.world.workload_of("a")["metadata"]["name"]
        labels = {
            names.PODSET_LABEL: "main",
            names.MANAGED_LABEL: "true",
            names.CLUSTER_QUEUE_LABEL: tenant.world.named("main"),
            names.LOCAL_QUEUE_LABEL: "main",
        }
        tenant.pod("b", labels={QUEUE: "main", **labels}, annotations={names.WORKLOAD: workload})
        tenant.world.wait_pending("b", kind="Pod")
        tenant.within_quota()


class TestPrebuiltNames:
    @pytest.mark.parametrize("kind", ["Job", "Pod"])
    def test_of_the_workload_of_another_job(self, tenant: Tenant, kind: str) -> None:
        """Name the admitted Workload of a running Job as the prebuilt Workload of another Job, or of a Pod."""
        tenant.job("a")
        tenant.wait_runs(2)
        labels = {QUEUE: "main", names.PREBUILT_WORKLOAD: tenant.world.workload_of("a")["metadata"]["name"]}
        with suppress(ApiError):
            tenant.job("b", labels=labels) if kind == "Job" else tenant.pod("b", cpu="2", labels=labels)
        tenant.within_quota()

    def test_of_a_workload_whose_job_was_orphaned(self, tenant: Tenant) -> None:
        """Name the Workload that a Job deleted with orphan left behind as that of the next Job."""
        tenant.job("a")
        tenant.wait_runs(2)
        name = tenant.world.workload_of("a")["metadata"]["name"]
        tenant.delete(*JOBS, "a", propagation="Orphan")
        tenant.world.api.wait_gone(tenant.path(*JOBS, "a"))
        tenant.job("b", labels={QUEUE: "main", names.PREBUILT_WORKLOAD: name})
        tenant.within_quota()

    def test_given_to_a_job_that_runs(self, tenant: Tenant) -> None:
        """Give a running Job the name of another Job's Workload, so that its own Workload is let go."""
        tenant.job("a", pods=1)
        tenant.job("b", pods=1)
        tenant.wait_runs(2)
        other = tenant.world.workload_of("b")["metadata"]["name"]
        with suppress(ApiError):
            tenant.patch(*JOBS, "a", {"metadata": {"labels": {names.PREBUILT_WORKLOAD: other}}})
        tenant.job("c")
        tenant.within_quota()


class TestTwoQueues:
    @pytest.fixture
    def second(self, tenant: Tenant) -> str:
        """Another LocalQueue of the ClusterQueue, and one of a ClusterQueue of another flavor and quota."""
        tenant.world.local_queue("second", tenant.world.named("main"))
        tenant.world.queue("other", {tenant.world.flavor("other"): {"memory": "1Gi"}})
        path = resource_path(GROUP, "clusterqueues", tenant.world.named("other"))
        tenant.world.api.wait_for(path, lambda found: found.get("status", {}).get("conditions"))
        return "second"

    def test_of_one_cluster_queue(self, tenant: Tenant, second: str) -> None:
        """Submit to both LocalQueues of a ClusterQueue, and move Jobs between them, running and waiting."""
        tenant.job("a")
        tenant.wait_runs(2)
        tenant.job("b", labels={QUEUE: second})
        tenant.world.wait_pending("b")
        for job, queue in (("a", second), ("b", "main"), ("b", second)):
            with suppress(ApiError):
                tenant.patch(*JOBS, job, {"metadata": {"labels": {QUEUE: queue}}})
        tenant.within_quota()

    def test_moved_while_it_is_suspended(self, tenant: Tenant, second: str) -> None:
        """Suspend a running Job and move it to the other queue in one patch, again and again."""
        tenant.job("a")
        tenant.wait_runs(2)
        for queue in (second, "main", "other", "main"):
            with suppress(ApiError):
                tenant.patch(*JOBS, "a", {"metadata": {"labels": {QUEUE: queue}}, "spec": {"suspend": True}})
            tenant.job(f"next-{queue}") if queue == "other" else None
        tenant.within_quota()

    def test_without_quota_for_cpus(self, tenant: Tenant, second: str) -> None:
        """Submit a Job to a queue whose quota does not cover what the Job requests."""
        tenant.job("a", labels={QUEUE: "other"})
        tenant.job("b", labels={QUEUE: second})
        tenant.wait_runs(2)
        tenant.within_quota()
        assert tenant.world.suspended("a")


class TestPriority:
    def test_raised_while_the_other_job_stops(self, tenant: Tenant) -> None:
        """Let two Jobs raise their priority in turn, so that each preempts the other, with pods that stop slowly."""
        tenant.world.patch_queue(tenant.world.named("main"), {"preemption": {"withinClusterQueue": "LowerPriority"}})
        label = "kueue.x-k8s.io/priority-class"
        classes = [tenant.world.priority_class(f"p{value}", value) for value in (10, 20, 30)]
        slow = {"testbed.turnstile.dev/stop-for": "1s"}
        tenant.job("a", labels={QUEUE: "main", label: classes[0]}, annotations_of_pods=slow)
        tenant.wait_runs(2)
        tenant.job("b", labels={QUEUE: "main", label: classes[1]}, annotations_of_pods=slow)
        tenant.world.wait_started("b", timeout=20)
        with suppress(ApiError):
            tenant.patch(*JOBS, "a", {"metadata": {"labels": {label: classes[2]}}})
        tenant.wait_runs(2)
        tenant.within_quota()

    @pytest.mark.parametrize("name", ["system-node-critical", "none"], ids=["of the system", "absent"])
    def test_of_pods(self, tenant: Tenant, name: str) -> None:
        """Give the pods of a Job the highest PriorityClass of the cluster, or one that does not exist."""
        tenant.job("a")
        tenant.wait_runs(2)
        body = tenant.job_body("b")
        body["spec"]["template"]["spec"]["priorityClassName"] = name
        tenant.api.create(body)
        tenant.within_quota()

    def test_boosted_by_an_annotation(self, tenant: Tenant) -> None:
        """Boost the priority of a waiting Job by the annotation that an administrator puts on Workloads."""
        tenant.world.patch_queue(tenant.world.named("main"), {"preemption": {"withinClusterQueue": "LowerPriority"}})
        tenant.job("a")
        tenant.wait_runs(2)
        tenant.job("b", annotations={names.PRIORITY_BOOST: "1000"})
        tenant.world.wait_pending("b")
        tenant.within_quota()
        assert not tenant.world.suspended("a")
