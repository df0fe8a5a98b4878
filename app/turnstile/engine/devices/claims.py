"""The claims of pods, and the devices that each claim asks for. Faults and their texts are Kueue's.

A pod has a claim of its own for each ResourceClaimTemplate that it names, so a pod set asks for its devices once for
each pod. A ResourceClaim that pods name is one and the same for all of them. Must never know what is allocated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from turnstile.api.deviceclass import DeviceSelector
from turnstile.api.meta import Kind
from turnstile.api.pods import PodSpec
from turnstile.api.resourceclaim import (
    ALL,
    EXACT_COUNT,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from turnstile.api.validation.errors import OMITTED, FieldError, format_errors, invalid, not_found
from turnstile.engine.devices.charges import Counts, Faults
from turnstile.engine.devices.mappings import Mappings

FIELDS: Final[Mapping[str, type[Kind]]] = {
    "resourceClaimTemplateName": ResourceClaimTemplate,
    "resourceClaimName": ResourceClaim,
}
"""The fields by which a pod names where a claim comes from, and the kind of the object in each."""


class Claim(NamedTuple):
    """A claim of a pod, and the path of the claim in the Workload."""

    path: str
    field: str
    """The field with the name, one of `FIELDS`."""
    name: str
    pod_set: str

    @property
    def source(self) -> str:
        """The object that says what the claim asks for."""
        return f"{FIELDS[self.field].KIND} {self.name}"

    @property
    def shared(self) -> bool:
        """Whether all pods that name it have one claim together."""
        return FIELDS[self.field] is ResourceClaim


def claims_of(index: int, pod_set: str, spec: PodSpec) -> Iterator[Claim]:
    """The claims of a pod. Containers that use one of them change nothing."""
    for position, claim in enumerate(spec.resource_claims):
        for field in FIELDS:
            name = claim.get(field)
            if isinstance(name, str) and name:
                yield Claim(f"spec.podSets[{index}].template.spec.resourceClaims[{position}]", field, name, pod_set)


def sole_claim(spec: PodSpec) -> str:
    """The ResourceClaim from which pods have all their devices; empty if they have none, or from elsewhere too."""
    claims = spec.resource_claims
    name = claims[0].get("resourceClaimName") if len(claims) == 1 else None
    if not isinstance(name, str):
        return ""
    blocks = [each.resources for each in (*spec.containers, *spec.init_containers) if each.resources is not None]
    extended = any("/" in asked for block in blocks for asked in (*block.requests, *block.limits))
    return "" if extended else name


def missing(claim: Claim) -> FieldError:
    """The object that says what the claim asks for does not exist."""
    detail = (
        f"failed to get claim spec for {claim.source} in podset {claim.pod_set}: "
        f'{FIELDS[claim.field].PLURAL}.resource.k8s.io "{claim.name}" not found'
    )
    return FieldError(claim.path, "InternalError", OMITTED, detail)


class Request(NamedTuple):
    """A request of a claim: it is fulfilled by one of the alternatives, which are one if there is no choice. Paths are
    inside the claim."""

    path: str
    alternatives: Sequence[tuple[str, ExactDeviceRequest]]
    """Each with its path."""


def requests_of(spec: ResourceClaimSpec) -> Iterator[Request]:
    """All requests of a claim. Raises Faults."""
    for index, request in enumerate(spec.devices.requests):
        path = f"devices.requests[{index}]"
        if request.first_available:
            named = enumerate(request.first_available)
            yield Request(path, [(f"{path}.firstAvailable[{place}]", each) for place, each in named])
        elif request.exactly is not None:
            yield Request(path, [(f"{path}.exactly", request.exactly)])
        else:
            raise Faults(invalid(path, None, "Exactly must be set if FirstAvailable is nil"))


Compiler = Callable[[Sequence[DeviceSelector], str], list[FieldError]]
"""The selectors at a path that are not evaluated, and why."""


def charged_requests(spec: ResourceClaimSpec, compile_faults: Compiler) -> Iterator[Request]:
    """The requests that are charged for. A request with admin access takes no device from others. Raises Faults."""
    for request in requests_of(spec):
        charged = []
        for path, each in request.alternatives:
            selectors = f"{path}.selectors"
            if found := compile_faults(each.selectors, selectors):
                raise Faults(invalid(selectors, None, format_errors(found)))
            if each.admin_access:
                continue
            mode = each.allocation_mode
            if mode not in {ALL, EXACT_COUNT}:
                raise Faults(invalid(f"{path}.allocationMode", mode, f"unsupported allocation mode: {mode}"))
            if each.device_class_name:
                charged.append((path, each))
        if charged:
            yield Request(request.path, charged)


def within(claim: Claim, faults: Faults) -> Faults:
    """Faults inside a claim as faults of the Workload."""
    return Faults(
        *(
            FieldError(f"{claim.path}.{each.path}", each.type, each.value, f"{claim.source}: {each.detail}")
            for each in faults.faults
        )
    )


def whole_devices(claim: Claim, request: ExactDeviceRequest, mappings: Mappings) -> Counts:
    """The devices of a request by quota resource; none if they are counted by parts of them. Raises Faults."""
    name = request.device_class_name
    resource = mappings.resource(name)
    if resource is None:
        detail = f"DeviceClass {name} is not mapped in DRA configuration for podset {claim.pod_set}"
        raise Faults(not_found(f"{claim.path}.{claim.field}", detail))
    return {} if mappings.in_parts(name) else {resource: max(0, request.count)}


def most(alternatives: Sequence[Counts]) -> Counts:
    """The most that any of the alternatives costs, of each resource."""
    found: Counts = {}
    for each in alternatives:
        for resource, amount in each.items():
            found[resource] = max(amount, found.get(resource, 0))
    return found
