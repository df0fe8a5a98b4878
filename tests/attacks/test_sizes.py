"""A job is charged for what its pods take, however roundabout that is said, and for as many pods as it gets."""

from contextlib import suppress
from typing import Any

import pytest

from testbed import ApiError
from testbed.client import Json
from tests.attacks.conftest import Tenant, pod_spec
from tests.attacks.rest import comes_back_within_quota
from tests.cluster.scenario import QUEUE
from turnstile.api import names

JOBS = ("batch/v1", "jobs")
APPS = "apps/v1"


def requests(cpu: str, **more: Any) -> Json:
    """A container that requests so much."""
    return {"image": "registry.example/main:1", "resources": {"requests": {"cpu": cpu}}, **more}


LARGE: dict[str, Json] = {
    "init-container": {"initContainers": [{"name": "init", **requests("3")}]},
    "sidecar": {"initContainers": [{"name": "side", "restartPolicy": "Always", **requests("1500m")}]},
    "sidecar-before-an-init-container": {
        "initContainers": [
            {"name": "side", "restartPolicy": "Always", **requests("1")},
            {"name": "init", **requests("1500m")},
        ]
    },
    "limits-alone": {
        "containers": [{"name": "main", "image": "registry.example/main:1", "resources": {"limits": {"cpu": "3"}}}]
    },
    "the-whole-pod": {"resources": {"requests": {"cpu": "3"}}},
    "many-containers": {"containers": [{"name": f"c{number}", **requests("250m")} for number in range(9)]},
}


class TestWhatAPodTakes:
    def test_by_a_job(self, submitter: Tenant) -> None:
        """Request more than the quota by init containers, sidecars, limits, the whole pod, or many small containers."""
        for way, spec in LARGE.items():
            body = submitter.job_body(way, pods=1)
            body["spec"]["template"]["spec"].update(spec)
            submitter.api.create(body)
        for way in LARGE:
            submitter.world.wait_pending(way)
        submitter.job("b")
        submitter.wait_runs(2)
        submitter.within_quota()

    def test_by_a_pod(self, tenant: Tenant) -> None:
        """Request more than the quota in the same ways by a Pod that is queued by itself."""
        for way, spec in LARGE.items():
            tenant.pod(way, spec=spec)
        for way in LARGE:
            tenant.world.wait_pending(way, kind="Pod")
        tenant.pod("b", cpu="2")
        tenant.wait_runs(2)
        tenant.within_quota()

    @pytest.mark.parametrize(("cpu", "pods"), [("9000000000", 2147483647), ("9223372036854775", 1025)])
    def test_past_all_numbers(self, tenant: Tenant, cpu: str, pods: int) -> None:
        """Request so much that the sum is past 64 bits, where other arithmetic would come to a negative number."""
        tenant.job("a", cpu=cpu, pods=pods)
        tenant.world.wait_pending("a")
        tenant.job("b")
        tenant.wait_runs(2)
        tenant.within_quota()

    def test_of_a_resource_without_quota(self, tenant: Tenant) -> None:
        """Request beside CPUs a resource that the ClusterQueue has no quota for."""
        body = tenant.job_body("a")
        resources = {"requests": {"cpu": "1", "example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}
        body["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
        tenant.api.create(body)
        tenant.world.wait_pending("a")
        tenant.within_quota()


class TestHowManyPods:
    @pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
    @pytest.mark.parametrize("change", [{"completions": 9}, {"completions": 9, "parallelism": 9}], ids=["one", "both"])
    def test_more_completions(self, tenant: Tenant, mode: str, change: Json) -> None:
        """Raise the completions of a running Job that is charged for fewer pods than its parallelism."""
        body = tenant.job_body("a")
        body["spec"] |= {"parallelism": 9, "completions": 2, "completionMode": mode}
        tenant.api.create(body)
        tenant.wait_runs(2)
        with suppress(ApiError):
            tenant.patch(*JOBS, "a", {"spec": change})
        tenant.within_quota()

    def test_retries(self, tenant: Tenant) -> None:
        """Let all pods of a Job fail again and again: those that come instead need no more than those that failed."""
        body = tenant.job_body("a")
        body["spec"]["backoffLimit"] = 1
        fails = {"testbed.turnstile.dev/run-for": "0s", "testbed.turnstile.dev/exit-code": "1"}
        body["spec"]["template"]["metadata"] = {"annotations": fails}
        tenant.api.create(body)
        tenant.job("b")
        tenant.world.wait_started("b", timeout=60)
        tenant.within_quota()

    def test_a_minimum_of_pods(self, tenant: Tenant) -> None:
        """Ask for partial admission with a minimum of nothing, of less, and of more than the Job has."""
        for name, minimum in (("a", "0"), ("b", "-1"), ("c", "99")):
            with suppress(ApiError):
                tenant.job(name, pods=9, annotations={names.JOB_MIN_PARALLELISM: minimum})
        tenant.job("d", pods=9, annotations={names.JOB_MIN_PARALLELISM: "1"})
        tenant.wait_runs(2)
        tenant.within_quota()

    @pytest.mark.parametrize("kind", ["ReplicationController", "DaemonSet"])
    def test_of_an_old_controller(self, tenant: Tenant, kind: str) -> None:
        """Let a ReplicationController or a DaemonSet make more pods than fit."""
        labels = {"app": "a"}
        template = {
            "metadata": {"labels": {**labels, QUEUE: "main"}},
            "spec": {**pod_spec("1"), "restartPolicy": "Always"},
        }
        spec: Json = {"template": template}
        if kind == "DaemonSet":
            spec["selector"] = {"matchLabels": labels}
        else:
            spec |= {"selector": labels, "replicas": 9}
        version = APPS if kind == "DaemonSet" else "v1"
        tenant.api.create(
            {
                "apiVersion": version,
                "kind": kind,
                "metadata": {"name": "a", "namespace": tenant.namespace},
                "spec": spec,
            }
        )
        tenant.wait_runs(2)
        tenant.within_quota()

    def test_a_pod_that_its_deployment_lets_go(self, tenant: Tenant) -> None:
        """Change the label by which a Deployment finds its pods: the pod that it makes instead waits for quota."""
        labels = {"app": "a"}
        spec = {**pod_spec("1"), "restartPolicy": "Always"}
        template: Json = {"metadata": {"labels": {**labels, QUEUE: "main"}}, "spec": spec}
        body: Json = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
        meta = {"name": "a", "namespace": tenant.namespace, "labels": {QUEUE: "main"}}
        tenant.api.create({"apiVersion": APPS, "kind": "Deployment", "metadata": meta, "spec": body})
        tenant.wait_runs(2)
        for pod in tenant.pods():
            with suppress(ApiError):
                tenant.patch("v1", "pods", pod["metadata"]["name"], {"metadata": {"labels": {"app": "other"}}})
        tenant.within_quota()


class TestGroups:
    def member(self, tenant: Tenant, name: str, *, total: int = 2, cpu: str = "1", **annotations: str) -> None:
        """Create a Pod of group `g`; whether that is refused does not matter."""
        labels = {QUEUE: "main", names.POD_GROUP_NAME: "g"}
        with suppress(ApiError):
            tenant.pod(
                name, cpu=cpu, labels=labels, annotations={names.POD_GROUP_TOTAL_COUNT: str(total), **annotations}
            )

    def running(self, tenant: Tenant) -> None:
        """Create a group that has all the quota."""
        for name in "ab":
            self.member(tenant, name)
        tenant.wait_runs(2)

    def test_more_pods_than_announced(self, tenant: Tenant) -> None:
        """Add Pods to a group that runs and is complete."""
        self.running(tenant)
        for name in "cde":
            self.member(tenant, name)
        tenant.within_quota()

    def test_a_larger_number_announced_later(self, tenant: Tenant) -> None:
        """Raise the announced number of a group that runs, on all its Pods, and add Pods."""
        self.running(tenant)
        for name in "ab":
            with suppress(ApiError):
                tenant.patch("v1", "pods", name, {"metadata": {"annotations": {names.POD_GROUP_TOTAL_COUNT: "5"}}})
        for name in "cde":
            self.member(tenant, name, total=5)
        tenant.within_quota()

    def test_a_forged_role(self, tenant: Tenant) -> None:
        """Give a large Pod the role hash of a small one of its group, which would then be charged for both."""
        for name, cpu in (("a", "100m"), ("b", "9")):
            self.member(tenant, name, cpu=cpu, **{names.ROLE_HASH: "00000000"})
        tenant.within_quota()

    def test_a_larger_replacement(self, tenant: Tenant) -> None:
        """Let a Pod of a group fail, and replace it by a larger one with the role hash of the failed one."""
        self.running(tenant)
        role = tenant.world.api.get(tenant.path("v1", "pods", "a"))["metadata"]["annotations"].get(names.ROLE_HASH, "")
        end = {"testbed.turnstile.dev/run-for": "0s", "testbed.turnstile.dev/exit-code": "1"}
        tenant.patch("v1", "pods", "a", {"metadata": {"annotations": end}})
        tenant.wait_runs(1)
        self.member(tenant, "c", cpu="9", **{names.ROLE_HASH: role})
        comes_back_within_quota(tenant)
        assert not tenant.pod_runs("c")

    def test_a_member_beside_pods_that_stop_slowly(self, tenant: Tenant) -> None:
        """Delete a Pod of a group that takes long to stop, and create the one that replaces it at once."""
        labels = {QUEUE: "main", names.POD_GROUP_NAME: "g"}
        notes = {names.POD_GROUP_TOTAL_COUNT: "2", "testbed.turnstile.dev/stop-for": "2s"}
        for name in "ab":
            tenant.pod(name, labels=labels, annotations=notes)
        tenant.wait_runs(2)
        tenant.delete("v1", "pods", "a")
        self.member(tenant, "c")
        tenant.within_quota()
