"""In whatever order a tenant deletes, evicts, replaces and adopts, pods run within the quota and none of it is lost."""

from collections.abc import Iterator
from contextlib import suppress
from itertools import permutations

import pytest

from testbed import ApiError
from testbed.client import Json
from testbed.components import STOP_FOR
from tests.attacks.conftest import Tenant, pod_spec
from tests.attacks.rest import comes_back_within_quota
from tests.cluster.scenario import GROUP, QUEUE

JOBS = ("batch/v1", "jobs")
SLOW = {STOP_FOR: "1s"}


def names_of_pods(tenant: Tenant) -> list[str]:
    """All pods of the namespace."""
    return [each["metadata"]["name"] for each in tenant.pods()]


def steps(tenant: Tenant, order: tuple[str, ...]) -> Iterator[None]:
    """Delete the Job, its Workload (as an administrator) and its pods in that order."""
    workload = tenant.world.workload_of("a")["metadata"]["name"]
    for step in order:
        if step == "job":
            tenant.delete(*JOBS, "a", propagation="Orphan")
        elif step == "workload":
            tenant.world.api.delete(tenant.path(GROUP, "workloads", workload))
        else:
            for name in names_of_pods(tenant):
                tenant.delete("v1", "pods", name)
        yield


@pytest.mark.parametrize("order", list(permutations(["job", "workload", "pods"])), ids="-".join)
def test_deletion_in_every_order(tenant: Tenant, order: tuple[str, ...]) -> None:
    """Delete a running Job, its Workload and its pods in each order, the Job with orphan; the next Job waits."""
    tenant.job("a", annotations_of_pods=SLOW)
    tenant.wait_runs(2)
    for number, _ in enumerate(steps(tenant, order)):
        if number == 0:
            tenant.job("b")
    comes_back_within_quota(tenant, timeout=20)
    if order[0] != "pods" and order != ("workload", "pods", "job"):  # the Job controller replaces them until then
        tenant.within_quota()


class TestANewObjectOfTheSameName:
    @pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
    def test_of_a_job(self, submitter: Tenant, propagation: str) -> None:
        """Delete a running Job and create another one of the same name, three times, as `kubectl replace --force`."""
        submitter.job("a", annotations_of_pods=SLOW)
        submitter.wait_runs(2)
        for _ in range(3):
            submitter.delete(*JOBS, "a", propagation=propagation)
            submitter.world.api.wait_gone(submitter.path(*JOBS, "a"))
            submitter.job("a", annotations_of_pods=SLOW)
        submitter.within_quota()

    def test_of_a_pod(self, tenant: Tenant) -> None:
        """Delete a running Pod and create a larger one of the same name, again and again."""
        tenant.pod("a", cpu="1")
        tenant.wait_runs(1)
        for cpu in ("2", "9", "2"):
            tenant.delete("v1", "pods", "a")
            tenant.world.api.wait_gone(tenant.path("v1", "pods", "a"))
            tenant.pod("a", cpu=cpu)
        tenant.wait_runs(2)
        tenant.within_quota()

    def test_of_a_group(self, tenant: Tenant) -> None:
        """Delete all Pods of a group and create a larger group of the same name at once."""
        for cpu, announced in (("1", 2), ("1500m", 2), ("500m", 4)):
            for number in range(announced):
                path = tenant.path("v1", "pods", f"g{number}")
                tenant.world.api.wait_gone(path)
                tenant.pod(
                    f"g{number}",
                    cpu=cpu,
                    labels={QUEUE: "main", "kueue.x-k8s.io/pod-group-name": "g"},
                    annotations={"kueue.x-k8s.io/pod-group-total-count": str(announced)},
                )
            if cpu != "500m":
                for name in names_of_pods(tenant):
                    tenant.delete("v1", "pods", name)
        comes_back_within_quota(tenant, timeout=20)


class TestPodsOfARunningJob:
    def evict(self, tenant: Tenant, name: str, *, grace: int | None = None) -> None:
        """Ask the eviction API for the end of a pod."""
        options: Json = {} if grace is None else {"deleteOptions": {"gracePeriodSeconds": grace}}
        meta = {"name": name, "namespace": tenant.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, **options}
        tenant.api.request("POST", tenant.path("v1", "pods", name) + "/eviction", body)

    def test_evicted(self, tenant: Tenant) -> None:
        """Evict the pods of a running Job through the eviction API, also at once; the Job controller replaces them."""
        tenant.job("a")
        tenant.wait_runs(2)
        first, second = names_of_pods(tenant)
        self.evict(tenant, first)
        self.evict(tenant, second, grace=0)
        tenant.job("b")
        tenant.wait_runs(0)
        tenant.wait_runs(2, timeout=40)  # the Job controller waits for ten seconds
        tenant.within_quota()

    def test_evicted_while_it_waits(self, tenant: Tenant) -> None:
        """Evict a gated Pod, and one that is admitted."""
        tenant.pod("a", cpu="2")
        tenant.wait_runs(2)
        tenant.pod("b", cpu="2")
        tenant.world.wait_pending("b", kind="Pod")
        for name in "ba":
            self.evict(tenant, name)
        tenant.pod("c", cpu="2")
        tenant.wait(lambda: tenant.pod_runs("c"), describe=lambda: "the third Pod does not run")
        tenant.within_quota()

    def test_replaced_beside_those_that_end(self, tenant: Tenant) -> None:
        """Queue a Job later than it was created, ask at each step that pods be replaced while they end, and delete its
        pod, which takes longer to stop than the Job controller waits."""
        body = tenant.job_body("a", cpu="2", pods=1, labels={})
        body["spec"] |= {"suspend": True, "podReplacementPolicy": "TerminatingOrFailed"}
        body["spec"]["template"]["metadata"] = {"annotations": {STOP_FOR: "13s"}}
        tenant.api.create(body)
        tenant.patch(*JOBS, "a", {"metadata": {"labels": {QUEUE: "main"}}})
        tenant.wait_runs(2)
        with pytest.raises(ApiError, match=r"spec.podReplacementPolicy: the pods of a queued Job are replaced when"):
            tenant.patch(*JOBS, "a", {"spec": {"podReplacementPolicy": "TerminatingOrFailed"}})
        (name,) = names_of_pods(tenant)
        tenant.delete("v1", "pods", name)
        tenant.wait_runs(0, timeout=30)
        tenant.delete(*JOBS, "a")
        tenant.within_quota()

    def test_without_the_finalizer_of_the_job_controller(self, tenant: Tenant) -> None:
        """Take the finalizer off running pods by which the Job controller counts them."""
        tenant.job("a")
        tenant.wait_runs(2)
        for name in names_of_pods(tenant):
            with suppress(ApiError):
                tenant.patch("v1", "pods", name, {"metadata": {"finalizers": None}})
        tenant.job("b")
        tenant.within_quota()

    def test_past_a_deadline(self, tenant: Tenant) -> None:
        """Let a Job reach its deadline while its pods stop slowly, and delete itself when it has failed."""
        body = tenant.job_body("a")
        body["spec"] |= {"activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 0}
        body["spec"]["template"]["metadata"] = {"annotations": SLOW}
        tenant.api.create(body)
        tenant.job("b")
        tenant.world.wait_started("b", timeout=20)
        tenant.within_quota()

    def test_of_a_job_that_lost_its_finalizers(self, tenant: Tenant) -> None:
        """Delete a Job in the foreground, take the finalizer of the garbage collector off, and create the next."""
        tenant.job("a", annotations_of_pods=SLOW)
        tenant.wait_runs(2)
        tenant.delete(*JOBS, "a", propagation="Foreground")
        with suppress(ApiError):
            tenant.patch(*JOBS, "a", {"metadata": {"finalizers": None}})
        tenant.job("b")
        tenant.world.wait_started("b", timeout=20)
        tenant.within_quota()

    @pytest.mark.parametrize("finalizer", ["orphan", "foregroundDeletion"])
    def test_of_a_job_born_with_a_finalizer(self, tenant: Tenant, finalizer: str) -> None:
        """Create a Job with a finalizer of the garbage collector, which decides instead of the client how it goes."""
        tenant.job("a", finalizers=[finalizer])
        tenant.wait_runs(2)
        tenant.delete(*JOBS, "a")
        tenant.job("b")
        tenant.world.workload_of("b")
        tenant.within_quota()


class TestAdoption:
    def adopter(self, tenant: Tenant, labels: dict[str, str]) -> None:
        """Create a Job that selects pods by these labels, instead of by its own uid."""
        body = tenant.job_body("adopter")
        body["spec"] |= {"manualSelector": True, "selector": {"matchLabels": labels}}
        body["spec"]["template"]["metadata"] = {"labels": labels}
        with suppress(ApiError):
            tenant.api.create(body)

    def test_of_orphaned_pods(self, tenant: Tenant) -> None:
        """Delete a Job with orphan, and create one that selects its pods: nothing runs beside them."""
        body = tenant.job_body("a")
        body["spec"]["template"]["metadata"] = {"labels": {"app": "a"}}
        tenant.api.create(body)
        tenant.wait_runs(2)
        tenant.delete(*JOBS, "a", propagation="Orphan")
        tenant.world.api.wait_gone(tenant.path(*JOBS, "a"))
        self.adopter(tenant, {"app": "a"})
        tenant.job("b")
        tenant.within_quota()

    def test_of_queued_pods(self, tenant: Tenant) -> None:
        """Create a Job that selects running Pods which are queued by themselves."""
        for name in "ab":
            tenant.pod(name, labels={QUEUE: "main", "app": "a"})
        tenant.wait_runs(2)
        self.adopter(tenant, {"app": "a"})
        tenant.job("b")
        tenant.within_quota()


class TestADeployment:
    @pytest.mark.parametrize("kind", ["deployments", "replicasets"])
    def test_deleted_with_orphan(self, tenant: Tenant, kind: str) -> None:
        """Delete a Deployment, or its ReplicaSet, with orphan, and create it again; new pods wait for old ones."""
        self.create(tenant)
        tenant.wait_runs(2)
        (owned,) = tenant.api.items(tenant.path("apps/v1", "replicasets"))
        name = "web" if kind == "deployments" else owned["metadata"]["name"]
        tenant.delete("apps/v1", kind, name, propagation="Orphan")
        tenant.world.api.wait_gone(tenant.path("apps/v1", kind, name)) if kind == "deployments" else None
        with suppress(ApiError):
            self.create(tenant)
        tenant.job("b")
        tenant.within_quota()

    def create(self, tenant: Tenant) -> None:
        """A Deployment of two pods."""
        labels = {"app": "web"}
        template = {
            "metadata": {"labels": {**labels, QUEUE: "main"}},
            "spec": {**pod_spec("1"), "restartPolicy": "Always"},
        }
        spec: Json = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        meta = {"name": "web", "namespace": tenant.namespace, "labels": {QUEUE: "main"}}
        tenant.api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec})
