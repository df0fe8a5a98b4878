"""What a job kind answers: the one interface between the reconciler and the kinds.

An integration is stateless and pure: it is given a decoded job and returns facts about it or the writes that start,
stop or finish it, in order. It must never read a clock, a store or the network. The terms are Kueue's jobframework: an
integration has a framework name, is suspended or not, active or not, and has pod sets.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from app.api.meta import Kind
from app.api.workload import PodSet
from app.jobs.podsets import JobPodSet, PodSetInfo

J = TypeVar("J", bound=Kind)

WORKLOAD_DELETED: Final = "WorkloadDeleted"
WORKLOAD_EVICTED: Final = "WorkloadEvicted"
NO_MATCHING_WORKLOAD: Final = "NoMatchingWorkload"
NOT_ADMITTED: Final = "NotAdmitted"


@dataclass(frozen=True, slots=True)
class Change:
    """A patch of the job. `strategic` merges lists of built-in kinds by their key; `merge` replaces them."""

    body: dict[str, Any]
    subresource: Literal["", "status"] = ""
    type: Literal["merge", "strategic"] = "merge"


@dataclass(frozen=True, slots=True)
class Removal:
    """Deletion of the job object itself."""


Step = Change | Removal


@dataclass(frozen=True, slots=True)
class Stop:
    """What it takes to stop a job; no steps if it is stopped already, or if its pods have to go first.

    `announce`: whether it ran until now. `complete`: whether nothing is left to do after these steps; if not, the
    Workload is still needed to tell what the templates were.
    """

    steps: list[Step] = field(default_factory=list)
    announce: bool = False
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job ended."""

    success: bool
    message: str = ""


class Integration(ABC, Generic[J]):
    """One job kind. A subclass has no state; the table holds one instance of each."""

    kind: ClassVar[type[Kind]]
    framework: ClassVar[str]
    """Name in Kueue's `integrations.frameworks`."""
    top_level: ClassVar[bool] = False
    """Whether owners are of no interest: the kind is queued by itself even if something managed owns it."""
    keeps_reassignment: ClassVar[bool] = True
    """Whether a job that was evicted can run again, so that its Workload goes back to the queue."""

    def skip(self, job: J) -> str:
        """Why the reconciler leaves this object alone; empty if it does not."""
        return ""

    def refusal(self, job: J) -> str:
        """Why this object cannot be queued although it asks for it; empty if it can. Told to its owner by an event."""
        return ""

    @abstractmethod
    def suspended(self, job: J) -> bool:
        """Whether no pod of the job can run."""

    @abstractmethod
    def active(self, job: J) -> bool:
        """Whether pods of the job still run, so that its quota must not be given away."""

    def half_stopped(self, job: J) -> bool:
        """Whether a stop of several steps has begun and not ended."""
        return False

    def carries_admission(self, job: J) -> bool:
        """Whether the pod templates still hold what an admission added to them."""
        return False

    @abstractmethod
    def finished(self, job: J) -> Outcome | None:
        """How the job ended, None if it has not."""

    @abstractmethod
    def pod_sets(self, job: J) -> list[JobPodSet]:
        """What the job asks for now. Raises PermanentError if it is not to be understood."""

    @abstractmethod
    def start(self, job: J, infos: Sequence[PodSetInfo]) -> Change | None:
        """The one patch that lets the pods run where admission wants them; carries resourceVersion. None while pods of
        an earlier run stand in the way; the job changes when they are gone.

        Raises PermanentError if a pod template wants something else.
        """

    @abstractmethod
    def stop(self, job: J, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime) -> Stop:
        """What is left to do until no pod runs and the templates are again those of the Workload's pod sets.

        Each step may be the last one that succeeds; calling again gives those that remain. `pod_sets` is None if no
        Workload tells what the templates were.
        """

    def suspend(self, job: J) -> Change | None:
        """The patch that only suspends, for a child of a job that waits; None if the kind has no such field."""
        return None

    def finalize(self, job: J) -> list[Change]:
        """Writes once nothing more is to be done for the job, such as removing our finalizer."""
        return []

    def pods_ready(self, job: J) -> bool:
        """Whether all pods are ready or have succeeded."""
        return False

    def reclaimable(self, job: J) -> dict[str, int]:
        """Pods by pod set that need their quota no longer."""
        return {}

    def significant(self, job: J) -> tuple[object, ...]:
        """What decisions depend on beyond metadata and `pods_ready`, as values to compare: a change of the object that
        leaves them equal is not looked at.

        Unless a kind says what matters, every version does. A kind that says so leaves out what none of its other
        methods reads, such as a count of pods.
        """
        return (job.metadata.resource_version,)

    def managed_by(self, job: J) -> str | None:
        """The controller that runs the job, if it says so."""
        return None

    def priority_class_name(self, job: J) -> str | None:
        """PriorityClass of the pods: that of the first pod set that names one."""
        return next((name for each in self.pod_sets(job) if (name := each.view.spec.priority_class_name)), None)
