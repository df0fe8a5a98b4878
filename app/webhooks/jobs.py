"""What the webhooks do with every job kind: defaults and suspension on create, rules on create and update.

A kind says how it is read, suspended and checked (`JobKind`); the order of the steps is the same for all and is
Kueue's: default LocalQueue, default WorkloadPriorityClass, suspension. Children of managed jobs are left alone.
Turnstile does not dispatch to other clusters yet, so `managedBy` is never set here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from app.api import names
from app.api.meta import Kind, ObjectMeta
from app.api.validation.errors import FieldError, format_errors
from app.kube.patch import JsonPatch
from app.webhooks.handlers import guarded
from app.webhooks.job_rules import create_errors, update_errors
from app.webhooks.review import ALLOWED, CREATE, UPDATE, Answer, Handler, Request, changed, decoder, denied
from app.webhooks.world import World, has_managed_ancestor, namespace_is_managed, owned_by_managed_kind


class View(Protocol):
    """What of a job is decoded."""

    metadata: ObjectMeta


V = TypeVar("V", bound=View)


@dataclass(frozen=True, slots=True)
class JobKind(Generic[V]):
    """One job kind, as the webhooks see it. The functions look at nothing but their arguments.

    `suspended` tells whether the job is held back; `suspend` adds to the patch what holds it back, and is only asked
    when it is not. `create_errors` and `update_errors(old, new)` are the rules of the kind beside those that all share;
    `warnings` tells what is allowed but unwise.
    """

    kind: type[Kind]
    view: type[V]
    suspended: Callable[[V], bool]
    suspend: Callable[[V, JsonPatch], object]
    create_errors: Callable[[V], list[FieldError]]
    update_errors: Callable[[V, V], list[FieldError]]
    warnings: Callable[[V], tuple[str, ...]] = lambda _: ()


def add_default_labels(patch: JsonPatch, meta: ObjectMeta, world: World) -> bool:
    """Give a job the default queue and the default priority class where it has none and its owner is no job.

    Returns whether the job has a queue then.
    """
    queue = meta.labels.get(names.QUEUE_LABEL, "")
    if not owned_by_managed_kind(meta, world):
        if not queue and world.default_local_queue(meta.namespace) and namespace_is_managed(meta.namespace, world):
            queue = names.DEFAULT_LOCAL_QUEUE
            add_label(patch, meta, names.QUEUE_LABEL, queue)
        if not meta.labels.get(names.PRIORITY_CLASS_LABEL) and world.default_priority_class():
            add_label(patch, meta, names.PRIORITY_CLASS_LABEL, names.DEFAULT_PRIORITY_CLASS)
    return bool(queue)


def add_label(patch: JsonPatch, meta: ObjectMeta, key: str, value: str) -> None:
    """Set a label of the object."""
    patch.put(meta.labels, "metadata", "labels", key=key, value=value)


def mutating(job: JobKind[V], world: World) -> Handler:
    """The defaulting handler of a job kind."""
    decode = decoder(job.view)

    def mutate(request: Request) -> Answer:
        view = decode(request.object)
        meta = view.metadata
        meta.namespace = request.namespace or meta.namespace
        patch = JsonPatch()
        has_queue = add_default_labels(patch, meta, world)
        if (
            not job.suspended(view)
            and meta.deletion_timestamp is None
            and (has_queue or world.options.manage_jobs_without_queue_name)
            and not has_managed_ancestor(job.kind, meta, world)
            and (has_queue or namespace_is_managed(meta.namespace, world))
        ):
            job.suspend(view, patch)
        return changed(patch)

    return guarded(mutate, kind=job.kind, operations={CREATE})


def validating(job: JobKind[V], world: World) -> Handler:
    """The validating handler of a job kind. It never changes anything."""
    decode = decoder(job.view)

    def validate(request: Request) -> Answer:
        new = decode(request.object)
        if request.operation == CREATE:
            errors = create_errors(new.metadata, request.kind) + job.create_errors(new)
        elif new.metadata.deletion_timestamp is not None:
            return ALLOWED  # only finalizers are left to go, and nothing may be in their way
        else:
            old = decode(request.old_object)
            errors = update_errors(
                old.metadata,
                new.metadata,
                request.kind,
                was_suspended=job.suspended(old),
                suspended=job.suspended(new),
                default_queue=world.default_local_queue(request.namespace or new.metadata.namespace),
            )
            errors += job.update_errors(old, new)
        warnings = job.warnings(new)
        if errors:
            return denied(format_errors(errors), warnings=warnings)
        return Answer(warnings=warnings) if warnings else ALLOWED

    return guarded(validate, kind=job.kind, operations={CREATE, UPDATE})
