"""The Workload that Turnstile creates for a job: its body, its priority, and the parts that follow later job changes.

Only the names of queue and priority class are taken directly from the job; counts and templates come from its
integration. Must never set status. Source: Kueue's pkg/controller/jobframework and pkg/util/priority.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeVar

from turnstile.api import names, rollout
from turnstile.api.core import PriorityClass
from turnstile.api.errors import TurnstileError
from turnstile.api.meta import Kind, find_condition, to_plain
from turnstile.api.workload import QUOTA_RESERVED, PriorityClassRef, Workload
from turnstile.api.workloadpriorityclass import WorkloadPriorityClass
from turnstile.jobs.integration import CannotCompose, Integration
from turnstile.jobs.labels import is_elastic, max_execution_seconds, prebuilt_name, queue_name, slice_name
from turnstile.jobs.naming import MAX_NAME, SHORT_NAME, workload_name
from turnstile.jobs.options import JobOptions
from turnstile.jobs.podsets import JobPodSet
from turnstile.jobs.remote import is_copy
from turnstile.jobs.servingset import Component, ServingSet

IMPORTED: Final = "Imported"
"""Reason of the reservation of a job that ran before it had a Workload, as Kueue's importer writes it."""
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


class PriorityClassMissing(TurnstileError):
    """The priority class that a job names does not exist (yet). `kind` is that of the class."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f'{kind} "{name}" not found')
        self.kind = kind

    @property
    def reason(self) -> str:
        """The reason of the event about it."""
        return f"{self.kind}NotFound"


@dataclass(frozen=True, slots=True)
class Priority:
    """A priority value and the class that defines it."""

    value: int = 0
    ref: PriorityClassRef | None = None


T_co = TypeVar("T_co", covariant=True)


class Lookup(Protocol[T_co]):
    """Objects by name: a store, or a dict in a test."""

    def get(self, key: str, /) -> T_co | None:
        """The object of that name, or None if the cache does not have it."""
        ...

    def values(self) -> Iterable[T_co]:
        """All objects."""
        ...


@dataclass(frozen=True, slots=True)
class PriorityClasses:
    """The cached priority classes, by name."""

    workload: Lookup[WorkloadPriorityClass]
    pod: Lookup[PriorityClass]


def workload_class_priority(name: str, classes: Lookup[WorkloadPriorityClass]) -> Priority:
    """Priority of a WorkloadPriorityClass. Raises PriorityClassMissing."""
    found = classes.get(name)
    if found is None:
        raise PriorityClassMissing("WorkloadPriorityClass", name)
    return Priority(found.value, PriorityClassRef(group="kueue.x-k8s.io", kind="WorkloadPriorityClass", name=name))


def priority_of(integration: Integration[Any], job: Kind, classes: PriorityClasses) -> Priority:
    """The job's priority: from its label, else its pods' PriorityClass, else the global default, else 0.

    Raises PriorityClassMissing if a named class does not exist.
    """
    label = job.metadata.labels.get(names.PRIORITY_CLASS_LABEL)
    if label:
        return workload_class_priority(label, classes.workload)
    name = integration.priority_class_name(job)
    if name:
        found = classes.pod.get(name)
        if found is None:
            raise PriorityClassMissing("PriorityClass", name)
        return _pod_priority(found)
    return _default_priority(classes.pod.values())


def _default_priority(classes: Iterable[PriorityClass]) -> Priority:
    """The global default class; the lowest, as in Kubernetes, if there are several."""
    defaults = [each for each in classes if each.global_default]
    return _pod_priority(min(defaults, key=lambda each: (each.value, each.metadata.name))) if defaults else Priority()


def _pod_priority(found: PriorityClass) -> Priority:
    ref = PriorityClassRef(group="scheduling.k8s.io", kind="PriorityClass", name=found.metadata.name)
    return Priority(found.value, ref)


def spec_body(job: Kind, pod_sets: Sequence[JobPodSet], priority: Priority, options: JobOptions) -> dict[str, Any]:
    """`spec` of a job's Workload, without `active`."""
    spec: dict[str, Any] = {"priority": priority.value}
    if pod_sets:  # a job may have none: an AppWrapper of a Service, say
        spec["podSets"] = [pod_set.body(topologies=options.topologies) for pod_set in pod_sets]
    if name := queue_name(job):
        spec["queueName"] = name
    if priority.ref is not None:
        spec["priorityClassRef"] = to_plain(priority.ref)
    if (limit := max_execution_seconds(job)) is not None:
        spec["maximumExecutionTimeSeconds"] = limit
    return spec


def spec_change(job: Kind, pod_sets: Sequence[JobPodSet], priority: Priority, options: JobOptions) -> dict[str, Any]:
    """The merge patch of `spec` that makes a Workload match its job again; `active` is not changed."""
    absent = {"podSets": None, "queueName": None, "priorityClassRef": None, "maximumExecutionTimeSeconds": None}
    return {**absent, **spec_body(job, pod_sets, priority, options)}


def reclaimable(integration: Integration[Any], job: Kind) -> dict[str, int]:
    """Pods of a job by pod set whose quota can be released early."""
    return integration.reclaim.reclaimable(job) if integration.reclaim is not None else {}


def limited_reclaimable(workload: Workload, counts: Mapping[str, int]) -> dict[str, int]:
    """Reclaimable pods by pod set, limited to the pod set's count in the Workload."""
    sizes = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    return {name: min(count, sizes.get(name, count)) for name, count in counts.items()}


def body(
    integration: Integration[Any],
    job: Kind,
    pod_sets: Sequence[JobPodSet],
    priority: Priority,
    options: JobOptions,
    *,
    name: str = "",
    replaces: Workload | None = None,
) -> dict[str, Any]:
    """The Workload to create for a job, with its own `name` for a slice of an elastic job, and the slice that it
    `replaces`. Raises CannotCompose if the objects of a group have different values of a label
    or an annotation that is copied."""
    group, gated = integration.as_group, integration.gated_pods
    return _body(
        job,
        (job,) if group is None else group.members(job),
        name or name_of(integration, job),
        spec_body(job, pod_sets, priority, options),
        owners=[owner_reference(integration, member) for member in owners(integration, job)],
        annotations={
            **({} if gated is None else gated.annotations(job)),
            **(_marks_of_slice(name, replaces) if elastic(integration, job, options) else {}),
        },
        labels=job_uid_label(job) if controls(integration) else {},
        options=options,
    )


def component_body(
    integration: ServingSet[Any], job: Kind, component: Component, priority: Priority, options: JobOptions
) -> dict[str, Any]:
    """The Workload to create for a gang of a serving set: a pod group's, which the set owns."""
    annotations = {names.IS_GROUP_WORKLOAD: "true", **owner_marks(integration, job)}
    if component.index is not None:
        annotations[names.COMPONENT_WORKLOAD_INDEX] = str(component.index)
    if component.rollout:
        annotations[rollout.WORKLOAD] = component.rollout
    return _body(
        job,
        [job],
        component.workload,
        spec_body(job, component.pod_sets, priority, options),
        owners=[owner_reference(integration, job)],
        annotations=annotations,
        labels=job_uid_label(job),
        options=options,
    )


def owner_marks(integration: ServingSet[Any], job: Kind) -> dict[str, str]:
    """The annotations of a Workload that was made for a set (`of_a_set`), which name the set."""
    kind = integration.kind
    return {
        names.JOB_OWNER_GVK: f"{kind.GROUP}/{kind.VERSION}, Kind={kind.KIND}",
        names.JOB_OWNER_NAME: job.metadata.name,
    }


def _body(
    job: Kind,
    members: Sequence[Kind],
    name: str,
    spec: dict[str, Any],
    *,
    owners: list[dict[str, Any]],
    annotations: Mapping[str, str],
    labels: Mapping[str, str],
    options: JobOptions,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": job.metadata.namespace,
        "finalizers": [names.RESOURCE_IN_USE],
        "ownerReferences": owners,
    }
    copied = _shared(members, "labels", (*options.copied_labels, *options.label_keys_to_copy))
    if labels := {**copied, **labels}:
        metadata["labels"] = labels
    copied = _shared(members, "annotations", options.copied_annotations)
    if annotations := {**copied, **annotations, **_copied_annotations(job, options)}:
        metadata["annotations"] = annotations
    return {"apiVersion": names.API_VERSION, "kind": Workload.KIND, "metadata": metadata, "spec": spec}


def elastic(integration: Integration[Any], job: Kind, options: JobOptions) -> bool:
    """Whether a job may change its number of pods while it runs, and has a Workload for each size: a chain of slices.
    A job that names its Workload itself has no other, unless a manager of other clusters names the next one for it."""
    able = options.elastic_jobs and integration.elasticity is not None and integration.elasticity.grows
    return able and is_elastic(job.metadata) and (is_copy(job) or not prebuilt_name(job))


def slice_to_make(integration: Integration[Any], job: Kind, taken: Collection[str]) -> str:
    """The name of the next slice of an elastic job, as Kueue's: by the generation of the job. `taken` are the names of
    slices that exist, of which one may have been finished although the job did not change."""
    assert integration.elasticity is not None
    revision, number = integration.elasticity.revision(job), 1
    extra = revision
    while (name := _slice_name(integration, job, extra)) in taken:
        number += 1
        extra = f"{revision}.{number}"
    return name


def _slice_name(integration: Integration[Any], job: Kind, extra: str) -> str:
    meta = job.metadata
    return workload_name(integration.kind, meta.name, meta.uid, extra=extra, longest=integration.handling.longest_name)


def _marks_of_slice(name: str, replaces: Workload | None) -> dict[str, str]:
    marks = {names.ELASTIC_JOB: "true", names.SLICE_NAME: name}
    if replaces is not None:
        marks |= {names.SLICE_NAME: slice_name(replaces), names.SLICE_REPLACEMENT_FOR: replaces.metadata.key}
    return marks


def of_a_set(workload: Workload) -> bool:
    """Whether a group's Workload was made for the owner of the pods, which creates, changes and deletes it."""
    owner = workload.metadata.annotations.get(names.JOB_OWNER_GVK, "")
    return bool(owner) and not owner.endswith("Kind=Pod")


def is_imported(workload: Workload) -> bool:
    """Whether a Workload holds quota for a job that ran before it was queued. Who may write a Workload's status may
    give quota anyway."""
    reserved = find_condition(workload.status.conditions, QUOTA_RESERVED)
    return reserved is not None and (reserved.status, reserved.reason) == ("True", IMPORTED)


def controls(integration: Integration[Any]) -> bool:
    """Whether a job is the controller owner of its Workload; the objects of a group, and a serving set, are not."""
    return integration.as_group is None and integration.as_set is None


def owners(integration: Integration[Any], job: Kind) -> Sequence[Kind]:
    """The objects of a job that own its Workload."""
    return (job,) if integration.as_group is None else integration.as_group.owners(job)


def name_of(integration: Integration[Any], job: Kind) -> str:
    """Name of the Workload to create for a job: the name of a group is the name of its Workload."""
    meta = job.metadata
    if integration.as_group is not None:
        return meta.name
    return workload_name(integration.kind, meta.name, meta.uid, longest=integration.handling.longest_name)


def may_be_named(integration: Integration[Any], job: Kind, name: str) -> bool:
    """Whether a Workload of that name may have been made for a job, with short names or without."""
    meta = job.metadata
    if integration.as_group is not None:
        return name == meta.name
    return any(
        name == workload_name(integration.kind, meta.name, meta.uid, longest=longest)
        for longest in (MAX_NAME, SHORT_NAME)
    )


def owner_reference(integration: Integration[Any], owner: Kind) -> dict[str, Any]:
    """The owner reference of a Workload: a job as its controller, or a group's object as a plain owner."""
    kind = integration.kind
    reference: dict[str, Any] = {
        "apiVersion": f"{kind.GROUP}/{kind.VERSION}" if kind.GROUP else kind.VERSION,
        "kind": kind.KIND,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
    }
    return reference | ({"controller": True, "blockOwnerDeletion": True} if controls(integration) else {})


def job_uid_label(job: Kind) -> dict[str, str]:
    """The Workload's label with its job's uid; empty if the uid is not a valid label value."""
    uid = job.metadata.uid
    return {names.JOB_UID_LABEL: uid} if _LABEL_VALUE.fullmatch(uid) else {}


def _shared(members: Sequence[Kind], field: Literal["labels", "annotations"], keys: Iterable[str]) -> dict[str, str]:
    """The labels or annotations of those keys that the objects of a job have."""
    found: dict[str, str] = {}
    for key in keys:
        present = (each.metadata.labels if field == "labels" else each.metadata.annotations for each in members)
        values = list(dict.fromkeys(each[key] for each in present if key in each))
        if len(values) > 1:
            raise CannotCompose(f"the pods have different values of the {field[:-1]} {key}: {', '.join(values)}")
        if values:
            found[key] = values[0]
    return found


def _copied_annotations(job: Kind, options: JobOptions) -> dict[str, str]:
    """Annotations that a Workload copies from its job: provisioning parameters and admission gates."""
    annotations = job.metadata.annotations
    found = {key: annotations[key] for key in sorted(annotations) if key.startswith(names.PROVISIONING_PREFIX)}
    gates = options.gates_of(job.metadata)
    return {names.ADMISSION_GATED_BY: gates, **found} if gates else found
