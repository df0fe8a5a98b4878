"""Validates the metadata that all job kinds share, on create and on update.

Texts, paths and their order are Kueue's (`jobframework/validation.go`). Pure functions from metadata to errors; all
errors of an object are returned together.
"""

from typing import Any, Final

from turnstile.api import names
from turnstile.api.gotext import parse_int
from turnstile.api.meta import ObjectMeta
from turnstile.api.validation.errors import IMMUTABLE, FieldError, forbidden, invalid
from turnstile.api.validation.labels import subdomain_faults
from turnstile.api.validation.workload import admission_gated_by_errors, admission_gated_by_update_errors
from turnstile.jobs.integration import Integration
from turnstile.jobs.labels import identifier, is_elastic
from turnstile.jobs.options import JobOptions
from turnstile.webhooks.review import GroupVersionKind

QUEUE_PATH: Final = f"metadata.labels[{names.QUEUE_LABEL}]"
PRIORITY_PATH: Final = f"metadata.labels[{names.PRIORITY_CLASS_LABEL}]"
MAX_EXEC_TIME_PATH: Final = f"metadata.labels[{names.MAX_EXEC_TIME_LABEL}]"
ELASTIC_PATH: Final = f"metadata.annotations[{names.ELASTIC_JOB}]"


def create_errors(
    meta: ObjectMeta, kind: GroupVersionKind, integration: Integration[Any], options: JobOptions
) -> list[FieldError]:
    """Errors of a job's metadata, regardless of its previous version."""
    return [
        *_queue_name(meta),
        *_prebuilt(meta, kind, integration),
        *_max_exec_time(meta),
        *(_elastic(meta, kind, integration) if options.elastic_jobs else ()),
        *admission_gated_by_errors(options.gates_of(meta)),
    ]


def update_errors(
    old: ObjectMeta,
    new: ObjectMeta,
    kind: GroupVersionKind,
    integration: Integration[Any],
    options: JobOptions,
    *,
    was_suspended: bool,
    suspended: bool,
    default_queue: bool,
) -> list[FieldError]:
    """Errors of forbidden metadata changes. `default_queue`: the namespace has a LocalQueue named `default`."""
    errors: list[FieldError] = []

    old_queue, queue = old.labels.get(names.QUEUE_LABEL, ""), new.labels.get(names.QUEUE_LABEL, "")
    if not suspended and queue != old_queue:
        errors.append(invalid(QUEUE_PATH, queue, IMMUTABLE))
    if old_queue and not queue and default_queue:
        errors.append(invalid(QUEUE_PATH, "", "queue-name must not be empty in namespace with default queue"))

    prebuilt, path = identifier(new, names.PREBUILT_WORKLOAD)
    changed = prebuilt != identifier(old, names.PREBUILT_WORKLOAD)[0]
    if changed and not (suspended or is_elastic(new)):
        errors.append(invalid(path, prebuilt, IMMUTABLE))
    elif changed or (was_suspended and suspended):  # an invalid name in the old object must not block a start or a stop
        errors += _prebuilt(new, kind, integration)

    if not (was_suspended and suspended):
        limit = new.labels.get(names.MAX_EXEC_TIME_LABEL, "")
        if limit != old.labels.get(names.MAX_EXEC_TIME_LABEL, ""):
            errors.append(invalid(MAX_EXEC_TIME_PATH, limit, IMMUTABLE))

    errors += _priority_class_change(old, new, suspended=suspended)
    if options.elastic_jobs and _may_grow(integration) and is_elastic(new) != is_elastic(old):
        errors.append(invalid(ELASTIC_PATH, is_elastic(new), IMMUTABLE))
    return errors + admission_gated_by_update_errors(options.gates_of(new), options.gates_of(old))


def _queue_name(meta: ObjectMeta) -> list[FieldError]:
    value = meta.labels.get(names.QUEUE_LABEL, "")
    return [invalid(QUEUE_PATH, value, fault) for fault in subdomain_faults(value)] if value else []


def _prebuilt(meta: ObjectMeta, kind: GroupVersionKind, integration: Integration[Any]) -> list[FieldError]:
    value, path = identifier(meta, names.PREBUILT_WORKLOAD)
    if not value:
        return []
    errors = [invalid(path, value, fault) for fault in subdomain_faults(value)]
    if not integration.handling.takes_prebuilt and names.MULTIKUEUE_ORIGIN not in meta.labels:
        errors.append(forbidden(path, f'Is not supported for "{_spelled(kind)}"'))
    return errors


def _max_exec_time(meta: ObjectMeta) -> list[FieldError]:
    value = meta.labels.get(names.MAX_EXEC_TIME_LABEL)
    if value is None:
        return []
    seconds = parse_int(value)
    if isinstance(seconds, str):
        return [invalid(MAX_EXEC_TIME_PATH, value, seconds)]
    return [] if seconds > 0 else [invalid(MAX_EXEC_TIME_PATH, seconds, "should be greater than 0")]


def _may_grow(integration: Integration[Any]) -> bool:
    return integration.elasticity is not None or (integration.as_set is not None and integration.as_set.grows)


def _elastic(meta: ObjectMeta, kind: GroupVersionKind, integration: Integration[Any]) -> list[FieldError]:
    if not is_elastic(meta) or _may_grow(integration):
        return []
    return [forbidden(ELASTIC_PATH, f'elastic job is not supported for "{_spelled(kind)}"')]


def _priority_class_change(old: ObjectMeta, new: ObjectMeta, *, suspended: bool) -> list[FieldError]:
    before, after = old.labels.get(names.PRIORITY_CLASS_LABEL, ""), new.labels.get(names.PRIORITY_CLASS_LABEL, "")
    if before and not after:
        return [invalid(PRIORITY_PATH, "", "WorkloadPriorityClass cannot be removed from a workload")]
    if after and not before and not suspended:
        detail = "WorkloadPriorityClass cannot be added to a non-suspended workload"
        return [invalid(PRIORITY_PATH, after, detail)]
    return []


def _spelled(kind: GroupVersionKind) -> str:
    """A kind as Go prints it: `batch/v1, Kind=Job`."""
    return f"{kind.group}/{kind.version}, Kind={kind.kind}"
