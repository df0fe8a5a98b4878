"""Whole devices that the claims of a pod ask for, by ResourceClaimTemplate. Faults and their texts are Kueue's.

A pod's claim of a template is its own, so the pods of a pod set ask for as many times the devices of one. Must never
know what is allocated.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from turnstile.api.deviceclass import DeviceSelector
from turnstile.api.pods import PodSpec
from turnstile.api.resourceclaimtemplate import ALL, EXACT_COUNT, ExactDeviceRequest, ResourceClaimTemplate
from turnstile.api.validation.errors import OMITTED, FieldError, format_errors, invalid, not_found
from turnstile.engine.devices.charges import Counts, Faults, add
from turnstile.engine.devices.mappings import Mappings


class Claim(NamedTuple):
    """A claim of a pod, and the path of the claim in the Workload."""

    path: str
    template: str
    """Name of its ResourceClaimTemplate."""
    pod_set: str


def claims_of(index: int, pod_set: str, spec: PodSpec) -> Iterator[Claim]:
    """The claims of a pod that are made of templates. Containers that use one of them change nothing."""
    for position, claim in enumerate(spec.resource_claims):
        template = claim.get("resourceClaimTemplateName")
        if isinstance(template, str) and template:
            yield Claim(f"spec.podSets[{index}].template.spec.resourceClaims[{position}]", template, pod_set)


def names_a_claim(claims: Sequence[Mapping[str, Any]]) -> bool:
    """Whether any of a pod's claims is a ResourceClaim by its name."""
    return any(claim.get("resourceClaimName") for claim in claims)


def missing(claim: Claim) -> FieldError:
    """The template does not exist."""
    detail = (
        f"failed to get claim spec for ResourceClaimTemplate {claim.template} in podset {claim.pod_set}: "
        f'resourceclaimtemplates.resource.k8s.io "{claim.template}" not found'
    )
    return FieldError(claim.path, "InternalError", OMITTED, detail)


Compiler = Callable[[Sequence[DeviceSelector], str], list[FieldError]]
"""The selectors at a path that are not evaluated, and why."""


def exact_requests(
    template: ResourceClaimTemplate, compile_faults: Compiler
) -> Iterator[tuple[int, ExactDeviceRequest]]:
    """The requests of a template that are charged for, and the position of each. A request with admin access takes no
    device from others. Raises Faults, with paths inside the template."""
    for index, request in enumerate(template.spec.spec.devices.requests):
        path = f"devices.requests[{index}]"
        if request.first_available is not None:
            raise Faults(invalid(path, None, "FirstAvailable device selection is not supported"))
        exactly = request.exactly
        if exactly is None:
            raise Faults(invalid(path, None, "Exactly must be set if FirstAvailable is nil"))
        selectors = f"{path}.exactly.selectors"
        if found := compile_faults(exactly.selectors, selectors):
            raise Faults(invalid(selectors, None, format_errors(found)))
        if exactly.admin_access:
            continue
        mode = exactly.allocation_mode
        if mode == ALL:
            raise Faults(invalid(f"{path}.exactly.allocationMode", mode, "AllocationMode 'All' is not supported"))
        if mode != EXACT_COUNT:
            raise Faults(invalid(f"{path}.exactly.allocationMode", mode, f"unsupported allocation mode: {mode}"))
        if exactly.device_class_name:
            yield index, exactly


def devices_per_class(requests: Iterable[tuple[int, ExactDeviceRequest]]) -> Counts:
    """Devices that requests ask for, by DeviceClass."""
    found: Counts = {}
    for _, request in requests:
        add(found, request.device_class_name, max(0, request.count))
    return found


def within(claim: Claim, faults: Faults) -> Faults:
    """Faults inside a template as faults of the claim."""
    return Faults(
        *(
            FieldError(
                f"{claim.path}.{each.path}",
                each.type,
                each.value,
                f"ResourceClaimTemplate {claim.template}: {each.detail}",
            )
            for each in faults.faults
        )
    )


def whole_devices(claim: Claim, counts: Counts, mappings: Mappings) -> Counts:
    """The devices of a claim by quota resource, but for those that are counted by parts of them. Raises Faults."""
    found: Counts = {}
    for name, count in counts.items():
        resource = mappings.resource(name)
        if resource is None:
            detail = f"DeviceClass {name} is not mapped in DRA configuration for podset {claim.pod_set}"
            raise Faults(not_found(f"{claim.path}.resourceClaimTemplateName", detail))
        if not mappings.in_parts(name):
            add(found, resource, count)
    return found
