"""A few words to build a world: `queue("a", cpu=4)`, `workload("w", cpu=1)`."""

from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.localqueue import LocalQueue
from turnstile.api.quota import EffectiveQuotas
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine import Decision, Options, State, cycle
from turnstile.engine.decisions import admission_of
from turnstile.engine.pace import Pace, finish

NOW = 1_767_323_045.0
STAMP = "2026-01-02T03:04:05Z"
Json = dict[str, Any]
Q = TypeVar("Q", bound=ClusterQueue | Cohort)


def stamp(second: int) -> str:
    """A time of the API, `second` seconds after the start."""
    return f"2026-01-02T03:{4 + second // 60:02}:{second % 60:02}Z"


def flavor(name: str = "default", **spec: Any) -> ResourceFlavor:
    """A ResourceFlavor."""
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceFlavor)


def quotas(flavors: dict[str, dict[str, Any]]) -> list[Json]:
    """One resource group: quota by flavor and resource; a quota is a number or (nominal, borrowing, lending)."""
    covered = list(dict.fromkeys(resource for each in flavors.values() for resource in each))
    group: Json = {"coveredResources": covered, "flavors": []}
    for name, resources in flavors.items():
        items = []
        for resource, value in resources.items():
            nominal, borrowing, lending = value if isinstance(value, tuple) else (value, None, None)
            item: Json = {"name": resource, "nominalQuota": str(nominal)}
            if borrowing is not None:
                item["borrowingLimit"] = str(borrowing)
            if lending is not None:
                item["lendingLimit"] = str(lending)
            items.append(item)
        group["flavors"].append({"name": name, "resources": items})
    return [group]


def groups(*parts: dict[str, dict[str, Any]]) -> list[Json]:
    """Several resource groups."""
    return [group for part in parts for group in quotas(part)]


def queue(
    name: str, flavors: dict[str, dict[str, Any]] | None = None, cohort: str | None = None, **spec: Any
) -> ClusterQueue:
    """A ClusterQueue that selects all namespaces."""
    body: Json = {"namespaceSelector": {}, "resourceGroups": quotas(flavors or {"default": {"cpu": 10}}), **spec}
    if cohort:
        body["cohortName"] = cohort
    return msgspec.convert({"metadata": {"name": name}, "spec": body}, ClusterQueue)


def cohort(name: str, flavors: dict[str, dict[str, Any]] | None = None, parent: str | None = None) -> Cohort:
    """A Cohort."""
    spec: Json = {"resourceGroups": quotas(flavors) if flavors else []}
    if parent:
        spec["parentName"] = parent
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, Cohort)


def orchestrated(owner: Q, flavors: dict[str, dict[str, Any]] | None) -> Q:
    """A ClusterQueue or Cohort with a quota in its status, which another controller has written for an object."""
    ref = {"apiGroup": "example.com", "kind": "Schedule", "name": "nights"}
    given = {"orchestratorRef": ref, "resourceGroups": quotas(flavors) if flavors else []}
    return replace(owner, status=replace(owner.status, effective_quotas=msgspec.convert(given, EffectiveQuotas)))


def local(name: str, cluster_queue: str, namespace: str = "team", **spec: Any) -> LocalQueue:
    """A LocalQueue."""
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": cluster_queue, **spec}},
        LocalQueue,
    )


def workload(
    name: str,
    line: str = "main",
    *,
    cpu: Any = 1,
    count: int = 1,
    min_count: int | None = None,
    priority: int = 0,
    second: int = 0,
    namespace: str = "team",
    status: Json | None = None,
    spec: Json | None = None,
    version: int | None = None,
    annotations: dict[str, str] | None = None,
) -> Workload:
    """A Workload of one pod set, each pod asking for `cpu` cores."""
    pod_set: Json = {
        "name": "main",
        "count": count,
        "template": {
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}], **(spec or {})}
        },
    }
    if min_count is not None:
        pod_set["minCount"] = min_count
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{name}",
                "creationTimestamp": stamp(second),
                "resourceVersion": "" if version is None else str(version),
                "annotations": annotations or {},
            },
            "spec": {"queueName": line, "priority": priority, "podSets": [pod_set]},
            "status": status or {},
        },
        Workload,
    )


def changed(base: Workload, **parts: Any) -> Workload:
    """The workload with parts of it replaced: `metadata`, `spec` and `status` are merged."""
    body = msgspec.to_builtins(base)
    for part, value in parts.items():
        body[part] = {**body.get(part, {}), **value}
    return msgspec.convert(body, Workload)


def with_conditions(base: Workload, *, drop: tuple[str, ...] = (), **conditions: tuple[str, str]) -> Workload:
    """The workload with conditions by type: (status, reason)."""
    body = msgspec.to_builtins(base)
    found = {item["type"]: item for item in body.get("status", {}).get("conditions", []) if item["type"] not in drop}
    for kind, (status, reason) in conditions.items():
        found[kind] = {"type": kind, "status": status, "reason": reason, "lastTransitionTime": STAMP}
    body.setdefault("status", {})["conditions"] = list(found.values())
    return msgspec.convert(body, Workload)


def reserved(base: Workload, state: State) -> Workload:
    """The workload as the API has it after the write of an assumed admission."""
    info = state.reservations.assumed[base.metadata.key].info
    body = msgspec.to_builtins(base)
    body.setdefault("status", {})["admission"] = msgspec.to_builtins(admission_of(info, info.cluster_queue))
    return with_conditions(
        msgspec.convert(body, Workload), QuotaReserved=("True", "QuotaReserved"), Admitted=("True", "Admitted")
    )


def held(
    name: str,
    queue: str,
    amounts: dict[str, str],
    *,
    flavor: str = "default",
    priority: int = 0,
    second: int = 0,
    at: int = 0,
    evicted: bool = False,
) -> Workload:
    """A workload that runs in a queue, all in one flavor, since second `at`."""
    assigned = {"name": "main", "count": 1, "flavors": dict.fromkeys(amounts, flavor), "resourceUsage": amounts}
    body = msgspec.to_builtins(workload(name, queue, priority=priority, second=second))
    kinds = {"QuotaReserved": "QuotaReserved", "Admitted": "Admitted", **({"Evicted": "Preempted"} if evicted else {})}
    body["status"] = {
        "admission": {"clusterQueue": queue, "podSetAssignments": [assigned]},
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": stamp(at)}
            for kind, reason in kinds.items()
        ],
    }
    return msgspec.convert(body, Workload)


def variant(base: Workload, flavor: str) -> Workload:
    """The workload as one of several of the same parent, for one flavor each (concurrent admission)."""
    owner = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": "p", "uid": "p", "controller": True}
    allowed = {"kueue.x-k8s.io/workload-allowed-resource-flavors": flavor}
    return changed(base, metadata={"ownerReferences": [owner], "annotations": allowed})


def released(base: Workload) -> Workload:
    """The workload as the API has it once its eviction is through."""
    body = msgspec.to_builtins(base)
    body["status"].pop("admission", None)
    return with_conditions(
        msgspec.convert(body, Workload),
        QuotaReserved=("False", "Pending"),
        Admitted=("False", "NoReservation"),
        Evicted=("True", "Preempted"),
    )


def world(*queues: ClusterQueue, options: Options | None = None, flavors: tuple[str, ...] = ("default",)) -> State:
    """A state with queues, each with a LocalQueue of the same name in namespace `team`; the first is also `main`."""
    return furnish(State(options), *queues, flavors=flavors)


def furnish(state: State, *queues: ClusterQueue, flavors: tuple[str, ...] = ("default",)) -> State:
    """Give an empty state the queues of `world`."""
    state.put_namespace("team", {})
    for name in flavors:
        state.put_flavor(flavor(name))
    for index, item in enumerate(queues):
        state.put_cluster_queue(item, NOW)
        state.put_local_queue(local(item.metadata.name, item.metadata.name), NOW)
        if index == 0:
            state.put_local_queue(local("main", item.metadata.name), NOW)
    return state


def retried(state: State, now: float) -> bool:
    """Do what the next cycle begins with: make the inadmissible Workloads of marked trees active. True if any moved."""
    finish(state.catching_up(Pace()))
    return finish(state.retries.carry_out(now, state.log.shape, Pace()))


def decide(state: State, name: str = "w") -> Decision:
    """What the next cycle decides about a workload of namespace `team`."""
    return next(decision for decision in cycle(state, NOW) if decision.key == f"team/{name}")


def settle(state: State, limit: int = 200) -> list[Decision]:
    """Cycles until nothing new can be decided; all decisions."""
    found: list[Decision] = []
    for _ in range(limit):
        if not state.has_work:
            return found
        found.extend(cycle(state, NOW))
    raise AssertionError("no fixed point was reached")


def admitted(state: State) -> set[str]:
    """Keys of what holds quota."""
    return {key for item in state.cluster_queues.values() for key in item.workloads}


def given(cluster_queue: str, flavor: str, cpu: int) -> Json:
    """The admission of a workload of one pod."""
    assigned = {"name": "main", "flavors": {"cpu": flavor}, "resourceUsage": {"cpu": str(cpu)}, "count": 1}
    return {"clusterQueue": cluster_queue, "podSetAssignments": [assigned]}


def flavors_of(decision: Decision) -> list[dict[str, str]]:
    """The flavors a decision found, by pod set."""
    if decision.assignment is None:
        return []
    return [{name: choice.flavor for name, choice in item.flavors.items()} for item in decision.assignment.pod_sets]
