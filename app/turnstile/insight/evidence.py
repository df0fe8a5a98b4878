"""The evidence of an audit: objects as read from the API server, and facts about one pod or Workload drawn from them.

Must never compare pods with quotas; `turnstile.insight.audit` does.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.conditions import instant
from turnstile.api.core import Pod
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind, OwnerReference, find_condition
from turnstile.api.pods import PodSpec
from turnstile.api.quantity import to_int
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Admission, Workload
from turnstile.engine.devices.claims import sole_claim
from turnstile.engine.options import Options
from turnstile.engine.quota.requests import amounts, counted, effective_pod, pod_requests
from turnstile.jobs.ancestors import MAX_DEPTH
from turnstile.jobs.labels import queue_name
from turnstile.jobs.registry import Registry

PODS: Final = "pods"
"""The resource that counts pods."""

_LABELS: Final = (names.MANAGED_LABEL, names.PODSET_LABEL)
_ANNOTATIONS: Final = (names.WORKLOAD, names.POD_SUSPENDING_PARENT)
_encode: Final[Callable[[object], bytes]] = msgspec.json.Encoder().encode
_decode_spec: Final[Callable[[msgspec.Raw], PodSpec]] = msgspec.json.Decoder(PodSpec).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Objects of a cluster at about one time. `find` returns a job by kind and key, `managed` says whether the jobs of
    a namespace are queued. A Workload may hold quota that nothing uses for `grace_seconds`."""

    now: datetime
    pods: Iterable[Pod]
    workloads: Collection[Workload]
    cluster_queues: Iterable[ClusterQueue]
    cohorts: Iterable[Cohort]
    local_queues: Iterable[LocalQueue]
    flavors: Iterable[ResourceFlavor]
    find: Callable[[type[Kind], str], Kind | None]
    managed: Callable[[str], bool]
    manage_jobs_without_queue_name: bool
    registry: Registry
    options: Options
    grace_seconds: float


class Chain(NamedTuple):
    """The owners of an object, nearest first: their uids, whether one of them names a queue, whether one is of an
    enabled kind, and whether another controller manages one of them."""

    uids: tuple[str, ...] = ()
    names_queue: bool = False
    enabled: bool = False
    elsewhere: bool = False


class Owners:
    """Finds the owners of pods. Asks for each owner once."""

    def __init__(self, evidence: Evidence) -> None:
        self._find = evidence.find
        self._registry = evidence.registry
        self.known: dict[str, Chain] = {}

    def above(self, obj: Kind, depth: int = 0) -> Chain:
        """The controllers above an object. An owner counts only if its uid is that of the reference."""
        owner = obj.metadata.controller
        if owner is None or depth > MAX_DEPTH:
            return Chain()
        known = self.known.get(owner.uid)
        if known is None:
            known = self.known[owner.uid] = self._from(owner, obj.metadata.namespace, depth)
        return known

    def _from(self, owner: OwnerReference, namespace: str, depth: int) -> Chain:
        if self._registry.is_external(owner):
            return Chain((owner.uid,), elsewhere=True)
        job = self.job(owner, namespace)
        if job is None:
            return Chain((owner.uid,))
        rest = self.above(job, depth + 1)
        return Chain((owner.uid, *rest.uids), bool(queue_name(job)) or rest.names_queue, True, rest.elsewhere)

    def job(self, owner: OwnerReference, namespace: str) -> Kind | None:
        """The job that a reference names; None if it is gone, or of a kind that is not enabled."""
        integration = self._registry.by_owner(owner)
        if integration is None or not integration.handling.watched:
            return None
        found = self._find(integration.kind, f"{namespace}/{owner.name}")
        return found if found is not None and found.metadata.uid == owner.uid else None

    def may_use(self, owner: OwnerReference, namespace: str) -> bool:
        """Whether an owner of a Workload may run pods; an owner of a kind that is not enabled is believed to."""
        integration = self._registry.by_owner(owner)
        if integration is None or not integration.handling.watched:
            return True
        job = self.job(owner, namespace)
        if job is None or job.metadata.deletion_timestamp:
            return False
        if integration.groups is not None and not owner.controller:
            return integration.finished(job) is not None or not integration.suspended(job)
        return integration.finished(job) is None and not integration.suspended(job)


def marked(pod: Pod) -> bool:
    """Whether a pod carries a mark that Turnstile adds to pods that are queued."""
    meta = pod.metadata
    return (
        any(label in meta.labels for label in _LABELS)
        or any(annotation in meta.annotations for annotation in _ANNOTATIONS)
        or names.POD_FINALIZER in meta.finalizers
    )


def spec_of(pod: Pod) -> PodSpec | None:
    """The spec of a pod; None if it cannot be read."""
    try:
        return _decode_spec(pod.spec)
    except msgspec.ValidationError:
        return None


class Requests:
    """The requests of pods. Adds up each shape of pods once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._known: dict[bytes, tuple[tuple[str, int], ...]] = {}

    def of(self, spec: PodSpec) -> tuple[tuple[str, int], ...]:
        """Requests that the scheduler reserves on a node for a pod, as quota counts it, with 1 of `pods`; no zeros.
        Raises InvalidValue."""
        shape = _encode((spec.containers, spec.init_containers, spec.overhead, spec.resources))
        known = self._known.get(shape)
        if known is None:
            exact = counted(
                pod_requests(effective_pod(spec)),
                transformations=self._options.transformations,
                exclude_prefixes=self._options.exclude_resource_prefixes,
            )
            found = {PODS: 1, **amounts(exact)}
            known = self._known[shape] = tuple((name, amount) for name, amount in found.items() if amount)
        return known


class Holding(NamedTuple):
    """The holdings of a Workload: amounts by flavor and resource, in a ClusterQueue."""

    workload: Workload
    cluster_queue: str
    amounts: Mapping[tuple[str, str], int]
    devices: Mapping[tuple[str, str, str], int] = {}
    """The part that is for ResourceClaims, by claim (`namespace/name`), flavor and resource: other Workloads may hold
    it for the same devices."""

    @property
    def totals(self) -> dict[str, int]:
        """Amounts by resource."""
        totals: dict[str, int] = {}
        for (_, resource), amount in self.amounts.items():
            totals[resource] = totals.get(resource, 0) + amount
        return totals

    def single(self, pod_set: str) -> dict[str, int] | None:
        """Amounts that the admission holds for one pod of a pod set; for a pod that names none of them, the largest of
        each resource. None if the admission holds nothing for pods. Raises InvalidValue."""
        admission = self.workload.status.admission
        assigned = [each for each in admission.pod_set_assignments if each.count] if admission is not None else []
        named = [each for each in assigned if each.name == pod_set] or assigned
        most: dict[str, int] = {}
        for each in named:
            for resource, quantity in each.resource_usage.items():
                most[resource] = max(most.get(resource, 0), to_int(resource, quantity) // (each.count or 1))
        return most if named else None

    def without_flavor(self, pod_set: str, resources: Iterable[str]) -> frozenset[str]:
        """Those of some resources for which the admission gives no flavor to a pod set."""
        admission = self.workload.status.admission
        given = {each.name: each.flavors for each in (admission.pod_set_assignments if admission is not None else ())}
        return frozenset(resources).difference(given[pod_set]) if pod_set in given else frozenset()


def holding_of(workload: Workload, options: Options) -> Holding | None:
    """The holdings of a Workload; None if it holds no quota. Raises InvalidValue."""
    admission = workload.status.admission
    if admission is None or not workload.quota_reserved or workload.finished:
        return None
    amounts_ = _amounts(workload, admission, options)
    return Holding(workload, admission.cluster_queue, amounts_, _devices(workload, admission, options))


def _amounts(workload: Workload, admission: Admission, options: Options) -> dict[tuple[str, str], int]:
    reclaimed = {each.name: each.count for each in workload.status.reclaimable_pods}
    if not options.gates.reclaimable_pods:
        reclaimed = {}
    counts = {each.name: each.count for each in workload.spec.pod_sets}
    held: dict[tuple[str, str], int] = {}
    for assigned in admission.pod_set_assignments:
        count = counts.get(assigned.name, 0) if assigned.count is None else assigned.count
        left = max(0, counts.get(assigned.name, count) - reclaimed.get(assigned.name, 0))
        for resource, quantity in assigned.resource_usage.items():
            flavor = assigned.flavors.get(resource)
            if flavor is not None:
                usage = max(0, to_int(resource, quantity))
                usage = usage // count * left if left < count else usage
                held[flavor, resource] = held.get((flavor, resource), 0) + usage
    return held


def _devices(workload: Workload, admission: Admission, options: Options) -> dict[tuple[str, str, str], int]:
    claims = {each.name: sole_claim(each.template.spec) for each in workload.spec.pod_sets}
    mapped = {each.resource for each in options.device_mappings} if any(claims.values()) else set()
    held: dict[tuple[str, str, str], int] = {}
    for assigned in admission.pod_set_assignments:
        if claim := claims.get(assigned.name, ""):
            for resource in mapped.intersection(assigned.resource_usage).intersection(assigned.flavors):
                amount = max(0, to_int(resource, assigned.resource_usage[resource]))
                held[f"{workload.metadata.namespace}/{claim}", assigned.flavors[resource], resource] = amount
    return held


def running_since(workload: Workload) -> datetime | None:
    """When a Workload was admitted or evicted last; None if it is not admitted."""
    times = [
        instant(condition.last_transition_time)
        for condition in (find_condition(workload.status.conditions, each) for each in (wl.ADMITTED, wl.EVICTED))
        if condition is not None and condition.status == "True"
    ]
    return max((each for each in times if each is not None), default=None) if workload.admitted else None


def places_of(queue: ClusterQueue, resource: str) -> tuple[str, ...] | None:
    """The flavors in which a ClusterQueue has quota of a resource; None if it does not cover the resource."""
    for group in queue.spec.resource_groups:
        if resource in group.covered_resources:
            return tuple(each.name for each in group.flavors)
    return None
