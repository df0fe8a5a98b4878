"""Serving sets: kinds whose pods are admitted in gangs, each gang with a Workload that the set owns.

A set has no suspend field. Its webhook annotates the pod templates, so that the Pod webhook gates each pod; the
reconciler of sets (`app.controllers.servingsets`) creates a Workload for each gang (`Component`) and marks each pod as
a member of the pod group that has the Workload's name. That group (`app.jobs.bases.pod_group`) then starts and stops
the pods, as any pod group. A set never finishes. Must never lift a gate. Source: Kueue's
pkg/controller/jobs/statefulset and leaderworkerset.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from app.api import names
from app.api.core import Pod
from app.api.meta import Kind
from app.jobs.bases import pods
from app.jobs.bases.pod_parent import PodParent
from app.jobs.integration import Change
from app.jobs.labels import identifier, queue_name
from app.jobs.podsets import JobPodSet

J = TypeVar("J", bound=Kind)


@dataclass(frozen=True, slots=True)
class Component:
    """A gang of a set's pods and the name of its Workload. `index` is its number, where a set has several."""

    workload: str
    pod_sets: tuple[JobPodSet, ...]
    index: int | None = None
    rollout: str = ""
    """Its place in a rollout of the set, as an annotation of the Workload."""

    @property
    def pods(self) -> int:
        """The number of pods; a gang without pods is on hold."""
        return sum(each.count for each in self.pod_sets)


class ServingSet(PodParent[J]):
    """A kind whose pods are queued in gangs."""

    watched = True
    controls = False
    gates_pods = True
    hold_reason: ClassVar[str] = ""
    """Why the Workload of a gang without pods waits."""

    @abstractmethod
    def components(self, job: J) -> list[Component]:
        """The gangs that the set asks for now."""

    @abstractmethod
    def set_of(self, pod: Pod) -> str:
        """Name of the set of this kind that a pod belongs to, as far as the pod says; empty if to none."""

    @abstractmethod
    def component_of(self, job: J, pod: Pod) -> str:
        """Name of the Workload of a pod's gang; empty if the pod is not of this very set, or its gang is not known."""

    @abstractmethod
    def marks_of(self, job: J, pod: Pod) -> Mapping[str, str]:
        """Annotations of a member of a pod group: the number of pods, the role, and how the group is admitted."""

    def pod_sets(self, job: J) -> list[JobPodSet]:
        """The pod sets of all gangs."""
        return [pod_set for each in self.components(job) for pod_set in each.pod_sets]

    def slipped_in(self, job: J, pod: Pod) -> bool:
        """Whether a pod of the set is neither gated nor a member of a group: no webhook has seen it."""
        return bool(self.component_of(job, pod)) and not pods.is_gated(pod) and not _is_member(pod)

    def membership(self, job: J, pod: Pod) -> Change | None:
        """The patch that makes a gated pod a member of its gang's group, or brings its queue in line with the set.

        None if nothing is to be written. A pod without a gate was never admitted as a member, and does not become one.
        """
        name, meta = self.component_of(job, pod), pod.metadata
        if not name:
            return None
        labels, annotations = {}, {}
        gated = pods.is_gated(pod)
        if not _is_member(pod):
            if not gated:
                return None
            labels[names.MANAGED_LABEL] = "true"
            labels[names.PRIORITY_CLASS_LABEL] = job.metadata.labels.get(names.PRIORITY_CLASS_LABEL, "")
            group = {names.POD_GROUP_NAME: name, names.PREBUILT_WORKLOAD: name}
            annotations = {**self.marks_of(job, pod), **group}
        if gated or names.QUEUE_LABEL in meta.labels:
            labels[names.QUEUE_LABEL] = queue_name(job)
        labels = {key: value for key, value in labels.items() if value and meta.labels.get(key) != value}
        annotations = {key: value for key, value in annotations.items() if meta.annotations.get(key) != value}
        body = {"labels": labels, "annotations": annotations}
        changes = {key: value for key, value in body.items() if value}
        return Change({"metadata": changes}, fresh=True, target=pod) if changes else None


def _is_member(pod: Pod) -> bool:
    return bool(identifier(pod.metadata, names.POD_GROUP_NAME)[0])
