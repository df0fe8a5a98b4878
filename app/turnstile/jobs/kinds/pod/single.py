"""v1 Pod: held by a scheduling gate until admitted; never started again once it ran.

A Pod is started by lifting the gate and stopped by deletion; its owner, if any, creates another. The webhook handles
each Pod separately; the reconciler handles the Pods of a group as one job. Source: Kueue's pkg/controller/jobs/pod.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from turnstile.api import names, rollout
from turnstile.api.core import Pod
from turnstile.api.errors import PermanentError
from turnstile.api.gotext import parse_int
from turnstile.api.meta import to_plain
from turnstile.api.patch import JsonPatch
from turnstile.api.validation.errors import IMMUTABLE, FieldError, forbidden, invalid, required
from turnstile.api.validation.labels import subdomain_faults
from turnstile.api.workload import PodSet
from turnstile.jobs import pods
from turnstile.jobs.capabilities import Additions, Exceptions, GatedPods, Importable
from turnstile.jobs.integration import (
    WORKLOAD_DELETED,
    Asked,
    Change,
    Claim,
    Handling,
    Integration,
    Outcome,
    Right,
    Stop,
)
from turnstile.jobs.kinds.pod.group import PodGroups
from turnstile.jobs.labels import identifier
from turnstile.jobs.podsets import JobPodSet, PodSetInfo
from turnstile.jobs.remote import RemoteCopies
from turnstile.jobs.roles import role_hash
from turnstile.jobs.topologyrequest import topology_errors

MANAGED_PATH: Final = f"metadata.labels[{names.MANAGED_LABEL}]"
TOTAL_COUNT_PATH: Final = f"metadata.annotations[{names.POD_GROUP_TOTAL_COUNT}]"
RETRIABLE_PATH: Final = f"metadata.annotations[{names.RETRIABLE_IN_GROUP}]"
_TEMPLATE_HASH: Final = "pod-template-hash"
MANAGED_OWNER_WARNING: Final = (
    f"pod owner is managed by kueue, label '{names.MANAGED_LABEL}=true' might lead to unexpected behaviour"
)
_PLAIN_OR_QUEUED: Final = (
    # A Job's pods name no queue: the Job's Workload charges for them. As in Kueue, pods of other controllers queue
    # separately where the namespace has a default queue.
    "(has(object.metadata.labels) && 'kueue.x-k8s.io/queue-name' in object.metadata.labels) || "
    "(has(object.metadata.annotations) && 'kueue.x-k8s.io/pod-suspending-parent' in object.metadata.annotations) || "
    "!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o, "
    "has(o.controller) && o.controller && o.kind == 'Job' && o.apiVersion.startsWith('batch/'))"
)
_QUEUED: Final = (
    # Only these labels: pods of an admitted job carry other labels of this group and are updated often.
    "[object, oldObject].exists(o, o != null && has(o.metadata.labels) && o.metadata.labels.exists(k, k in "
    "['kueue.x-k8s.io/queue-name', 'kueue.x-k8s.io/managed', 'kueue.x-k8s.io/pod-group-name']))"
)


_SCHEDULED: Final = "PodScheduled"
_GATED: Final = {"type": _SCHEDULED, "status": "False", "reason": "SchedulingGated"}
_EMPTIED: Final[dict[str, Any]] = {
    "phase": "Pending",
    "conditions": [_GATED],
    **dict.fromkeys(("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")),
    **dict.fromkeys(("hostIP", "hostIPs", "podIP", "podIPs", "startTime", "message", "reason")),
}
"""A pod that waits at its gate, as a merge patch of its status."""
_OF_ITS_CLUSTER: Final = ("podIP", "podIPs", "hostIP", "hostIPs", "nominatedNodeName", "resourceClaimStatuses")
"""Members of a status that name something of the pod's own cluster: here a Service would send requests to an address of
another pod, the scheduler keep room on another node, and the pod have the claim of another."""


def _returned(pod: Pod, status: dict[str, Any]) -> dict[str, Any]:
    """The status of a pod's copy, without what its cluster alone has. Until the copy has a node, the condition that
    this pod waits at its gate stays: an autoscaler would add nodes here for a pod that cannot be scheduled for another
    reason."""
    status = {name: value for name, value in status.items() if name not in _OF_ITS_CLUSTER}
    here = next((each for each in pod.status.conditions if each.type == _SCHEDULED), None)
    conditions = status.get("conditions") or []
    scheduled = any(each.get("type") == _SCHEDULED and each.get("status") == "True" for each in conditions)
    if here is None or scheduled or not pods.is_gated(pod):
        return status
    others = [each for each in conditions if each.get("type") != _SCHEDULED]
    return {**status, "conditions": [*others, to_plain(here)]}


class PlainPod(Integration[Pod], Additions[Pod], Exceptions[Pod], GatedPods[Pod], Importable[Pod]):
    """Kueue's `pod`. With `parents_only`, only pods whose owner requires them to be held are managed.

    `parents_only` is for a configuration that enables a kind such as `deployment`, but not `pod`.
    """

    kind = Pod
    framework = "pod"
    summary = "held by a scheduling gate, deleted to stop it; Pods of a group together"
    rights = (Right("pods", ("delete",)), Right("pods/status", ("patch",)))
    asked = Asked(
        defaulting={"plain-or-queued-pod": _PLAIN_OR_QUEUED},
        defaulting_unless_all=True,
        validating={"queued-now-or-before": _QUEUED},
        namespace_first=True,
        selector=f"{names.MANAGED_LABEL}=true",
    )
    handling = Handling(top_level=True, keeps_reassignment=False)
    copies = RemoteCopies[Pod](returned=_returned, emptied=_EMPTIED)

    def __init__(self, *, parents_only: bool = False) -> None:
        self.parents_only = parents_only

    def held_by_parent(self, job: Pod) -> bool:
        """Whether the pod has the annotation that the Deployment webhook adds to the pod template."""
        return names.POD_SUSPENDING_PARENT in job.metadata.annotations

    def hold(self, job: Pod, patch: JsonPatch) -> None:
        """Add the gate and the role hash; unless `held_by_parent`, also the managed label and the finalizer."""
        meta = job.metadata
        if not self.held_by_parent(job):
            if self.parents_only:
                return
            if meta.labels.get(names.MANAGED_LABEL) != "true":
                patch.put(meta.labels, "metadata", "labels", key=names.MANAGED_LABEL, value="true")
            if names.POD_FINALIZER not in meta.finalizers:
                _append(patch, meta.finalizers, "metadata", "finalizers", value=names.POD_FINALIZER)
        gates = pods.gates(job)
        if names.ADMISSION_GATE not in gates:
            _append(patch, gates, "spec", "schedulingGates", value={"name": names.ADMISSION_GATE})
        if names.ROLE_HASH not in meta.annotations:
            patch.put(meta.annotations, "metadata", "annotations", key=names.ROLE_HASH, value=role_hash(job.spec))

    def place(self, job: Pod, patch: JsonPatch) -> None:
        """Add the topology gate beside the admission gate, which keeps the pod until its node is known, and copy the
        number of the pod from the label that its annotation names."""
        if pods.is_over(job) or (self.parents_only and not self.held_by_parent(job)):
            return
        labels, numbered_by = job.metadata.labels, job.metadata.annotations.get(names.POD_GROUP_POD_INDEX_LABEL, "")
        if numbered_by in labels:
            patch.put(labels, "metadata", "labels", key=names.POD_GROUP_POD_INDEX, value=labels[numbered_by])
        if names.TOPOLOGY_GATE not in pods.gates(job):
            patch.add("spec", "schedulingGates", "-", value={"name": names.TOPOLOGY_GATE})

    def defaults(self, job: Pod, patch: JsonPatch) -> None:
        """Remove the name of a Workload from a pod that no controller makes: an admission adds it. Who copies a pod
        copies its annotations."""
        meta = job.metadata
        if names.WORKLOAD in meta.annotations and meta.controller is None:
            patch.remove("metadata", "annotations", names.WORKLOAD)
            meta.annotations = {key: value for key, value in meta.annotations.items() if key != names.WORKLOAD}

    def marks_to_import(self, job: Pod) -> dict[str, Any]:
        """The managed label and the finalizer, as `hold` adds them; a gate cannot be added to a pod that exists."""
        found: dict[str, Any] = {}
        if not _managed(job):
            found["labels"] = {names.MANAGED_LABEL: "true"}
        if names.POD_FINALIZER not in job.metadata.finalizers:
            found["finalizers"] = [*job.metadata.finalizers, names.POD_FINALIZER]
        return found

    def create_errors(self, job: Pod) -> list[FieldError]:
        """Errors of the managed label, the group and the topology request."""
        meta = job.metadata
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
            errors += _total_count_errors(count)
        errors += topology_errors(meta.annotations, "metadata.annotations")
        prebuilt, prebuilt_path = identifier(meta, names.PREBUILT_WORKLOAD)
        if group and prebuilt and prebuilt != group:
            errors.append(invalid(prebuilt_path, prebuilt, "prebuilt workload and pod group should be equal"))
        return errors

    def update_errors(self, old: Pod, new: Pod) -> list[FieldError]:
        """A Pod stays managed and in its group, and an unretriable Pod stays unretriable."""
        # A Pod that becomes managed is checked like a new Pod: errors that it had before do not excuse it.
        becomes_managed = _managed(new) and not _managed(old)
        errors = self.create_errors(new) if becomes_managed else super().update_errors(old, new)
        if _managed(old) and not _managed(new):
            errors.append(invalid(MANAGED_PATH, new.metadata.labels.get(names.MANAGED_LABEL, ""), IMMUTABLE))
        old_group, _ = identifier(old.metadata, names.POD_GROUP_NAME)
        group, path = identifier(new.metadata, names.POD_GROUP_NAME)
        if old_group and group != old_group:
            errors.append(invalid(path, group, IMMUTABLE))
        was_final = old.metadata.annotations.get(names.RETRIABLE_IN_GROUP) == "false"
        if group and was_final and new.metadata.annotations.get(names.RETRIABLE_IN_GROUP) != "false":
            errors.append(forbidden(RETRIABLE_PATH, "unretriable pod group can't be converted to retriable"))
        return errors

    def warnings(self, job: Pod, *, owned: bool) -> tuple[str, ...]:
        """Warns of a pod with the managed label whose owner is managed too."""
        return (MANAGED_OWNER_WARNING,) if owned and _managed(job) else ()

    def skip(self, job: Pod) -> str:
        """Skips pods that the webhook did not gate: pods with neither the managed label nor the finalizer (which a pod
        keeps that lost its label), and not `held_by_parent`; with `parents_only` all that are not `held_by_parent`; and
        gated pods that wait for the reconciler of their parent to make them members of a group.

        In Kueue the label alone counts, which only the parent's template adds to a pod that is `held_by_parent`: if
        there is no such parent, nothing notices that the gate was removed.
        """
        gated = _managed(job) or names.POD_FINALIZER in job.metadata.finalizers or self.held_by_parent(job)
        if not gated:
            return f"label {names.MANAGED_LABEL} is not true"
        if self.parents_only and not self.held_by_parent(job):
            return "the framework pod is not enabled"
        if pods.waits_for_group(job):
            return "it is not yet a member of its parent's group"
        return ""

    def needs_queue(self, job: Pod) -> str:
        """A pod that was gated by the webhook may not run before it is admitted."""
        return pods.needs_queue(job)

    @property
    def groups(self) -> PodGroups:
        """The integration that handles the pods of a group as one job."""
        return _GROUPS

    def claims(self, job: Pod) -> Sequence[Claim]:
        """The pod itself, by its label."""
        return [Claim(job.metadata.labels.get(names.PODSET_LABEL, ""), 1, pods.view(job))]

    def suspended(self, job: Pod) -> bool:
        """Whether the pod is gated or finished."""
        return pods.is_over(job) or pods.is_gated(job)

    def annotations(self, job: Pod) -> Mapping[str, str]:
        """The place of a Deployment's pod in a rollout, by the name of its ReplicaSet."""
        meta, owner = job.metadata, job.metadata.controller
        digest = meta.labels.get(_TEMPLATE_HASH, "")
        if owner is None or owner.kind != "ReplicaSet" or not digest or not owner.name.endswith(f"-{digest}"):
            return {}
        name = owner.name.removesuffix(f"-{digest}")
        found = rollout.of_template(f"deployment/{name}", meta.annotations.get(rollout.TEMPLATE, ""))
        return {rollout.WORKLOAD: found.text}

    def active(self, job: Pod) -> bool:
        """Whether a copy of the pod runs on another cluster. The quota of a pod that runs here is released as soon as
        its deletion is requested."""
        return pods.runs_elsewhere(job)

    def finished(self, job: Pod) -> Outcome | None:
        """The outcome by the pod's phase."""
        if not pods.is_over(job):
            return None
        return Outcome(success=job.status.phase == "Succeeded", message=job.status.message)

    def pod_sets(self, job: Pod) -> list[JobPodSet]:
        """One pod set of one pod."""
        return [pods.pod_set(job, names.DEFAULT_PODSET, 1)]

    def start(self, job: Pod, infos: Sequence[PodSetInfo]) -> Change:
        """Lift the gate and add what the admission assigned, in one patch."""
        if len(infos) != 1:
            raise PermanentError(f"a Pod has one pod set, admission has {len(infos)}: let the Workload be made anew")
        return pods.started(job, infos[0])

    def stop(self, job: Pod, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime) -> Stop:
        """Write the reason, then delete. Gated pods stay; finished pods stay unless their Workload was deleted."""
        over = pods.is_over(job)
        if job.metadata.deletion_timestamp or (self.suspended(job) and not (over and reason == WORKLOAD_DELETED)):
            return Stop()
        return Stop(pods.stopped(job, reason=reason, message=message, now=now), announce=True)

    def finalize(self, job: Pod) -> Sequence[Change]:
        """Remove the finalizer."""
        return pods.released(job)

    def pods_ready(self, job: Pod) -> bool:
        """Whether the pod's condition Ready is True."""
        return pods.is_true(job, "Ready")

    def significant(self, job: Pod) -> tuple[object, ...]:
        """The spec, the outcome, whether a copy of the pod runs, and whether it has the condition TerminationTarget."""
        return job.spec, self.finished(job), pods.runs_elsewhere(job), pods.is_true(job, "TerminationTarget")


def _managed(pod: Pod) -> bool:
    return pod.metadata.labels.get(names.MANAGED_LABEL) == "true"


_GROUPS: Final = PodGroups()


def _append(patch: JsonPatch, current: Sequence[object], *path: str, value: object) -> None:
    """Append to a list that may be absent."""
    if current:
        patch.add(*path, "-", value=value)
    else:
        patch.add(*path, value=[value])


def _total_count_errors(count: str) -> list[FieldError]:
    number = parse_int(count)
    if isinstance(number, str):
        return [invalid(TOTAL_COUNT_PATH, count, number)]
    if number < 1:
        detail = (
            f"incorrect annotation value '{names.POD_GROUP_TOTAL_COUNT}={count}': "
            "group total count should be greater than zero"
        )
        return [invalid(TOTAL_COUNT_PATH, count, detail)]
    return []
