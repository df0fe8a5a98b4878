"""What was admitted is followed to its end, and what could not be started does not run, whatever is labelled and
configured since."""

from contextlib import suppress

import pytest

from testbed.client import Json, condition, resource_path
from testbed.errors import ApiError
from testbed.installation import MANAGED
from tests.attacks.conftest import Tenant
from tests.cluster.scenario import GROUP, QUEUE

JOBS = ("batch/v1", "jobs")
PODSET = "kueue.x-k8s.io/podset"
CLUSTER_QUEUE = "kueue.x-k8s.io/cluster-queue-name"
LABEL = next(iter(MANAGED))


def try_to_start(tenant: Tenant, name: str) -> None:
    """Resume a Job as its tenant; whether that is refused or undone does not matter."""
    with suppress(ApiError):
        tenant.patch(*JOBS, name, {"spec": {"suspend": False}})


def manage(tenant: Tenant, *, managed: bool) -> None:
    """Give the namespace the label that makes it managed, or take it away, as an administrator."""
    path = resource_path("v1", "namespaces", tenant.namespace)
    tenant.world.api.patch(path, {"metadata": {"labels": {LABEL: MANAGED[LABEL] if managed else None}}})


def finish(tenant: Tenant, name: str) -> None:
    """End the pods of a Job."""
    tenant.world.finish(name)


class TestWithoutAQueueName:
    """A Job whose queue name is taken away."""

    def test_in_the_change_that_suspends_it(self, tenant: Tenant) -> None:
        """Suspend a running Job and drop its queue name in one patch, then resume it and create another."""
        tenant.job("a")
        tenant.wait_runs(2)
        drop: Json = {"metadata": {"labels": {QUEUE: None}}, "spec": {"suspend": True}}
        with pytest.raises(ApiError, match="queue-name"):
            tenant.patch(*JOBS, "a", drop)
        try_to_start(tenant, "a")
        tenant.job("b")
        tenant.within_quota()

    def test_while_it_waits(self, tenant: Tenant) -> None:
        """Drop the queue name of a Job that waits, then resume it."""
        tenant.job("a", pods=9)
        tenant.world.wait_pending("a")
        with pytest.raises(ApiError, match="queue-name"):
            tenant.patch(*JOBS, "a", {"metadata": {"labels": {QUEUE: None}}})
        try_to_start(tenant, "a")
        tenant.within_quota()

    def test_by_replacing_its_labels(self, tenant: Tenant) -> None:
        """Replace a running Job by an object without labels, through server-side apply with force and as a PUT."""
        tenant.job("a")
        tenant.wait_runs(2)
        body = tenant.world.read_job("a")
        body["metadata"]["labels"] = {}
        body["spec"]["suspend"] = True
        with pytest.raises(ApiError):
            tenant.api.replace(tenant.path(*JOBS, "a"), body)
        tenant.job("b")
        tenant.within_quota()


class TestThatCannotStart:
    """A Job with a template that contradicts what an admission adds to it."""

    def test_with_our_own_label_is_refused(self, tenant: Tenant) -> None:
        """Set the label of another pod set in the template, so that the start fails, and resume the Job by hand."""
        body = tenant.job_body("a")
        body["spec"]["template"]["metadata"] = {"labels": {PODSET: "x"}}
        with pytest.raises(ApiError, match="podset"):
            tenant.api.create(body)
        tenant.job("b")
        tenant.within_quota()

    def test_is_not_run_without_quota(self, tenant: Tenant) -> None:
        """Let the start fail by a label that nobody can check before the admission; resume the Job by hand."""
        body = tenant.job_body("a")
        body["spec"]["template"]["metadata"] = {"labels": {CLUSTER_QUEUE: "x"}}
        tenant.api.create(body)
        tenant.world.wait_workload("a", lambda found: condition(found, "Finished").get("reason") == "FailedToStart")
        try_to_start(tenant, "a")
        tenant.job("b")
        tenant.wait_runs(2)
        tenant.within_quota()
        assert tenant.world.suspended("a")

    def test_starts_once_it_is_repaired(self, tenant: Tenant) -> None:
        """Repair a Job whose start failed, so that it is queued again, when another Job has the quota."""
        body = tenant.job_body("a")
        body["spec"]["template"]["metadata"] = {"labels": {CLUSTER_QUEUE: "x"}}
        tenant.api.create(body)
        tenant.world.wait_workload("a", lambda found: condition(found, "Finished").get("reason") == "FailedToStart")
        tenant.job("b")
        tenant.wait_runs(2)
        repair = {"spec": {"template": {"metadata": {"labels": {CLUSTER_QUEUE: None}}}}}
        tenant.patch(*JOBS, "a", repair)
        tenant.world.wait_workload("a", lambda found: condition(found, "QuotaReserved").get("status") == "False")
        tenant.within_quota()
        tenant.delete(*JOBS, "b")
        tenant.world.wait_started("a")
        tenant.within_quota()


class TestOfANamespaceThatIsNoLongerManaged:
    """Jobs that run or wait in a namespace when an administrator takes its label away."""

    def test_what_runs_keeps_its_quota_to_its_end(self, tenant: Tenant) -> None:
        """Let a Job of a namespace that is not managed any more run on: its quota is free when it ends."""
        tenant.job("a")
        tenant.wait_runs(2)
        manage(tenant, managed=False)
        tenant.within_quota()
        tenant.wait_reserved(2)
        finish(tenant, "a")
        tenant.world.wait_workload("a", lambda found: condition(found, "Finished").get("reason") == "Succeeded")
        tenant.within_quota()
        tenant.wait_reserved(0)

    def test_what_is_evicted_is_stopped_and_leaves_its_queue(self, tenant: Tenant) -> None:
        """Drain the queue of a Job whose namespace is not managed any more: the Job is stopped."""
        tenant.job("a")
        tenant.wait_runs(2)
        manage(tenant, managed=False)
        tenant.world.patch_queue(tenant.world.named("main"), {"stopPolicy": "HoldAndDrain"})
        tenant.wait(lambda: not tenant.workloads(), describe=lambda: "its Workload is still there")
        job = tenant.world.read_job("a")
        assert job["spec"]["suspend"]
        assert PODSET not in job["spec"]["template"]["metadata"].get("labels", {})
        tenant.within_quota()

    def test_what_waits_leaves_its_queue(self, tenant: Tenant) -> None:
        """Let a Job wait in a namespace that is not managed any more: it leaves its queue, suspended."""
        tenant.job("a")
        tenant.wait_runs(2)
        tenant.job("b")
        tenant.world.wait_pending("b")
        manage(tenant, managed=False)
        tenant.wait(lambda: len(tenant.workloads()) == 1, describe=lambda: "its Workload is still there")
        assert tenant.world.suspended("b")
        finish(tenant, "a")
        tenant.within_quota()
        tenant.wait_reserved(0)

    def test_a_job_that_is_deleted_frees_its_quota(self, tenant: Tenant) -> None:
        """Delete a running Job of a namespace that is not managed any more."""
        tenant.job("a")
        tenant.wait_runs(2)
        manage(tenant, managed=False)
        tenant.delete(*JOBS, "a")
        tenant.wait(lambda: tenant.reserved == 0, describe=lambda: "quota is held for a deleted Job")
        tenant.within_quota()

    def test_a_pod_that_runs_keeps_its_quota_to_its_end(self, tenant: Tenant) -> None:
        """Delete a running Pod of a namespace that is not managed any more: its finalizer goes too."""
        tenant.pod("a", cpu="2")
        tenant.wait_runs(2)
        manage(tenant, managed=False)
        tenant.within_quota()
        tenant.wait_reserved(2)
        tenant.delete("v1", "pods", "a")
        tenant.world.api.wait_gone(tenant.path("v1", "pods", "a"))
        tenant.within_quota()
        tenant.wait_reserved(0)


def test_a_job_that_runs_outlives_its_local_queue(tenant: Tenant) -> None:
    """Delete the LocalQueue of a running Job: the Job keeps its quota to its end."""
    tenant.job("a")
    tenant.wait_runs(2)
    tenant.world.api.delete(tenant.path(GROUP, "localqueues", "main"))
    tenant.within_quota()
    tenant.wait_reserved(2)
    finish(tenant, "a")
    tenant.world.wait_workload("a", lambda found: condition(found, "Finished").get("status") == "True")
    tenant.within_quota()
    tenant.wait_reserved(0)


def test_a_job_admitted_in_part_outlives_its_flavor(tenant: Tenant) -> None:
    """Take the flavor out of the ClusterQueue and delete it while a Job runs with fewer pods than it asks for."""
    annotations = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    tenant.job("a", pods=6, annotations=annotations)
    tenant.wait_runs(2)
    pods = set(tenant.sentry.pods)
    api = tenant.world.api
    path = resource_path(GROUP, "clusterqueues", tenant.world.named("main"))
    groups = api.get(path)["spec"]["resourceGroups"]
    flavor = groups[0]["flavors"][0]["name"]
    groups[0]["flavors"][0]["name"] = tenant.world.flavor("other")
    api.patch(path, {"spec": {"resourceGroups": groups}})
    api.delete(resource_path(GROUP, "resourceflavors", flavor))
    api.wait_gone(resource_path(GROUP, "resourceflavors", flavor))
    tenant.patch(*JOBS, "a", {"metadata": {"annotations": {"example.com/touched": "true"}}})
    tenant.job("b", cpu="4")  # what is done about it is done after what is done about the touched Job
    tenant.world.workload_of("b")
    tenant.wait(lambda: tenant.sentry.quiet_for(1.5), describe=lambda: "the Job does not come to rest")
    assert tenant.sentry.runs == 2
    assert set(tenant.sentry.pods) == pods
    finish(tenant, "a")


def test_a_job_admitted_already_is_not_taken_over_by_an_owner(tenant: Tenant) -> None:
    """Give an admitted Job another admitted Job as its owner: it stays charged by its own Workload."""
    tenant.job("a", pods=1)
    tenant.job("b", pods=1)
    tenant.wait_runs(2)
    owner = tenant.world.read_job("b")["metadata"]["uid"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "b", "uid": owner, "controller": True}
    with suppress(ApiError):
        tenant.patch(*JOBS, "a", {"metadata": {"ownerReferences": [reference]}})
    tenant.within_quota()
    finish(tenant, "a")
    tenant.wait(lambda: tenant.reserved == 1, describe=lambda: f"{tenant.reserved} CPUs are reserved, not 1")
