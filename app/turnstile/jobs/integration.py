"""The interface between a job kind and everything that handles jobs: what a kind declares and answers.

The reconciler, the webhooks, the watches, the chart and the documentation all use the same integration, so a kind is
described once. An integration is stateless and pure: given a decoded job, it returns facts about the job, or the writes
that start, stop or finish it, in order. It must never read a clock, a store or the network. The terms are those of
Kueue's jobframework: an integration has a framework name; its jobs are suspended or not, active or not, and have pod
sets.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeVar

import msgspec

from turnstile.api import names
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind
from turnstile.api.patch import JsonPatch
from turnstile.api.pods import PodSpec, PodTemplate
from turnstile.api.remembered import remembered
from turnstile.api.validation.errors import FieldError, brought
from turnstile.api.workload import PodSet
from turnstile.jobs.capabilities import (
    AcknowledgedStops,
    Additions,
    AwaitedChildren,
    CountedPods,
    Elastic,
    Exceptions,
    GatedPods,
    Importable,
    Reclaim,
    RenderedTemplates,
    SizedByAnother,
    Suspendable,
)
from turnstile.jobs.naming import MAX_NAME
from turnstile.jobs.podsets import JobPodSet, PodSetInfo
from turnstile.jobs.remote import RemoteCopies

if TYPE_CHECKING:
    from turnstile.jobs.groups import GroupIntegration
    from turnstile.jobs.servingset import ServingSet

J = TypeVar("J", bound=Kind)
_decode_template: Final = msgspec.json.Decoder(PodTemplate).decode

WORKLOAD_DELETED: Final = "WorkloadDeleted"
WORKLOAD_EVICTED: Final = "WorkloadEvicted"
NO_MATCHING_WORKLOAD: Final = "NoMatchingWorkload"
NOT_ADMITTED: Final = "NotAdmitted"


@dataclass(frozen=True, slots=True)
class Change:
    """A patch of the job: a merge patch, or a JSON Patch where something inside a list changes.

    `strategic` sends the merge patch as a strategic one, which merges the lists of built-in kinds by their key.
    `fresh`: the API server must refuse the patch if the job has changed since it was read. `target` is the object to
    patch where a job consists of several objects.
    """

    body: dict[str, Any] | JsonPatch
    subresource: Literal["", "status"] = ""
    strategic: bool = False
    fresh: bool = False
    target: Kind | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """Deletion of the job object itself, or of `target` where a job consists of several objects.

    `event` is a reason and a note to record about the object.
    """

    target: Kind | None = None
    event: tuple[str, str] | None = None


Step = Change | Removal


@dataclass(frozen=True, slots=True)
class Claim:
    """Pods of a job that name a pod set of its owner's Workload; `pod_set` is empty if they name none."""

    pod_set: str
    count: int
    spec: PodSpec

    @classmethod
    def of(cls, template: bytes | msgspec.Raw, count: int) -> "Claim":
        """The claim of the pods made from a template (the JSON of a PodTemplateSpec)."""
        pod_set, spec = _claimed(bytes(template))
        return cls(pod_set, count, spec)


@remembered()
def _claimed(template: bytes) -> tuple[str, PodSpec]:
    """Cached: the children of one job often share a template, and are counted together."""
    view = _decode_template(template)
    return (view.metadata.labels if view.metadata is not None else {}).get(names.PODSET_LABEL, ""), view.spec


class CannotCompose(PermanentError):
    """The objects of a group do not form a job, or not yet."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The steps that stop a job; none if the job is already stopped, or if its pods must terminate first.

    `announce`: whether the job ran until now. `complete`: whether these steps complete the stop; if not, the Workload
    is still needed, because its pod sets hold the original templates.
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
    """An RBAC rule: verbs on a resource of the kind's API group, or of `group`."""

    resource: str
    verbs: tuple[str, ...]
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """For which objects of a kind the webhooks are called, and which of these they review.

    `defaulting` and `validating` are CEL match conditions, by name, under which the API server calls them. With
    `defaulting_unless_all`, the defaulting conditions are left out where jobs without a queue name are managed.
    """

    defaulting: Mapping[str, str] = field(default_factory=dict)
    defaulting_unless_all: bool = False
    validating: Mapping[str, str] = field(default_factory=dict)
    updates: bool = False
    """Whether the webhook sets defaults on updates too."""
    namespace_first: bool = False
    """Whether a queue name counts in managed namespaces only; jobs of other kinds are suspended in all namespaces."""
    validating_queued: bool = False
    """Whether only jobs that name a queue, or did, are validated, where jobs without a queue name are left alone."""
    selector: str = ""
    """Label selector of the watch of a process that only answers reviews; it never caches objects that do not match."""


@dataclass(frozen=True, slots=True)
class Handling:
    """How the jobs of a kind are handled, as far as all of them are handled alike."""

    watched: bool = True
    """Whether the reconciler handles jobs of the kind; some kinds are handled by the webhook alone."""
    top_level: bool = False
    """Whether owners are ignored: the job is queued by itself even if a managed job owns it."""
    keeps_reassignment: bool = True
    """Whether an evicted job can run again, so that its Workload is requeued."""
    takes_prebuilt: bool = True
    """Whether a job may name a prebuilt Workload."""
    serves: bool = False
    """Whether a job runs until it is deleted or scaled to zero, and never finishes by itself."""
    described: bool = False
    """Whether the configuration file describes the kind, so that not all objects that it makes may be known."""
    longest_name: int = MAX_NAME
    """Characters that the name of a Workload may have which is made for a job of the kind."""


_NO_ADDITIONS: Final = Additions[Any]()
_NO_EXCEPTIONS: Final = Exceptions[Any]()
_NO_MARKS: Final = Importable[Any]()


class Capable(Generic[J]):
    """The capabilities of a kind: each the integration itself, or None or an empty one if the kind does not have it."""

    copies: RemoteCopies[Any] | None = None
    """How a job is copied to another cluster; None if its kind cannot be."""
    added: ClassVar[Mapping[str, str]] = {}
    """The most that the kind's operator adds to what a pod requests, of resources for which its job may not be charged:
    no pod of the job requests them otherwise."""
    pod_marks: ClassVar[tuple[str, ...]] = ()
    """Labels by which the kind's operator says which pods of a job a pod is one of, where its job does not say it."""
    counted_pods: ClassVar[CountedPods | None] = None
    """The pods that the reconciler counts while a job runs."""
    pods_label: ClassVar[str] = ""
    """Label in which each pod names its job, of a kind whose pods come and go while the job runs: the pods are gated,
    and the reconcile of the job starts them within what its Workload reserves in all."""

    @property
    def acknowledgement(self) -> AcknowledgedStops[J] | None:
        """Whether and how the kind's own controller acknowledges a stop."""
        return self if isinstance(self, AcknowledgedStops) else None

    @property
    def children(self) -> AwaitedChildren[J] | None:
        """Whether and how a job waits for the jobs that its controller makes."""
        return self if isinstance(self, AwaitedChildren) else None

    @property
    def rendering(self) -> RenderedTemplates[J] | None:
        """Where the pod templates are that the job itself does not have."""
        return self if isinstance(self, RenderedTemplates) else None

    @property
    def sizing(self) -> SizedByAnother[J] | None:
        """Where the numbers of pods of a running job are, if the job itself does not have them."""
        return self if isinstance(self, SizedByAnother) else None

    @property
    def read_with(self) -> tuple[type[Kind], ...]:
        """The kinds of the objects without which a job is not known: that of its templates, and of its sizes."""
        rendering, sizing = self.rendering, self.sizing
        templates = (rendering.templates_in,) if rendering is not None else ()
        return templates if sizing is None else (*templates, sizing.sizes_in)

    @property
    def suspension(self) -> Suspendable[J] | None:
        """The field that suspends a job, and what an admission adds to the job."""
        return self if isinstance(self, Suspendable) else None

    @property
    def elasticity(self) -> Elastic[J] | None:
        """Whether and how a job may have another number of pods than it asks for."""
        return self if isinstance(self, Elastic) else None

    @property
    def additions(self) -> Additions[J]:
        """Further writes that objects of the kind need beside being held."""
        return self if isinstance(self, Additions) else _NO_ADDITIONS

    @property
    def exceptions(self) -> Exceptions[J]:
        """The jobs of the kind that the reconciler handles differently."""
        return self if isinstance(self, Exceptions) else _NO_EXCEPTIONS

    @property
    def may_be_imported(self) -> bool:
        """Whether a job that runs may get a Workload without a restart."""
        return isinstance(self, Importable)

    @property
    def importing(self) -> Importable[J]:
        """The marks of a job that ran before it had a Workload, and of what its controller has made."""
        return self if isinstance(self, Importable) else _NO_MARKS

    @property
    def reclaim(self) -> Reclaim[J] | None:
        """Whether and how a running job releases quota early."""
        return self if isinstance(self, Reclaim) else None

    @property
    def gated_pods(self) -> GatedPods[J] | None:
        """The gate and the finalizer of Pods that are jobs."""
        return self if isinstance(self, GatedPods) else None

    @property
    def groups(self) -> "GroupIntegration[Any] | None":
        """The integration that handles a group as one job; None if the kind has no groups."""
        return None

    @property
    def as_group(self) -> "GroupIntegration[Any] | None":
        """The integration itself, if its jobs are groups."""
        return None

    @property
    def as_set(self) -> "ServingSet[Any] | None":
        """The integration itself, if the pods of its jobs are gated and queued in gangs: a pod is charged for as a
        member of a group, and never only because such a job owns it."""
        return None


class Integration(ABC, Capable[J]):
    """One job kind: the core, which every kind answers. A subclass has no state but its constructor's arguments."""

    # --- declarations, from which webhooks, watches, chart and documentation are made

    kind: type[Kind]
    """The struct of the fields that are read; names group, version, kind and plural."""
    framework: str
    """The kind's name in Kueue's `integrations.frameworks`."""
    summary: str = ""
    """How the kind's pods are held, for the table of kinds."""
    makes: frozenset[tuple[str, str]] = frozenset()
    """Group and kind of the objects that the kind's own controller creates. Only for them can the Workload of a job of
    this kind charge."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Frameworks whose jobs are charged for this kind's pods; enabled together with it."""
    rights: tuple[Right, ...] = ()
    """The controller's RBAC rules beside getting, listing, watching and patching jobs of the kind."""
    asked: ClassVar[Asked] = Asked()
    """Which objects the kind's webhooks review."""
    handling: Handling = Handling()
    """How the kind's jobs are handled."""

    def creates(self, made: tuple[str, str]) -> bool:
        """Whether the kind's own controller creates objects of that group and kind."""
        return made in self.makes

    # --- called by the webhooks

    def held(self, job: J) -> bool:
        """Whether the job needs no change to keep its pods from running."""
        return self.suspended(job)

    @abstractmethod
    def hold(self, job: J, patch: JsonPatch) -> None:
        """Add to `patch` what keeps the pods from running. Only called for a job that is not `held`."""

    def create_errors(self, job: J) -> list[FieldError]:
        """Errors of a new job by the kind's own rules, beside the rules that all kinds share."""
        return []

    def update_errors(self, old: J, new: J) -> list[FieldError]:
        """Errors of a changed job by the kind's own rules, beside the rules that all kinds share.

        By default: the create errors of the new object that the old object did not have.
        """
        return brought(self.create_errors(new), lambda: self.create_errors(old))

    # --- called by webhooks and reconciler

    def claims(self, job: J) -> Sequence[Claim]:
        """For each pod set of the job, the pod set of an ancestor's Workload that its pods name, by the label that a
        start adds to pod templates. Raises PermanentError if the job is invalid."""
        return [Claim.of(pod_set.template, pod_set.count) for pod_set in self.pod_sets(job)]

    @abstractmethod
    def suspended(self, job: J) -> bool:
        """Whether no pod of the job can run."""

    # --- called by the reconciler

    def claimed(self, job: J, pod_set: str) -> int:
        """The number of pods of the job that name the pod set."""
        return sum(claim.count for claim in self.claims(job) if claim.pod_set == pod_set)

    @abstractmethod
    def active(self, job: J) -> bool:
        """Whether pods of the job still run, so that its quota must stay reserved."""

    @abstractmethod
    def finished(self, job: J) -> Outcome | None:
        """How the job finished, None if it has not."""

    @abstractmethod
    def pod_sets(self, job: J) -> list[JobPodSet]:
        """Requests of the job now. Raises PermanentError if the job is invalid."""

    @abstractmethod
    def start(self, job: J, infos: Sequence[PodSetInfo]) -> Change | Sequence[Change] | None:
        """The patch, with resourceVersion, that starts the job as admitted (for a group, one patch for each object).

        None while pods of an earlier run block the start; the job changes when they are gone. Raises PermanentError if
        a pod template conflicts with the admission.
        """

    @abstractmethod
    def stop(self, job: J, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime) -> Stop:
        """The remaining steps until no pod runs and the templates equal those of the Workload's pod sets.

        Any step may fail; the next call returns the steps that remain. `pod_sets` is None if there is no Workload to
        restore the templates from.
        """

    def pods_ready(self, job: J) -> bool:
        """Whether all pods are ready or have succeeded."""
        return False

    def significant(self, job: J) -> tuple[object, ...]:
        """The values that decisions depend on beyond metadata and `pods_ready`: a change of the object that leaves them
        equal does not reconcile the job.

        By default every resourceVersion differs. A kind that overrides this leaves out what none of its other methods
        reads, such as a count of pods.
        """
        return (job.metadata.resource_version,)

    def priority_class_name(self, job: J) -> str | None:
        """The pods' PriorityClass, from the first pod set that names one."""
        return next((name for each in self.pod_sets(job) if (name := each.view.spec.priority_class_name)), None)
