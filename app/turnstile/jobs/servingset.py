"""Serving sets: kinds whose pods are admitted in gangs, each gang with a Workload that the set owns.

A set has no suspend field. Its webhook annotates the pod templates, so that the Pod webhook gates each pod; the
reconciler of sets (`turnstile.controllers.jobs.servingsets`) creates a Workload for each gang (`Component`) and marks
each pod as a member of the pod group that has the Workload's name. That group (`turnstile.jobs.kinds.pod.group`) then
starts and stops the pods, as any pod group. A set never finishes. Must never lift a gate. Source: Kueue's
pkg/controller/jobs/statefulset and leaderworkerset.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, TypeVar

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.meta import Kind
from turnstile.api.numbers import parse_int32
from turnstile.api.validation.errors import FieldError
from turnstile.api.workload import Workload
from turnstile.jobs import pods
from turnstile.jobs.bases.pod_parent import PodParent
from turnstile.jobs.integration import Change, Handling
from turnstile.jobs.labels import identifier, queue_name
from turnstile.jobs.naming import group_of, workload_digest
from turnstile.jobs.podsets import JobPodSet

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


@dataclass(frozen=True, slots=True)
class Gangs:
    """The gangs that a set asks for. All have the same pod sets, so that their number, which the set states, stays a
    number: a gang is made only for who asks for that one."""

    count: int
    pod_sets: tuple[JobPodSet, ...]
    name: Callable[[int], str]
    """Name of the Workload of the gang of that number."""
    numbered: bool = False
    first: int = 0
    """The number of the first gang; `count` is the number after that of the last."""
    ahead: bool = True
    """Whether a gang is made before it has pods. Not where pods come one after the other: a later gang could get the
    quota that the first lacks, and then no pod runs."""
    rollout: Callable[[int], str] = lambda _: ""

    def __iter__(self) -> Iterator[Component]:
        """All gangs, in the order of their numbers."""
        return (self[number] for number in range(self.first, self.count))

    def __getitem__(self, number: int) -> Component:
        """The gang of a number."""
        return Component(self.name(number), self.pod_sets, number if self.numbered else None, self.rollout(number))

    def of(self, workload: str, annotations: Mapping[str, str] = MappingProxyType({})) -> Component | None:
        """The gang that has a Workload of that name, which is the last part of it but one, or is in its annotations;
        None if the set does not ask for it (any more)."""
        text = annotations.get(names.COMPONENT_WORKLOAD_INDEX) or workload.rpartition("-")[0].rpartition("-")[2]
        number = parse_int32(text) if self.numbered else 0
        known = number is not None and self.first <= number < self.count and self.name(number) == workload
        return self[number] if known and number is not None else None


class ServingSet(PodParent[J]):
    """A kind whose pods are queued in gangs."""

    handling = Handling(takes_prebuilt=False, serves=True)
    hold_reason: ClassVar[str] = ""
    """Why the Workload of a gang without pods waits."""
    grows: ClassVar[bool] = False
    """Whether the pods of a set that says that it is elastic are gangs of their own, so that their number may change
    while others run."""

    @property
    def as_set(self) -> "ServingSet[J]":
        """The integration itself."""
        return self

    def of_another_kind(self, job: J) -> bool:
        """Whether the object belongs to a job of another kind, whose webhook holds its pods: it is left alone."""
        return False

    def charged_errors(self, old: J, new: J) -> list[FieldError]:
        """Further errors of a changed set that a Workload of its own charges for: what that was admitted for may not
        change. A set that was made by a queued job has none."""
        return []

    @abstractmethod
    def components(self, job: J) -> Gangs:
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

    def number_of(self, pod: Pod) -> str:
        """The number of a pod's gang, if the pod says it, where gangs are numbered by pods."""
        return ""

    def names_of(self, job: J) -> tuple[str, ...]:
        """Names that the Workload of a set with a single gang may have, that of a new one first."""
        return ()

    def named(self, job: J, workload: str) -> J:
        """The set, whose Workload has that one of `names_of`."""
        return job

    def pod_sets(self, job: J) -> list[JobPodSet]:
        """The pod sets of a gang, each with the pods that it has in all gangs."""
        gangs = self.components(job)
        number = gangs.count - gangs.first
        return [replace(each, count=each.count * number) for each in gangs.pod_sets] if number > 0 else []

    def slipped_in(self, job: J, pod: Pod) -> bool:
        """Whether a pod of the set is neither gated nor a member of a group: no webhook has seen it."""
        return bool(self.component_of(job, pod)) and not pods.is_gated(pod) and not _group_of(pod)

    def outdated(self, job: J, pod: Pod) -> bool:
        """Whether the controller of the set would create the pod anew from another template, were it not there."""
        return False

    def membership(self, job: J, pod: Pod) -> Change | None:
        """The patch that makes a gated pod a member of its gang's group, or brings its queue in line with the set.

        None if nothing is to be written. A pod without a gate was never admitted as a member, and does not become one;
        one that is a member is in the set's queue, also if an older version of Kueue did not say so.
        """
        name, meta = self.component_of(job, pod), pod.metadata
        if not name:
            return None
        labels, annotations = {}, {}
        gated, group_name = pods.is_gated(pod), _group_of(pod)
        if not group_name:
            if not gated:
                return None
            labels[names.MANAGED_LABEL] = "true"
            labels[names.PRIORITY_CLASS_LABEL] = job.metadata.labels.get(names.PRIORITY_CLASS_LABEL, "")
            group = {names.POD_GROUP_NAME: name, names.PREBUILT_WORKLOAD: name}
            annotations = {**self.marks_of(job, pod), **group}
        if gated or group_name == name or names.QUEUE_LABEL in meta.labels:
            labels[names.QUEUE_LABEL] = queue_name(job)
        labels = {key: value for key, value in labels.items() if value and meta.labels.get(key) != value}
        annotations = {key: value for key, value in annotations.items() if meta.annotations.get(key) != value}
        body = {"labels": labels, "annotations": annotations}
        changes = {key: value for key, value in body.items() if value}
        return Change({"metadata": changes}, fresh=True, target=pod) if changes else None


def pod_of(workload: Workload) -> tuple[str, str] | None:
    """The uid of a set and the name of the pod with the number of its gang, if the Workload is of a gang with a number.
    The Workload charges for that pod, if the set controls its pods and each is a gang. The annotation is not believed
    alone: the name of the Workload is made of the same name."""
    number = workload.metadata.annotations.get(names.COMPONENT_WORKLOAD_INDEX)
    for owner in workload.metadata.owner_references if number else ():
        name = f"{owner.name}-{number}"
        digest = workload_digest(owner.kind, group_of(owner), name, owner.uid)
        if digest == workload.metadata.name.rpartition("-")[2]:
            return owner.uid, name
    return None


def is_numbered(pod: Pod) -> bool:
    """Whether the controller of a pod names its pods by itself and a number."""
    owner, (before, _, number) = pod.metadata.controller, pod.metadata.name.rpartition("-")
    return owner is not None and before == owner.name and number.isdecimal()


def _group_of(pod: Pod) -> str:
    return identifier(pod.metadata, names.POD_GROUP_NAME)[0]
