"""A Pod that was gated runs only if it is admitted, whoever lifts the gate and whatever the Pod says of itself."""

import pytest

from app.api import names
from testbed.client import Json
from tests.attacks.conftest import Tenant
from tests.attacks.rest import comes_back_within_quota

GROUP = {names.QUEUE_LABEL: "main", names.POD_GROUP_NAME: "g"}


def lift(tenant: Tenant, name: str, **metadata: Json) -> None:
    """Remove the gates of a Pod, as a tenant may."""
    tenant.patch("v1", "pods", name, {"metadata": metadata, "spec": {"schedulingGates": []}})


def gates(pod: Json) -> list[str]:
    """Names of the gates of a Pod."""
    return [each["name"] for each in pod["spec"].get("schedulingGates", ())]


@pytest.mark.parametrize("announced", [3, 4], ids=["complete", "incomplete"])
def test_the_gates_of_a_group_that_waits(tenant: Tenant, announced: int) -> None:
    """Lift the gates of three Pods of a group that is larger than the quota, with all its Pods or without one."""
    total = {names.POD_GROUP_TOTAL_COUNT: str(announced)}
    for name in "abc":
        assert gates(tenant.pod(name, labels=GROUP, annotations=total)) == [names.ADMISSION_GATE]
    for name in "abc":
        lift(tenant, name)
    comes_back_within_quota(tenant)


def test_the_gates_of_pods_that_contradict_each_other(tenant: Tenant) -> None:
    """Pods of one group announce different sizes, so that no Workload is made; lift their gates."""
    for size, name in enumerate("abc", 3):
        tenant.pod(name, labels=GROUP, annotations={names.POD_GROUP_TOTAL_COUNT: str(size)})
    for name in "abc":
        lift(tenant, name)
    comes_back_within_quota(tenant)


def test_the_gate_of_a_pod_whose_queue_is_not_there(tenant: Tenant) -> None:
    """Lift the gate of a Pod that names a queue which does not exist."""
    tenant.pod("a", cpu="9", labels={names.QUEUE_LABEL: "none"})
    lift(tenant, "a")
    comes_back_within_quota(tenant)


@pytest.mark.parametrize("group", [False, True], ids=["alone", "in a group"])
def test_the_gate_of_a_pod_that_lost_its_queue(tenant: Tenant, *, group: bool) -> None:
    """Remove the queue name of a gated Pod, which is allowed, and lift its gate."""
    labels = GROUP if group else {names.QUEUE_LABEL: "main"}
    tenant.pod("a", cpu="9", labels=labels, annotations={names.POD_GROUP_TOTAL_COUNT: "1"} if group else {})
    tenant.patch("v1", "pods", "a", {"metadata": {"labels": {names.QUEUE_LABEL: None}}})
    lift(tenant, "a")
    comes_back_within_quota(tenant)


@pytest.mark.parametrize("labels", [{}, {names.QUEUE_LABEL: "main"}], ids=["no queue", "queue"])
@pytest.mark.parametrize("framework", ["statefulset", "deployment"], ids=["absent framework", "absent parent"])
def test_the_gate_of_a_pod_that_says_it_has_a_parent(tenant: Tenant, framework: str, labels: dict[str, str]) -> None:
    """The annotation `pod-suspending-parent` gets a Pod gated for a parent that is not there; lift the gate."""
    made = tenant.pod("a", cpu="9", labels=labels, annotations={names.POD_SUSPENDING_PARENT: framework})
    assert gates(made) == [names.ADMISSION_GATE]
    lift(tenant, "a")
    comes_back_within_quota(tenant)
    assert tenant.world.wait_event("a", reason="Stopped")


def test_a_pod_that_says_it_has_a_parent_is_admitted_like_any_other(tenant: Tenant) -> None:
    """Create a Pod in a queue that says a Deployment has made it: it is admitted like any other."""
    tenant.pod("a", cpu="2", annotations={names.POD_SUSPENDING_PARENT: "deployment"})
    tenant.wait_runs(2)
    tenant.within_quota()
