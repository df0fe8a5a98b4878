"""DeviceClasses, claims, their templates and ResourceSlices of the cluster, and the charges that follow from them.

Must never know a quota, and never what is allocated: a charge is fixed when quota is reserved.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from turnstile.api.deviceclass import DeviceClass
from turnstile.api.pods import PodSpec
from turnstile.api.resourceclaim import ResourceClaimSpec
from turnstile.api.resourceslice import ResourceSlice
from turnstile.api.workload import Workload
from turnstile.engine.devices.charges import NOT_COUNTED, UNSETTLED, Charges, Counts, Faults, Problem, add, refused
from turnstile.engine.devices.claims import (
    FIELDS,
    Claim,
    charged_requests,
    claims_of,
    missing,
    most,
    whole_devices,
    within,
)
from turnstile.engine.devices.extended import Backing, Requests, devices_for
from turnstile.engine.devices.mappings import Mappings
from turnstile.engine.devices.matching import Cluster, check_devices, compile_faults, counted, parts
from turnstile.engine.devices.selectors import Selectors, Unsettled
from turnstile.engine.options import Options


class Asked(NamedTuple):
    """Requests of one pod of a pod set, in billionths: of the pod, and of each container with its path."""

    total: Requests
    containers: Sequence[tuple[str, Requests]]


class Devices:
    """The objects and mappings that decide how devices count."""

    __slots__ = ("_options", "backing", "claims", "classes", "mappings", "selectors", "slices")

    def __init__(self, options: Options) -> None:
        self._options = options
        self.mappings = Mappings(options.device_mappings)
        self.backing = Backing()
        self.classes: dict[str, DeviceClass] = {}
        self.claims: dict[tuple[str, str], ResourceClaimSpec] = {}
        """By kind, ResourceClaim or ResourceClaimTemplate, and `namespace/name`."""
        self.slices: dict[str, ResourceSlice] = {}
        self.selectors = Selectors()

    def put_class(self, name: str, given: DeviceClass | None) -> bool:
        """A DeviceClass exists, or is gone if it is None; whether that changes how devices count."""
        known = self.classes.get(name)
        if (known.spec if known is not None else None) == (given.spec if given is not None else None):
            return False
        if given is None:
            del self.classes[name]
        else:
            self.classes[name] = given
        self.backing.put(given, name)
        return True

    def put_claim(self, kind: str, key: str, given: ResourceClaimSpec | None) -> bool:
        """The same of a ResourceClaim or ResourceClaimTemplate."""
        if self.claims.get((kind, key)) == given:
            return False
        if given is None:
            del self.claims[kind, key]
        else:
            self.claims[kind, key] = given
        return True

    def put_slice(self, name: str, given: ResourceSlice | None) -> bool:
        """The same of a ResourceSlice."""
        known = self.slices.get(name)
        if (known.spec if known is not None else None) == (given.spec if given is not None else None):
            return False
        if given is None:
            del self.slices[name]
        else:
            self.slices[name] = given
        self.selectors.put(name, given)
        return True

    def concern(self, spec: PodSpec) -> bool:
        """Whether a pod asks for devices: by a claim, or by an extended resource that a DeviceClass backs, if that
        counts as devices."""
        if spec.resource_claims:
            return True
        gates = self._options.gates
        if not (gates.kueue_dra_integration and gates.kueue_dra_integration_extended_resource):
            return False
        backed = self.backing.of
        return any(
            backed(name) is not None
            for container in (*spec.containers, *spec.init_containers)
            if container.resources is not None
            for name in (*container.resources.requests, *container.resources.limits)
        )

    def held_once(self, spec: PodSpec, usage: Mapping[str, int]) -> Counts:
        """The part of a charge for pods that is kept while any of them is left: the devices, where they may have some
        together, by a ResourceClaim. How many those are is not on record, and the claim may be another one by now."""
        if not any(claim.get("resourceClaimName") for claim in spec.resource_claims):
            return {}
        return {name: amount for name, amount in usage.items() if name in self.mappings.resources}

    def charges(self, workload: Workload, asked: Sequence[Asked]) -> Charges | None:
        """The charges for a Workload, whose pods request what is `asked` in each pod set; None if no devices count."""
        gates = self._options.gates
        if not gates.kueue_dra_integration:
            if not gates.kueue_dra_reject_workloads_when_dra_disabled:
                return None
            return refused(Problem(NOT_COUNTED, NOT_COUNTED))
        counts: dict[str, Counts] = {}
        once: dict[str, Counts] = {}
        replaced: dict[str, frozenset[str]] = {}
        cluster = Cluster(self.classes, self.slices, self.selectors, self.mappings)
        counted_once: set[str] = set()
        try:
            for index, pod_set in enumerate(workload.spec.pod_sets):
                counts[pod_set.name], once[pod_set.name] = {}, {}
                for claim in claims_of(index, pod_set.name, pod_set.template.spec):
                    if claim.shared and claim.name in counted_once:
                        continue
                    if claim.shared:
                        counted_once.add(claim.name)
                    total = (once if claim.shared else counts)[pod_set.name]
                    for resource, amount in self._claimed(claim, workload.metadata.namespace, cluster).items():
                        add(total, resource, amount)
            if gates.kueue_dra_integration_extended_resource:
                for pod_set, pod in zip(workload.spec.pod_sets, asked, strict=True):
                    more, instead = devices_for(pod.total, pod.containers, self.backing, self.mappings)
                    for resource, amount in more.items():
                        add(counts[pod_set.name], resource, amount)
                    replaced[pod_set.name] = instead
        except Faults as faults:
            return refused(faults.problem)
        except Unsettled:
            return refused(UNSETTLED)
        return Charges(counts, once, replaced)

    def _claimed(self, claim: Claim, namespace: str, cluster: Cluster) -> Counts:
        spec = self.claims.get((FIELDS[claim.field].KIND, f"{namespace}/{claim.name}"))
        if spec is None:
            raise Faults(missing(claim))
        try:
            charged = list(charged_requests(spec, lambda given, at: compile_faults(given, at, self.selectors)))
        except Faults as faults:
            raise within(claim, faults) from None
        check_devices(claim, spec, cluster)
        requests = [counted(claim, each, cluster) for each in charged]
        whole = [
            [whole_devices(claim, each, self.mappings) for _, each in request.alternatives] for request in requests
        ]
        counts: Counts = {}
        for request, costs in zip(requests, whole, strict=True):
            for (_, each), cost in zip(request.alternatives, costs, strict=True):
                for resource, amount in parts(claim, request.path, each, cluster).items():
                    add(cost, resource, amount)
            for resource, amount in most(costs).items():
                add(counts, resource, amount)
        return counts
