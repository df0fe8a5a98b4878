"""The limits of an asker's rights: which objects they hide, and what is known without these objects.

No conclusion may be drawn from an object that could not be read: a ClusterQueue that the asker may not list is no
ClusterQueue that does not exist. Pure.
"""

from collections.abc import Callable, Iterator
from typing import Final

from msgspec.structs import replace

from turnstile.api import workload as wl
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.conditions import set_condition
from turnstile.api.core import LimitRange, Namespace, Node, PriorityClass, RuntimeClass
from turnstile.api.deviceclass import DeviceClass
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind, ObjectMeta
from turnstile.api.pods import PodSpec
from turnstile.api.quantity import to_int
from turnstile.api.resourceclaim import ResourceClaim, ResourceClaimTemplate
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.resourceslice import ResourceSlice
from turnstile.api.selectors import LabelSelector
from turnstile.api.topology import Topology
from turnstile.api.workload import Admission, PodSet, PodSetAssignment, Workload, WorkloadSpec
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.engine.devices.claims import sole_claim
from turnstile.engine.instants import Instant, stamp
from turnstile.engine.quota.amounts import quantity
from turnstile.insight.snapshot import Snapshot
from turnstile.jobs.options import NAMESPACE_NAME_LABEL

MINOR: Final[frozenset[type[Kind]]] = frozenset(
    (
        LimitRange,
        RuntimeClass,
        DeviceClass,
        ResourceClaim,
        ResourceClaimTemplate,
        ResourceSlice,
        WorkloadPriorityClass,
        PriorityClass,
        Node,
    )
)
"""Kinds without which there is an answer, which is marked as incomplete."""
_CORE: Final[tuple[type[Kind], ...]] = (ClusterQueue, Cohort, ResourceFlavor, Workload, LocalQueue)
"""Kinds that are named first; the others are not named where ClusterQueues are hidden."""
_BY_NAMESPACE: Final[tuple[type[Kind], ...]] = (Workload, LocalQueue)


def relevant(snapshot: Snapshot) -> Snapshot:
    """The snapshot in which only those kinds count as hidden whose objects may change an answer."""
    if Namespace in snapshot.hidden:
        snapshot = snapshot.changed(_namespaces(snapshot))
    hidden = {kind: where for kind, where in snapshot.hidden.items() if _MATTERS.get(kind, _always)(snapshot)}
    return Snapshot(snapshot.objects, snapshot.unread, hidden)


def suffice(snapshot: Snapshot) -> bool:
    """Whether the rights of the asker suffice to decide as the leader does."""
    return snapshot.hidden.keys() <= MINOR


def seen_in_part(snapshot: Snapshot) -> bool:
    """Whether all queues, quotas and flavors can be read, and Workloads and LocalQueues in one namespace."""
    whole = {*MINOR, Namespace, AdmissionCheck, Topology}
    return all(kind in whole or (kind in _BY_NAMESPACE and where) for kind, where in snapshot.hidden.items())


def sentence(snapshot: Snapshot) -> str:
    """Kinds of objects that the asker may not list, in one sentence without a full stop; empty if there are none."""
    ordered = sorted(snapshot.hidden.items(), key=lambda each: (_rank(each[0]), each[0].KIND))
    core = [(kind, where) for kind, where in ordered if kind in _CORE]
    hidden = dict(core if ClusterQueue in snapshot.hidden else ordered)
    nowhere = [_plural(kind) for kind, where in hidden.items() if not where]
    elsewhere = [_plural(kind) for kind, where in hidden.items() if where]
    parts = [_listed(nowhere)] if nowhere else []
    if elsewhere:
        namespace = next(filter(None, hidden.values()))
        parts.append(f"{_listed(elsewhere)} outside namespace {namespace}")
    return f"you may not list {', nor '.join(parts)}" if parts else ""


def unread(snapshot: Snapshot) -> tuple[str, ...]:
    """Sentences on what could not be read; what rights hide is one of them."""
    hidden = sentence(snapshot)
    return (*((hidden,) if hidden else ()), *(f"{kind.KIND}: {why}" for kind, why in snapshot.unread.items()))


def require(snapshot: Snapshot) -> None:
    """Raise InvalidValue unless the asker's rights suffice to decide as the leader does."""
    if not suffice(snapshot):
        raise InvalidValue("rights", "too few for an answer", sentence(snapshot))


def absent(snapshot: Snapshot, kind: type[Kind], key: str) -> str:
    """Why an object of a namespace is not in the snapshot, as a cure."""
    namespace = key.partition("/")[0]
    if snapshot.hidden.get(kind, namespace) != namespace:
        return f"you may not list {_plural(kind)} in namespace {namespace}, so it is not known whether there is one"
    return f"there is no such {kind.KIND}: see `kubectl get {kind.PLURAL}`"


def with_usage_of_others(snapshot: Snapshot, now: Instant) -> Snapshot:
    """The snapshot with a Workload in each ClusterQueue that holds what hidden Workloads hold, by the status of the
    ClusterQueue. None of them is preempted, because nobody knows which would be."""
    put: list[Kind] = []
    seen = dict(_usage(snapshot))
    for queue in snapshot.of(ClusterQueue):
        name, spec = queue.metadata.name, replace(queue.spec, preemption=None)
        if Namespace in snapshot.hidden:
            spec = replace(spec, namespace_selector=LabelSelector())
        if AdmissionCheck in snapshot.hidden:
            spec = replace(spec, admission_checks_strategy=None)
        put.append(replace(queue, spec=spec))
        if held := list(_held_by_others(queue, seen)):
            put.append(_stand_in(name, held, now))
    return snapshot.changed(put)


def others_wait(snapshot: Snapshot, cluster_queue: str) -> bool:
    """Whether Workloads that the asker cannot see wait in a ClusterQueue."""
    queue = snapshot.get(ClusterQueue, cluster_queue)
    lines = {each.metadata.key for each in snapshot.of(LocalQueue) if each.spec.cluster_queue == cluster_queue}
    seen = sum(
        f"{each.metadata.namespace}/{each.spec.queue_name}" in lines and not each.quota_reserved and not each.finished
        for each in snapshot.of(Workload)
    )
    return queue is not None and queue.status.pending_workloads > seen


_PLAIN: Final = PodSpec()
_Pair = tuple[str, str, str]
"""ClusterQueue, flavor and resource."""


def _usage(snapshot: Snapshot) -> Iterator[tuple[_Pair, int]]:
    found: dict[_Pair, int] = {}
    shared: set[tuple[_Pair, str, int]] = set()
    for workload in snapshot.of(Workload):
        admission = workload.status.admission
        if admission is None or not workload.quota_reserved or workload.finished:
            continue
        specs = {each.name: each.template.spec for each in workload.spec.pod_sets}
        for item in admission.pod_set_assignments:
            spec = specs.get(item.name, _PLAIN)
            claim, asked = sole_claim(spec), _asked(spec)
            for resource, flavor in item.flavors.items():
                pair = admission.cluster_queue, flavor, resource
                amount = to_int(resource, item.resource_usage.get(resource, 0))
                if claim and resource not in asked:  # devices, which the ClusterQueue counts once for each claim
                    entry = pair, f"{workload.metadata.namespace}/{claim}", amount
                    if entry in shared:
                        continue
                    shared.add(entry)
                found[pair] = found.get(pair, 0) + amount
    yield from found.items()


def _asked(spec: PodSpec) -> set[str]:
    """The resources that the containers of a pod request themselves."""
    blocks = [each.resources for each in (*spec.containers, *spec.init_containers) if each.resources is not None]
    return {name for block in blocks for name in (*block.requests, *block.limits)}


def _held_by_others(queue: ClusterQueue, seen: dict[_Pair, int]) -> Iterator[tuple[str, str, int]]:
    for flavor in queue.status.flavors_reservation:
        for each in flavor.resources:
            held = to_int(each.name, each.total) - seen.get((queue.metadata.name, flavor.name, each.name), 0)
            if held > 0:
                yield flavor.name, each.name, held


def _stand_in(queue: str, held: list[tuple[str, str, int]], now: Instant) -> Workload:
    """A Workload with a pod set for each flavor and resource that it holds."""
    assigned = [
        PodSetAssignment(
            name=f"of-{number}",
            flavors={resource: flavor},
            resource_usage={resource: quantity(resource, amount)},
            count=1,
        )
        for number, (flavor, resource, amount) in enumerate(held)
    ]
    workload = Workload(
        metadata=ObjectMeta(name=f"others-in-{queue}", uid=f"others-in-{queue}", creation_timestamp=stamp(now)),
        spec=WorkloadSpec(pod_sets=[PodSet(name=each.name, count=1) for each in assigned]),
    )
    conditions = workload.status.conditions
    for kind in (wl.QUOTA_RESERVED, wl.ADMITTED):
        conditions = set_condition(conditions, type=kind, status="True", reason=kind, now=stamp(now))
    status = replace(
        workload.status, conditions=conditions, admission=Admission(cluster_queue=queue, pod_set_assignments=assigned)
    )
    return replace(workload, status=status)


# --- which kinds matter -----------------------------------------------------------------------------------------------


def _namespaces(snapshot: Snapshot) -> Iterator[Namespace]:
    """The namespaces that are known to exist, with the label that the API server gives them."""
    for name in sorted({each.metadata.namespace for kind in _BY_NAMESPACE for each in snapshot.of(kind)}):
        if snapshot.get(Namespace, name) is None:
            yield Namespace(metadata=ObjectMeta(name=name, labels={NAMESPACE_NAME_LABEL: name}))


def _always(_: Snapshot) -> bool:
    return True


def _labels(snapshot: Snapshot) -> bool:
    """Whether a ClusterQueue selects namespaces by labels that cannot be known."""
    for queue in snapshot.of(ClusterQueue):
        selector = queue.spec.namespace_selector or LabelSelector()
        keys = {*selector.match_labels, *(each.key for each in selector.match_expressions)}
        if keys - {NAMESPACE_NAME_LABEL}:
            return True
    return ClusterQueue in snapshot.hidden


def _cohorts(snapshot: Snapshot) -> bool:
    return ClusterQueue in snapshot.hidden or any(each.spec.cohort_name for each in snapshot.of(ClusterQueue))


def _checks(snapshot: Snapshot) -> bool:
    return ClusterQueue in snapshot.hidden or any(
        each.spec.admission_checks_strategy is not None for each in snapshot.of(ClusterQueue)
    )


def _topologies(snapshot: Snapshot) -> bool:
    return ResourceFlavor in snapshot.hidden or any(each.spec.topology_name for each in snapshot.of(ResourceFlavor))


def _limits(snapshot: Snapshot) -> bool:
    return not snapshot.hidden[LimitRange]


def _runtime_classes(snapshot: Snapshot) -> bool:
    return any(item.template.spec.runtime_class_name for each in snapshot.of(Workload) for item in each.spec.pod_sets)


_MATTERS: Final[dict[type[Kind], Callable[[Snapshot], bool]]] = {
    Namespace: _labels,
    Cohort: _cohorts,
    AdmissionCheck: _checks,
    Topology: _topologies,
    LimitRange: _limits,
    RuntimeClass: _runtime_classes,
}


def _rank(kind: type[Kind]) -> int:
    return _CORE.index(kind) if kind in _CORE else len(_CORE)


def _plural(kind: type[Kind]) -> str:
    name = kind.KIND
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}es" if name.endswith("s") else f"{name}s"


def _listed(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
