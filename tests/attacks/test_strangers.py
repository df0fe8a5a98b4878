"""A pod counts for a Workload only if it can be one of its pods, whatever it says of itself: it neither gives back
quota that others use, nor holds quota that others wait for."""

from typing import Any

import pytest

from testbed import ApiError
from testbed.client import Json, resource_path
from testbed.components import RUN_FOR, STOP_FOR
from tests.attacks.conftest import QUOTA, WITHOUT_QUEUE_NAME, Tenant, default_queue, leaves_alone, pod_spec
from turnstile.api import names

TRACKED = "batch.kubernetes.io/job-tracking"
JOB_UID = "batch.kubernetes.io/controller-uid"
GROUP = {names.QUEUE_LABEL: "main", names.POD_GROUP_NAME: "g"}
ENDS = {RUN_FOR: "0s"}


def stranger(tenant: Tenant, name: str, **metadata: Any) -> Json:
    """The manifest of a Pod that asks for nothing and names no queue."""
    return tenant.pod_body(name, cpu="0", **{"labels": {}, **metadata})


def as_controller(owner: Json, **other: Any) -> list[Json]:
    """A list with one owner reference, of a controller."""
    meta = owner["metadata"]
    found = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return [{**found, "controller": True, **other}]


def workload_name(tenant: Tenant, name: str = "a", **which: Any) -> str:
    """The name of the Workload of a job."""
    return str(tenant.world.workload_of(name, **which)["metadata"]["name"])


def free_again(tenant: Tenant) -> None:
    """Assert that the next Job runs, and no more than the quota. Pods that forge marks are what an audit looks for."""
    tenant.job("next")
    tenant.wait_runs(2)
    tenant.wait_reserved(2)
    assert tenant.sentry.most <= QUOTA, tenant.story()


class TestAPodThatEnded:
    """Pods that were never charged, and have ended, give no quota back."""

    @pytest.mark.parametrize(
        "marks",
        [
            {"labels": {JOB_UID: "UID"}},
            {"labels": {"controller-uid": "UID"}},
            {"labels": {"batch.kubernetes.io/job-name": "a"}},
            {"finalizers": [TRACKED]},
        ],
        ids=["uid", "older uid", "name", "finalizer"],
    )
    def test_does_not_say_that_it_is_one_of_a_job(self, tenant: Tenant, marks: Json) -> None:
        """Create Pods that end at once, with what the Job controller finds and counts the pods of a running Job by."""
        job = tenant.job("a")
        tenant.wait_runs(2)
        marks = {**marks, "labels": dict.fromkeys(marks.get("labels", {}), job["metadata"]["uid"])}
        with pytest.raises(ApiError, match="Forbidden"):
            tenant.api.create(stranger(tenant, "new", annotations=ENDS, **marks))
        tenant.api.create(stranger(tenant, "old", annotations=ENDS))
        with pytest.raises(ApiError, match="Forbidden"):
            tenant.patch("v1", "pods", "old", {"metadata": marks})
        tenant.within_quota()

    @leaves_alone
    def test_is_adopted_by_a_job_with_a_selector_of_its_own(self, tenant: Tenant) -> None:
        """Let a Job whose pods take long to stop adopt Pods that have ended, by a selector of the tenant's."""
        labels = {"app": "mine"}
        body = tenant.job_body("a")
        body["spec"] |= {"completions": 3, "manualSelector": True, "selector": {"matchLabels": labels}}
        body["spec"]["template"]["metadata"] = {"labels": labels, "annotations": {STOP_FOR: "1h"}}
        body["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 3600
        tenant.api.create(body)
        tenant.wait_runs(2)
        for name in ("x", "y"):
            tenant.api.create(stranger(tenant, name, labels=labels, annotations=ENDS))
        tenant.wait(
            lambda: tenant.world.read_job("a")["status"].get("succeeded", 0) == 2,
            describe=lambda: "the Job controller does not count them",
        )
        tenant.job("b", pods=1)
        tenant.world.workload_of("b")
        tenant.within_quota()

    def test_joins_no_group(self, tenant: Tenant) -> None:
        """Label Pods that have ended as members of a group that runs."""
        total = {names.POD_GROUP_TOTAL_COUNT: "2"}
        for name in "xy":
            tenant.api.create(stranger(tenant, name, annotations=ENDS) | {"spec": pod_spec("1")})
        tenant.wait(lambda: not tenant.sentry.runs, describe=lambda: "they run")
        for name in "ab":
            tenant.pod(name, labels=GROUP, annotations=total)
        tenant.wait_runs(2)
        for name in "xy":
            marks = {"labels": {**GROUP, names.MANAGED_LABEL: "true"}, "annotations": total}
            with pytest.raises(ApiError, match="Forbidden"):
                tenant.patch("v1", "pods", name, {"metadata": marks})
        tenant.job("next", pods=1)
        tenant.world.workload_of("next")
        tenant.within_quota()

    def test_gives_nothing_back_for_a_group_past_all_policies(self, tenant: Tenant) -> None:
        """The same, where no policy holds: what the members that run need stays reserved."""
        total = {names.POD_GROUP_TOTAL_COUNT: "2"}
        for name in "xy":
            tenant.api.create(stranger(tenant, name, annotations=ENDS) | {"spec": pod_spec("1")})
        tenant.wait(lambda: not tenant.sentry.runs, describe=lambda: "they run")
        for name in "ab":
            tenant.pod(name, labels=GROUP, annotations=total)
        tenant.wait_runs(2)
        marks = {"labels": {**GROUP, names.MANAGED_LABEL: "true"}, "annotations": total}
        for name in "xy":
            tenant.world.api.patch(tenant.path("v1", "pods", name), {"metadata": marks})
        tenant.job("next", pods=1)
        tenant.world.workload_of("next")
        tenant.within_quota()


class TestAPodThatHoldsNothing:
    """Quota that is given back is not held by pods that were never charged to it."""

    def test_by_an_annotation(self, tenant: Tenant) -> None:
        """Name the Workload of a Job in the annotation of another Pod: it is not created so, and not changed so."""
        tenant.job("a")
        tenant.wait_runs(2)
        named = {"annotations": {names.WORKLOAD: workload_name(tenant)}}
        made = tenant.api.create(stranger(tenant, "new", **named))
        assert names.WORKLOAD not in made["metadata"].get("annotations", {})
        nobody = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "no", "uid": "1-2-3"}}
        with pytest.raises(ApiError, match="Forbidden"):
            tenant.api.create(stranger(tenant, "old", **named, ownerReferences=as_controller(nobody)))
        with pytest.raises(ApiError, match="Forbidden"):
            tenant.patch("v1", "pods", "new", {"metadata": named})
        tenant.delete("batch/v1", "jobs", "a")
        free_again(tenant)

    @pytest.mark.parametrize("labels", [{}, {names.PODSET_LABEL: "main"}], ids=["", "and its pod set"])
    def test_by_an_annotation_from_a_template(self, tenant: Tenant, labels: dict[str, str]) -> None:
        """Let a ReplicaSet make a Pod that names the Workload of a Job."""
        tenant.job("a")
        tenant.wait_runs(2)
        marks = {"labels": {"app": "x", **labels}, "annotations": {names.WORKLOAD: workload_name(tenant)}}
        tenant.api.create(replica_set(tenant, marks))
        tenant.wait(lambda: len(tenant.pods()) == 3, describe=lambda: "no pod of the ReplicaSet")
        tenant.delete("batch/v1", "jobs", "a")
        free_again(tenant)

    @pytest.mark.parametrize(
        "forged",
        [{}, {"kind": "Thing", "apiVersion": "example.com/v1"}, {"kind": "ReplicaSet", "apiVersion": "apps/v1"}],
        ids=["itself", "no such kind", "another kind"],
    )
    def test_by_a_reference_to_a_job(self, tenant: Tenant, forged: Json) -> None:
        """Give a Pod a controller reference with the uid of a Job, by its kind or by another one."""
        job = tenant.job("a")
        tenant.wait_runs(2)
        references = {"ownerReferences": as_controller(job, **forged)}
        tenant.api.create(stranger(tenant, "x"))
        if forged and not WITHOUT_QUEUE_NAME:  # else the Pod waits, and its controller stays as it was
            tenant.patch("v1", "pods", "x", {"metadata": references})
        else:
            with pytest.raises(ApiError, match="Forbidden"):
                tenant.patch("v1", "pods", "x", {"metadata": references})
        ended = [each["metadata"]["name"] for each in tenant.pods() if each["metadata"]["name"] != "x"]
        for name in ended:
            tenant.world.api.patch(tenant.path("v1", "pods", name), {"metadata": {"annotations": ENDS}})
        free_again(tenant)

    def test_by_a_reference_to_a_queued_pod(self, tenant: Tenant) -> None:
        """Name a queued Pod as the controller of another Pod: the quota is free when the queued one ends."""
        owner = tenant.pod("a", cpu="2")
        tenant.wait_runs(2)
        tenant.api.create(stranger(tenant, "x", ownerReferences=as_controller(owner)))
        tenant.world.api.patch(tenant.path("v1", "pods", "a"), {"metadata": {"annotations": ENDS}})
        free_again(tenant)

    @pytest.mark.parametrize("end", ["evicted", "deleted", "complete"])
    def test_past_all_policies(self, tenant: Tenant, end: str) -> None:
        """A Pod with all marks of one of a Job's pods, where no policy holds: after an eviction it is deleted."""
        tenant.job("a")
        tenant.wait_runs(2)
        marks = {"labels": {names.PODSET_LABEL: "main"}, "annotations": {names.WORKLOAD: workload_name(tenant)}}
        tenant.world.api.create(stranger(tenant, "x"))
        tenant.world.api.patch(tenant.path("v1", "pods", "x"), {"metadata": marks})
        workload = tenant.path("kueue.x-k8s.io/v1beta2", "workloads", workload_name(tenant))
        if end == "evicted":
            tenant.world.api.patch(workload, {"spec": {"active": False}})
        elif end == "deleted":
            tenant.delete("batch/v1", "jobs", "a", propagation="Background")
            tenant.wait(lambda: tenant.sentry.runs == 0, describe=lambda: "pods run")
        else:
            for pod in tenant.pods():
                if pod["metadata"]["name"] != "x":
                    path = tenant.path("v1", "pods", pod["metadata"]["name"])
                    tenant.world.api.patch(path, {"metadata": {"annotations": ENDS}})
            tenant.wait(lambda: tenant.sentry.runs == 0, describe=lambda: "pods run")
        if end != "evicted":
            queue = resource_path("kueue.x-k8s.io/v1beta2", "clusterqueues", tenant.world.named("main"))
            tenant.world.api.patch(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
            tenant.wait_reserved(0)
            tenant.world.api.patch(queue, {"spec": {"stopPolicy": "None"}})
        free_again(tenant)


class TestADefaultQueue:
    """A reference to an owner counts only if the owner exists, with that uid, and is managed."""

    @pytest.fixture(autouse=True)
    def default(self, tenant: Tenant) -> None:
        """The queue, which the webhook knows."""
        default_queue(tenant)

    @pytest.mark.parametrize(
        ("api_version", "kind"),
        [("jobset.x-k8s.io/v1alpha2", "JobSet"), ("ray.io/v1", "RayCluster"), ("v1", "Pod")],
        ids=lambda value: value if "/" not in value else "",
    )
    def test_of_jobs_is_not_evaded_by_an_owner_that_is_not_there(
        self, tenant: Tenant, api_version: str, kind: str
    ) -> None:
        """Name a controller that does not exist in a suspended Job, then take the reference away and resume the Job.
        Another owner keeps it from the garbage collector."""
        nobody = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "no", "uid": "1-2-3"}}
        kept = tenant.api.create(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept", "namespace": tenant.namespace}}
        )
        owners = [*as_controller(nobody), *as_controller(kept, controller=False)]
        body = tenant.job_body("a", pods=5, labels={}, ownerReferences=owners)
        body["spec"]["suspend"] = True
        tenant.api.create(body)
        with pytest.raises(ApiError, match="resumed by Turnstile"):
            tenant.patch("batch/v1", "jobs", "a", {"metadata": {"ownerReferences": None}, "spec": {"suspend": False}})
        tenant.world.workload_of("a")
        tenant.within_quota()

    @pytest.mark.parametrize(("api_version", "kind"), [("apps/v1", "ReplicaSet"), ("v1", "Pod")])
    def test_of_pods_is_not_evaded_by_an_owner_that_is_not_there(
        self, tenant: Tenant, api_version: str, kind: str
    ) -> None:
        """Name a controller that does not exist in a Pod."""
        nobody = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "no", "uid": "1-2-3"}}
        tenant.pod("a", cpu="5", labels={}, ownerReferences=as_controller(nobody))
        tenant.within_quota()

    def test_of_pods_is_not_evaded_by_a_set_that_is_not_there(self, tenant: Tenant) -> None:
        """Name a StatefulSet that does not exist as the controller of a Pod; past all policies the Pod is queued."""
        nobody = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "no", "uid": "1-2-3"}}
        references = {"labels": {}, "ownerReferences": as_controller(nobody)}
        with pytest.raises(ApiError, match="ownerReferences: Forbidden: StatefulSet 'no'"):
            tenant.pod("a", cpu="5", **references)
        made = tenant.world.api.create(tenant.pod_body("a", cpu="5", **references))
        assert made["metadata"]["labels"][names.QUEUE_LABEL] == "default"
        tenant.within_quota()

    @pytest.mark.parametrize("kind", ["LeaderWorkerSet", "Notebook"])
    def test_of_sets_is_not_evaded_by_an_owner_that_is_not_there(self, tenant: Tenant, kind: str) -> None:
        """Name a controller that does not exist in a StatefulSet, and take the reference away."""
        version = {"LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1", "Notebook": "kubeflow.org/v1"}[kind]
        nobody = {"apiVersion": version, "kind": kind, "metadata": {"name": "no", "uid": "1-2-3"}}
        references = {"labels": {}, "ownerReferences": as_controller(nobody)}
        made = tenant.api.create(stateful_set(tenant, replicas=5, **references))
        assert made["metadata"]["labels"][names.QUEUE_LABEL] == "default"
        tenant.within_quota()

    def test_is_not_evaded_by_an_owner_that_is_not_queued(self, tenant: Tenant) -> None:
        """Name a StatefulSet that exists and is in no queue, as its pods are said to be held for another kind."""
        held = {names.POD_SUSPENDING_PARENT: "leaderworkerset.x-k8s.io/leaderworkerset"}
        owner = tenant.api.create(stateful_set(tenant, replicas=0, labels={}, annotations_of_pods=held))
        assert names.QUEUE_LABEL not in owner["metadata"].get("labels", {})
        references = {"labels": {}, "ownerReferences": as_controller(owner)}
        with pytest.raises(ApiError, match="ownerReferences: Forbidden: StatefulSet 'a'"):
            tenant.pod("x", cpu="5", **references)
        tenant.world.api.create(tenant.pod_body("x", cpu="5", **references))
        tenant.within_quota()


def replica_set(tenant: Tenant, marks: Json) -> Json:
    """The manifest of a ReplicaSet of one pod that asks for nothing and names no queue."""
    template = {"metadata": marks, "spec": {**pod_spec("0"), "restartPolicy": "Always"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "x", "namespace": tenant.namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template},
    }


def stateful_set(
    tenant: Tenant, *, replicas: int, annotations_of_pods: dict[str, str] | None = None, **metadata: Any
) -> Json:
    """The manifest of a StatefulSet of pods of 1 CPU."""
    template = {
        "metadata": {"labels": {"app": "s"}, "annotations": annotations_of_pods or {}},
        "spec": {**pod_spec("1"), "restartPolicy": "Always"},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "a", "namespace": tenant.namespace, **metadata},
        "spec": {
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "s"}},
            "template": template,
        },
    }


@pytest.mark.parametrize("phase", ["succeeded", "failed"])
def test_a_group_without_a_pod_that_may_run_holds_nothing(tenant: Tenant, phase: str) -> None:
    """Let all Pods of a serving group end, which never finishes: its quota is free."""
    told = {names.POD_GROUP_TOTAL_COUNT: "2", names.POD_GROUP_SERVING: "true"}
    for name in "ab":
        tenant.pod(name, labels=GROUP, annotations=told)
    tenant.wait_runs(2)
    code = {"testbed.turnstile.dev/exit-code": "1"} if phase == "failed" else {}
    for name in "ab":
        tenant.world.api.patch(tenant.path("v1", "pods", name), {"metadata": {"annotations": {**ENDS, **code}}})
    free_again(tenant)
