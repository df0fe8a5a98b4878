"""Templated jobs: kinds with a suspend field and pod templates, from which the kind's own controller creates pods.

A start is one patch that unsuspends the job and adds what the admission assigned to each template. A stop is one patch
that reverts both. Both are JSON Patches, because a merge patch would replace a whole list of templates. Must never
change anything of a template but its scheduling directives. Source: Kueue's pkg/controller/jobframework
(RunWithPodSetsInfo, RestorePodSetsInfo).
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeVar

import msgspec
import orjson

from turnstile.api import names
from turnstile.api.config.document import dotted
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, Object
from turnstile.api.patch import JsonPatch, pointer
from turnstile.api.remembered import remembered
from turnstile.api.validation.errors import FieldError, invalid
from turnstile.api.workload import PodSet
from turnstile.jobs.capabilities import Suspendable
from turnstile.jobs.integration import Change, Claim, Integration, Outcome, Step, Stop
from turnstile.jobs.labels import queue_name
from turnstile.jobs.podsets import Directives, JobPodSet, PodSetInfo, merge, rewrite
from turnstile.jobs.topologyrequest import Placed, PodIndex, group_errors, topology_errors

J = TypeVar("J", bound=Kind)


@dataclass(frozen=True, slots=True)
class Template:
    """A pod template of a job: the pod set made from it, and its place in the object.

    `raw` is the JSON of a PodTemplateSpec, `path` its path: `("spec", "replicatedJobs", 0, "template", ...)`. `shown`
    is the path as error messages write it where it goes through a map: `spec.replicaSpecs[Worker].template`. `absent`:
    the object does not have the template, which is the default of the kind's controller, and a start writes it. `index`
    says how that controller numbers the pods.
    """

    pod_set: str
    count: int
    raw: msgspec.Raw
    path: tuple[str | int, ...]
    min_count: int | None = None
    shown: str = ""
    absent: bool = False
    index: PodIndex | None = None

    @property
    def directives(self) -> Directives:
        """The parts of the template that an admission may change."""
        return Directives.of(self.as_pod_set().view)

    def as_pod_set(self) -> JobPodSet:
        """The pod set made from this template."""
        return JobPodSet(
            name=self.pod_set.lower(),
            count=self.count,
            min_count=self.min_count,
            template=bytes(self.raw),
            index=self.index,
        )

    @property
    def admitted(self) -> bool:
        """Whether the template has the label that every start adds and every stop removes."""
        return names.PODSET_LABEL in self.directives.labels

    @property
    def field(self) -> str:
        """The path as error messages write it: `spec.replicatedJobs[0].template.spec.template`."""
        return self.shown or dotted(self.path)


class TemplatedJob(Integration[J], Suspendable[J]):
    """A kind with a suspend field and pod templates."""

    success: ClassVar[str] = "Completed"
    """Type of the condition that reports success."""
    failure: ClassVar[str] = "Failed"
    """Type of the condition that reports failure."""

    @abstractmethod
    def templates(self, job: J) -> list[Template]:
        """The pod templates in the order of the pod sets. Raises PermanentError if they are invalid."""

    def readable_templates(self, job: J) -> list[Template]:
        """The valid templates only: a job with invalid templates can still be stopped."""
        return self.templates(job)

    def value(self, job: J, path: tuple[str, ...]) -> Any:
        """The value at a path of the object; None if it is absent."""
        value: Any = job
        for part in path:
            value = getattr(value, _attribute(part), None)
        return value

    def conditions(self, job: J) -> Sequence["JobCondition"]:
        """The conditions of the job's status."""
        found: Sequence[JobCondition] = job.status.conditions  # type: ignore[attr-defined]  # each such kind has them
        return found

    def suspended(self, job: J) -> bool:
        """Whether the suspend field is set."""
        return bool(self.value(job, self.suspend_path))

    def hold(self, job: J, patch: JsonPatch) -> None:
        """Set the suspend field."""
        self._set_suspended(job, patch, value=True)

    def create_errors(self, job: J) -> list[FieldError]:
        """Errors of each template's topology request, and of pod set groups."""
        placed = [
            Placed(annotations_of(template.raw), f"{template.field}.metadata.annotations", template.count)
            for template in self.templates(job)
        ]
        errors = [error for each in placed for error in topology_errors(*each[:2], count=each.pods)]
        errors += reserved_label_errors(job, self.templates(job))
        return errors + group_errors(placed)

    def finished(self, job: J) -> Outcome | None:
        """The outcome that the kind's success or failure condition reports."""
        for condition in self.conditions(job):
            if condition.type in (self.success, self.failure) and condition.status == "True":
                return Outcome(success=condition.type == self.success, message=condition.message)
        return None

    def carries_admission(self, job: J) -> bool:
        """Whether a template has the label that every start adds and every stop removes."""
        return any(template.admitted for template in self.readable_templates(job))

    def claims(self, job: J) -> Sequence[Claim]:
        """One for each template."""
        return [Claim.of(template.raw, template.count) for template in self.templates(job)]

    def pod_sets(self, job: J) -> list[JobPodSet]:
        """A pod set for each template."""
        return [template.as_pod_set() for template in self.templates(job)]

    def start(self, job: J, infos: Sequence[PodSetInfo]) -> Change | None:
        """Unsuspend and merge in one patch; None while pods of an earlier run are active."""
        patch = self.merged(job, infos)
        if self.active(job):
            return None
        self._set_suspended(job, patch, value=False)
        return Change(patch, fresh=True)

    def merged(self, job: J, infos: Sequence[PodSetInfo]) -> JsonPatch:
        """The patch that adds an admission to the templates. Raises PermanentError if they contradict it."""
        templates = self.templates(job)
        if len(infos) != len(templates):
            raise PermanentError(
                f"the job has {len(templates)} pod sets, the admission {len(infos)}: delete the Workload to have it "
                "made anew"
            )
        patch = JsonPatch()
        for template, info in zip(templates, infos, strict=True):
            if template.absent:
                patch.add(*template.path, value=orjson.loads(bytes(template.raw)))
            rewrite(patch, template.raw, template.path, merge(template.directives, info))
        return patch

    def marked(self, job: J, infos: Sequence[PodSetInfo]) -> Change | None:
        """The patch that adds an admission to the templates of a job that runs; None if they have it. Raises
        PermanentError as `merged`."""
        return None if self.carries_admission(job) else Change(self.merged(job, infos), fresh=True)

    def stop(self, job: J, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime) -> Stop:
        """Suspend the job and restore its templates in one patch; complete once no pod is active.

        A finished job is not changed.
        """
        running = not self.suspended(job)
        if self.finished(job) is not None:
            return Stop()
        gone = not self.active(job)
        if not (running or self.carries_admission(job)):
            return Stop(complete=gone)
        patch = JsonPatch()
        if running:
            self._set_suspended(job, patch, value=True)
        for template, pod_set in _originals(self.readable_templates(job), pod_sets or ()):
            wanted, without = Directives.of(pod_set.template), pod_set.template.metadata is None
            rewrite(patch, template.raw, template.path, wanted, without_metadata=without)
        steps: list[Step] = [Change(patch, fresh=True)] if patch else []
        return Stop(steps, announce=running, complete=gone)

    def elastic_templates(self, job: J) -> list[Template]:
        """The templates whose pods a job that is elastic may have more or fewer of."""
        return self.readable_templates(job)

    def gate_growth(self, job: J, patch: JsonPatch) -> None:
        """Add the gate of elastic jobs to each such template."""
        for template in self.elastic_templates(job):
            current = template.directives
            if names.ELASTIC_GATE not in current.scheduling_gates:
                gates = (*current.scheduling_gates, names.ELASTIC_GATE)
                rewrite(patch, template.raw, template.path, replace(current, scheduling_gates=gates))

    def is_growth_gated(self, job: J) -> bool:
        """Whether each such template has the gate of elastic jobs."""
        return all(holds_growth(bytes(template.raw)) for template in self.elastic_templates(job))

    def suspend(self, job: J) -> Change:
        """Set the suspend field and nothing else."""
        patch = JsonPatch()
        self._set_suspended(job, patch, value=True)
        return Change(patch, fresh=True)

    def send_away(self, job: J, patch: JsonPatch) -> None:
        """Set `managedBy`; add the objects that enclose it unless they are there, or were added before."""
        assert self.copies is not None
        *enclosing, field = self.copies.path
        added = {each["path"] for each in patch.operations}
        for depth in range(1, len(enclosing) + 1):
            if self.value(job, tuple(enclosing[:depth])) is None and pointer(*enclosing[:depth]) not in added:
                patch.add(*enclosing[:depth], value={})
        patch.add(*enclosing, field, value=names.MULTIKUEUE_CONTROLLER)

    def _set_suspended(self, job: J, patch: JsonPatch, *, value: bool) -> None:
        """Set the suspend field; add the objects that enclose it if they are absent."""
        for depth in range(1, len(self.suspend_path)):
            if self.value(job, self.suspend_path[:depth]) is None:
                patch.add(*self.suspend_path[:depth], value={})
        patch.add(*self.suspend_path, value=value)


@remembered()
def holds_growth(template: bytes) -> bool:
    """Whether a pod template has the gate of elastic jobs. Cached: a job is read often."""
    view = JobPodSet(name="", count=0, template=template).view
    return any(gate.name == names.ELASTIC_GATE for gate in view.spec.scheduling_gates)


def _originals(templates: Sequence[Template], pod_sets: Sequence[PodSet]) -> list[tuple[Template, PodSet]]:
    """Each template of a job with the pod set that was made from it: by position, or by name if the job has other pod
    sets since."""
    named = {pod_set.name: pod_set for pod_set in pod_sets}
    pairs = (
        zip(templates, pod_sets, strict=True)
        if len(pod_sets) == len(templates)
        else ((template, named[name]) for template in templates if (name := template.as_pod_set().name) in named)
    )
    return [(template, pod_set) for template, pod_set in pairs if not template.absent]


def reserved_label_errors(job: Kind, templates: Sequence[Template]) -> list[FieldError]:
    """Errors of templates with a label that admission sets to another value: such a job could not be started.

    A job that another object controls is not checked: its templates may carry the labels of its owner's admission.
    """
    if job.metadata.controller is not None:
        return []
    errors: list[FieldError] = []
    for template in templates:
        labels = template.directives.labels
        wanted = {names.PODSET_LABEL: template.as_pod_set().name}
        if queue := queue_name(job):
            wanted[names.LOCAL_QUEUE_LABEL] = queue
        errors += [
            invalid(f"{template.field}.metadata.labels[{key}]", labels[key], f'must be absent or "{value}": {_SET}')
            for key, value in wanted.items()
            if labels.get(key, value) != value
        ]
    return errors


_SET: Final = "the label is set when the job is admitted"


class JobCondition(Object):
    """A condition in the status of a job."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


def suspended_at(conditions: Sequence[JobCondition]) -> int | None:
    """The index of the condition by which a kind's controller says that a job is suspended; None if it does not say
    that."""
    found = (index for index, each in enumerate(conditions) if (each.type, each.status) == ("Suspended", "True"))
    return next(found, None)


def acknowledged_anew(stop: Stop, unread: JsonPatch) -> Stop:
    """The stop, after a patch of the status that takes back what the kind's controller said before the start: it says
    so again when it has read of the stop."""
    rest = [replace(each, fresh=False) for each in stop.steps if isinstance(each, Change)]
    return replace(stop, steps=[Change(unread, subresource="status", fresh=True), *rest], complete=False)


class _Metadata(Object):
    annotations: dict[str, str] = {}


class _Annotated(Object):
    metadata: _Metadata | None = None


_decode_annotated: Final = msgspec.json.Decoder(_Annotated).decode


def annotations_of(template: msgspec.Raw) -> dict[str, str]:
    """The annotations of a pod template (JSON). Raises msgspec.MsgspecError if it does not decode."""
    metadata = _decode_annotated(template).metadata
    return metadata.annotations if metadata is not None else {}


@lru_cache(maxsize=64)
def _attribute(json_name: str) -> str:
    """The struct's attribute for a JSON name: `ray_cluster_config` for `rayClusterConfig`."""
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in json_name)
