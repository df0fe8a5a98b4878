"""How a job is copied to another cluster: where its `managedBy` is, and what the copy does not take along.

A job whose `managedBy` names MultiKueue is left alone by the kind's own controller: its copy on another cluster runs,
and its status is copied back. Kinds whose pods wait at scheduling gates need no such field: here the gates stay. Pure:
plain values in, plain values out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from turnstile.api import names
from turnstile.api.meta import Kind
from turnstile.api.validation.errors import IMMUTABLE, FieldError, invalid
from turnstile.jobs.naming import SHORT_NAME

J = TypeVar("J", bound=Kind)
Plain = dict[str, Any]

_NOT_COPIED: Final = ("kubectl.kubernetes.io/last-applied-configuration", names.JOB_STOPPING)
"""Annotations about the object on the manager alone."""


@dataclass(frozen=True)
class RemoteCopies(Generic[J]):
    """Jobs of a kind can be copied to another cluster.

    `managed_by` returns the field of a job that names the controller which runs it; None for a kind whose pods are kept
    from running by gates. `native` is the name of the kind's own controller. `left_out` are paths that a copy does not
    have: what the API server or an admission on the manager has added.
    """

    managed_by: Callable[[J], str | None] | None = None
    native: str = ""
    path: tuple[str, ...] = ("spec", "managedBy")
    shown: str = ""
    """The path as messages write it, if they write it in another way."""
    left_out: tuple[tuple[str, ...], ...] = ()
    late: bool = False
    """Whether the API server refuses the status of a job that runs while the job on the manager is suspended."""
    returned: Callable[[J, Plain], Plain | None] | None = lambda job, status: status
    """The status that a job gets from the status of its copy; None if the job keeps its own, because the kind's own
    controller goes on writing it. The function returns None of a status from which the job gets nothing."""
    reports_pods: bool = True
    """Whether the status that a job gets reports the pods of its copy, and not only its end."""
    emptied: Plain | None = None
    """The members of a status that count pods, as a merge patch takes them out; None takes out the whole status."""
    misnames: Callable[[J], bool] | None = None
    """Whether a job names MultiKueue in a field that has to name the kind's own controller, which works on the manager
    too; None for a kind without such a field. A new one gets the right name, and its user the `remark`."""
    remark: str = ""
    shared: bool = False
    """Whether one copy serves several Workloads, and names none of them."""
    size: Callable[[J, Mapping[str, int]], Plain] | None = None
    """The part of a copy's spec by which it has as many pods as the job, whose Workload charges for these numbers of
    pods, by pod set; None if a job of the kind cannot change its size on another cluster."""

    def dispatched(self, job: J) -> bool:
        """Whether a copy of the job on another cluster runs, not the job itself."""
        return self.managed_by is None or self.managed_by(job) == names.MULTIKUEUE_CONTROLLER

    def refusal(self, job: J) -> str:
        """Why a job is not `dispatched`."""
        found = (self.managed_by(job) if self.managed_by is not None else None) or ""
        return f'Expecting {self.shown or ".".join(self.path)} to be "{names.MULTIKUEUE_CONTROLLER}" not "{found}"'

    def update_errors(self, old: J, new: J) -> list[FieldError]:
        """A job does not change between this cluster and others: two controllers would run it. The API server refuses
        that of a Job; definitions of other kinds may let the field be taken away."""
        if self.managed_by is None or self.dispatched(old) == self.dispatched(new):
            return []
        return [invalid(".".join(self.path), self.managed_by(new), IMMUTABLE)]

    def claimable(self, job: J) -> bool:
        """Whether `managedBy` is to be set: it does not name yet another controller than the kind's own, or wrongly
        names MultiKueue."""
        if self.misnames is not None:
            return self.misnames(job)
        return self.managed_by is not None and self.managed_by(job) in (None, "", self.native)


def is_copy(job: Kind) -> bool:
    """Whether a job was made by a manager of other clusters: its Workload comes from there too."""
    return names.MULTIKUEUE_ORIGIN in job.metadata.labels


def job_uid(workload: Kind) -> str:
    """The uid of the job for which a Workload was made on this cluster, by its label. Empty if a manager of other
    clusters has sent it: Kueue 0.15 leaves there the uid of the job that was submitted to the manager."""
    return "" if is_copy(workload) else workload.metadata.labels.get(names.JOB_UID_LABEL, "")


def origin_uid(job: Kind) -> str:
    """The uid that a job, or the job that it is a copy of, has on the cluster where it was submitted."""
    return job.metadata.annotations.get(names.MULTIKUEUE_ORIGIN_UID, "") or job.metadata.uid


def copied_metadata(meta: Mapping[str, Any], origin: str) -> Plain:
    """Name, labels and annotations of an object for its copy on another cluster."""
    labels = {key: value for key, value in (meta.get("labels") or {}).items() if key != names.JOB_UID_LABEL}
    kept = (meta.get("annotations") or {}).items()
    return {
        "name": meta["name"],
        "namespace": meta["namespace"],
        "labels": {**labels, names.MULTIKUEUE_ORIGIN: origin},
        "annotations": {
            **{key: value for key, value in kept if key not in _NOT_COPIED},
            names.MULTIKUEUE_ORIGIN_UID: meta.get("uid", ""),
        },
    }


def naming(workload: str) -> dict[str, dict[str, str | None]]:
    """The label and the annotation by which a copy names its Workload; None for a label that it does not have.

    Kueue before 0.18 reads the label alone, whose value may not be as long as the name of a Workload.
    """
    label = workload if len(workload) <= SHORT_NAME else None
    return {
        "labels": {names.PREBUILT_WORKLOAD: label},
        "annotations": {names.PREBUILT_WORKLOAD: workload},
    }


def copied_job(
    job: Plain, copies: RemoteCopies[Any], *, workload: str, origin: str, suspend: tuple[str, ...] = ()
) -> Plain:
    """The copy of a job as it is created on another cluster: suspended, and for the Workload that waits there."""
    metadata = copied_metadata(job["metadata"], origin)
    for part, named in naming(workload).items():
        metadata[part].pop(names.PREBUILT_WORKLOAD, None)
        if not copies.shared:
            metadata[part] |= {key: value for key, value in named.items() if value is not None}
    copy = {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": metadata}
    if "spec" in job:
        copy["spec"] = job["spec"]
    for path in (copies.path, *copies.left_out):
        copy = _without(copy, path)
    return _with(copy, suspend, True) if suspend else copy


def _without(value: Plain, path: tuple[str, ...]) -> Plain:
    """The value without the member at a path; unchanged if there is none."""
    name, *rest = path
    if name not in value:
        return value
    if not rest:
        return {key: part for key, part in value.items() if key != name}
    inner = value[name]
    return {**value, name: _without(inner, tuple(rest))} if isinstance(inner, dict) else value


def _with(value: Plain, path: tuple[str, ...], new: object) -> Plain:
    """The value with the member at a path set."""
    name, *rest = path
    inner = value.get(name)
    return {**value, name: _with(inner if isinstance(inner, dict) else {}, tuple(rest), new) if rest else new}
