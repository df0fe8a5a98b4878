"""workload.codeflare.dev AppWrapper: objects of any kind that are deployed together; suspended by `spec.suspend`.

The AppWrapper controller creates the wrapped objects when the AppWrapper is resumed and deletes them when it is
suspended. The assignment of an admission is not written into the wrapped templates but beside them (`podSetInfos`), and
the controller adds it to the objects that it creates. Source: Kueue's pkg/controller/jobs/appwrapper.

A pod set that the AppWrapper declares only says where a template is. If the kind of the wrapped object is known, its
own counting rule says how many pods are charged, and never fewer than declared. The objects follow the AppWrapper only
as far as its Workload charges for them (`turnstile.controllers.jobs.children`).
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, ClassVar, Final

import msgspec
import orjson

from turnstile.api.config.document import dotted
from turnstile.api.core import ReplicaSet
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, Object, to_plain
from turnstile.api.numbers import clamped
from turnstile.api.patch import JsonPatch
from turnstile.api.pods import PodTemplate, SchedulingGate, Toleration
from turnstile.api.remembered import remembered
from turnstile.api.validation.errors import IMMUTABLE, OMITTED, FieldError, forbidden, format_errors, invalid
from turnstile.api.validation.labels import dns_label_faults
from turnstile.api.workload import PodSet
from turnstile.jobs import conditions
from turnstile.jobs.bases.templated import JobCondition, Template, TemplatedJob
from turnstile.jobs.capabilities import CountedPods
from turnstile.jobs.integration import Asked, Change, Integration, Outcome, Right, Stop
from turnstile.jobs.kinds.appwrapper.components import Part, Path, at, inferred, path_of
from turnstile.jobs.kinds.appwrapper.templates import shaped
from turnstile.jobs.kinds.deployment import Deployment
from turnstile.jobs.podsets import PodSetInfo, merge
from turnstile.jobs.remote import RemoteCopies
from turnstile.jobs.topologyrequest import PodIndex

_COMPONENTS: Final = ("spec", "components")
_MAX_COUNT: Final = 2**31 - 1
_TAS: Final = "workload.codeflare.dev.appwrapper/tas"
"""The beginning of annotations of a declared pod set."""
_GROUP_INDEX: Final = "sub-group-index"
_decode_template: Final = msgspec.json.Decoder(PodTemplate).decode


class _DeclaredPodSet(Object):
    path: str = ""
    replicas: int | None = None
    annotations: dict[str, str] = {}

    @property
    def index(self) -> PodIndex | None:
        """How the pods are numbered, if the declaration says so."""
        label, group_label = (self.annotations.get(f"{_TAS}-{name}-label", "") for name in ("pod-index", _GROUP_INDEX))
        groups = clamped(self.annotations.get(f"{_TAS}-sub-group-count", ""))
        if not label:
            return None
        return PodIndex(label, group_label, min(groups, _MAX_COUNT)) if group_label and groups else PodIndex(label)


class _PodSetInfo(Object):
    """Additions of an admission to one pod set."""

    annotations: dict[str, str] = {}
    labels: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: list[Toleration] = []
    scheduling_gates: list[SchedulingGate] = []


class _Component(Object):
    pod_sets: list[_DeclaredPodSet] = []
    pod_set_infos: list[_PodSetInfo] = []
    template: msgspec.Raw = msgspec.Raw(b"{}")


class _Spec(Object):
    suspend: bool | None = None
    managed_by: str | None = None
    components: list[_Component] = []


class _Status(Object):
    phase: str = ""
    conditions: list[JobCondition] = []


class AppWrapper(Kind):
    """The fields of an AppWrapper that are read."""

    GROUP: ClassVar = "workload.codeflare.dev"
    VERSION: ClassVar = "v1beta2"
    KIND: ClassVar = "AppWrapper"
    PLURAL: ClassVar = "appwrappers"
    NAMESPACED: ClassVar = True

    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class AppWrappers(TemplatedJob[AppWrapper]):
    """Kueue's `workload.codeflare.dev/appwrapper`. `wraps` are the kinds whose own rules count pods of components."""

    kind = AppWrapper
    framework = "workload.codeflare.dev/appwrapper"
    summary = "suspended; a pod set for each pod template of the wrapped objects"
    counted_pods = CountedPods("workload.codeflare.dev/appwrapper", below=(Deployment, ReplicaSet))
    asked = Asked(validating={"queued-now-or-before": conditions.QUEUED})
    copies = RemoteCopies[AppWrapper](lambda job: job.spec.managed_by, native="workload.codeflare.dev/appwrapper")
    rights = (Right("appwrappers/status", ("patch",)),)  # of a copy on another cluster

    def __init__(self, wraps: Sequence[Integration[Any]] = ()) -> None:
        self._wraps = {(each.kind.GROUP, each.kind.KIND): each for each in wraps}

    def creates(self, made: tuple[str, str]) -> bool:
        """An AppWrapper may wrap objects of any kind but its own."""
        return made != (AppWrapper.GROUP, AppWrapper.KIND)

    # --- pod sets

    def templates(self, job: AppWrapper) -> list[Template]:
        """The pod templates of all components; the pod sets are numbered: `<name>-0`, `<name>-1`."""
        templates, errors = self._read(job)
        if errors:
            raise PermanentError(format_errors(errors))
        return templates

    def readable_templates(self, job: AppWrapper) -> list[Template]:
        """The valid templates."""
        return self._read(job)[0]

    def _read(self, job: AppWrapper) -> tuple[list[Template], list[FieldError]]:
        """The valid templates, and the errors of the others."""
        templates: list[Template] = []
        errors: list[FieldError] = []
        number = 0
        for index, component in enumerate(job.spec.components):
            place = (*_COMPONENTS, index)
            declared = tuple((each.path, each.replicas) for each in component.pod_sets)
            parts = self._component(bytes(component.template), declared)
            for offset, found in enumerate(parts):
                name, number = f"{job.metadata.name}-{number}", number + 1
                if isinstance(found, str):
                    errors.append(invalid(dotted((*place, "podSets" if declared else "template")), OMITTED, found))
                    continue
                part, raw = found
                if part.pods > _MAX_COUNT:
                    errors.append(invalid(dotted((*place, "template")), part.pods, f"has more pods than {_MAX_COUNT}"))
                path = (*place, "template", *part.path)
                numbered = (component.pod_sets[offset].index if declared else None) or part.numbered
                templates.append(Template(name, part.pods, msgspec.Raw(raw), path, index=numbered))
        return templates, errors

    def _component(
        self, template: bytes, declared: tuple[tuple[str, int | None], ...]
    ) -> Sequence[tuple[Part, bytes] | str]:
        """Each pod template of a component in the controller's order; a text says what is wrong with one."""
        wrapped = _wrapped(template)
        if isinstance(wrapped, str):
            return [wrapped]
        group_kind = (wrapped.get("apiVersion", "").rpartition("/")[0], wrapped["kind"])
        known = _known(self._wraps.get(group_kind), template)
        found: list[tuple[Part, bytes] | str] = []
        for each in _parts(template, declared):
            if not isinstance(each, str):
                part, raw = each
                same = known.get(part.path, part)
                each = part._replace(pods=max(part.pods, same.pods), numbered=same.numbered), raw
            found.append(each)
        return found

    # --- rules of the webhook

    def create_errors(self, job: AppWrapper) -> list[FieldError]:
        """Errors of components and of the name; if there are none, those of each template."""
        templates, errors = self._read(job)
        if templates and (faults := dns_label_faults(templates[-1].pod_set.lower())):
            name = job.metadata.name
            errors += [invalid("metadata.name", name, f"cannot name the pod sets: {fault}") for fault in faults]
        return errors or super().create_errors(job)

    def update_errors(self, old: AppWrapper, new: AppWrapper) -> list[FieldError]:
        """The assignment of an admission must not change while the AppWrapper runs: the controller applies it again
        whenever it recreates the wrapped objects."""
        errors = super().update_errors(old, new)
        if self.suspended(old) or self.suspended(new):
            return errors
        return errors + [
            forbidden(dotted((*_COMPONENTS, index, "podSetInfos")), f"{IMMUTABLE} while the AppWrapper runs")
            for index, (before, after) in enumerate(zip(old.spec.components, new.spec.components, strict=False))
            if before.pod_set_infos != after.pod_set_infos
        ]

    # --- answers for the reconciler

    def carries_admission(self, job: AppWrapper) -> bool:
        """Whether any component has `podSetInfos`."""
        return any(each.pod_set_infos for each in job.spec.components)

    def active(self, job: AppWrapper) -> bool:
        """Whether the controller reports that wrapped objects are deployed, or being deleted."""
        return self._is_true(job, "QuotaReserved")

    def finished(self, job: AppWrapper) -> Outcome | None:
        """The outcome by the phase; a failed AppWrapper has finished once its objects are deleted."""
        match job.status.phase:
            case "Succeeded":
                return Outcome(success=True, message="AppWrapper finished successfully")
            case "Failed" if not self._is_true(job, "ResourcesDeployed"):
                return Outcome(success=False, message="AppWrapper failed")
        return None

    def start(self, job: AppWrapper, infos: Sequence[PodSetInfo]) -> Change | None:
        """Unsuspend and write what the admission assigned beside the components, in one patch."""
        templates = self.templates(job)
        if len(infos) != len(templates):
            raise PermanentError(
                f"the AppWrapper has {len(templates)} pod sets, the admission {len(infos)}: delete the Workload to "
                "have it made anew"
            )
        by_component: dict[int, list[dict[str, Any]]] = {}
        for template, info in zip(templates, infos, strict=True):
            merge(template.directives, info)  # the controller would fail for good
            by_component.setdefault(_component_of(template), []).append(_written(info))
        if self.active(job):
            return None
        patch = JsonPatch()
        for index, component in enumerate(job.spec.components):
            if written := by_component.get(index):
                patch.add(*_COMPONENTS, index, "podSetInfos", value=written)
            elif component.pod_set_infos:
                patch.remove(*_COMPONENTS, index, "podSetInfos")
        self._set_suspended(job, patch, value=False)
        return Change(patch, fresh=True)

    def stop(
        self, job: AppWrapper, pod_sets: Sequence[PodSet] | None, *, reason: str, message: str, now: datetime
    ) -> Stop:
        """Suspend and remove what the admission assigned, in one patch; complete once nothing is deployed.

        The wrapped templates were never changed, so there is nothing to restore from the Workload.
        """
        if self.finished(job) is not None:
            return Stop()
        running = not self.suspended(job)
        patch = JsonPatch()
        if running:
            self._set_suspended(job, patch, value=True)
        for index, component in enumerate(job.spec.components):
            if component.pod_set_infos:
                patch.remove(*_COMPONENTS, index, "podSetInfos")
        return Stop([Change(patch, fresh=True)] if patch else [], announce=running, complete=not self.active(job))

    def pods_ready(self, job: AppWrapper) -> bool:
        """Whether the condition PodsReady is True."""
        return self._is_true(job, "PodsReady")

    def significant(self, job: AppWrapper) -> tuple[object, ...]:
        """The spec, the outcome, and whether anything is deployed."""
        return job.spec, self.finished(job), self.active(job)

    def _is_true(self, job: AppWrapper, condition: str) -> bool:
        return any(each.type == condition and each.status == "True" for each in job.status.conditions)


def _component_of(template: Template) -> int:
    index = template.path[len(_COMPONENTS)]
    assert isinstance(index, int)
    return index


def _written(info: PodSetInfo) -> dict[str, Any]:
    """An entry of `podSetInfos`."""
    written = _PodSetInfo(
        annotations=dict(info.annotations),
        labels=dict(info.labels),
        node_selector=dict(info.node_selector),
        tolerations=list(info.tolerations),
        scheduling_gates=[SchedulingGate(name=gate) for gate in info.scheduling_gates],
    )
    plain: dict[str, Any] = to_plain(written)
    return plain


@remembered()
def _wrapped(template: bytes) -> dict[str, Any] | str:
    """A wrapped object, or why it cannot be read. Shared: must not be changed."""
    try:
        found = orjson.loads(template)
    except orjson.JSONDecodeError as error:
        return f"is no JSON: {error}"
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        return "is no object: it has no kind"
    return found if isinstance(found.get("apiVersion", ""), str) else "is no object: its apiVersion is no text"


@remembered()
def _parts(template: bytes, declared: tuple[tuple[str, int | None], ...]) -> tuple[tuple[Part, bytes] | str, ...]:
    """Each pod template of a wrapped object, as the controller finds it, with the template of its pod set."""
    wrapped = _wrapped(template)
    assert not isinstance(wrapped, str)
    found: list[tuple[Part, bytes] | str] = []
    for part in _declared(declared) if declared else inferred(wrapped):
        if isinstance(part, str):
            found.append(part)
            continue
        try:
            raw = orjson.dumps(shaped(at(wrapped, part.path)))
            _decode_template(raw)
            found.append((part, raw))
        except (ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError) as error:
            path = dotted(("template", *part.path))
            found.append(f"there is no pod template at {path}: {error}")
    return tuple(found)


def _declared(declared: tuple[tuple[str, int | None], ...]) -> list[Part | str]:
    parts: list[Part | str] = []
    for text, replicas in declared:
        count = 1 if replicas is None else replicas
        try:
            parts.append(Part(path_of(text), count) if count >= 0 else f"{text}: replicas must not be negative")
        except ValueError as error:
            parts.append(f"{text}: {error}")
    return parts


def _known(integration: Integration[Any] | None, template: bytes) -> dict[Path, Part]:
    """The pod templates by their paths, with the number of pods by the rules of the wrapped object's own kind."""
    wrapped = _wrapped(template)
    assert not isinstance(wrapped, str)
    found = {part.path: part for part in inferred(wrapped)}
    if isinstance(integration, TemplatedJob):
        # An object that cannot be read is refused when the controller creates it.
        with suppress(msgspec.ValidationError, PermanentError):
            job = integration.kind.decoder()(template)
            for each in integration.templates(job):
                pods = max(each.count, found[each.path].pods if each.path in found else 0)
                found[each.path] = Part(each.path, pods, each.index)
    return found
