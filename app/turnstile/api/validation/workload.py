"""Rules of Workload that the schema cannot say: what is consistent, and what may change while quota is held."""

from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

import msgspec

from turnstile.api import gates as known
from turnstile.api import names, quantity
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Object, tolerating_nulls
from turnstile.api.numbers import parse_int32
from turnstile.api.pods import PodSpec, ResourceRequirements
from turnstile.api.podshape import template_digest
from turnstile.api.topology import TopologyRequest
from turnstile.api.validation.errors import (
    IMMUTABLE,
    FieldError,
    brought,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
)
from turnstile.api.validation.labels import (
    annotations_errors,
    conditions_errors,
    domain_path_errors,
    label_key_errors,
    labels_errors,
)
from turnstile.api.validation.quota import amount_errors
from turnstile.api.workload import PodSet, Workload

Gates = Collection[str]
"""Names of the feature gates that are on."""

_MOST_IN_GROUP: Final = 2
_GATED_BY: Final = f"metadata.annotations[{names.ADMISSION_GATED_BY}]"
_MAX_GATE: Final = 63
_RESERVED_RESOURCE: Final = "pods"


def default_workload(data: bytes | msgspec.Raw, *, gates: Gates = known.ON_BY_DEFAULT) -> list[int]:
    """Indexes of the pod sets of a new Workload whose minCount is to be taken out: all, if partial admission is off.

    Reads no more of its JSON than that, because it comes before the API server checks the rest against the schema; of
    what is no Workload the list is empty.
    """
    if known.PARTIAL_ADMISSION in gates:
        return []
    try:
        pod_sets = _decode_counts(data).spec.pod_sets
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    return [index for index, pod_set in enumerate(pod_sets) if pod_set.min_count is not None]


class _Count(Object):
    min_count: Any = None


class _Counts(Object):
    pod_sets: list[_Count] = []


class _CountedWorkload(Object):
    spec: _Counts = msgspec.field(default_factory=_Counts)


_decode_counts = msgspec.json.Decoder(_CountedWorkload).decode


def template_digests(data: bytes) -> list[bytes]:
    """A digest of each pod set's whole template, from the JSON of a Workload: what its struct leaves out counts too.

    Raises msgspec.ValidationError if the JSON is no Workload.
    """
    return [template_digest(pod_set.template) for pod_set in _decode_templates(data).spec.pod_sets]


class _RawPodSet(Object):
    template: msgspec.Raw = msgspec.Raw(b"{}")


class _RawSpec(Object):
    pod_sets: list[_RawPodSet] = []


class _RawWorkload(Object):
    spec: _RawSpec = msgspec.field(default_factory=_RawSpec)


_decode_templates = tolerating_nulls(msgspec.json.Decoder(_RawWorkload).decode)


def validate_workload(
    new: Workload,
    old: Workload | None = None,
    *,
    gates: Gates = known.ON_BY_DEFAULT,
    templates: tuple[Sequence[bytes], Sequence[bytes]] | None = None,
) -> list[FieldError]:
    """All faults of a Workload on create, or those that an update of `old` (of its status as well) brings.

    `templates` are the `template_digests` of the new and the old object; without them a change that the structs do not
    show (an image, a volume) passes for none.
    """
    errors = _errors(new, gates)
    if old is None:
        return errors + _reclaimable_errors(new, {})
    stale = _stale_reclaimable(new, old, gates)
    return [
        *brought(errors, lambda: _errors(old, gates)),
        *_reclaimable_errors(new, stale),
        *_update_errors(new, old, gates, templates),
    ]


def _errors(new: Workload, gates: Gates) -> list[FieldError]:
    """Faults of a Workload, whatever it was before."""
    errors = _metadata_errors(new, gates)
    for index, pod_set in enumerate(new.spec.pod_sets):
        errors.extend(_pod_set_errors(f"spec.podSets[{index}]", pod_set, gates))
    errors.extend(_group_errors(new))
    errors.extend(_partial_admission_errors(new))
    errors.extend(_admission_errors(new))
    errors.extend(conditions_errors("status.conditions", new.status.conditions))
    errors.extend(_pod_set_updates_errors(new))
    return errors


def _metadata_errors(new: Workload, gates: Gates) -> list[FieldError]:
    annotations = new.metadata.annotations
    errors = []
    if known.ADMISSION_GATED_BY in gates:
        errors.extend(admission_gated_by_errors(annotations.get(names.ADMISSION_GATED_BY, "")))
    if known.PRIORITY_BOOST in gates and (boost := annotations.get(names.PRIORITY_BOOST)) is not None:
        path, detail = f"metadata.annotations[{names.PRIORITY_BOOST}]", "must be a valid signed integer"
        if not boost:
            errors.append(invalid(path, boost, f'{detail}; use "0" explicitly, empty string is not allowed'))
        elif not _is_int32(boost):
            errors.append(invalid(path, boost, detail))
    return errors


def _is_int32(text: str) -> bool:
    return parse_int32(text) is not None


def admission_gates(annotation: str) -> list[str]:
    """The gates that an `admission-gated-by` annotation lists; spaces around the commas do not count."""
    return [gate.strip() for gate in annotation.split(",")] if annotation else []


def admission_gated_by_errors(annotation: str) -> list[FieldError]:
    """All faults of an `admission-gated-by` annotation, of a Workload or a job; the empty text is none."""
    errors = []
    seen = set()
    for gate in admission_gates(annotation):
        if not gate:
            errors.append(invalid(_GATED_BY, annotation, "cannot contain empty gate names"))
            continue
        if gate in seen:
            errors.append(invalid(_GATED_BY, annotation, f"duplicate gate name: {gate}"))
            continue
        seen.add(gate)
        errors.extend(domain_path_errors(_GATED_BY, gate))
        if len(gate.encode(errors="replace")) > _MAX_GATE:
            errors.append(too_long(_GATED_BY, _MAX_GATE))
    return errors


def admission_gated_by_update_errors(new: str, old: str) -> list[FieldError]:
    """An `admission-gated-by` annotation may lose gates after creation, and gain none."""
    added = set(admission_gates(new)) - set(admission_gates(old))
    if not added:
        return []
    detail = "can only remove gates, not add new ones" if old else "cannot add admission gate after creation"
    return [forbidden(_GATED_BY, detail)]


def _pod_set_errors(path: str, pod_set: PodSet, gates: Gates) -> list[FieldError]:
    errors = []
    template, meta = f"{path}.template", pod_set.template.metadata
    if known.POD_SET_METADATA in gates and meta is not None:
        errors.extend(labels_errors(f"{template}.metadata.labels", meta.labels))
        errors.extend(annotations_errors(f"{template}.metadata.annotations", meta.annotations))
    errors.extend(_resources_errors(f"{template}.spec", pod_set.template.spec, gates))
    if known.SLICE_SIZE in gates and pod_set.topology_request is not None:
        errors.extend(_slice_errors(f"{path}.topologyRequest", pod_set.topology_request))
    return errors


def _resources_errors(path: str, spec: PodSpec, gates: Gates) -> list[FieldError]:
    places: list[tuple[str, ResourceRequirements | None]] = []
    places.extend(
        (f"{path}.initContainers[{i}]", container.resources) for i, container in enumerate(spec.init_containers)
    )
    places.extend((f"{path}.containers[{i}]", container.resources) for i, container in enumerate(spec.containers))
    places.append((path, spec.resources))
    errors = []
    for place, resources in places:
        if resources is None:
            continue
        for name, amounts in (("requests", resources.requests), ("limits", resources.limits)):
            for resource in sorted(amounts):
                here = f"{place}.resources.{name}[{resource}]"
                if resource == _RESERVED_RESOURCE:
                    errors.append(invalid(here, resource, "the key is reserved for internal kueue use"))
                if known.NON_NEGATIVE_RESOURCES in gates:
                    errors.extend(amount_errors(here, amounts[resource]))
    return errors


def _group_errors(workload: Workload) -> list[FieldError]:
    """A pod set group is a leader and its workers: a third pod set of its name would get no place."""
    errors, members = [], dict[str, int]()
    for index, pod_set in enumerate(workload.spec.pod_sets):
        request = pod_set.topology_request
        name = request.pod_set_group_name if request is not None else None
        if name:
            members[name] = members.get(name, 0) + 1
            if members[name] > _MOST_IN_GROUP:
                path = f"spec.podSets[{index}].topologyRequest.podSetGroupName"
                errors.append(invalid(path, name, f"can only define groups of exactly {_MOST_IN_GROUP} pod sets"))
    return errors


def _slice_errors(path: str, request: TopologyRequest) -> list[FieldError]:
    errors = []
    here, size = f"{path}.podSetSliceSize", request.pod_set_slice_size
    if request.pod_set_slice_required_topology is not None and size is None:
        errors.append(required(here, "must be set when podSetSliceRequiredTopology is specified"))
    if size is not None and size <= 0:
        errors.append(invalid(here, size, "must be greater than 0"))
    if size is not None and request.pod_set_slice_required_topology is None:
        errors.append(forbidden(here, "may not be set when podSetSliceRequiredTopology is not specified"))
    for index, layer in enumerate(request.podset_slice_required_topology_constraints):
        if layer.size <= 0:
            here = f"{path}.podsetSliceRequiredTopologyConstraints[{index}].size"
            errors.append(invalid(here, layer.size, "must be greater than 0"))
    return errors


def _partial_admission_errors(new: Workload) -> list[FieldError]:
    partial = sum(pod_set.min_count is not None for pod_set in new.spec.pod_sets)
    errors = []
    if partial > 1:
        errors.append(invalid("spec.podSets", partial, "at most one podSet can use minCount"))
    if partial and _is_elastic(new):
        errors.append(invalid("spec.podSets", partial, "partial admission and elastic job cannot be used together"))
    return errors


def _is_elastic(workload: Workload) -> bool:
    return workload.metadata.annotations.get(names.ELASTIC_JOB) == "true"


def _admission_errors(new: Workload) -> list[FieldError]:
    if not new.quota_reserved:
        return []
    admission = new.status.admission
    if admission is None:
        return [required("status.admission", "must be set while the QuotaReserved condition is true")]
    errors = []
    pod_sets = {pod_set.name for pod_set in new.spec.pod_sets}
    for index, assignment in enumerate(admission.pod_set_assignments):
        path = f"status.admission.podSetAssignments[{index}]"
        if assignment.name not in pod_sets:
            errors.append(not_found(f"{path}.name", assignment.name))
        count = assignment.count or 0
        for resource in sorted(assignment.resource_usage) if count > 0 else ():
            here, usage = f"{path}.resourceUsage[{resource}]", assignment.resource_usage[resource]
            try:
                if quantity.to_int(resource, usage) % count:
                    errors.append(invalid(here, usage, f"is not a multiple of {count}"))
            except InvalidValue as error:
                errors.append(invalid(here, usage, error.cure))
    return errors


def _stale_reclaimable(new: Workload, old: Workload, gates: Gates) -> dict[str, int]:
    """Counts of reclaimable pods that were there before and are not asked again. A Workload with quota has only those
    that were too many already, unless it is elastic: no other pod sets become smaller."""
    counts = {pod_set.name: pod_set.count for pod_set in old.spec.pod_sets}
    free = not old.quota_reserved or (known.ELASTIC_JOBS in gates and _is_elastic(new))
    return {
        pods.name: pods.count for pods in old.status.reclaimable_pods if free or pods.count > counts.get(pods.name, 0)
    }


def _reclaimable_errors(new: Workload, stale: Mapping[str, int]) -> list[FieldError]:
    """No more pods may be reclaimable than there are. Counts that were there before (`stale`) are not asked again: the
    pod sets may have become smaller, and the status follows in a write of its own."""
    counts = {pod_set.name: pod_set.count for pod_set in new.spec.pod_sets}
    errors = []
    for pods in new.status.reclaimable_pods:
        path = f"status.reclaimablePods[{pods.name}]"
        if stale.get(pods.name) == pods.count:
            continue
        if pods.name not in counts:
            errors.append(not_supported(f"{path}.name", pods.name, counts))
        elif pods.count > counts[pods.name]:
            errors.append(invalid(f"{path}.count", pods.count, f"should be less or equal to {counts[pods.name]}"))
    return errors


def _pod_set_updates_errors(new: Workload) -> list[FieldError]:
    pod_sets = [pod_set.name for pod_set in new.spec.pod_sets]
    errors = []
    for i, check in enumerate(new.status.admission_checks):
        for j, update in enumerate(check.pod_set_updates):
            path = f"status.admissionChecks[{i}].podSetUpdates[{j}]"
            if update.name not in pod_sets:
                errors.append(not_supported(f"{path}.name", update.name, pod_sets))
            errors.extend(annotations_errors(f"{path}.annotations", update.annotations))
            errors.extend(labels_errors(f"{path}.labels", update.labels))
            errors.extend(labels_errors(f"{path}.nodeSelector", update.node_selector))
            for k, toleration in enumerate(update.tolerations):
                if toleration.key:
                    errors.extend(label_key_errors(f"{path}.tolerations[{k}].key", toleration.key))
    return errors


def _update_errors(
    new: Workload, old: Workload, gates: Gates, templates: tuple[Sequence[bytes], Sequence[bytes]] | None
) -> list[FieldError]:
    errors = []
    if old.quota_reserved:
        errors.extend(_pod_sets_kept_errors(new, old, gates, templates))
    if old.quota_reserved and new.quota_reserved:
        errors.extend(_reclaimable_kept_errors(new, old, gates))
    held = old.status.admission if old.quota_reserved else None  # without quota it is stale and may be replaced
    if held is not None and new.status.admission is not None and _admission(new) != _admission(old):
        errors.append(invalid("status.admission", new.status.admission, IMMUTABLE))
    errors.extend(_ready_checks_errors(new, old))
    errors.extend(_cluster_name_errors(new, old, gates))
    if known.ADMISSION_GATED_BY in gates:
        gated = (workload.metadata.annotations.get(names.ADMISSION_GATED_BY, "") for workload in (new, old))
        errors.extend(admission_gated_by_update_errors(*gated))
    return errors


def _pod_sets_kept_errors(
    new: Workload, old: Workload, gates: Gates, templates: tuple[Sequence[bytes], Sequence[bytes]] | None
) -> list[FieldError]:
    pod_sets, before = new.spec.pod_sets, old.spec.pod_sets
    if len(pod_sets) != len(before):
        return [invalid("spec.podSets", pod_sets, IMMUTABLE)]
    digests = zip_longest(*templates) if templates is not None else ((b"", b"") for _ in pod_sets)
    errors = []
    for index, (now, was, (digest, old_digest)) in enumerate(zip(pod_sets, before, digests, strict=False)):
        shrunk = known.ELASTIC_JOBS in gates and now.count < was.count
        # With digests the templates are compared whole, and by what they mean; without, by what the structs show.
        template = was.template if templates is not None else now.template
        view = msgspec.structs.replace(now, template=template, count=was.count if shrunk else now.count)
        if view != was or digest != old_digest:
            errors.append(invalid(f"spec.podSets.{index}", now, IMMUTABLE))
    return errors


def _reclaimable_kept_errors(new: Workload, old: Workload, gates: Gates) -> list[FieldError]:
    counts = {pods.name: pods.count for pods in new.status.reclaimable_pods}
    errors = []
    for pods in old.status.reclaimable_pods:
        path = f"status.reclaimablePods[{pods.name}]"
        if _scaled_down(new, pods.name, gates):
            continue
        if pods.name not in counts:
            errors.append(required(path, "cannot be removed"))
        elif counts[pods.name] < pods.count:
            errors.append(invalid(f"{path}.count", counts[pods.name], f"cannot be less than {pods.count}"))
    return errors


def _scaled_down(workload: Workload, name: str, gates: Gates) -> bool:
    """Whether the pod set of an elastic workload now has fewer pods than were admitted."""
    admission = workload.status.admission
    if known.ELASTIC_JOBS not in gates or not _is_elastic(workload) or admission is None:
        return False
    count = next((pod_set.count for pod_set in workload.spec.pod_sets if pod_set.name == name), 0)
    assignments = admission.pod_set_assignments
    admitted = next((assignment.count for assignment in assignments if assignment.name == name), None)
    return admitted is not None and count < admitted


def _admission(workload: Workload) -> object:
    """The admission without what topology-aware scheduling may still change, quantities by value."""
    admission = workload.status.admission
    if admission is None:
        return None
    return admission.cluster_queue, [
        msgspec.structs.replace(
            assignment,
            topology_assignment=None,
            delayed_topology_request=None,
            resource_usage={name: _value(amount) for name, amount in assignment.resource_usage.items()},
        )
        for assignment in admission.pod_set_assignments
    ]


def _value(amount: str | float) -> str:
    try:
        return str(quantity.parse(amount))
    except InvalidValue:
        return str(amount)


def _ready_checks_errors(new: Workload, old: Workload) -> list[FieldError]:
    ready = {check.name: check for check in old.status.admission_checks if check.state == "Ready"}
    errors = []
    for index, check in enumerate(new.status.admission_checks):
        before = ready.get(check.name)
        if (
            check.state == "Ready"
            and before is not None
            and list(check.pod_set_updates) != list(before.pod_set_updates)
        ):
            path = f"status.admissionChecks[{index}].podSetUpdates"
            errors.append(invalid(path, check.pod_set_updates, IMMUTABLE))
    return errors


def _cluster_name_errors(new: Workload, old: Workload, gates: Gates) -> list[FieldError]:
    name = new.status.cluster_name
    if name is None or old.status.cluster_name is not None or name in old.status.nominated_cluster_names:
        return []
    if known.ELASTIC_JOBS in gates and new.metadata.annotations.get(names.SLICE_REPLACEMENT_FOR):
        return []  # the slice goes where the one is that it replaces
    detail = "when setting clusterName it must be one of the nominatedClusterNames"
    return [invalid("status.clusterName", name, detail)]
