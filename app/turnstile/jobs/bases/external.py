"""Job kinds that another controller queues, and that are only sent to other clusters from here.

The configuration file names them (`multiKueue.externalFrameworks`). Their controller makes the Workload, suspends and
starts the job; a job whose `spec.managedBy` names MultiKueue is copied to another cluster, and gets the status of its
copy. Must never be asked for anything else: such a kind has neither webhook nor reconciler. Source: Kueue's
pkg/controller/admissionchecks/multikueue/externalframeworks.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, cast

import msgspec

from turnstile.api.config.frameworks import external_name
from turnstile.api.meta import Kind, Object
from turnstile.api.patch import JsonPatch
from turnstile.api.workload import PodSet
from turnstile.jobs.integration import Change, Integration, Outcome, Stop
from turnstile.jobs.podsets import JobPodSet, PodSetInfo
from turnstile.jobs.remote import RemoteCopies


class _Spec(Object):
    managed_by: Any = None


class ExternalJob(Kind):
    """The fields of such a job that are read."""

    NAMESPACED: ClassVar = True

    spec: _Spec | None = None


def _managed_by(job: ExternalJob) -> str:
    found = job.spec.managed_by if job.spec is not None else None
    return found if isinstance(found, str) else ""


class ExternalJobs(Integration[ExternalJob]):
    """The jobs of one kind, by its name in the configuration file: `Kind.version.group`, or `Kind.version.group=plural`
    where its name in URLs is said."""

    watched = False
    copies = RemoteCopies[ExternalJob](managed_by=_managed_by, shown=".spec.managedBy")

    def __init__(self, name: str) -> None:
        self.framework, _, plural = name.partition("=")
        group, version, kind = external_name(self.framework)
        constants: dict[str, Any] = {"GROUP": group, "VERSION": version, "KIND": kind}
        constants |= {"PLURAL": plural or plural_of(kind), "GUESSED": not plural}
        self.kind = cast(type[ExternalJob], msgspec.defstruct(kind, [], bases=(ExternalJob,), namespace=constants))

    def hold(self, job: ExternalJob, patch: JsonPatch) -> None:
        """Nothing: its own controller does."""

    def suspended(self, job: ExternalJob) -> bool:
        """Never, as far as is known."""
        return False

    def active(self, job: ExternalJob) -> bool:
        """Never, as far as is known: its own controller releases the quota."""
        return False

    def finished(self, job: ExternalJob) -> Outcome | None:
        """The Workload on the worker says so."""
        return None

    def pod_sets(self, job: ExternalJob) -> list[JobPodSet]:
        """None that are known."""
        return []

    def start(self, job: ExternalJob, infos: Sequence[PodSetInfo]) -> Change | None:
        """Nothing: its own controller does."""
        return None

    def stop(
        self, job: ExternalJob, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime
    ) -> Stop:
        """Nothing: its own controller does."""
        return Stop()


def plural_of(kind: str) -> str:
    """The name of a kind in URLs, as Kubernetes guesses it: `pipelineruns`, `policies`, `ingresses`. A definition may
    have another one."""
    lower = kind.lower()
    if lower.endswith("s"):
        return f"{lower}es"
    return f"{lower.removesuffix('y')}ies" if lower.endswith("y") else f"{lower}s"
