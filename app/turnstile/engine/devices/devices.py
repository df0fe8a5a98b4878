"""DeviceClasses, ResourceClaimTemplates and ResourceSlices of the cluster, and the charges that follow from them.

Must never know a quota, and never what is allocated: a charge is fixed when quota is reserved.
"""

from collections.abc import Sequence
from typing import NamedTuple

from turnstile.api.deviceclass import DeviceClass
from turnstile.api.pods import PodSpec
from turnstile.api.resourceclaimtemplate import ResourceClaimTemplate
from turnstile.api.resourceslice import ResourceSlice
from turnstile.api.workload import Workload
from turnstile.engine.devices.charges import BY_NAME, NOT_COUNTED, UNSETTLED, Charges, Counts, Faults, Problem, add
from turnstile.engine.devices.claims import (
    claims_of,
    devices_per_class,
    exact_requests,
    missing,
    names_a_claim,
    whole_devices,
    within,
)
from turnstile.engine.devices.extended import Backing, Requests, devices_for
from turnstile.engine.devices.mappings import Mappings
from turnstile.engine.devices.matching import Cluster, check_devices, compile_faults, parts
from turnstile.engine.devices.selectors import Selectors, Unsettled
from turnstile.engine.options import Options


class Asked(NamedTuple):
    """Requests of one pod of a pod set, in billionths: of the pod, and of each container with its path."""

    total: Requests
    containers: Sequence[tuple[str, Requests]]


class Devices:
    """The objects and mappings that decide how devices count."""

    __slots__ = ("_options", "backing", "classes", "mappings", "selectors", "slices", "templates")

    def __init__(self, options: Options) -> None:
        self._options = options
        self.mappings = Mappings(options.device_mappings)
        self.backing = Backing()
        self.classes: dict[str, DeviceClass] = {}
        self.templates: dict[str, ResourceClaimTemplate] = {}
        """By namespace and name."""
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

    def put_template(self, key: str, given: ResourceClaimTemplate | None) -> bool:
        """The same of a ResourceClaimTemplate."""
        known = self.templates.get(key)
        if (known.spec if known is not None else None) == (given.spec if given is not None else None):
            return False
        if given is None:
            del self.templates[key]
        else:
            self.templates[key] = given
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

    def charges(self, workload: Workload, asked: Sequence[Asked]) -> Charges | None:
        """The charges for a Workload, whose pods request what is `asked` in each pod set; None if no devices count."""
        gates = self._options.gates
        if not gates.kueue_dra_integration:
            if not gates.kueue_dra_reject_workloads_when_dra_disabled:
                return None
            return Charges({}, {}, Problem(NOT_COUNTED, NOT_COUNTED))
        if any(names_a_claim(each.template.spec.resource_claims) for each in workload.spec.pod_sets):
            return Charges({}, {}, BY_NAME)
        counts: dict[str, Counts] = {}
        replaced: dict[str, frozenset[str]] = {}
        try:
            for index, pod_set in enumerate(workload.spec.pod_sets):
                found = self._claimed(index, pod_set.name, pod_set.template.spec, workload.metadata.namespace)
                counts[pod_set.name] = found
            if gates.kueue_dra_integration_extended_resource:
                for pod_set, pod in zip(workload.spec.pod_sets, asked, strict=True):
                    more, instead = devices_for(pod.total, pod.containers, self.backing, self.mappings)
                    for resource, amount in more.items():
                        add(counts[pod_set.name], resource, amount)
                    replaced[pod_set.name] = instead
        except Faults as faults:
            return Charges({}, {}, faults.problem)
        except Unsettled:
            return Charges({}, {}, UNSETTLED)
        return Charges(counts, replaced)

    def _claimed(self, index: int, pod_set: str, spec: PodSpec, namespace: str) -> Counts:
        counts: Counts = {}
        cluster = Cluster(self.classes, self.slices, self.selectors, self.mappings)
        for claim in claims_of(index, pod_set, spec):
            template = self.templates.get(f"{namespace}/{claim.template}")
            if template is None:
                raise Faults(missing(claim))
            try:
                requests = list(exact_requests(template, lambda given, at: compile_faults(given, at, self.selectors)))
            except Faults as faults:
                raise within(claim, faults) from None
            check_devices(claim, template, cluster)
            for found in (
                whole_devices(claim, devices_per_class(requests), self.mappings),
                parts(claim, requests, cluster),
            ):
                for resource, amount in found.items():
                    add(counts, resource, amount)
        return counts
