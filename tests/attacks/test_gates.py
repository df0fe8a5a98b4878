"""Nobody but Turnstile lifts the gate of a Pod. Where a policy does not hold, as for an administrator, a Pod whose gate
was lifted runs only if it is admitted, whatever the Pod says of itself."""

import re
from collections.abc import Callable

import pytest

from testbed.client import ApiError, Json
from tests.attacks.conftest import Tenant, pod_spec
from tests.attacks.rest import comes_back_within_quota
from turnstile.api import names

GROUP = {names.QUEUE_LABEL: "main", names.POD_GROUP_NAME: "g"}


UNGATED = {"spec": {"schedulingGates": []}}
YEAR = 31536000


def refused(tenant: Tenant, name: str, *, gate: str = names.ADMISSION_GATE) -> None:
    """Assert that the tenant may not remove a gate of a Pod."""
    found = tenant.api.get(tenant.path("v1", "pods", name))["spec"]["schedulingGates"]
    left = [each for each in found if each["name"] != gate]
    with pytest.raises(ApiError, match=re.escape(f"spec.schedulingGates[{gate}]: Forbidden")) as error:
        tenant.patch("v1", "pods", name, {"spec": {"schedulingGates": left}})
    assert error.value.code == 403


def lift(tenant: Tenant, name: str) -> None:
    """Remove the gates of a Pod, as an administrator may."""
    tenant.world.api.patch(tenant.path("v1", "pods", name), UNGATED)


def gates(pod: Json) -> list[str]:
    """Names of the gates of a Pod."""
    return [each["name"] for each in pod["spec"].get("schedulingGates", ())]


@pytest.mark.parametrize("announced", [3, 4], ids=["complete", "incomplete"])
def test_the_gates_of_a_group_that_waits(tenant: Tenant, announced: int) -> None:
    """Lift the gates of three Pods of a group that is larger than the quota, with all its Pods or without one."""
    total = {names.POD_GROUP_TOTAL_COUNT: str(announced)}
    for name in "abc":
        assert gates(tenant.pod(name, labels=GROUP, annotations=total)) == [names.ADMISSION_GATE, names.TOPOLOGY_GATE]
    for name in "abc":
        refused(tenant, name)
        lift(tenant, name)
    comes_back_within_quota(tenant)


def test_the_gates_of_pods_that_contradict_each_other(tenant: Tenant) -> None:
    """Pods of one group announce different sizes, so that no Workload is made; lift their gates."""
    for size, name in enumerate("abc", 3):
        tenant.pod(name, labels=GROUP, annotations={names.POD_GROUP_TOTAL_COUNT: str(size)})
    for name in "abc":
        refused(tenant, name)
        lift(tenant, name)
    comes_back_within_quota(tenant)


def test_the_gate_of_a_pod_whose_queue_is_not_there(tenant: Tenant) -> None:
    """Lift the gate of a Pod that names a queue which does not exist."""
    tenant.pod("a", cpu="9", labels={names.QUEUE_LABEL: "none"})
    refused(tenant, "a")
    lift(tenant, "a")
    comes_back_within_quota(tenant)


@pytest.mark.parametrize("group", [False, True], ids=["alone", "in a group"])
def test_the_gate_of_a_pod_that_lost_its_queue(tenant: Tenant, *, group: bool) -> None:
    """Remove the queue name of a gated Pod, which is allowed, and lift its gate."""
    labels = GROUP if group else {names.QUEUE_LABEL: "main"}
    tenant.pod("a", cpu="9", labels=labels, annotations={names.POD_GROUP_TOTAL_COUNT: "1"} if group else {})
    tenant.patch("v1", "pods", "a", {"metadata": {"labels": {names.QUEUE_LABEL: None}}})
    refused(tenant, "a")
    lift(tenant, "a")
    comes_back_within_quota(tenant)


@pytest.mark.parametrize("labels", [{}, {names.QUEUE_LABEL: "main"}], ids=["no queue", "queue"])
@pytest.mark.parametrize("framework", ["statefulset", "deployment"], ids=["absent framework", "absent parent"])
def test_the_gate_of_a_pod_that_says_it_has_a_parent(tenant: Tenant, framework: str, labels: dict[str, str]) -> None:
    """The annotation `pod-suspending-parent` gets a Pod gated for a parent that is not there; lift the gate."""
    made = tenant.pod("a", cpu="9", labels=labels, annotations={names.POD_SUSPENDING_PARENT: framework})
    assert gates(made) == [names.ADMISSION_GATE, names.TOPOLOGY_GATE]
    refused(tenant, "a")
    lift(tenant, "a")
    comes_back_within_quota(tenant)
    assert tenant.world.wait_event("a", reason="Stopped")


def test_a_pod_that_says_it_has_a_parent_is_admitted_like_any_other(tenant: Tenant) -> None:
    """Create a Pod in a queue that says a Deployment has made it: it is admitted like any other."""
    tenant.pod("a", cpu="2", annotations={names.POD_SUSPENDING_PARENT: "deployment"})
    tenant.wait_runs(2)
    tenant.within_quota()


@pytest.mark.parametrize("way", ["json", "apply", "replace"])
def test_the_gate_of_a_waiting_pod(tenant: Tenant, way: str) -> None:
    """Lift the gate of a waiting Pod by JSON patch, server-side apply with force, or PUT."""
    path = tenant.path("v1", "pods", "a")
    body = tenant.pod_body("a", cpu="9")
    gated = {**body, "spec": {**body["spec"], "schedulingGates": [{"name": names.ADMISSION_GATE}]}}
    tenant.api.apply(gated, field_manager="eve") if way == "apply" else tenant.api.create(body)
    found = tenant.api.get(path)
    found["spec"]["schedulingGates"] = []
    ways: dict[str, Callable[[], Json]] = {
        "json": lambda: tenant.api.patch(path, [{"op": "remove", "path": "/spec/schedulingGates"}], kind="json"),
        "apply": lambda: tenant.api.apply(body, field_manager="eve"),
        "replace": lambda: tenant.api.replace(path, found),
    }
    with pytest.raises(ApiError, match=r"spec\.schedulingGates"):
        ways[way]()
    assert gates(tenant.api.get(path)) == [names.ADMISSION_GATE, names.TOPOLOGY_GATE]
    tenant.within_quota()


@pytest.mark.parametrize("gate", [names.TOPOLOGY_GATE, names.ELASTIC_JOB])
@pytest.mark.parametrize("labels", [{}, {names.QUEUE_LABEL: "none"}], ids=["no queue", "queue"])
def test_the_gates_of_topology_and_growth(tenant: Tenant, gate: str, labels: dict[str, str]) -> None:
    """Lift the gates by which Kueue holds a Pod for its topology or for a job that grows, queued or not."""
    tenant.pod("a", cpu="9", labels=labels, spec={"schedulingGates": [{"name": gate}]})
    refused(tenant, "a", gate=gate)
    tenant.within_quota()


def test_the_gates_of_a_replica_set_whose_pods_take_a_year_to_stop(tenant: Tenant) -> None:
    """Lift the gates of a ReplicaSet's Pods, each of which has a year to stop, and of those made in their place."""
    labels = {names.QUEUE_LABEL: "main", "app": "a"}
    spec = {**pod_spec("9"), "restartPolicy": "Always", "terminationGracePeriodSeconds": YEAR}
    tenant.api.create(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": "a", "namespace": tenant.namespace},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": "a"}},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
    )
    tenant.wait(lambda: len(tenant.pods()) == 3, describe=lambda: f"{len(tenant.pods())} Pods, not 3")
    for pod in tenant.pods():
        refused(tenant, pod["metadata"]["name"])
    assert all(gates(pod) == [names.ADMISSION_GATE, names.TOPOLOGY_GATE] for pod in tenant.pods())
    tenant.within_quota()
