"""Operations on one pod, alone or in a group: gated by a scheduling gate, started by lifting it, stopped by deletion.

Kubernetes only allows a gate to be removed, and a node selector to be extended while a gate is present. So a pod is
started by one patch and never gated again. Source: Kueue's pkg/controller/jobs/pod.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import msgspec

from turnstile.api import names
from turnstile.api.conditions import timestamp
from turnstile.api.core import Pod, PodCondition
from turnstile.api.meta import Object
from turnstile.api.pods import PodSpec, PodTemplate
from turnstile.jobs.integration import Change, Removal, Step
from turnstile.jobs.labels import identifier
from turnstile.jobs.once import Once
from turnstile.jobs.podsets import Directives, JobPodSet, PodSetInfo, changes, merge
from turnstile.jobs.roles import Shape, role_hash, shape_of
from turnstile.jobs.topologyrequest import PodIndex

GROUPING_PARENTS: Final = frozenset(("statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"))
"""Frameworks whose reconciler makes each of their pods a member of a group; until then it waits."""
GRACE_SECONDS: Final = 30
"""Kubernetes' grace period of a pod that states none."""
LEFT_GATES: Final = frozenset((names.TOPOLOGY_GATE, names.ELASTIC_GATE))
"""Gates that Kueue leaves in templates, for its own controllers to lift."""
_INDEX: Final = PodIndex(names.POD_GROUP_POD_INDEX)
_OURS: Final = (names.ADMISSION_GATE, *LEFT_GATES)
_decode: Final[Callable[[bytes], PodSpec]] = msgspec.json.Decoder(PodSpec).decode


class _Gate(Object):
    name: str


class Binding(Object):
    """The fields of a pod's spec that say where it may run, and whether it may already."""

    node_name: str | None = None
    node_selector: dict[str, str] = {}
    scheduling_gates: list[_Gate] = []
    termination_grace_period_seconds: int | None = None


_decode_bound: Final = msgspec.json.Decoder(Binding).decode

view: Final = Once[PodSpec](_decode)
"""The part of a pod's spec that matters for quota and placement."""
shape: Final = Once[Shape](lambda spec: shape_of(_decode(spec)))
"""The fields on which quota and placement of a pod depend."""
role: Final = Once[str](role_hash)
"""The role of a pod in its group, by its spec."""


def binding(pod: Pod) -> Binding:
    """Where the pod may run."""
    return _decode_bound(pod.spec)


def gates(pod: Pod) -> list[str]:
    """Names of the scheduling gates."""
    return [gate.name for gate in _decode_bound(pod.spec).scheduling_gates]


def is_bound(pod: Pod) -> bool:
    """Whether the pod has a node."""
    return bool(node_name(pod))


def node_name(pod: Pod) -> str:
    """The name of the pod's node; empty if it has none."""
    return _decode_bound(pod.spec).node_name or ""


def node_selector(pod: Pod) -> dict[str, str]:
    """The labels that a node must have on which the pod may run."""
    return _decode_bound(pod.spec).node_selector


def grace_seconds(pod: Pod) -> int:
    """The grace period that the pod states: a tenant's word, of any length."""
    stated = _decode_bound(pod.spec).termination_grace_period_seconds
    return GRACE_SECONDS if stated is None else stated


def is_gated(pod: Pod) -> bool:
    """Whether the admission gate keeps the pod from being scheduled."""
    return names.ADMISSION_GATE in gates(pod)


def runs_elsewhere(pod: Pod) -> bool:
    """Whether the pod has the status of a copy that runs on another cluster: no pod runs behind the admission gate."""
    return pod.status.phase == "Running" and is_gated(pod)


def is_left_gated(pod: Pod) -> bool:
    """Whether nothing but a gate of Kueue's topologies or elastic jobs keeps the pod from being scheduled."""
    found = gates(pod)
    return not LEFT_GATES.isdisjoint(found) and names.ADMISSION_GATE not in found


def is_over(pod: Pod) -> bool:
    """Whether no container will run any more."""
    return pod.status.phase in ("Succeeded", "Failed")


def needs_queue(pod: Pod) -> str:
    """Why a pod that names no queue may not run: the webhook gated it; empty if it may."""
    gated = names.POD_FINALIZER in pod.metadata.finalizers or names.POD_SUSPENDING_PARENT in pod.metadata.annotations
    return f"the pod waits for admission, and has no label {names.QUEUE_LABEL}" if gated and not is_over(pod) else ""


def waits_for_group(pod: Pod) -> bool:
    """Whether a gated pod is not yet a member of the group that the reconciler of its parent makes of such pods."""
    parent = pod.metadata.annotations.get(names.POD_SUSPENDING_PARENT)
    return parent in GROUPING_PARENTS and not identifier(pod.metadata, names.POD_GROUP_NAME)[0] and is_gated(pod)


def is_true(pod: Pod, condition: str) -> bool:
    """Whether the pod has that condition with status True."""
    return any(each.type == condition and each.status == "True" for each in pod.status.conditions)


def unschedulable(pod: Pod) -> PodCondition | None:
    """The condition in which kube-scheduler says why it found no node for the pod; None if it does not say that, or the
    pod is being deleted."""
    if pod.metadata.deletion_timestamp:
        return None
    for each in pod.status.conditions:
        if each.type == "PodScheduled":
            return each if each.status == "False" and each.reason == "Unschedulable" else None
    return None


def pod_set(pod: Pod, name: str, count: int) -> JobPodSet:
    """The pod set of as many pods like this one: its template is the pod's spec without metadata."""
    template = b'{"metadata":{},"spec":' + bytes(pod.spec) + b"}"
    return JobPodSet(name=name, count=count, template=template, index=_INDEX, annotations=pod.metadata.annotations)


def started(pod: Pod, info: PodSetInfo) -> Change:
    """Lift the gate and add what the admission assigned, in one patch. Raises PermanentError if the pod conflicts. A
    pod that has a place in a topology keeps the topology gate, which no pod can get after its creation."""
    current = Directives.of(PodTemplate(metadata=pod.metadata, spec=view(pod)))
    merged = merge(current, info)
    kept = [gate for gate in current.scheduling_gates if gate not in _OURS or gate in info.scheduling_gates]
    return Change(changes(current, replace(merged, scheduling_gates=tuple(kept))), fresh=True, target=pod)


def stopped(pod: Pod, *, reason: str, message: str, now: datetime) -> list[Step]:
    """Write the reason into the condition TerminationTarget, then delete the pod."""
    condition = {
        "type": "TerminationTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": timestamp(now),
    }
    target: dict[str, Any] = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
    steps: list[Step] = [Change(target, subresource="status", strategic=True, target=pod), Removal(target=pod)]
    if is_true(pod, "TerminationTarget"):
        del steps[0]
    return steps


def released(pod: Pod) -> Sequence[Change]:
    """The patch that removes the pod finalizer; empty if the pod does not have it."""
    meta = pod.metadata
    if names.POD_FINALIZER not in meta.finalizers:
        return ()
    rest = [finalizer for finalizer in meta.finalizers if finalizer != names.POD_FINALIZER]
    return (Change({"metadata": {"finalizers": rest}}, fresh=True, target=pod),)
