"""Who made a pod, and which Job it belongs to, is known from the identity of the client, not from the pod's word."""

from itertools import product
from typing import Any

import pytest

from testbed import ApiError
from testbed.client import Json, wait_until
from tests.attacks.conftest import Tenant, pod_spec
from turnstile.api import names

SELECTOR_LABELS = (
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
)
OF_A_JOB = "metadata.ownerReferences: Forbidden: Job 'tiny' as controller of a pod, by 'eve': only the Job controller"
CONTROLLER_STAYS = "metadata.ownerReferences: Forbidden: the controller of a queued pod may not be changed"


def controlled_by(owner: Json) -> list[Json]:
    """A list with a reference to the controller."""
    meta = owner["metadata"]
    return [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}]


def running_job(tenant: Tenant, *, pods: int = 1) -> tuple[Json, Json]:
    """A Job that runs, and one of its pods."""
    made = tenant.job("tiny", pods=pods)
    tenant.wait_runs(pods)
    return made, tenant.world.pods_of("tiny")[0]


def patch_pod(tenant: Tenant, pod: Json, patch: Json) -> Json:
    """Patch a pod as the tenant."""
    return tenant.patch("v1", "pods", pod["metadata"]["name"], patch)


class TestAPodThatSaysItsControllerIsAJob:
    @pytest.mark.parametrize("labels", [{}, {names.QUEUE_LABEL: "main"}], ids=["no queue", "queue"])
    def test_is_not_created(self, tenant: Tenant, labels: dict[str, str]) -> None:
        """Create a Pod that says its controller is a Job, about whose pods the webhook is not asked."""
        owner, _ = running_job(tenant)
        forged = [{**each, "controller": True} for each in controlled_by(owner)]
        with pytest.raises(ApiError, match=OF_A_JOB):
            tenant.pod("a", cpu="9", labels=labels, ownerReferences=forged)
        tenant.within_quota()

    def test_is_not_created_by_another_controller_either(self, tenant: Tenant) -> None:
        """Let a ReplicaSet make pods whose template says that their controller is a Job."""
        owner, _ = running_job(tenant)
        forged = [{**each, "controller": True} for each in controlled_by(owner)]
        metadata = {"labels": {"app": "x", names.QUEUE_LABEL: "main"}, "ownerReferences": forged}
        tenant.api.create(
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": "r", "namespace": tenant.namespace},
                "spec": {
                    "replicas": 5,
                    "selector": {"matchLabels": {"app": "x"}},
                    "template": {"metadata": metadata, "spec": {**pod_spec("1"), "restartPolicy": "Always"}},
                },
            }
        )
        tenant.wait_runs(2)
        tenant.within_quota()


class TestAnAdmittedJobsPod:
    def test_keeps_its_labels(self, tenant: Tenant) -> None:
        """Change labels of a Job's pod, so that the Job controller lets go of the pod and replaces it."""
        _, pod = running_job(tenant)
        for label, value in product([*SELECTOR_LABELS, names.PODSET_LABEL], [None, "other"]):
            with pytest.raises(ApiError, match=rf"metadata.labels\[{label}\]: Forbidden: '.*' instead of '.+'"):
                patch_pod(tenant, pod, {"metadata": {"labels": {label: value}}})

    @pytest.mark.parametrize("references", [[], "another"], ids=["removed", "changed"])
    def test_keeps_its_controller(self, tenant: Tenant, references: Any) -> None:
        """Take the owner off a Job's pod, or name another Job."""
        _, pod = running_job(tenant)
        if references:
            other = tenant.job("other", pods=1)
            references = [{**each, "controller": True} for each in controlled_by(other)]
        with pytest.raises(ApiError, match=CONTROLLER_STAYS):
            patch_pod(tenant, pod, {"metadata": {"ownerReferences": references}})

    def test_takes_other_labels_and_annotations(self, tenant: Tenant) -> None:
        """Change labels and annotations of a Job's pod that nobody counts by, which is allowed."""
        _, pod = running_job(tenant)
        changed = patch_pod(tenant, pod, {"metadata": {"labels": {"note": "x"}, "annotations": {"note": "y"}}})
        assert changed["metadata"]["labels"]["note"] == "x"
        changed = patch_pod(tenant, pod, {"metadata": {"labels": {"note": None}}})
        assert "note" not in changed["metadata"]["labels"]
        tenant.within_quota()


class TestAQueuedPod:
    def test_keeps_what_is_counted_by(self, tenant: Tenant) -> None:
        """Change what a running Pod is counted by: its labels, its group, its finalizer."""
        tenant.pod("a", cpu="2")
        tenant.wait_runs(2)
        for metadata in (
            {"labels": {names.MANAGED_LABEL: None}},
            {"labels": {names.PODSET_LABEL: None}},
            {"labels": {names.POD_GROUP_NAME: "g"}},
            {"annotations": {names.POD_GROUP_NAME: "g"}},
            {"annotations": {names.POD_SUSPENDING_PARENT: "statefulset"}},
            {"finalizers": None},
        ):
            with pytest.raises(ApiError, match="Forbidden"):
                tenant.patch("v1", "pods", "a", {"metadata": metadata})
        tenant.pod("b")
        tenant.world.workload_of("b", kind="Pod")
        tenant.within_quota()

    def test_gets_no_controller(self, tenant: Tenant) -> None:
        """Give a running Pod a Job as its controller, which may be charged for it."""
        tenant.pod("a", cpu="1")
        owner = tenant.job("tiny", pods=1)
        tenant.wait_runs(2)
        forged = [{**each, "controller": True} for each in controlled_by(owner)]
        with pytest.raises(ApiError, match=CONTROLLER_STAYS):
            tenant.patch("v1", "pods", "a", {"metadata": {"ownerReferences": forged}})
        plain = tenant.patch("v1", "pods", "a", {"metadata": {"ownerReferences": controlled_by(owner)}})
        assert not plain["metadata"]["ownerReferences"][0].get("controller")

    def test_loses_its_finalizer_once_it_is_deleted(self, tenant: Tenant) -> None:
        """Delete a Pod at once and take its finalizers off, which is allowed."""
        tenant.pod("a", cpu="2", finalizers=["example.com/keep"])
        tenant.wait_runs(2)
        tenant.delete("v1", "pods", "a", grace_seconds=0)
        tenant.patch("v1", "pods", "a", {"metadata": {"finalizers": []}})
        wait_until(
            lambda: tenant.world.api.find(tenant.path("v1", "pods", "a")) is None,
            timeout=20,
            describe=lambda: "the Pod is still there",
        )
        tenant.pod("b", cpu="2")
        tenant.wait_runs(2)
        tenant.within_quota()
