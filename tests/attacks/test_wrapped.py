"""A pod counts as one of an AppWrapper's if its controllers lead there, whatever its template says.

There is no AppWrapper controller: tests make the wrapped Deployment, as it would.
"""

from typing import Any

import pytest

from testbed.client import Json, resource_path, wait_until
from tests.attacks.conftest import QUIET_SECONDS, QUOTA, Tenant, default_queue, pod_spec
from tests.cluster.every_kind import definition
from tests.cluster.scenario import QUEUE
from turnstile.api import names

GROUP_VERSION = "workload.codeflare.dev/v1beta2"
DEFINITION = "appwrappers.workload.codeflare.dev"
WRAPPED = "workload.codeflare.dev/appwrapper"


@pytest.fixture
def marks(tenant: Tenant) -> Json:
    """The metadata of pods of an AppWrapper that runs one of 1 CPU: what its admission adds, and its controller."""
    api = tenant.world.api
    if api.find(resource_path("apiextensions.k8s.io/v1", "customresourcedefinitions", DEFINITION)) is None:
        api.create(definition(GROUP_VERSION, "AppWrapper", "appwrappers"))
    path = tenant.path(GROUP_VERSION, "appwrappers", "all")
    wait_until(lambda: api.find(path.removesuffix("/all")) is not None, timeout=10, describe=lambda: "no AppWrappers")
    api.create(
        {
            "apiVersion": GROUP_VERSION,
            "kind": "AppWrapper",
            "metadata": {"name": "all", "namespace": tenant.namespace, "labels": {QUEUE: "main"}},
            "spec": {"components": [{"template": maker(tenant, "Deployment", "web", {"labels": {"app": "web"}}, 1)}]},
        }
    )
    found = api.wait_for(path, lambda wrapper: not wrapper["spec"].get("suspend", True), describe="resumed")
    (added,) = found["spec"]["components"][0]["podSetInfos"]
    template = {
        "labels": {"app": "web", WRAPPED: "all", **added.get("labels", {})},
        "annotations": added.get("annotations", {}),
    }
    owner = {"apiVersion": GROUP_VERSION, "kind": "AppWrapper", "name": "all", "uid": found["metadata"]["uid"]}
    wrapped = maker(tenant, "Deployment", "web", template, 1)
    wrapped["metadata"] |= {"labels": {WRAPPED: "all"}, "ownerReferences": [{**owner, "controller": True}]}
    api.create(wrapped)
    tenant.wait_runs(1)
    return template


def maker(tenant: Tenant, kind: str, name: str, template: Json, replicas: int, *, cpu: str = "1", **meta: Any) -> Json:
    """The manifest of a Deployment or another kind of object that makes pods of `cpu` CPUs."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": tenant.namespace, **meta},
        "spec": {
            **({} if kind == "DaemonSet" else {"replicas": replicas}),
            "selector": {"matchLabels": {"app": template["labels"]["app"]}},
            "template": {"metadata": template, "spec": {**pod_spec(cpu), "restartPolicy": "Always"}},
        },
    }


def forged(marks: Json) -> Json:
    """The same marks for pods of another object."""
    return {**marks, "labels": {**marks["labels"], "app": "forged"}}


class TestADefaultQueue:
    """A namespace whose pods without a queue go to the default queue."""

    def test_takes_the_next_pod_of_a_wrapped_deployment_for_one_of_it(self, tenant: Tenant, marks: Json) -> None:
        """Delete the pod of a wrapped Deployment: the one in its place runs, on the quota of the AppWrapper."""
        assert marks["labels"][names.PODSET_LABEL] == "all-0"
        default_queue(tenant)
        (pod,) = tenant.pods()
        tenant.delete("v1", "pods", pod["metadata"]["name"])
        tenant.wait(lambda: pod["metadata"]["uid"] not in uids(tenant), describe=lambda: "the pod stays")
        tenant.wait_runs(1)
        tenant.within_quota()

    @pytest.mark.parametrize(
        ("kind", "labels"),
        [("Deployment", {}), ("ReplicaSet", {}), ("ReplicaSet", {WRAPPED: "all"}), ("DaemonSet", {})],
        ids=["Deployment", "ReplicaSet", "ReplicaSet with the label itself", "DaemonSet"],
    )
    def test_is_not_evaded_by_marks_in_a_template(self, tenant: Tenant, marks: Json, kind: str, labels: Json) -> None:
        """Put the marks of an AppWrapper's pods into the template of an object that makes others, which was there
        before the default queue."""
        nowhere = {"nodeSelector": {"is": "not-there"}}
        made = maker(tenant, kind, "forged", forged(marks), 0, cpu="4", labels=labels)
        if kind == "DaemonSet":
            made["spec"]["template"]["spec"] |= nowhere
        tenant.api.create(made)
        default_queue(tenant)
        change = {"template": {"spec": {"nodeSelector": None}}} if kind == "DaemonSet" else {"replicas": 3}
        tenant.patch("apps/v1", f"{kind.lower()}s", "forged", {"spec": change})
        tenant.wait(lambda: judged(tenant), describe=lambda: "no pod was made, and none refused")
        tenant.job("next", pods=1)
        tenant.wait_runs(2)
        # Pods that forge marks are what an audit looks for.
        tenant.wait(lambda: tenant.sentry.quiet_for(QUIET_SECONDS), describe=lambda: "not at rest")
        assert tenant.sentry.most <= QUOTA, tenant.story()


def uids(tenant: Tenant) -> list[str]:
    """The uids of the pods."""
    return [each["metadata"]["uid"] for each in tenant.pods()]


def judged(tenant: Tenant) -> bool:
    """Whether a forged pod exists, or its controller says that it was refused."""
    if len(tenant.pods()) > 1:
        return True
    events = tenant.world.api.items(tenant.path("events.k8s.io/v1", "events"))
    return any(each["reason"] == "FailedCreate" for each in events)
