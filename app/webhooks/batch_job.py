"""The webhooks of batch/v1 Job: suspension, partial admission, completions kept equal to parallelism, topology.

A Job that asks to be elastic is checked like the others; the gate that elastic Jobs need on their pods is not added
until Turnstile can lift it.
"""

from typing import Final

import msgspec

from app.api import names
from app.api.core import Job
from app.api.meta import Object, ObjectMeta
from app.api.validation.errors import FieldError, brought, forbidden, invalid
from app.kube.patch import JsonPatch
from app.webhooks.gotext import parse_bool, parse_int
from app.webhooks.job_rules import create_errors, is_elastic
from app.webhooks.jobs import JobKind
from app.webhooks.review import GroupVersionKind
from app.webhooks.topology import PREFERRED, REQUIRED, topology_errors

MIN_PARALLELISM_PATH: Final = f"metadata.annotations[{names.JOB_MIN_PARALLELISM}]"
SYNC_PATH: Final = f"metadata.annotations[{names.JOB_COMPLETIONS_EQUAL_PARALLELISM}]"
_KIND: Final = GroupVersionKind(group=Job.GROUP, version=Job.VERSION, kind=Job.KIND)
_TEMPLATE_ANNOTATIONS: Final = "spec.template.metadata.annotations"


class _Annotated(Object):
    annotations: dict[str, str] = {}


class _Template(Object):
    metadata: _Annotated = msgspec.field(default_factory=_Annotated)


class _Spec(Object):
    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    template: _Template = msgspec.field(default_factory=_Template)


class JobView(Object):
    """The part of a Job that the webhooks read."""

    metadata: ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)


def _or_one(number: int | None) -> int:
    return 1 if number is None else number


def _pods(job: JobView) -> int:
    parallelism = _or_one(job.spec.parallelism)
    return parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)


def _minimum(job: JobView) -> str | None:
    return job.metadata.annotations.get(names.JOB_MIN_PARALLELISM)


def _suspended(job: JobView) -> bool:
    return bool(job.spec.suspend) and job.metadata.annotations.get(names.JOB_STOPPING) != "true"


def _suspend(job: JobView, patch: JsonPatch) -> None:
    if not job.spec.suspend:
        patch.add("spec", "suspend", value=True)


def _synchronized(job: JobView) -> bool:
    return parse_bool(job.metadata.annotations.get(names.JOB_COMPLETIONS_EQUAL_PARALLELISM, "")) is True


def _create_errors(job: JobView, *, counted: bool = True) -> list[FieldError]:
    """What is wrong with a Job, whatever it was before. `counted`: its parallelism is what its owner asks for."""
    annotations = job.metadata.annotations
    errors: list[FieldError] = []
    pods = _pods(job)
    if (value := _minimum(job)) is not None:
        minimum = parse_int(value)
        if isinstance(minimum, str):
            errors.append(invalid(MIN_PARALLELISM_PATH, value, minimum))
        elif minimum <= 0 or (counted and minimum >= pods):
            errors.append(invalid(MIN_PARALLELISM_PATH, minimum, f"should be between 0 and {pods - 1}"))
        if is_elastic(job.metadata):
            detail = "partial admission and elastic job cannot be used together"
            errors.append(invalid(MIN_PARALLELISM_PATH, value, detail))
    if (value := annotations.get(names.JOB_COMPLETIONS_EQUAL_PARALLELISM)) is not None:
        synchronized = parse_bool(value)
        if isinstance(synchronized, str):
            errors.append(invalid(SYNC_PATH, value, synchronized))
        elif synchronized:
            if job.spec.completion_mode in {None, "NonIndexed"}:
                errors.append(invalid(SYNC_PATH, value, "should not be enabled for NonIndexed jobs"))
            if _or_one(job.spec.completions) != _or_one(job.spec.parallelism):
                key = names.JOB_COMPLETIONS_EQUAL_PARALLELISM
                detail = f"should be equal to parallelism when {key} annotation is true"
                errors.append(invalid("spec.completions", job.spec.completions, detail))
    template = job.spec.template.metadata.annotations
    errors += topology_errors(template, _TEMPLATE_ANNOTATIONS, count=pods if counted else None)
    if is_elastic(job.metadata):
        errors += [
            forbidden(f"{_TEMPLATE_ANNOTATIONS}.{key}", f"{word} topology is not supported with elastic jobs")
            for key, word in ((REQUIRED, "required"), (PREFERRED, "preferred"))
            if key in template
        ]
    return errors


def _update_errors(old: JobView, new: JobView) -> list[FieldError]:
    # While a Job runs its parallelism is what was admitted, which may be its minimum.
    counted = _suspended(new) or _minimum(new) != _minimum(old)
    errors = brought(
        create_errors(new.metadata, _KIND) + _create_errors(new, counted=counted),
        lambda: create_errors(old.metadata, _KIND) + _create_errors(old),
    )
    if old.spec.suspend:  # also while a stop is under way, which puts the parallelism back
        return errors
    if _minimum(old) is not None and _or_one(old.spec.parallelism) != _or_one(new.spec.parallelism):
        detail = "cannot change when partial admission is enabled and the job is not suspended"
        errors.append(forbidden("spec.parallelism", detail))
    if _synchronized(old) != _synchronized(new):
        errors.append(forbidden(SYNC_PATH, "field is immutable while the job is not suspended"))
    return errors


BATCH_JOB: Final = JobKind(
    kind=Job,
    view=JobView,
    suspended=_suspended,
    suspend=_suspend,
    create_errors=_create_errors,
    update_errors=_update_errors,
)
