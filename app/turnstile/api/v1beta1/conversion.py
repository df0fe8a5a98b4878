"""Turns objects of v1beta1 into v1beta2 and back: for each kind a pure function each way, over plain JSON.

v1beta2 is the hub: every version is converted to it and from it. Fields that both know are kept, unknown fields
included. Lost on the way, as in Kueue:

- to v1beta2: fields that nothing reads (`pendingWorkloadsStatus`, the flavors of a LocalQueue's status, a fair sharing
  status of ClusterQueues and Cohorts); the difference between Borrow or Preempt and MayStopSearch; the class name of a
  Workload without `priorityClassSource`; an `admissionChecksStrategy` beside `admissionChecks`.
- to v1beta1: `concurrentAdmissionPolicy`, preemption gates, topology constraints by layers.

The functions change the object they are given, and raise InvalidValue where it is not what its schema says.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from turnstile.api import names
from turnstile.api.errors import InvalidValue
from turnstile.api.kinds import KINDS
from turnstile.api.topologyassignment import compact, expand

Json = dict[str, Any]
Step = Callable[[Json], None]

_SOURCES: Final = {
    "kueue.x-k8s.io/workloadpriorityclass": ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
_SOURCE_OF: Final = {group: source for source, (group, _) in _SOURCES.items()}


def convert(obj: Any, version: str) -> Json:
    """The object in that version of our group (`v1beta1`); it may be changed in place.

    Raises InvalidValue for an object that is none of ours, a version that its kind does not have, and a malformed one.
    """
    if not isinstance(obj, dict):
        raise InvalidValue("object", type(obj).__name__, "give an object with apiVersion and kind")
    kind, api_version = obj.get("kind"), obj.get("apiVersion")
    versions = _VERSIONS.get(kind) if isinstance(kind, str) else None
    if versions is None:
        raise InvalidValue("kind", kind, f"this converts {', '.join(_VERSIONS)}")
    group, _, own = api_version.partition("/") if isinstance(api_version, str) else ("", "", "")
    if group != names.GROUP or own not in versions:
        raise InvalidValue("apiVersion", api_version, f"{kind} has the versions {', '.join(versions)} of {names.GROUP}")
    if version not in versions:
        raise InvalidValue("desiredAPIVersion", version, f"{kind} has the versions {', '.join(versions)}")
    (to_hub, _), (_, from_hub) = here, there = versions[own], versions[version]
    if here is not there:  # v1alpha2 has the shape of v1beta1: nothing is lost between the two
        to_hub(obj)
        from_hub(obj)
    obj["apiVersion"] = f"{names.GROUP}/{version}"
    return obj


def _child(parent: Json | None, name: str) -> Json | None:
    """The object of that name, None if there is none."""
    value = parent.get(name) if parent is not None else None
    if value is not None and not isinstance(value, dict):
        raise InvalidValue(name, value, "give an object")
    return value


def _children(parent: Json | None, name: str) -> list[Json]:
    """The objects of a list of that name, none if there is none."""
    value = parent.get(name) if parent is not None else None
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidValue(name, value, "give a list of objects")
    return value


def _rename(parent: Json | None, old: str, new: str) -> None:
    if parent is not None and old in parent:
        parent[new] = parent.pop(old)


def _drop(parent: Json | None, *gone: str) -> None:
    if parent is not None:
        for name in gone:
            parent.pop(name, None)


def _drop_usage_of_fair_sharing(status: Json | None) -> None:
    _drop(_child(status, "fairSharing"), "admissionFairSharingStatus")


def _cluster_queue_to_hub(obj: Json) -> None:
    spec, status = _child(obj, "spec"), _child(obj, "status")
    _rename(spec, "cohort", "cohortName")
    if spec is not None and (checks := spec.pop("admissionChecks", None)):
        if not isinstance(checks, list):
            raise InvalidValue("admissionChecks", checks, "give a list of names")
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name} for name in checks]}
    fungibility = _child(spec, "flavorFungibility")
    if fungibility is not None:
        for name, older in (("whenCanBorrow", "Borrow"), ("whenCanPreempt", "Preempt")):
            if fungibility.get(name) == older:
                fungibility[name] = "MayStopSearch"
    _drop(status, "pendingWorkloadsStatus")
    _drop_usage_of_fair_sharing(status)


def _cluster_queue_from_hub(obj: Json) -> None:
    spec = _child(obj, "spec")
    _rename(spec, "cohortName", "cohort")
    _drop(spec, "concurrentAdmissionPolicy")


def _cohort_to_hub(obj: Json) -> None:
    _drop_usage_of_fair_sharing(_child(obj, "status"))


def _cohort_from_hub(obj: Json) -> None:
    """All of it is in v1beta1 too."""


def _local_queue_to_hub(obj: Json) -> None:
    status = _child(obj, "status")
    _rename(status, "flavorUsage", "flavorsUsage")
    _drop(status, "flavors")


def _local_queue_from_hub(obj: Json) -> None:
    _rename(_child(obj, "status"), "flavorsUsage", "flavorUsage")


def _cluster_to_hub(obj: Json) -> None:
    spec = _child(obj, "spec")
    if spec is None:
        return
    source: Json = {}
    kube_config, profile = _child(spec, "kubeConfig"), _child(spec, "clusterProfileRef")
    _drop(spec, "kubeConfig", "clusterProfileRef")
    if kube_config is not None and kube_config.get("location"):
        source["kubeConfig"] = kube_config
    if profile is not None:
        source["clusterProfileRef"] = profile
    if source:
        spec["clusterSource"] = source


def _cluster_from_hub(obj: Json) -> None:
    spec = _child(obj, "spec")
    if spec is None:
        return
    source = _child(spec, "clusterSource")
    _drop(spec, "clusterSource")
    # v1beta1 requires a kubeConfig, so one that is not there is an empty one.
    spec["kubeConfig"] = _child(source, "kubeConfig") or {"location": "", "locationType": ""}
    if (profile := _child(source, "clusterProfileRef")) is not None:
        spec["clusterProfileRef"] = profile


def _workload_to_hub(obj: Json) -> None:
    spec, status = _child(obj, "spec"), _child(obj, "status")
    if spec is not None:
        source, name = spec.pop("priorityClassSource", None), spec.pop("priorityClassName", None)
        if isinstance(source, str) and source in _SOURCES:
            group, kind = _SOURCES[source]
            spec["priorityClassRef"] = {"group": group, "kind": kind, "name": name or ""}
    _rename(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    _convert_topology(status, compact)


def _workload_from_hub(obj: Json) -> None:
    spec, status = _child(obj, "spec"), _child(obj, "status")
    if spec is not None:
        ref = _child(spec, "priorityClassRef")
        _drop(spec, "priorityClassRef", "preemptionGates")
        if ref is not None and isinstance(group := ref.get("group"), str) and group in _SOURCE_OF:
            spec |= {"priorityClassName": ref.get("name", ""), "priorityClassSource": _SOURCE_OF[group]}
    for pod_set in _children(spec, "podSets"):
        _drop(_child(pod_set, "topologyRequest"), "podsetSliceRequiredTopologyConstraints")
    _drop(status, "preemptionGates")
    _rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    _convert_topology(status, expand)


def _convert_topology(status: Json | None, form: Callable[[Json], Json]) -> None:
    for assignment in _children(_child(status, "admission"), "podSetAssignments"):
        if (topology := _child(assignment, "topologyAssignment")) is not None:
            assignment["topologyAssignment"] = form(topology)


def _same(obj: Json) -> None:
    """The hub itself, and kinds whose versions share a schema."""


_STEPS: Final[Mapping[str, tuple[Step, Step]]] = {
    "ClusterQueue": (_cluster_queue_to_hub, _cluster_queue_from_hub),
    "Cohort": (_cohort_to_hub, _cohort_from_hub),
    "LocalQueue": (_local_queue_to_hub, _local_queue_from_hub),
    "MultiKueueCluster": (_cluster_to_hub, _cluster_from_hub),
    "Workload": (_workload_to_hub, _workload_from_hub),
}
_VERSIONS: Final[Mapping[str, Mapping[str, tuple[Step, Step]]]] = {
    kinds.stored.KIND: {kinds.stored.VERSION: (_same, _same)} | dict.fromkeys(kinds.older, _STEPS[kinds.stored.KIND])
    for kinds in KINDS
    if kinds.converted
}
"""By kind and version, the way to the hub and the way from it."""
