"""StatefulSet, whose pods are admitted together, and LeaderWorkerSet, whose groups are."""

from collections.abc import Callable
from typing import Any, Final

from testbed.client import Json, resource_path
from tests.cluster.scenario import Scenario
from tests.operators.rows.row import Attack, Row, gate_lifted, labelled, members, metadata, pod_spec

APPS: Final = "apps/v1"
APP: Final = "app"
LWS: Final = "leaderworkerset.x-k8s.io/v1"
LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
KUEUE: Final = "kueue.x-k8s.io"


def _template(cpu: str, labels: dict[str, str] | None = None) -> Json:
    return {"metadata": {"labels": labels or {}}, "spec": {**pod_spec(cpu), "restartPolicy": "Always"}}


def _stateful_set(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    labels = {APP: name}
    return {
        "apiVersion": APPS,
        "kind": "StatefulSet",
        "metadata": metadata(scenario, name, queue),
        "spec": {
            "replicas": 2,
            "serviceName": name,
            "selector": {"matchLabels": labels},
            "template": _template(cpu, labels),
        },
    }


def _leader_worker_set(scenario: Scenario, name: str, queue: str, cpu: str) -> Json:
    return {
        "apiVersion": LWS,
        "kind": "LeaderWorkerSet",
        "metadata": metadata(scenario, name, queue),
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {"size": 2, "leaderTemplate": _template(cpu), "workerTemplate": _template(cpu)},
        },
    }


def _path(scenario: Scenario, name: str) -> str:
    return resource_path(APPS, "statefulsets", name, namespace=scenario.namespace)


def _lws_path(scenario: Scenario, name: str) -> str:
    return resource_path(LWS, "leaderworkersets", name, namespace=scenario.namespace)


def _pod_path(scenario: Scenario, name: str) -> str:
    return resource_path("v1", "pods", name, namespace=scenario.namespace)


def _patched(path: Callable[[Scenario, str], str], spec: Json, suffix: str = "") -> Callable[[Scenario, str], None]:
    return lambda scenario, name: scenario.api.patch(path(scenario, name) + suffix, {"spec": spec})


def _orphaned(row_path: Callable[[Scenario, str], str], make: Callable[..., Json]) -> Callable[[Scenario, str], None]:
    """Deleted with orphan, and created again under another name.

    The garbage collector learns of a new kind within half a minute, and finishes the deletion only then.
    """

    def act(scenario: Scenario, name: str) -> None:
        scenario.api.delete(row_path(scenario, name), propagation="Orphan")
        scenario.api.wait_gone(row_path(scenario, name), timeout=45)
        scenario.create(make(scenario, f"{name}-2", "main", "1"))

    return act


def _copy_of(member: Json, name: str, *, owned: bool, cpu: str = "1") -> Json:
    """A pod with all marks of a member."""
    meta = member["metadata"]
    kept = {key: meta[key] for key in ("labels", "annotations", "namespace")}
    if owned:
        kept["ownerReferences"] = meta["ownerReferences"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**kept, "name": name}, "spec": pod_spec(cpu)}


def _foreign(label: str, *, owned: bool, cpu: str = "1") -> Callable[[Scenario, str], None]:
    def act(scenario: Scenario, name: str) -> None:
        member = members(scenario, label, name)[0]
        for number in range(3):
            scenario.create(_copy_of(member, f"{name}-foreign-{number}", owned=owned, cpu=cpu))

    return act


def _ungated_by_marks(scenario: Scenario, name: str) -> None:
    """Pods that the set would control, with the marks of an admission and without the annotation that gates them."""
    member = members(scenario, APP, name)[0]
    for number in range(3):
        pod = _copy_of(member, f"{name}-{number + 5}", owned=True)
        keys = (f"{KUEUE}/pod-suspending-parent", f"{KUEUE}/pod-group-name", f"{KUEUE}/prebuilt-workload-name")
        for part in ("annotations", "labels"):
            pod["metadata"][part] = {key: value for key, value in pod["metadata"][part].items() if key not in keys}
        pod["metadata"]["annotations"].pop(f"{KUEUE}/pod-group-total-count", None)
        pod["metadata"]["labels"].pop(f"{KUEUE}/managed", None)
        scenario.create(pod)


def _stripped(label: str) -> Callable[[Scenario, str], None]:
    """All that Turnstile knows a running pod by is taken off it."""

    def act(scenario: Scenario, name: str) -> None:
        meta = members(scenario, label, name)[0]["metadata"]
        ours: dict[str, Any] = {
            part: {key: None for key in meta[part] if key.startswith(KUEUE)} for part in ("labels", "annotations")
        }
        scenario.api.patch(_pod_path(scenario, meta["name"]), {"metadata": {**ours, "ownerReferences": None}})

    return act


def _let_go(scenario: Scenario, name: str) -> None:
    """The label by which its set selects a running pod is changed, so that the set creates another one."""
    meta = members(scenario, APP, name)[0]["metadata"]
    scenario.api.patch(_pod_path(scenario, meta["name"]), {"metadata": {"labels": {APP: "other"}}})


ROWS = (
    Row(
        name="statefulset",
        api_version=APPS,
        kind="StatefulSet",
        plural="statefulsets",
        framework="statefulset",
        operators=(),
        make=_stateful_set,
        pods=2,
        select=labelled(APP),
        end=None,
        replaces_pods=True,
        attacks=(
            Attack("Raise the replicas of a StatefulSet that runs.", _patched(_path, {"replicas": 9}), "refused"),
            Attack("Scale a StatefulSet up past its webhook.", _patched(_path, {"replicas": 9}, "/scale"), "charged"),
            Attack("Scale a StatefulSet down past its webhook.", _patched(_path, {"replicas": 1}, "/scale"), "stopped"),
            Attack(
                "Raise the requests in the template of a StatefulSet.",
                _patched(_path, {"template": _template("2")}),
                "refused",
            ),
            Attack("Add Pods to the group of a StatefulSet.", _foreign(APP, owned=False), "charged"),
            Attack("Add large Pods to the group of a StatefulSet.", _foreign(APP, owned=False, cpu="2"), "charged"),
            Attack("Create Pods that name a StatefulSet as their controller.", _ungated_by_marks, "refused"),
            Attack("Take all marks off a running Pod of a StatefulSet.", _stripped(APP), "refused"),
            Attack("Let a StatefulSet lose a running Pod, which it replaces.", _let_go, "stopped"),
            Attack(
                "Lift the gates of the Pods of a StatefulSet that waits.", gate_lifted(_stateful_set, APP), "refused"
            ),
            Attack(
                "Delete a StatefulSet with orphan and create another one.", _orphaned(_path, _stateful_set), "charged"
            ),
        ),
    ),
    Row(
        name="leaderworkerset",
        api_version=LWS,
        kind="LeaderWorkerSet",
        plural="leaderworkersets",
        framework="leaderworkerset.x-k8s.io/leaderworkerset",
        operators=("lws",),
        make=_leader_worker_set,
        pods=4,
        select=labelled(LWS_NAME),
        end=None,
        workloads=2,
        replaces_pods=True,
        attacks=(
            Attack("Raise the number of groups of a LeaderWorkerSet.", _patched(_lws_path, {"replicas": 9}), "charged"),
            Attack(
                "Change the size of the groups of a LeaderWorkerSet.",
                _patched(_lws_path, {"leaderWorkerTemplate": {"size": 9}}),
                "refused",
            ),
            Attack(
                "Raise the requests of the workers of a LeaderWorkerSet.",
                _patched(_lws_path, {"leaderWorkerTemplate": {"workerTemplate": _template("2")}}),
                "refused",
            ),
            Attack("Add Pods to a group of a LeaderWorkerSet.", _foreign(LWS_NAME, owned=False), "charged"),
            Attack("Take all marks off a running Pod of a LeaderWorkerSet.", _stripped(LWS_NAME), "refused"),
            Attack(
                "Lift the gates of the Pods of a LeaderWorkerSet that waits.",
                gate_lifted(_leader_worker_set, LWS_NAME),
                "refused",
            ),
            Attack(
                "Delete a LeaderWorkerSet with orphan and create another one.",
                _orphaned(_lws_path, _leader_worker_set),
                "charged",
            ),
        ),
    ),
)
