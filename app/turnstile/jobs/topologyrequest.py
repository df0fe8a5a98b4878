"""The topology annotations of a pod template: the request that they make, and their errors, without any Topology.

Rules and texts are Kueue's (`jobframework/tas.go` and `tas_validation.go`), but that slices have to divide the pods:
Kueue leaves the pods of an incomplete slice gated for ever. The scheduler, which knows the Topology, checks whether the
layers go from coarse to fine.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from turnstile.api.errors import PermanentError
from turnstile.api.gotext import parse_bool
from turnstile.api.meta import Object
from turnstile.api.numbers import parse_int32
from turnstile.api.validation.errors import OMITTED, FieldError, duplicate, forbidden, invalid, required
from turnstile.api.validation.labels import label_key_errors

REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
SLICE_REQUIRED: Final = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
SLICE_CONSTRAINTS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
GROUP_NAME: Final = "kueue.x-k8s.io/podset-group-name"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""The label of a pod with its number, of which an Indexed Job has one for each pod that runs at a time."""
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
FROM_ZERO: Final = frozenset({COMPLETION_INDEX, REPLICA_INDEX})
"""Index labels whose controllers number the pods of each pod set by themselves, those of workers beside a leader too:
from 0, where LeaderWorkerSet numbers the workers after their leader."""

_PREFIX: Final = "kueue.x-k8s.io/podset-"
_MAX_LAYERS: Final = 3
_LAYERS: Final = f"topology constraints must contain between 1 and {_MAX_LAYERS} entries"


class _Layer(Object):
    topology: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True)
class PodIndex:
    """The label by which the controller of a job numbers the pods of a pod set, from 0. Where the pods belong to
    `groups` jobs that are numbered themselves, `group_label` has the number of a pod's job."""

    label: str
    group_label: str = ""
    groups: int = 0

    def request(self) -> dict[str, Any]:
        """The fields of a topology request."""
        fields: dict[str, Any] = {"podIndexLabel": self.label} if self.label else {}
        return fields | ({"subGroupIndexLabel": self.group_label, "subGroupCount": self.groups} if self.groups else {})


def topology_request(annotations: Mapping[str, str], index: PodIndex | None) -> dict[str, Any]:
    """The `topologyRequest` of a pod set whose pods have these annotations; empty if it needs none.

    It says how the pods are numbered also where they ask for nothing: the flavor may have a topology. Raises
    PermanentError for annotations that the webhook refuses because they cannot be read.
    """
    request: dict[str, Any] = {}
    if (level := annotations.get(REQUIRED)) is not None:
        request["required"] = level
    elif (level := annotations.get(PREFERRED)) is not None:
        request["preferred"] = level
    elif (value := annotations.get(UNCONSTRAINED)) is not None:
        request["unconstrained"] = _boolean(value)
    if group := annotations.get(GROUP_NAME) if REQUIRED in annotations or PREFERRED in annotations else None:
        request["podSetGroupName"] = group
    if (level := annotations.get(SLICE_REQUIRED)) is not None and (value := annotations.get(SLICE_SIZE)) is not None:
        request["podSetSliceRequiredTopology"] = level
        request["podSetSliceSize"] = _size(value)
    if (value := annotations.get(SLICE_CONSTRAINTS)) is not None:
        request["podsetSliceRequiredTopologyConstraints"] = _constraints(value)
    return request | (index.request() if index is not None else {})


def _boolean(value: str) -> bool:
    read = parse_bool(value)
    if isinstance(read, str):
        raise PermanentError(f"annotation {UNCONSTRAINED}: {read}")
    return read


def _size(value: str) -> int:
    size = parse_int32(value)
    if size is None or size < 1:
        raise PermanentError(f"annotation {SLICE_SIZE}: {value!r} is no number of pods")
    return size


def _constraints(value: str) -> list[dict[str, Any]]:
    try:
        layers = msgspec.json.decode(value, type=list[_Layer])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PermanentError(f"annotation {SLICE_CONSTRAINTS}: {error}") from error
    if not 1 <= len(layers) <= _MAX_LAYERS:
        raise PermanentError(f"annotation {SLICE_CONSTRAINTS}: {_LAYERS}")
    return [{"topology": each.topology, "size": each.size} for each in layers]


def topology_errors(annotations: Mapping[str, str], path: str, *, count: int | None = None) -> list[FieldError]:
    """Errors of the topology request in the annotations found at `path` (`spec.template.metadata.annotations`).

    `count` is the number of pods of the pod set, if it is known.
    """
    if not any(key.startswith(_PREFIX) for key in annotations):
        return []
    errors: list[FieldError] = []
    if sum(key in annotations for key in (REQUIRED, PREFERRED, UNCONSTRAINED)) > 1:
        detail = f'must not contain more than one topology annotation: ["{REQUIRED}", "{PREFERRED}", "{UNCONSTRAINED}"]'
        errors.append(invalid(path, OMITTED, detail))
    errors += _level(annotations, REQUIRED, path)
    errors += _level(annotations, PREFERRED, path)
    if (value := annotations.get(UNCONSTRAINED)) is not None and isinstance(parse_bool(value), str):
        errors.append(invalid(f"{path}[{UNCONSTRAINED}]", value, "must be a boolean value"))
    errors += _level(annotations, SLICE_REQUIRED, path)
    errors += _slice_size(annotations, path, count)
    errors += _group(annotations, path)
    errors += _layers(annotations, path, count)
    return errors


class Placed(NamedTuple):
    """The annotations of a pod template, their path, and the number of pods made from it."""

    annotations: Mapping[str, str]
    path: str
    pods: int


def group_errors(templates: Iterable[Placed]) -> list[FieldError]:
    """Errors of a job's pod set groups: each must have two pod sets, one of a single pod, with equal requests."""
    groups: dict[str, list[Placed]] = {}
    for each in templates:
        if name := each.annotations.get(GROUP_NAME):
            groups.setdefault(name, []).append(each)
    errors: list[FieldError] = []
    for name, members in sorted(groups.items()):
        if len(members) != 2:
            detail = f"can only define groups of exactly 2 pod sets, got: {len(members)} pod set(s)"
            errors += [invalid(f"{each.path}[{GROUP_NAME}]", name, detail) for each in members]
            continue
        first, second = members
        if 1 not in (first.pods, second.pods):
            detail = (
                "can only define groups where at least one pod set has only 1 replica, "
                f"got: {first.pods} replica(s) and {second.pods} replica(s) in the group"
            )
            errors += [invalid(f"{each.path}[{GROUP_NAME}]", name, detail) for each in members]
        if any(first.annotations.get(key) != second.annotations.get(key) for key in (REQUIRED, PREFERRED)):
            for one, other in ((first, second), (second, first)):
                detail = (
                    f"must specify '{REQUIRED}' or '{PREFERRED}' topology consistent with '{other.path}' "
                    f"in group '{name}'"
                )
                errors.append(invalid(one.path, OMITTED, detail))
    return errors


def _level(annotations: Mapping[str, str], key: str, path: str) -> list[FieldError]:
    value = annotations.get(key)
    return [] if value is None else label_key_errors(f"{path}[{key}]", value)


def _slice_size(annotations: Mapping[str, str], path: str, count: int | None) -> list[FieldError]:
    value = annotations.get(SLICE_SIZE)
    field = f"{path}[{SLICE_SIZE}]"
    if SLICE_REQUIRED not in annotations:
        return [] if value is None else [forbidden(field, f"may not be set when '{SLICE_REQUIRED}' is not specified")]
    if value is None:
        return [required(field, f"must be set when '{SLICE_REQUIRED}' is specified")]
    size = parse_int32(value)
    if size is None:
        return [invalid(field, value, "must be a numeric value")]
    if size < 1:
        return [invalid(field, value, "must be greater than or equal to 1")]
    if count is not None and size > count:
        return [invalid(field, value, f"must not be greater than pod set count {count}")]
    return _divided(field, size, count)


def _divided(field: str, size: int, count: int | None) -> list[FieldError]:
    """The error of slices that leave a remainder, whose pods would have no place."""
    if not count or count % size == 0:
        return []
    return [invalid(field, size, f"must evenly divide the pod set's {count} pods")]


def _group(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    value = annotations.get(GROUP_NAME)
    if value is None:
        return []
    field = f"{path}[{GROUP_NAME}]"
    errors = []
    if value.isascii() and value.isdigit() and int(value[:21]) < 1 << 64:
        errors.append(invalid(field, value, "must not be a number"))
    errors += [
        forbidden(field, f"may not be set when '{key}' is specified")
        for key in (SLICE_SIZE, SLICE_REQUIRED, SLICE_CONSTRAINTS)
        if key in annotations
    ]
    if REQUIRED not in annotations and PREFERRED not in annotations:
        errors.append(forbidden(field, f"may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified"))
    return errors


def _layers(annotations: Mapping[str, str], path: str, count: int | None) -> list[FieldError]:
    value = annotations.get(SLICE_CONSTRAINTS)
    if value is None:
        return []
    field = f"{path}[{SLICE_CONSTRAINTS}]"
    errors = [
        forbidden(field, f"may not be set when '{key}' is specified")
        for key in (SLICE_REQUIRED, SLICE_SIZE)
        if key in annotations
    ]
    try:
        layers = msgspec.json.decode(value, type=list[_Layer])
    except (msgspec.MsgspecError, RecursionError) as error:
        return [*errors, invalid(field, value, f"must be a valid JSON array: {error}")]
    if not 1 <= len(layers) <= _MAX_LAYERS:
        return [*errors, invalid(field, value, _LAYERS)]
    first_seen: dict[str, int] = {}
    for index, layer in enumerate(layers):
        errors += label_key_errors(f"{field}[{index}].topology", layer.topology)
        if layer.topology in first_seen:
            value = f"{layer.topology} (also at index {first_seen[layer.topology]})"
            errors.append(duplicate(f"{field}[{index}].topology", value))
        first_seen.setdefault(layer.topology, index)
        if layer.size < 1:
            errors.append(invalid(f"{field}[{index}].size", layer.size, "must be greater than or equal to 1"))
        elif index and layers[index - 1].size >= 1 and layers[index - 1].size % layer.size:
            detail = f"must evenly divide the parent layer size {layers[index - 1].size}"
            errors.append(invalid(f"{field}[{index}].size", layer.size, detail))
    if count is not None and layers[0].size > count:
        errors.append(invalid(field, layers[0].size, f"must not be greater than pod set count {count}"))
    elif layers[0].size >= 1:
        errors += _divided(f"{field}[0].size", layers[0].size, count)
    return errors
