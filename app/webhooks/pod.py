"""The webhooks of v1 Pod: a pod with a queue gets a scheduling gate, a finalizer, the managed label and its role hash.

A pod template that a managed Deployment or StatefulSet prepared (annotation `pod-suspending-parent`) is gated without
further questions. Everything else needs a namespace that the selector selects, even with a queue label: that is where
pods differ from the other kinds. The gate of topology-aware scheduling is not added: nothing here could lift it yet.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from app.api import names
from app.api.core import Pod
from app.api.meta import Object, ObjectMeta
from app.api.validation.errors import IMMUTABLE, FieldError, brought, forbidden, invalid, required
from app.api.validation.labels import subdomain_faults
from app.jobs import table
from app.kube.patch import JsonPatch
from app.webhooks.gotext import parse_int
from app.webhooks.handlers import guarded
from app.webhooks.job_rules import identifier
from app.webhooks.jobs import JobKind, add_default_labels, add_label
from app.webhooks.review import ALLOWED, CREATE, Answer, Handler, Request, changed, decoder
from app.webhooks.topology import topology_errors
from app.webhooks.world import World, has_managed_ancestor, namespace_is_managed

MANAGED_PATH: Final = f"metadata.labels[{names.MANAGED_LABEL}]"
TOTAL_COUNT_PATH: Final = f"metadata.annotations[{names.POD_GROUP_TOTAL_COUNT}]"
RETRIABLE_PATH: Final = f"metadata.annotations[{names.RETRIABLE_IN_GROUP}]"
MANAGED_OWNER_WARNING: Final = (
    f"pod owner is managed by kueue, label '{names.MANAGED_LABEL}=true' might lead to unexpected behaviour"
)
_TERMINATED: Final = frozenset({"Succeeded", "Failed"})


class _Gate(Object):
    name: str


class _Spec(Object):
    scheduling_gates: list[_Gate] = []


class _Status(Object):
    phase: str = ""


class PodView(Object):
    """The part of a Pod that is read to check it."""

    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Resources(msgspec.Struct):
    requests: Any = None


class _Container(msgspec.Struct):
    ports: Any = None
    resources: _Resources | None = None


class _Shape(msgspec.Struct):
    """The part of a pod's spec that makes its role, as the API server sends it: names and order of the wire."""

    affinity: Any = None
    containers: list[_Container] | None = None
    initContainers: list[_Container] | None = None  # noqa: N815
    nodeSelector: Any = None  # noqa: N815
    overhead: Any = None
    priority: Any = None
    resourceClaims: Any = None  # noqa: N815
    runtimeClassName: Any = None  # noqa: N815
    tolerations: Any = None
    topologySpreadConstraints: Any = None  # noqa: N815
    resources: _Resources | None = None
    schedulingGates: list[_Gate] = []  # noqa: N815


class _NewPod(msgspec.Struct):
    """The part of a Pod that is read to gate it."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")


_decode_shape = msgspec.json.Decoder(_Shape).decode
_encode = msgspec.json.Encoder().encode
_HTML: Final = ((b"&", rb"\u0026"), (b"<", rb"\u003c"), (b">", rb"\u003e"))


def role_hash(spec: bytes | msgspec.Raw) -> str:
    """The role of a pod in its group: 8 hexadecimal digits over the shape of its spec (JSON).

    The shape is what quota and placement depend on, without images, commands and volumes. It is written as Kueue
    writes it, so that both agree on the role of one pod: keys sorted, absent parts null, Go's escapes of `<`, `>`, `&`.
    Raises `msgspec.MsgspecError` if the spec is not a pod's.
    """
    return _hash(_decode_shape(spec))


def _hash(spec: _Shape) -> str:
    shape: dict[str, Any] = {
        "affinity": spec.affinity,
        "containers": _containers(spec.containers),
        "initContainers": _containers(spec.initContainers),
        "nodeSelector": spec.nodeSelector or None,
        "overhead": spec.overhead or None,
        "priority": spec.priority,
        "resourceClaims": spec.resourceClaims or None,
    }
    if spec.resources and spec.resources.requests:
        shape["resources"] = {"requests": spec.resources.requests}
    shape["runtimeClassName"] = spec.runtimeClassName
    shape["tolerations"] = spec.tolerations or None
    shape["topologySpreadConstraints"] = spec.topologySpreadConstraints or None
    text = _encode({"spec": shape})
    for plain, escaped in _HTML:
        text = text.replace(plain, escaped)
    return hashlib.sha256(text).hexdigest()[:8]


def _containers(containers: list[_Container] | None) -> list[dict[str, Any]] | None:
    if not containers:
        return None
    return [  # requests are an empty map where there are none: the known hashes are made with it
        {
            "ports": container.ports or None,
            "resources": {"requests": (container.resources.requests if container.resources else None) or {}},
        }
        for container in containers
    ]


def mutating_pods(world: World) -> Handler:
    """The handler that gates pods. Owners are looked up only where the answer would change something."""
    decode = decoder(_NewPod)

    def mutate(request: Request) -> Answer:
        pod = decode(request.object)
        meta = pod.metadata
        patch = JsonPatch()
        if names.POD_SUSPENDING_PARENT in meta.annotations:
            _gate(pod, patch)
            return changed(patch)
        meta.namespace = request.namespace or meta.namespace
        if not namespace_is_managed(meta.namespace, world):
            return ALLOWED
        suspend = add_default_labels(patch, meta, world) or world.options.manage_jobs_without_queue_name
        if (patch or suspend) and has_managed_ancestor(Pod, meta, world):
            return ALLOWED
        if suspend and meta.deletion_timestamp is None:
            add_label(patch, meta, names.MANAGED_LABEL, "true")
            if names.POD_FINALIZER not in meta.finalizers:
                _append(patch, meta.finalizers, "metadata", "finalizers", value=names.POD_FINALIZER)
            _gate(pod, patch)
        return changed(patch)

    return guarded(mutate, kind=Pod, operations={CREATE})


def _gate(pod: _NewPod, patch: JsonPatch) -> None:
    spec = _decode_shape(pod.spec)
    gates = spec.schedulingGates
    if all(gate.name != names.ADMISSION_GATE for gate in gates):
        _append(patch, gates, "spec", "schedulingGates", value={"name": names.ADMISSION_GATE})
    annotations = pod.metadata.annotations
    if names.ROLE_HASH not in annotations:
        patch.put(annotations, "metadata", "annotations", key=names.ROLE_HASH, value=_hash(spec))


def _append(patch: JsonPatch, current: Sequence[object], *path: str, value: object) -> None:
    """Append to a list that may be absent."""
    if current:
        patch.add(*path, "-", value=value)
    else:
        patch.add(*path, value=[value])


def _suspended(pod: PodView) -> bool:
    gated = any(gate.name == names.ADMISSION_GATE for gate in pod.spec.scheduling_gates)
    return gated or pod.status.phase in _TERMINATED


def _rules(pod: PodView) -> list[FieldError]:
    meta = pod.metadata
    errors: list[FieldError] = []
    if meta.labels.get(names.MANAGED_LABEL, "true") != "true":
        errors.append(forbidden(MANAGED_PATH, "managed label value can only be 'true'"))
    group, path = identifier(meta, names.POD_GROUP_NAME)
    count = meta.annotations.get(names.POD_GROUP_TOTAL_COUNT)
    both = (
        f"both the '{names.POD_GROUP_TOTAL_COUNT}' annotation and the '{names.POD_GROUP_NAME}' "
        f"{'annotation' if path.startswith('metadata.annotations') else 'label'} should be set"
    )
    if group:
        errors += [invalid(path, group, fault) for fault in subdomain_faults(group)]
        if count is None:
            errors.append(required(TOTAL_COUNT_PATH, both))
    elif count is not None:
        errors.append(required(path, both))
    if count is not None:
        number = parse_int(count)
        if isinstance(number, str):
            errors.append(invalid(TOTAL_COUNT_PATH, count, number))
        elif number < 1:
            detail = (
                f"incorrect annotation value '{names.POD_GROUP_TOTAL_COUNT}={count}': "
                "group total count should be greater than zero"
            )
            errors.append(invalid(TOTAL_COUNT_PATH, count, detail))
    errors += topology_errors(meta.annotations, "metadata.annotations")
    prebuilt, prebuilt_path = identifier(meta, names.PREBUILT_WORKLOAD)
    if group and prebuilt and prebuilt != group:
        errors.append(invalid(prebuilt_path, prebuilt, "prebuilt workload and pod group should be equal"))
    return errors


def _update_errors(old: PodView, new: PodView) -> list[FieldError]:
    # A Pod that was not managed is no precedent: one that becomes managed is asked like a new one.
    becomes_managed = _managed(new) and not _managed(old)
    errors = _rules(new) if becomes_managed else brought(_rules(new), lambda: _rules(old))
    old_group, _ = identifier(old.metadata, names.POD_GROUP_NAME)
    group, path = identifier(new.metadata, names.POD_GROUP_NAME)
    if old_group and group != old_group:
        errors.append(invalid(path, group, IMMUTABLE))
    was_final = old.metadata.annotations.get(names.RETRIABLE_IN_GROUP) == "false"
    if group and was_final and new.metadata.annotations.get(names.RETRIABLE_IN_GROUP) != "false":
        errors.append(forbidden(RETRIABLE_PATH, "unretriable pod group can't be converted to retriable"))
    return errors


def _managed(pod: PodView) -> bool:
    return pod.metadata.labels.get(names.MANAGED_LABEL) == "true"


def _warnings(pod: PodView) -> tuple[str, ...]:
    claims = _managed(pod)
    owner = pod.metadata.controller
    return (MANAGED_OWNER_WARNING,) if claims and owner is not None and table.by_owner(owner) is not None else ()


POD: Final = JobKind(
    kind=Pod,
    view=PodView,
    suspended=_suspended,
    suspend=lambda _, patch: patch,  # pods are gated by `mutating_pods`, which takes its steps in another order
    create_errors=_rules,
    update_errors=_update_errors,
    warnings=_warnings,
)
