"""Pods that are queued by themselves, and groups of pods."""

from typing import Final

from testbed.client import Json, resource_path
from tests.cluster.scenario import Scenario
from tests.operators.rows.row import Attack, Row, end_pods, metadata, pod_spec

GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"
TOTAL_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
ROLE_HASH: Final = "kueue.x-k8s.io/role-hash"


def _is_pod(pod: Json, name: str) -> bool:
    return bool(pod["metadata"]["name"] == name)


def _is_member(pod: Json, name: str) -> bool:
    return bool(pod["metadata"].get("labels", {}).get(GROUP_NAME) == name)


def _pod(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(scenario, name, queue),
        "spec": pod_spec(cpu),
    }


def _member(scenario: Scenario, group: str, suffix: str, queue: str, cpu: str) -> Json:
    pod = _pod(scenario, f"{group}-{suffix}", queue, cpu)
    pod["metadata"]["labels"][GROUP_NAME] = group
    pod["metadata"]["annotations"] = {TOTAL_COUNT: "3"}
    return pod


def _group(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    leader = _member(scenario, name, "leader", queue, cpu)
    leader["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}  # a role of its own
    workers = [_member(scenario, name, f"worker-{number}", queue, cpu) for number in range(2)]
    return {"apiVersion": "v1", "kind": "List", "items": [leader, *workers]}


def _path(scenario: Scenario, name: str) -> str:
    return resource_path("v1", "pods", name, namespace=scenario.namespace)


def _gate_lifted(scenario: Scenario, name: str) -> None:
    """The gate is lifted by hand."""
    scenario.api.create(_pod(scenario, f"{name}-2", "main", "1"))
    scenario.api.patch(_path(scenario, f"{name}-2"), {"spec": {"schedulingGates": None}})


def _resized(scenario: Scenario, name: str) -> None:
    resources = {"requests": {"cpu": "9"}}
    patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    scenario.api.patch(_path(scenario, name) + "/resize", patch, kind="strategic")


def _foreign_owner(scenario: Scenario, name: str) -> None:
    """A pod without a queue that says that the admitted Pod controls it."""
    owner = scenario.api.get(_path(scenario, name))["metadata"]["uid"]
    pod = _pod(scenario, f"{name}-2", "", "1")
    pod["metadata"]["labels"] = {"kueue.x-k8s.io/managed": "true"}
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": owner, "controller": True}
    ]
    scenario.api.create(pod)


def _foreign_member(scenario: Scenario, name: str) -> None:
    scenario.api.create(_member(scenario, name, "worker-9", "main", "1"))


def _larger_member(scenario: Scenario, name: str) -> None:
    scenario.api.create(_member(scenario, name, "worker-9", "main", "3"))


def _forged_role(scenario: Scenario, name: str) -> None:
    """A larger pod under the role of the workers, after one of them has gone."""
    worker = scenario.api.get(_path(scenario, f"{name}-worker-0"))
    forged = _member(scenario, name, "worker-9", "main", "9")
    forged["metadata"]["annotations"][ROLE_HASH] = worker["metadata"]["annotations"][ROLE_HASH]
    scenario.api.delete(_path(scenario, f"{name}-worker-0"))
    scenario.api.create(forged)


def _smaller_total(scenario: Scenario, name: str) -> None:
    """The group is said to be smaller, and a Pod of another group follows."""
    for suffix in ("leader", "worker-0", "worker-1"):
        patch = {"metadata": {"annotations": {TOTAL_COUNT: "2"}}}
        scenario.api.patch(_path(scenario, f"{name}-{suffix}"), patch)
    scenario.api.create(_pod(scenario, "other", "main", "1"))


ROWS = (
    Row(
        name="pod",
        api_version="v1",
        kind="Pod",
        plural="pods",
        framework="pod",
        operators=(),
        make=_pod,
        pods=1,
        select=_is_pod,
        end=end_pods(_is_pod),
        runs_again=False,
        attacks=(
            Attack("Lift the scheduling gate of a second Pod.", _gate_lifted, "refused"),
            Attack("Raise the requests of a Pod that runs.", _resized, "refused"),
            Attack("Create a Pod without a queue whose controller is the admitted one.", _foreign_owner, "charged"),
        ),
    ),
    Row(
        name="pod-group",
        told="group of Pods",
        api_version="v1",
        kind="Pod",
        plural="pods",
        framework="pod",
        operators=(),
        make=_group,
        pods=3,
        select=_is_member,
        end=end_pods(_is_member),
        runs_again=False,
        attacks=(
            Attack("Add a Pod to a group that is complete.", _foreign_member, "charged"),
            Attack("Add a Pod that requests more to a group that is complete.", _larger_member, "charged"),
            Attack("Replace a Pod of a group by a larger one with a forged role hash.", _forged_role, "stopped"),
            Attack("Lower the total count of a group that runs, and create another Pod.", _smaller_total, "charged"),
        ),
    ),
)
