"""Decides what is undone when Turnstile leaves a cluster: gates, finalizers and suspensions, object by object. Pure."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import Any, Final

from turnstile.api import names
from turnstile.api.admissioncheck import AdmissionCheck
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Pod
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.topology import Topology
from turnstile.api.workload import Workload
from turnstile.controllers.jobs.plan import job_patch
from turnstile.controllers.runtime.actions import Patch
from turnstile.controllers.runtime.writes import fresh_patch
from turnstile.jobs import pods
from turnstile.jobs.integration import Change, Integration
from turnstile.jobs.podsets import PodSetInfo

FINALIZED: Final[tuple[type[Kind], ...]] = (Workload, ClusterQueue, ResourceFlavor, AdmissionCheck, Topology)
"""Kinds with the finalizer `kueue.x-k8s.io/resource-in-use`."""
_GATES: Final = frozenset({names.ADMISSION_GATE, names.TOPOLOGY_GATE})


class Pending(StrEnum):
    """The fate of jobs that wait for quota."""

    START = "start"
    KEEP = "keep"


def without_finalizer(obj: Kind) -> Patch | None:
    """The patch that removes Turnstile's finalizers; None without them."""
    ours = (names.RESOURCE_IN_USE, names.POD_FINALIZER)
    rest = [each for each in obj.metadata.finalizers if each not in ours]
    if len(rest) == len(obj.metadata.finalizers):
        return None
    return fresh_patch(obj, {"metadata": {"finalizers": rest or None}})


def pod_released(pod: Pod, pending: Pending) -> Patch | None:
    """The patch that removes the finalizer of a pod, and its gates unless gated pods are kept; None without either.

    A pod that is being deleted keeps its gates: it never runs.
    """
    body: dict[str, Any] = {}
    rest = [each for each in pod.metadata.finalizers if each != names.POD_FINALIZER]
    if len(rest) < len(pod.metadata.finalizers):
        body["metadata"] = {"finalizers": rest or None}
    gates = pods.gates(pod)
    kept = [{"name": each} for each in gates if each not in _GATES]
    if len(kept) < len(gates) and pending is Pending.START and not pod.metadata.deletion_timestamp:
        body["spec"] = {"schedulingGates": kept or None}
    return fresh_patch(pod, body) if body else None


def is_gated(pod: Pod) -> bool:
    """Whether a gate of Turnstile keeps the pod from being scheduled."""
    return not _GATES.isdisjoint(pods.gates(pod)) and not pod.metadata.deletion_timestamp


def held(integration: Integration[Any], job: Kind, workloads: Collection[Workload], *, managed: bool) -> bool:
    """Whether a job is suspended because it waits for quota. `workloads` are its own, and `managed` says whether it
    would be queued without any.

    Not if it is done, is the part of another job, or waits for another reason: its Workload was deactivated, or is
    finished.
    """
    if job.metadata.deletion_timestamp or integration.finished(job) is not None or not integration.suspended(job):
        return False
    unfinished = [each for each in workloads if not each.finished]
    if unfinished:
        return all(each.spec.active for each in unfinished)
    return managed and not workloads


def started(integration: Integration[Any], job: Kind) -> Sequence[Patch]:
    """The next patches that resume a job as its user wrote it, without the labels of a flavor; none while pods of an
    earlier run are there. Raises PermanentError if the job is invalid."""
    infos = [PodSetInfo(each.name, each.count) for each in integration.pod_sets(job)]
    change = integration.start(job, infos)
    if change is None:
        return ()
    steps = (change,) if isinstance(change, Change) else change
    return [job_patch(type(each.target or job), job, each) for each in steps]


def can_be_held(integration: Integration[Any]) -> bool:
    """Whether the jobs of a kind are themselves suspended; of other kinds only the pods are gated."""
    return integration.handling.watched and integration.groups is None and integration.as_set is None
