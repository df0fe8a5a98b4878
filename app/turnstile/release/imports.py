"""The words of an import: its report, the jobs that run, the jobs that are planned with their Workloads, and refusals.

The writes for a planned job follow from its record alone. Must never read a cluster, and never plan.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.meta import Kind, to_plain
from turnstile.api.workload import ADMITTED, QUOTA_RESERVED, Admission, Workload
from turnstile.controllers.status.draft import StatusDraft, condition_body
from turnstile.jobs import workload as build
from turnstile.jobs.integration import Integration
from turnstile.release.findings import Finding, Level

Plain = dict[str, Any]

GATE: Final = "turnstile.dev/import"
"""Admission gate of a Workload while it is being written: nothing admits it meanwhile."""


class Check(StrEnum):
    """The matter of a finding."""

    NAMESPACE = "namespace"
    MAPPING = "mapping"
    QUEUE = "queue"
    KIND = "kind"
    JOB = "job"
    FLAVOR = "flavor"
    QUOTA = "quota"
    LATER = "later"
    WRITE = "write"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class Charge:
    """The amount of one resource that a job is charged for, in one flavor."""

    flavor: str
    resource: str
    amount: str


@dataclass(frozen=True, slots=True)
class Import:
    """A running job, with what it is charged for. `imported`: whether that has been written."""

    kind: str
    namespace: str
    name: str
    pods: int
    local_queue: str
    cluster_queue: str
    charges: tuple[Charge, ...]
    workload: str
    imported: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """All that an import says. `queued` are jobs that have a Workload already, `skipped` those that a rule skips."""

    server: str
    applied: bool
    findings: tuple[Finding, ...] = ()
    jobs: tuple[Import, ...] = ()
    queued: int = 0
    skipped: int = 0

    @property
    def dangerous(self) -> bool:
        """Whether a job that runs is not, or would not be, imported."""
        return any(each.level is Level.DANGER for each in self.findings)


@dataclass(frozen=True, slots=True)
class Running:
    """Jobs and pods of the namespaces in question, with the labels of nodes by name; None if nodes were not read.
    `made` are jobs that the controllers of other jobs made, whatever their labels are."""

    jobs: Sequence[tuple[Integration[Any], Kind]]
    pods: Sequence[Pod]
    nodes: Mapping[str, Mapping[str, str]] | None
    made: Sequence[tuple[Integration[Any], Kind]] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """A job to import: the Workload as the controllers would create it, and its status."""

    job: Kind
    body: Plain
    admission: Admission
    entry: Import

    def created(self) -> Plain:
        """The Workload as it is created: of no job yet, and held by a gate, so that no controller stops the job for the
        want of quota before its status is written."""
        meta = self.body["metadata"]
        kept = {key: value for key, value in meta.items() if key not in ("ownerReferences", "labels")}
        labels = {key: value for key, value in meta.get("labels", {}).items() if key != names.JOB_UID_LABEL}
        annotations = {**meta.get("annotations", {}), names.ADMISSION_GATED_BY: GATE}
        return {**self.body, "metadata": {**kept, "labels": labels, "annotations": annotations}}

    def status(self, workload: Workload, now: datetime) -> Plain:
        """The status to write: a reservation and an admission, with the reasons of Kueue's importer."""
        draft = StatusDraft(workload, now)
        draft.reserve(self.admission, admitted=True)
        message = f"Imported into ClusterQueue {self.admission.cluster_queue}"
        for kind in (QUOTA_RESERVED, ADMITTED):
            draft.set(kind, "True", reason=build.IMPORTED, message=message)
        conditions = [condition_body(each) for each in draft.conditions]
        return {"admission": to_plain(self.admission), "conditions": conditions}

    def connection(self) -> Plain:
        """The metadata by which the Workload becomes that of its job, and loses the gate."""
        meta = self.body["metadata"]
        return {
            "ownerReferences": meta["ownerReferences"],
            "labels": meta.get("labels", {}),
            "annotations": {names.ADMISSION_GATED_BY: meta.get("annotations", {}).get(names.ADMISSION_GATED_BY)},
        }


class Refused(Exception):
    """The job cannot be imported."""

    def __init__(self, check: Check, says: str, cure: str) -> None:
        super().__init__(says)
        self.check = check
        self.says = says
        self.cure = cure
