"""Builds the engine's state from a recorded scenario."""

import dataclasses
import re
from datetime import datetime
from fractions import Fraction
from typing import Any

import msgspec

from tests.conformance.cases import NotRead
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import LimitRange, Node, RuntimeClass
from turnstile.api.localqueue import LocalQueue
from turnstile.api.pods import PodSpec
from turnstile.api.quantity import parse
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine.options import AdmissionFairSharing, FairSharing, Gates, Options, Transformation, WaitForPodsReady
from turnstile.engine.quota import requests
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.state import State

Json = Any

NOW = "2026-01-02T03:04:05Z"
"""The frozen clock of all recorded cases."""


def with_empty_requests(pod: Json) -> Json:
    """A recorded pod as the Go test made it: its containers have an empty map of requests, which no JSON shows, but
    Kueue's role hash does. A pod that the API server sends has none."""
    spec = pod.get("spec") or {}
    parts = {
        name: [
            {**each, "resources": {"requests": {}, **(each.get("resources") or {})}} for each in spec.get(name) or ()
        ]
        for name in ("containers", "initContainers")
        if spec.get(name)
    }
    return {**pod, "spec": {**spec, **parts}}


def load(kind: type[Any], value: Json) -> Any:
    """A plain object as a struct. A policy that is missing from a preemption is empty, as in Go: no API server was
    there to fill in its default."""
    plain = without_nulls(value) or {}
    loaded = msgspec.convert(plain, kind, strict=False)
    given = (plain.get("spec") or {}).get("preemption") if kind is ClusterQueue else None
    if given is not None:
        for field in ("reclaimWithinCohort", "withinClusterQueue"):
            if field not in given:
                setattr(loaded.spec.preemption, snake(field), "")
    return loaded


def without_nulls(value: Json) -> Json:
    """A plain value without the members that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def snake(name: str) -> str:
    """`TASProfileMixed` is `tas_profile_mixed`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def gates(*maps: dict[str, bool] | None) -> Gates:
    """Feature gates: those that the engine knows."""
    known = {field.name for field in dataclasses.fields(Gates)}
    chosen = {snake(name): on for each in maps for name, on in (each or {}).items()}
    return Gates(**{name: on for name, on in chosen.items() if name in known})


def seconds(text: str) -> float:
    """A Go duration."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(h|ms|us|µs|ns|m|s)", text))


def when(text: str | None) -> float:
    """An RFC 3339 time as Unix seconds."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def transformations(value: Json) -> tuple[Transformation, ...]:
    """Resource transformations of a recorded configuration: a list, or a map by input."""
    items = value.values() if isinstance(value, dict) else value or ()
    return tuple(
        Transformation(
            input=item["input"],
            outputs={name: Fraction(parse(factor)) for name, factor in (item.get("outputs") or {}).items()},
            strategy=item.get("strategy") or "Retain",
            multiply_by=item.get("multiplyBy") or None,
        )
        for item in items
    )


def selector(recorded: Json) -> Json:
    """A label selector; Go may have worked out its requirements already. None selects everything."""
    if not isinstance(recorded, list):
        return recorded or {}
    operators = {"notin": "NotIn", "in": "In", "=": "In", "exists": "Exists", "!": "DoesNotExist"}
    expressions = [
        {"key": each["key"], "operator": operators[each["operator"]], "values": each.get("strValues") or []}
        for each in recorded
    ]
    return {"matchExpressions": expressions}


def usage_sharing(recorded: Json) -> AdmissionFairSharing | None:
    """Configuration of admission fair sharing."""
    if not isinstance(recorded, dict):
        return None
    return AdmissionFairSharing(
        usage_half_life=seconds(recorded.get("usageHalfLifeTime", "0s")),
        usage_sampling_interval=seconds(recorded.get("usageSamplingInterval", "5m")),
        resource_weights=recorded.get("resourceWeights") or {},
    )


def pods_ready(ordering: Json, *, block: bool = False) -> WaitForPodsReady:
    """Configuration of waitForPodsReady."""
    return WaitForPodsReady(
        block_admission=block,
        requeuing_timestamp=(ordering or {}).get("PodsReadyRequeuingTimestamp") or "Eviction",
    )


_GIVEN = frozenset(
    (
        *("fairsharing", "fs", "admissionfairsharing", "enabledafs", "workloadordering", "podsreadytracking"),
        *("resourcetransformations", "excludedresourceprefixes", "quotacheckstrategy"),
        *("clock", "roletracker", "customlabels", "preemptionexpectations"),  # these change no decision
    )
)


def options(config: dict[str, Json], chosen: Gates, params: dict[str, Json] | None = None) -> Options:
    """Options of the engine from what was given to Kueue's constructors."""
    if strange := [key for key in config if key.rpartition(".")[2].lower().removesuffix("config") not in _GIVEN]:
        raise NotRead(f"the runner does not know the options {strange}")

    def given(name: str) -> Json:
        found = ((key.rpartition(".")[2].lower().removesuffix("config"), value) for key, value in config.items())
        return next((value for key, value in found if key == name.lower()), None)

    fair = None
    sharing = config.get("scheduler.FairSharing", config.get("preemption.fs"))
    if isinstance(sharing, dict) and (params or {}).get("enableFairSharing", True):
        strategies = tuple(sharing.get("preemptionStrategies") or sharing.get("PreemptionStrategies") or ())
        fair = FairSharing(strategies=strategies) if strategies else FairSharing()
    admission = usage_sharing(given("AdmissionFairSharing")) if given("enabledAfs") is not False else None
    return Options(
        gates=chosen,
        fair_sharing=fair,
        admission_fair_sharing=admission,
        wait_for_pods_ready=pods_ready(given("workloadOrdering"), block=bool(given("PodsReadyTracking"))),
        transformations=transformations(given("ResourceTransformations")),
        exclude_resource_prefixes=tuple(given("ExcludedResourcePrefixes") or ()),
        quota_check_strategy=given("QuotaCheckStrategy") or "BlockUndeclared",
    )


def last_of(recorded: Json) -> LastAssignment:
    """A recorded scan of flavors."""
    return LastAssignment(
        [item or {} for item in recorded.get("LastTriedFlavorIdx") or []],
        recorded.get("ClusterQueueGeneration", 0),
        recorded.get("SchedulingCycle", 0),
        known_hash(recorded.get("SchedulingHash", "")),
    )


def known_hash(recorded: str) -> str:
    """A recorded hash; empty if it is not known."""
    return "" if recorded == "unknown" else recorded


def key_of(item: Json) -> str:
    """`namespace/name` of a recorded object, or its name."""
    meta = item.get("metadata") or {}
    return "/".join(part for part in (meta.get("namespace"), meta.get("name")) if part)


def local_queue_key(item: Json) -> str:
    """`namespace/name` of a recorded LocalQueue, also without a namespace."""
    meta = item.get("metadata") or {}
    return f"{meta.get('namespace', '')}/{meta.get('name', '')}"


def object_of(info: Json) -> Json:
    """The Workload of a recorded Info, which leaves it out if it is empty."""
    return (info or {}).get("Obj") or {"metadata": {}, "spec": {}}


def condition(kind: str, status: str = "True") -> Json:
    """A condition as a test sets it."""
    return {
        "type": kind,
        "status": status,
        "reason": "Test",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }


def put_topology(state: State, item: Json) -> None:
    """Tell the state of a recorded Topology."""
    levels = tuple(level["nodeLabel"] for level in (item.get("spec") or {}).get("levels") or ())
    state.put_topology(item["metadata"]["name"], levels)


def put_pod(state: State, item: Json) -> None:
    """Tell the state of a recorded pod, unless topology placed it, which its annotations say in Kueue."""
    spec = load(PodSpec, item.get("spec") or {})
    placed = any("topology" in name for name in item["metadata"].get("annotations") or {})
    key = f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}"
    if placed or not spec.node_name or (item.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return
    pod = requests.effective_pod(spec, overheads={}, limits={})
    state.put_pod(key, spec.node_name, requests.amounts(requests.pod_requests(pod)))


def put_check(state: State, item: Json) -> None:
    """Tell the state of a recorded AdmissionCheck."""
    active = any(
        each["type"] == "Active" and each["status"] == "True"
        for each in (item.get("status") or {}).get("conditions") or ()
    )
    controller = (item.get("spec") or {}).get("controllerName") or ""
    state.put_admission_check(item["metadata"]["name"], active=active, controller=controller)


_KINDS = frozenset(
    (
        *("Namespace", "ResourceFlavor", "Topology", "AdmissionCheck", "LimitRange", "RuntimeClass", "Cohort"),
        *("ClusterQueue", "LocalQueue", "Workload"),
        *("Node", "Pod"),
        *("WorkloadPriorityClass", "PriorityClass"),  # nothing that is built depends on these
    )
)


def build(objects: dict[str, list[Json]], chosen: Options, now: float, absent: frozenset[str] = frozenset()) -> State:
    """A state that was told of all objects; `absent` are `Kind/name` that the engine is not told of."""
    state = State(chosen)
    if strange := {kind for kind, items in objects.items() if items} - _KINDS:
        raise NotRead(f"the runner does not know objects of the kinds {sorted(strange)}")

    def each(kind: str) -> list[Json]:
        found = []
        for item in objects.get(kind) or ():
            meta = item.get("metadata", {})
            name = "/".join(part for part in (kind, meta.get("namespace", ""), meta.get("name", "")) if part)
            if name not in absent:
                found.append(item)
        return found

    for item in each("Namespace"):
        state.put_namespace(item["metadata"]["name"], item["metadata"].get("labels") or {})
    for item in each("ResourceFlavor"):
        state.put_flavor(load(ResourceFlavor, item))
    for item in each("Topology"):
        put_topology(state, item)
    for item in each("Node"):
        state.put_node(load(Node, item))
    for item in each("Pod"):
        put_pod(state, item)
    for item in each("AdmissionCheck"):
        put_check(state, item)
    for item in each("LimitRange"):
        state.put_limit_range(load(LimitRange, item), now)
    for item in each("RuntimeClass"):
        state.put_runtime_class(load(RuntimeClass, item), now)
    for item in each("Cohort"):
        if item["metadata"].get("name"):
            state.put_cohort(load(Cohort, item))
    for item in each("ClusterQueue"):
        state.put_cluster_queue(load(ClusterQueue, item), now)
    for item in each("LocalQueue"):
        state.put_local_queue(load(LocalQueue, item), now)
    for item in each("Workload"):
        state.put_workload(load(Workload, item), now)
    return state
