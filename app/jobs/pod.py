"""v1 Pod on its own: held back by a scheduling gate, never brought back once it ran.

A gate can only be lifted, and a node selector only be added to while one is there, so a Pod is started by one patch and
stopped by deleting it; its owner, if it has one, makes another. Pods of a group are refused, not guessed at. Source:
Kueue's pkg/controller/jobs/pod, single pods.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import msgspec

from app.api import names
from app.api.conditions import timestamp
from app.api.core import Pod
from app.api.errors import PermanentError
from app.api.pods import PodSpec, PodTemplate
from app.api.workload import PodSet
from app.jobs.base import WORKLOAD_DELETED, Change, Integration, Outcome, Removal, Step, Stop
from app.jobs.podsets import Directives, JobPodSet, PodSetInfo, changes, merge

_OURS: Final = (names.ADMISSION_GATE, names.TOPOLOGY_GATE)
_decode: Final = msgspec.json.Decoder(PodSpec).decode


class PlainPod(Integration[Pod]):
    """Kueue's `pod`."""

    kind = Pod
    framework = "pod"
    top_level = True
    keeps_reassignment = False

    def skip(self, job: Pod) -> str:
        """Pods without our label are somebody else's."""
        managed = job.metadata.labels.get(names.MANAGED_LABEL) == "true"
        return "" if managed else f"label {names.MANAGED_LABEL} is not true"

    def refusal(self, job: Pod) -> str:
        """Pod groups are not served."""
        group = job.metadata.annotations.get(names.POD_GROUP_NAME) or job.metadata.labels.get(names.POD_GROUP_NAME)
        if not group:
            return ""
        return f"pod group '{group}' cannot be queued: remove {names.POD_GROUP_NAME} to queue each pod by itself"

    def suspended(self, job: Pod) -> bool:
        """Gated, or over."""
        return self.finished(job) is not None or names.ADMISSION_GATE in _gates(job)

    def active(self, job: Pod) -> bool:
        """Never: quota of a single pod is free as soon as its deletion is asked for."""
        return False

    def finished(self, job: Pod) -> Outcome | None:
        """By its phase."""
        if job.status.phase not in ("Succeeded", "Failed"):
            return None
        return Outcome(success=job.status.phase == "Succeeded", message=job.status.message)

    def pod_sets(self, job: Pod) -> list[JobPodSet]:
        """One pod; the template is its spec alone."""
        template = b'{"metadata":{},"spec":' + bytes(job.spec) + b"}"
        return [JobPodSet(name=names.DEFAULT_PODSET, count=1, template=template)]

    def start(self, job: Pod, infos: Sequence[PodSetInfo]) -> Change:
        """Lift the gate and say where to run, in one patch."""
        if len(infos) != 1:
            raise PermanentError(f"a Pod has one pod set, admission has {len(infos)}: let the Workload be made anew")
        current = Directives.of(PodTemplate(metadata=job.metadata, spec=_decode(job.spec)))
        merged = merge(current, infos[0])
        kept = [gate for gate in merged.scheduling_gates if gate not in _OURS or gate in infos[0].scheduling_gates]
        body = changes(current, replace(merged, scheduling_gates=tuple(kept)))
        body["metadata"] = {**body.get("metadata", {}), "resourceVersion": job.metadata.resource_version}
        return Change(body)

    def stop(self, job: Pod, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime) -> Stop:
        """Say why, then delete. A gated pod stays; one that is over stays unless its Workload was deleted."""
        over = self.finished(job) is not None
        if job.metadata.deletion_timestamp or (self.suspended(job) and not (over and reason == WORKLOAD_DELETED)):
            return Stop()
        condition = {
            "type": "TerminationTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": timestamp(now),
        }
        target: dict[str, Any] = {"metadata": {"uid": job.metadata.uid}, "status": {"conditions": [condition]}}
        steps: list[Step] = [Change(target, subresource="status", type="strategic"), Removal()]
        if _is_true(job, "TerminationTarget"):
            del steps[0]
        return Stop(steps, announce=True)

    def finalize(self, job: Pod) -> list[Change]:
        """Let the pod go."""
        meta = job.metadata
        if names.POD_FINALIZER not in meta.finalizers:
            return []
        rest = [finalizer for finalizer in meta.finalizers if finalizer != names.POD_FINALIZER]
        return [Change({"metadata": {"finalizers": rest, "resourceVersion": meta.resource_version}})]

    def pods_ready(self, job: Pod) -> bool:
        """By its condition Ready."""
        return _is_true(job, "Ready")

    def significant(self, job: Pod) -> tuple[object, ...]:
        """The spec, how it ended, and whether its stop was announced."""
        return job.spec, self.finished(job), _is_true(job, "TerminationTarget")


def _is_true(pod: Pod, condition: str) -> bool:
    return any(each.type == condition and each.status == "True" for each in pod.status.conditions)


def _gates(pod: Pod) -> list[str]:
    return [gate.name for gate in _decode(pod.spec).scheduling_gates]
