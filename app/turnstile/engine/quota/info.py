"""A Workload as the engine sees it: what it asks for, its place in the queue, what it holds.

An `Info` is made anew from each version of the API object and never changed afterwards, but for the memory of its last
flavor scan and lazily computed values. Sources: Kueue's workload.Info. Must never decide anything.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from turnstile.api import rollout
from turnstile.api.meta import Condition, find_condition
from turnstile.api.pods import PodSpec
from turnstile.api.quantity import MAX_INT64, to_int
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topologyassignment import decode
from turnstile.api.workload import PREEMPTED, AdmissionCheckState, Workload
from turnstile.engine.causes import Cause
from turnstile.engine.devices.charges import Problem
from turnstile.engine.instants import Instant, instant, instant_or_zero
from turnstile.engine.quota import requests
from turnstile.engine.quota.amounts import Amounts
from turnstile.engine.quota.commonclaims import Common, commons_of
from turnstile.engine.quota.equivalence import scheduling_hash
from turnstile.engine.quota.ordering import order_key
from turnstile.engine.quota.podsets import PodSetTotals, PodShape, of_fewer, of_pods
from turnstile.engine.quota.requests import EffectivePod
from turnstile.engine.quota.surroundings import Surroundings
from turnstile.engine.quota.usage import Usage
from turnstile.engine.topology.capacity import Ask
from turnstile.engine.topology.places import Places

if TYPE_CHECKING:
    from turnstile.engine.quota.progress import LastAssignment

ALLOWED_FLAVORS: Final = "kueue.x-k8s.io/workload-allowed-resource-flavors"
SLICE_REPLACEMENT_FOR: Final = "kueue.x-k8s.io/workload-slice-replacement-for"

UNKNOWN_HASH: Final = ""
"""Scheduling-equivalence hash that matches nothing (and everything, when progress is carried over)."""


class Info:
    """One version of a Workload. Times are Unix seconds, amounts in the engine's units."""

    __slots__ = (
        "_bounded",
        "_effective",
        "_hash",
        "_left_out",
        "_usage",
        "active",
        "admitted",
        "allowed_flavors",
        "checks",
        "cluster_queue",
        "commons",
        "created",
        "evicted",
        "finished",
        "generation",
        "key",
        "last_assignment",
        "local_queue",
        "namespace",
        "never",
        "order",
        "priority",
        "problem",
        "replaces",
        "reserved",
        "reserved_at",
        "rollout",
        "surroundings",
        "tags",
        "totals",
        "uid",
        "workload",
    )

    def __init__(
        self, workload: Workload, surroundings: Surroundings, cluster_queue: str = "", *, born: int = 0
    ) -> None:
        meta = workload.metadata
        status = workload.status
        self.workload = workload
        self.surroundings = surroundings
        self.key = meta.key
        self.uid = meta.uid
        self.namespace = meta.namespace
        self.generation = meta.generation
        self.created = instant_or_zero(meta.creation_timestamp)
        self.checks: Sequence[AdmissionCheckState] = status.admission_checks or ()
        self.local_queue = surroundings.texts.same(f"{meta.namespace}/{workload.spec.queue_name or ''}")
        self.cluster_queue = cluster_queue
        options = surroundings.options
        reserved_at = None
        reserved = admitted = evicted = finished = False
        for condition in status.conditions:
            if condition.status == "True":
                match condition.type:
                    case "QuotaReserved":
                        reserved, reserved_at = True, condition.last_transition_time
                    case "Admitted":
                        admitted = True
                    case "Evicted":
                        evicted = True
                    case "Finished":
                        finished = True
        self.reserved = reserved
        self.admitted = admitted
        self.evicted = evicted
        self.finished = finished
        self.active = workload.spec.active
        self.reserved_at: Instant | None = instant(reserved_at) if reserved_at else None
        self.order = order_key(workload, options, born=born)
        self.priority = -self.order[0]
        self.last_assignment: LastAssignment | None = None
        self.allowed_flavors: frozenset[str] | None = None
        self.replaces: str | None = None
        self.rollout: rollout.Rollout | None = None
        self.tags: Any = None
        self.never = -1
        """Number of the objects (`Log.shape`) with which it can never be admitted; -1 if not known."""
        if meta.annotations:
            if options.gates.concurrent_admission and ALLOWED_FLAVORS in meta.annotations:
                self.allowed_flavors = frozenset(meta.annotations[ALLOWED_FLAVORS].split(","))
            if options.gates.elastic_jobs_via_workload_slices:
                replaces = meta.annotations.get(SLICE_REPLACEMENT_FOR, "")
                self.replaces = replaces if replaces.startswith(f"{meta.namespace}/") else None
            self.rollout = rollout.of_workload(meta.annotations.get(rollout.WORKLOAD, ""))
        self.commons: tuple[Common, ...]
        """The ResourceClaims that it holds quota for, and that other Workloads may hold quota for too."""
        self.problem: Problem | None = None
        """Why it cannot be charged for the devices that it asks for."""
        self._hash: str | None = None
        self._left_out: tuple[Common, ...] = ()
        self._usage: Usage | None = None
        self._effective: list[EffectivePod] | None = None
        self._bounded: bool | None = None
        if status.admission is not None and reserved:
            self.cluster_queue = cluster_queue or status.admission.cluster_queue
            self.totals = self._from_admission()
            self.commons = commons_of(self)
        else:
            self.totals = self._from_pod_sets()
            self.commons = ()

    @property
    def timestamp(self) -> Instant:
        """Since when it waits in the queue."""
        return self.order[1]

    @property
    def preemptions(self) -> int:
        """How often it was preempted before, as its status counts it."""
        stats = self.workload.status.scheduling_stats
        return sum(each.count for each in stats.evictions if each.reason == PREEMPTED) if stats is not None else 0

    @property
    def failed_checks(self) -> bool:
        """Whether an admission check wants to try again or rejects it: then it is not considered."""
        return any(check.state in {"Retry", "Rejected"} for check in self.checks)

    @property
    def effective(self) -> list[EffectivePod]:
        """Pods after defaults, by pod set."""
        if self._effective is None:
            self._effective = [
                self.surroundings.counted(pod_set.template.spec, self.namespace).pod
                for pod_set in self.workload.spec.pod_sets
            ]
        return self._effective

    @property
    def usage(self) -> Usage:
        """Quota that it holds, by flavor and resource; resources without a flavor do not count."""
        if self._usage is None:
            pair = self.surroundings.catalog.pair
            quota: Amounts = {}
            for totals in self.totals:
                if totals.flavors:
                    for resource, flavor in totals.flavors.items():
                        amount = totals.requests.get(resource)
                        if amount is not None:
                            key = pair(flavor, resource)
                            quota[key] = min(quota.get(key, 0) + amount, MAX_INT64)
            self._usage = Usage(quota, self._places())
        return self._usage

    @property
    def held(self) -> dict[str, int]:
        """Quota that it holds, by resource, in all flavors together."""
        found: dict[str, int] = {}
        for totals in self.totals:
            for resource in totals.flavors or ():
                found[resource] = min(found.get(resource, 0) + totals.requests.get(resource, 0), MAX_INT64)
        return found

    def _places(self) -> Places | None:
        """The places of its pods; None if topology placed none. A pod set without pods left has none."""
        found: Places | None = None
        nodes = self.surroundings.nodes
        for totals in self.totals:
            if totals.topology is None or not totals.topology.levels or not totals.count:
                continue
            flavors = sorted(set((totals.flavors or {}).values()))
            flavor = next((name for name in flavors if name in nodes.trees), flavors[0] if flavors else "")
            places = nodes.places(flavor, totals.topology.levels, decode(totals.topology), self.ask(totals))
            if found is None:
                found = places
            else:
                found.include(places)
        return found

    def ask(self, totals: PodSetTotals) -> Ask:
        """Requests of one pod of a pod set, as a node counts them: without those that devices fulfil, of which a node
        has no amount."""
        spec = totals.pod_set.template.spec if totals.pod_set is not None else PodSpec()
        single, backed = self.surroundings.counted(spec, self.namespace).single, self.surroundings.devices.backing.of
        if any(backed(name) is not None for name in single):
            single = {name: amount for name, amount in single.items() if backed(name) is None}
        return self.surroundings.nodes.frees.ask(single)

    def where(self, totals: PodSetTotals, flavors: Sequence[ResourceFlavor] = ()) -> PodShape:
        """The nodes that pods of a pod set may run on, with what flavors add, and its admission checks once they are
        ready."""
        updates = [
            update
            for check in self.checks
            if check.state == "Ready"
            for update in check.pod_set_updates
            if update.name == totals.name
        ]
        spec = totals.pod_set.template.spec if totals.pod_set is not None else PodSpec()
        if updates or flavors:
            selector = {**spec.node_selector}
            added = [each for flavor in flavors for each in flavor.spec.tolerations]
            for flavor in flavors:
                selector.update(flavor.spec.node_labels)
            for update in updates:
                selector.update(update.node_selector)
                added += update.tolerations
            spec = msgspec.structs.replace(spec, node_selector=selector, tolerations=[*spec.tolerations, *added])
        return self.surroundings.shapes.of(spec)

    @property
    def hashed(self) -> bool:
        """Whether its hash is known, so that asking for it costs nothing."""
        return self._hash is not None

    @property
    def hash(self) -> str:
        """Scheduling-equivalence hash: equal for workloads that ask for the same with the same priority."""
        if self._hash is None:
            if self.surroundings.options.gates.scheduling_equivalence_hashing:
                namespace = None
                for totals in self.totals:
                    if totals.once:  # the claims of two namespaces are others
                        namespace = self.namespace
                found = scheduling_hash(self.totals, self.priority, self.allowed_flavors, self.rollout, namespace)
                self._hash = self.surroundings.texts.same(found)
            else:
                self._hash = UNKNOWN_HASH
        return self._hash

    def assumed(self, totals: list[PodSetTotals], cluster_queue: str, now: Instant, *, admitted: bool) -> "Info":
        """The same workload with a reservation that was just decided."""
        info = Info.__new__(Info)
        info.workload = self.workload
        info.surroundings = self.surroundings
        info.key = self.key
        info.uid = self.uid
        info.namespace = self.namespace
        info.generation = self.generation
        info.created = self.created
        info.checks = self.checks
        info.local_queue = self.local_queue
        info.priority = self.priority
        info.order = self.order
        if self.created != info.order[1]:  # the reservation ends an eviction, and its time with it
            negative_priority, _, born, uid, key = self.order
            info.order = (negative_priority, self.created, born, uid, key)
        info.active = self.active
        info.finished = self.finished
        info.replaces = self.replaces
        info.rollout = self.rollout
        info.allowed_flavors = self.allowed_flavors
        info.last_assignment = None
        info.tags = None
        info.never = -1
        info.problem = None
        info._hash = None
        info._left_out = ()
        info._effective = None
        info._bounded = None
        info.totals = totals
        info.commons = commons_of(info)
        info.cluster_queue = cluster_queue
        info.reserved = True
        info.reserved_at = now
        info.admitted = admitted
        info.evicted = False
        info._usage = None
        return info

    def placed(self, totals: list[PodSetTotals], *, admitted: bool) -> "Info":
        """The same workload, which holds quota, with places that were just found."""
        info = self.assumed(totals, self.cluster_queue, self.created, admitted=admitted)
        info.order, info.reserved_at = self.order, self.reserved_at
        return info

    def succeeds(self, other: "Info") -> bool:
        """Whether this is a slice of an elastic job that takes the place of another one: both are of the same job, and
        no annotation makes a slice of the Workload of another."""
        return self.replaces == other.key and _controller(self) == _controller(other)

    def take_usage(self, usage: Usage | None) -> None:
        """Usage that is known from elsewhere; None for that of its totals."""
        self._usage = usage
        if usage is None:
            self._left_out = ()

    def leave_out(self, common: Common) -> None:
        """Another Workload is charged for the devices of a claim."""
        if common not in self._left_out:
            self._left_out = (*self._left_out, common)
            self._usage = self.usage.without(common.usage)

    def _reclaimable(self) -> dict[str, int]:
        pods = self.workload.status.reclaimable_pods
        if not pods or not self.surroundings.options.gates.reclaimable_pods:
            return {}
        return {pod.name: pod.count for pod in pods}

    def _from_pod_sets(self) -> list[PodSetTotals]:
        reclaimable = self._reclaimable()
        charges = self.surroundings.charges(self.workload)
        self.problem = charges.problem if charges is not None else None
        totals = []
        pods: list[EffectivePod] = []
        for pod_set in self.workload.spec.pod_sets:
            count = pod_set.count
            if reclaimable:
                count -= min(reclaimable.get(pod_set.name, 0), count)
            single = self.surroundings.counted(pod_set.template.spec, self.namespace)
            pods.append(single.pod)
            counts, once = single.counts, None
            if charges is not None:
                counts = self.surroundings.with_devices(single, pod_set.name, charges)
                once = charges.once.get(pod_set.name)
            totals.append(
                PodSetTotals(
                    name=pod_set.name,
                    count=count,
                    requests=of_pods(counts, count, once),
                    once=once,
                    shape=self.surroundings.shapes.of(pod_set.template.spec),
                    pod_set=pod_set,
                    min_count=pod_set.min_count,
                )
            )
        self._bounded = any(pod.bounded for pod in pods)
        if self._bounded:
            self._effective = pods  # without limits they are not asked for while no LimitRange comes
        return totals

    def _from_admission(self) -> list[PodSetTotals]:
        admission = self.workload.status.admission
        assert admission is not None
        reclaimable = self._reclaimable()
        pod_sets = {pod_set.name: pod_set for pod_set in self.workload.spec.pod_sets}
        totals = []
        for assigned in admission.pod_set_assignments:
            pod_set = pod_sets.get(assigned.name)
            spec_count = pod_set.count if pod_set is not None else 0
            count = assigned.count if assigned.count is not None else spec_count
            usage = {name: max(0, to_int(name, value)) for name, value in assigned.resource_usage.items()}
            once = self.surroundings.devices.held_once(pod_set.template.spec, usage) if pod_set is not None else {}
            left = spec_count - min(reclaimable.get(assigned.name, 0), spec_count)
            if pod_set is not None and left < count:
                usage = of_fewer(usage, once, count, left)
                count = left
            totals.append(
                PodSetTotals(
                    name=assigned.name,
                    count=count,
                    requests=usage,
                    shape=self.surroundings.shapes.of(pod_set.template.spec) if pod_set is not None else None,
                    pod_set=pod_set,
                    min_count=pod_set.min_count if pod_set is not None else None,
                    once=once,
                    flavors=assigned.flavors,
                    topology=assigned.topology_assignment,
                    delayed=assigned.delayed_topology_request,
                )
            )
        return totals

    def condition(self, kind: str) -> Condition | None:
        """A condition of the Workload."""
        return find_condition(self.workload.status.conditions, kind)

    def violations(self) -> str | None:
        """Why the cluster would refuse the pods, in Kueue's words; None if it would not."""
        limits = self.surroundings.limits.get(self.namespace)
        if self._bounded is False and not limits:
            return None
        pods = self.effective
        found = [
            violation
            for index, pod in enumerate(pods)
            for violation in requests.limit_violations(pod, f"spec.podSets[{index}].template.spec")
        ]
        if found:
            return Cause.LIMITS_CONTRADICT.says(violations=requests.aggregate(found))
        if limits:
            found = [
                violation
                for index, pod in enumerate(pods)
                for violation in requests.range_violations(pod, f"spec.podSets[{index}].template.spec", limits)
            ]
            if found:
                return Cause.LIMIT_RANGE.says(violations=requests.aggregate(found))
        return None


def _controller(info: Info) -> str:
    """The uid of the job of a Workload."""
    owner = info.workload.metadata.controller
    return owner.uid if owner is not None else ""
