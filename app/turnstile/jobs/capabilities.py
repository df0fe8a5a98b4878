"""The capabilities of job kinds: small interfaces that an integration has or has not, beside the core that all answer.

A kind has a capability by inheriting it, as in Go a job of Kueue's jobframework has an optional interface by its
methods. Callers ask the integration, `integration.acknowledgement`, which is the integration itself or None, and never
for a class. A capability must never read a clock, a store or the network, as the core.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from turnstile.api.meta import Kind
from turnstile.api.patch import JsonPatch

if TYPE_CHECKING:
    from turnstile.api.core import Pod
    from turnstile.jobs.integration import Change, Step
    from turnstile.jobs.podsets import PodSetInfo

J = TypeVar("J", bound=Kind)


class AcknowledgedStops(ABC, Generic[J]):
    """The status of a job says whether the kind's own controller has read that the job is suspended.

    The quota of a stopped job is kept until the controller has, for some seconds at most.
    """

    stays_active: ClassVar[bool] = False
    """Whether a stopped job is `active` until then, so that its quota is kept without a limit. The quota of other jobs
    that are stopped within seconds after their admission is kept until these are over."""

    def acknowledged(self, job: J) -> bool:
        """Whether the controller has read that the job is suspended."""
        return True

    def acknowledged_since(self, job: J, since: datetime) -> bool:
        """Whether the controller has said since then that the job, a suspended child of a stopped one, is suspended.
        True for a kind whose controller says before it makes pods that the job is resumed."""
        return True


class AwaitedChildren(ABC, Generic[J]):
    """The kind's own controller makes jobs, and may suspend them late, or have read the job before it was stopped: a
    stop is complete, and a start begins, only when none of them runs any more."""

    stops_children: ClassVar[bool] = False
    """Whether the reconciler also suspends them itself: the kind's own controller does not stop them in every case, and
    makes others instead."""

    def lends_queue(self, job: J) -> bool:
        """Whether the job has no pods and no Workload of its own, and each of them is queued by itself, in the queue
        that the job names."""
        return False


class RenderedTemplates(ABC, Generic[J]):
    """The pod templates of a job are in another object, which the kind's own controller makes, with the job's name."""

    templates_in: ClassVar[type[Kind]]
    """Kind of that object."""

    @abstractmethod
    def joined(self, job: J, made: Kind) -> J:
        """The job together with the object that was made for it."""

    @abstractmethod
    def unread(self, job: J) -> str:
        """Why the job's pod sets cannot be known for now; empty if they can.

        Meanwhile no Workload is made for the job, its Workload is taken to fit, and the job is not started.
        """


class SizedByAnother(ABC, Generic[J]):
    """The numbers of pods of a running job are in another object, which the kind's own controller makes, and which may
    be scaled without a change of the job. An edit of the job's own numbers does not scale it, and suspends the job."""

    sizes_in: ClassVar[type[Kind]]
    """Kind of that object."""

    @abstractmethod
    def sizes_name(self, job: J) -> str:
        """The name of that object; empty if the job itself says how many pods it has."""

    @abstractmethod
    def sized(self, job: J, made: Kind) -> J:
        """The job with the numbers of pods of the object that was made for it."""


@dataclass(frozen=True, slots=True)
class CountedPods:
    """Tenants can have more pods made than a job describes, so the reconciler counts those of a running job."""

    label: str = ""
    """Label by which pods name their job where others than its controller make them; empty if no others do. The objects
    that own these pods, and are `below` the job, have it too."""
    below: tuple[type[Kind], ...] = ()
    """Kinds of those objects. The webhook reads the ones with the label: whose template has a label is no evidence."""


class Suspendable(ABC, Generic[J]):
    """A field of the job suspends it, and an admission is written into the job itself."""

    suspend_path: tuple[str, ...] = ("spec", "suspend")
    """Path of the field, such as `("spec", "runPolicy", "suspend")`. A policy of the chart lets only Turnstile unset it
    for a queued job."""
    counts: Mapping[str, int | None] = {}
    """Paths of the numbers of pods, such as `spec.parallelism`, that the same policy does not let grow while a queued
    job runs, with the value of an absent field; None if such a field is not compared."""

    @abstractmethod
    def suspend(self, job: J) -> "Change":
        """The patch that only suspends, for a child of a pending job."""

    @abstractmethod
    def carries_admission(self, job: J) -> bool:
        """Whether the job still contains what an admission added."""

    @abstractmethod
    def send_away(self, job: J, patch: JsonPatch) -> None:
        """Add to `patch` what has a copy of the job run on another cluster. Only called for kinds that have `copies`,
        after everything else was added."""

    def half_stopped(self, job: J) -> bool:
        """Whether a stop of several steps has begun but not completed."""
        return False


class Elastic(ABC, Generic[J]):
    """The number of a job's pods may be smaller than it asks for, or change while it runs (Kueue's workload slices).

    The pods of a job that says that it is elastic are gated, and the gates are lifted within what its Workload charges
    for: so the job may make more pods than that.
    """

    partial: ClassVar[bool] = False
    """Whether a job may ask to be admitted with fewer pods."""
    grows: ClassVar[bool] = False
    """Whether a job that says that it is elastic may change its number of pods while it runs."""

    @abstractmethod
    def gate_growth(self, job: J, patch: JsonPatch) -> None:
        """Add to `patch` the gate of elastic jobs on each pod template that does not have it."""

    @abstractmethod
    def is_growth_gated(self, job: J) -> bool:
        """Whether each pod template has that gate."""

    def outgrown(self, old: J, new: J) -> bool:
        """Whether a change of a running job has its controller make pods that its Workload is not charged for. The
        defaulting webhook, where it is called for updates, suspends such a job."""
        return False

    def revision(self, job: J) -> str:
        """The part of a slice's name that differs when the job has other numbers of pods."""
        return str(job.metadata.generation)


class Additions(Generic[J]):
    """Objects of the kind need more than to be held; the methods of a kind without this capability add nothing."""

    def defaults(self, job: J, patch: JsonPatch) -> None:
        """Add to `patch` what a new job of this kind needs, whether it is queued or not."""

    def prepare(self, job: J, patch: JsonPatch) -> None:
        """Add to `patch` what a queued job, or the child of one, needs so that it never has more pods than it is
        charged for."""

    def place(self, job: J, patch: JsonPatch) -> None:
        """Add to `patch` what a new job that waits for quota needs so that its pods can be put onto the nodes of a
        topology."""

    def numbers_leader(self, job: J) -> bool:
        """Whether the kind's controller numbers the workers of a pod set group after their leader, though its label
        counts from 0 in each pod set otherwise."""
        return False

    def roll_out(self, old: J, new: J, patch: JsonPatch) -> None:
        """Add to `patch` what a changed job needs that is held, beside what `hold` adds to every job."""


class Importable(Generic[J]):
    """A job that runs may get a Workload without a restart: the pods that its controller makes later need no mark of an
    admission, or get it. For a kind without this capability the methods say that nothing is to be marked."""

    def marks_to_import(self, job: J) -> dict[str, Any]:
        """Metadata that a running job lacks, beside the name of its queue, to be known as a queued one."""
        return {}

    def pod_sets_of(self, child: Kind) -> Sequence[str]:
        """The pod sets of an object that the controller of a job made before the job was imported, by the marks of that
        controller: one for each claim of the object. Empty if the job makes no such objects."""
        return ()

    def pod_set_of(self, pod: "Pod", child: Kind) -> str:
        """The pod set of a pod of such an object; empty if it is not known."""
        names = self.pod_sets_of(child)
        return names[0] if len(names) == 1 else ""

    def mark_running(self, job: J, infos: "Sequence[PodSetInfo]") -> "Change | None":
        """The patch that adds an admission to a job that runs already, for the pods that its controller makes later;
        None if these need no mark. Raises PermanentError as `start`."""
        return None


class Exceptions(Generic[J]):
    """Some jobs of the kind are handled differently; the methods of a kind without this capability except none."""

    def skip(self, job: J) -> str:
        """Why the reconciler ignores the job; empty if it does not."""
        return ""

    def on_hold(self, job: J) -> bool:
        """Whether the job must not be admitted, because its own controller would not run it."""
        return False

    def winds_down(self, job: J) -> bool:
        """Whether the job, which is being deleted, is still to make pods that its Workload is charged for."""
        return False


class Reclaim(ABC, Generic[J]):
    """A running job has pods that have ended and are not made again, and releases their quota (`reclaimablePods`)."""

    @abstractmethod
    def reclaimable(self, job: J) -> dict[str, int]:
        """Pods by pod set whose quota can be released early."""


class GatedPods(ABC, Generic[J]):
    """The objects of a job are Pods, which the webhook holds by a scheduling gate and a finalizer."""

    def held_by_parent(self, job: J) -> bool:
        """Whether the Pod's owner requires it to be held, whatever its queue and namespace are."""
        return False

    def warnings(self, job: J, *, owned: bool) -> tuple[str, ...]:
        """Admission warnings. `owned`: the job's controller owner is of an enabled or external kind."""
        return ()

    @abstractmethod
    def needs_queue(self, job: J) -> str:
        """Why the job may not run without a queue where jobs without a queue name are left alone; empty if it may."""

    @abstractmethod
    def annotations(self, job: J) -> Mapping[str, str]:
        """Annotations of the Workload to create for a job, beside those copied from the job."""

    @abstractmethod
    def finalize(self, job: J) -> "Sequence[Step]":
        """The last writes for a job that needs no more reconciling: they remove the finalizer."""
