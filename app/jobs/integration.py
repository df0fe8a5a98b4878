"""What a job kind declares and answers: the one interface between a kind and everything that handles jobs.

The reconciler, the webhooks, the watches, the chart and the documentation all ask the same integration, so a kind is
described once. An integration is stateless and pure: it is given a decoded job and returns facts about it, or the
writes that start, stop or finish it, in order. It must never read a clock, a store or the network. The terms are those
of Kueue's jobframework: an integration has a framework name, its jobs are suspended or not, active or not, and have pod
sets.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, Literal, TypeVar

from app.api.meta import Kind
from app.api.patch import JsonPatch
from app.api.validation.errors import FieldError, brought
from app.api.workload import PodSet
from app.jobs.podsets import JobPodSet, PodSetInfo

J = TypeVar("J", bound=Kind)

WORKLOAD_DELETED: Final = "WorkloadDeleted"
WORKLOAD_EVICTED: Final = "WorkloadEvicted"
NO_MATCHING_WORKLOAD: Final = "NoMatchingWorkload"
NOT_ADMITTED: Final = "NotAdmitted"


@dataclass(frozen=True, slots=True)
class Change:
    """A patch of the job: a merge patch, or a JSON Patch where something inside a list changes.

    `strategic` sends the merge patch as a strategic one, which merges the lists of built-in kinds by their key.
    `fresh`: the API server is to refuse the patch if the job has changed since it was read.
    """

    body: dict[str, Any] | JsonPatch
    subresource: Literal["", "status"] = ""
    strategic: bool = False
    fresh: bool = False


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


@dataclass(frozen=True, slots=True)
class Right:
    """A rule of RBAC: verbs on a resource of the kind's group, or of another one."""

    resource: str
    verbs: tuple[str, ...]
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """CEL conditions (by name) under which the API server asks the webhooks about an object of the kind.

    `defaulting_unless_all` conditions are left out where jobs without a queue name are managed too.
    """

    defaulting: Mapping[str, str] = field(default_factory=dict)
    defaulting_unless_all: bool = False
    validating: Mapping[str, str] = field(default_factory=dict)


class Integration(ABC, Generic[J]):
    """One job kind. A subclass has no state of its own but what its constructor was given."""

    # --- declared: what the webhooks, watches, chart and documentation are made from

    kind: type[Kind]
    """The part of the object that is read; names group, version, kind and plural."""
    framework: str
    """Name in Kueue's `integrations.frameworks`."""
    summary: str = ""
    """What is queued, in a few words for the table of kinds."""
    built_in: ClassVar[bool] = False
    """Whether every API server serves the kind. Others come with a CRD, and may be absent."""
    watched: ClassVar[bool] = True
    """Whether the reconciler has anything to do for jobs of the kind; some are handled by the webhook alone."""
    selector: ClassVar[str] = ""
    """Label selector of the watch; the objects that it leaves out are never seen."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Frameworks whose jobs carry the quota of this kind; enabled together with it."""
    rights: tuple[Right, ...] = ()
    """What the controller may do beside getting, listing, watching and patching jobs of the kind."""
    defaulted_on: ClassVar[frozenset[str]] = frozenset({"CREATE"})
    """Operations on which the webhook sets defaults."""
    asked: ClassVar[Asked] = Asked()
    """When the API server need not ask the webhooks."""
    top_level: ClassVar[bool] = False
    """Whether owners are of no interest: the kind is queued by itself even if something managed owns it."""
    namespace_first: ClassVar[bool] = False
    """Whether a queue name counts in managed namespaces only; the webhook holds jobs of other kinds everywhere."""
    keeps_reassignment: ClassVar[bool] = True
    """Whether a job that was evicted can run again, so that its Workload goes back to the queue."""
    takes_prebuilt: ClassVar[bool] = True
    """Whether a job may name a Workload that exists already."""
    takes_slices: ClassVar[bool] = False
    """Whether a job may ask to be elastic (workload slices)."""

    @property
    def webhook_path(self) -> str:
        """The end of the paths of the kind's webhooks, as Kueue has them: `batch-v1-job`, `-v1-pod`."""
        kind = self.kind
        return f"{kind.GROUP.replace('.', '-')}-{kind.VERSION}-{kind.KIND.lower()}"

    # --- asked by the webhooks

    def held_by_parent(self, job: J) -> bool:
        """Whether the job's owner asked for it to be held, whatever queue and namespace it is in."""
        return False

    def held(self, job: J) -> bool:
        """Whether nothing has to be added to keep the pods from running."""
        return self.suspended(job)

    @abstractmethod
    def hold(self, job: J, patch: JsonPatch) -> None:
        """Add what keeps the pods from running. Only asked of a job that is not `held`."""

    def create_errors(self, job: J) -> list[FieldError]:
        """The kind's own rules for a new job, beside those that all kinds share."""
        return []

    def update_errors(self, old: J, new: J) -> list[FieldError]:
        """The kind's own rules for a change, beside those that all kinds share.

        Unless a kind says more: what is wrong with the new object and was not wrong with the old one.
        """
        return brought(self.create_errors(new), lambda: self.create_errors(old))

    def warnings(self, job: J, *, owned: bool) -> tuple[str, ...]:
        """What is allowed but unwise. `owned`: the controller owner is of an enabled or external kind."""
        return ()

    # --- asked by both

    @abstractmethod
    def suspended(self, job: J) -> bool:
        """Whether no pod of the job can run."""

    # --- asked by the reconciler

    def skip(self, job: J) -> str:
        """Why the reconciler leaves this object alone; empty if it does not."""
        return ""

    def refusal(self, job: J) -> str:
        """Why this object cannot be queued although it asks for it; empty if it can. Told to its owner by an event."""
        return ""

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
