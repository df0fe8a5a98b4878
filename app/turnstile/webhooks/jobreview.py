"""The webhooks of all job kinds: defaults and suspension on create, validation on create and update.

Each kind's integration (`turnstile.jobs.integration`) provides what is specific to the kind; the order of the steps is
the same for all kinds, and is Kueue's: default LocalQueue, default WorkloadPriorityClass, suspension. Other needs of a
kind (`prepare`) are Turnstile's. The user of a new job is told by the defaulting webhook what is wrong, because a plain
Job is not validated; of a changed job by the validating webhook. A child of a managed job is not suspended if its pods
name a pod set of the owner's Workload. A new job in a queue whose jobs are sent to other clusters gets a `managedBy` by
which its own controller leaves it alone.
"""

from collections.abc import Iterator
from typing import Any

from turnstile.api import names
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind, ObjectMeta
from turnstile.api.patch import JsonPatch
from turnstile.api.validation.errors import brought, format_errors
from turnstile.jobs.ancestors import lent_queue
from turnstile.jobs.capabilities import Elastic
from turnstile.jobs.integration import Integration
from turnstile.jobs.podsets import differ_in_counts
from turnstile.jobs.workload import elastic, may_be_named
from turnstile.webhooks.advice import advice
from turnstile.webhooks.handlers import guarded
from turnstile.webhooks.job_rules import create_errors, update_errors
from turnstile.webhooks.lookups import Lookups, Undecided, managed_owner, namespace_is_managed, owner_above
from turnstile.webhooks.review import ALLOWED, CREATE, UPDATE, Answer, Handler, Request, changed, decoder, denied


def add_default_labels(patch: JsonPatch, job: Kind, lookups: Lookups) -> None:
    """Add the queue that the job's owner lends it; else the default queue and priority class where a job has none, and
    no job made it that can be charged for it.

    An owner that is not in the caches may have been created only a moment ago: a child with a queue of its own follows
    its owner all the same. The labels are also set in the job's metadata, because later steps read them.
    """
    meta = job.metadata
    lent = "" if meta.labels.get(names.QUEUE_LABEL) else lent_queue(job, lookups.find, lookups.registry)
    if lent and namespace_is_managed(meta.namespace, lookups):
        _add_label(patch, meta, names.QUEUE_LABEL, lent)
    if lookups.registry.follows(job, lookups.find):
        return
    if (
        not meta.labels.get(names.QUEUE_LABEL)
        and lookups.default_local_queue(meta.namespace)
        and namespace_is_managed(meta.namespace, lookups)
    ):
        _add_label(patch, meta, names.QUEUE_LABEL, names.DEFAULT_LOCAL_QUEUE)
    by_default = lookups.options.default_priority_class and lookups.default_priority_class()
    if by_default and not meta.labels.get(names.PRIORITY_CLASS_LABEL):
        _add_label(patch, meta, names.PRIORITY_CLASS_LABEL, names.DEFAULT_PRIORITY_CLASS)


def _add_label(patch: JsonPatch, meta: ObjectMeta, key: str, value: str) -> None:
    patch.put(meta.labels, "metadata", "labels", key=key, value=value)
    meta.labels = {**meta.labels, key: value}


def mutating(integration: Integration[Any], lookups: Lookups) -> Handler:
    """The defaulting handler of a job kind."""
    decode = decoder(integration.kind)

    def mutate(request: Request) -> Answer:
        job = decode(request.object)
        meta = job.metadata
        meta.namespace = request.namespace or meta.namespace
        patch = JsonPatch()
        if integration.as_set is not None and integration.as_set.of_another_kind(job):
            return ALLOWED
        if request.operation == UPDATE and (elasticity := integration.elasticity) is not None:
            if _outgrown(decode(request.old_object), job, integration, elasticity, lookups):
                integration.hold(job, patch)
            return changed(patch)
        if integration.gated_pods is not None and integration.gated_pods.held_by_parent(job):
            integration.additions.defaults(job, patch)
            integration.hold(job, patch)
            if lookups.options.topologies:
                integration.additions.place(job, patch)
            return changed(patch)
        if integration.asked.namespace_first and not namespace_is_managed(meta.namespace, lookups):
            return ALLOWED
        if _is_counted(job, lookups):
            return changed(patch)
        add_default_labels(patch, job, lookups)
        integration.additions.defaults(job, patch)
        if meta.deletion_timestamp is None:
            old = decode(request.old_object) if request.operation == UPDATE else None
            _prepare_and_hold(patch, old, job, integration, lookups)
        if request.operation != CREATE:
            return changed(patch)
        remarks = _send_away(patch, job, integration, lookups)
        found = advice(integration, job, lookups)
        warnings = (*remarks, *found.warnings)
        return denied(found.refusal, warnings=warnings) if found.refusal else changed(patch, warnings)

    return guarded(
        mutate, kind=integration.kind, operations={CREATE, UPDATE} if integration.asked.updates else {CREATE}
    )


def _prepare_and_hold(
    patch: JsonPatch, old: Kind | None, job: Kind, integration: Integration[Any], lookups: Lookups
) -> None:
    """Prepare a job that is queued, or that a queued job makes; hold it unless the owner's Workload charges for it."""
    held = integration.held(job)
    try:
        ancestor = managed_owner(job, lookups)
        if ancestor is None:
            queued, charged = _has_queue(job, lookups), False
        elif ancestor.job is None:
            return
        else:
            gated = lookups.registry.of(ancestor.job).as_set is not None
            charged = not (ancestor.fault or gated) and _claims(job, integration)
            queued = charged or namespace_is_managed(job.metadata.namespace, lookups)
    except Undecided:
        if not held:
            raise
        queued, charged = True, False  # its owner may resume it before the reconciler has seen either
    if queued:
        integration.additions.prepare(job, patch)
        if not (held or charged):
            integration.hold(job, patch)
            if old is not None:
                integration.additions.roll_out(old, job, patch)
        if not charged and lookups.options.topologies:
            integration.additions.place(job, patch)
        if not charged and integration.elasticity is not None and elastic(integration, job, lookups.options):
            integration.elasticity.gate_growth(job, patch)


def _send_away(patch: JsonPatch, job: Kind, integration: Integration[Any], lookups: Lookups) -> tuple[str, ...]:
    """Have a copy of a new job run on another cluster, if its queue is for that and no job made it. Returns the
    warnings for the user who submits it."""
    copies, suspension = integration.copies, integration.suspension
    queue = job.metadata.labels.get(names.QUEUE_LABEL, "")
    if copies is None or suspension is None or not copies.claimable(job):
        return ()
    if lookups.options.multikueue is None or not queue:
        return ()
    if not lookups.sends_away(job.metadata.namespace, queue) or lookups.registry.follows(job, lookups.find):
        return ()
    suspension.send_away(job, patch)
    return (copies.remark,) if copies.remark else ()


def _has_queue(job: Kind, lookups: Lookups) -> bool:
    if job.metadata.labels.get(names.QUEUE_LABEL):
        return True
    return lookups.options.manage_jobs_without_queue_name and namespace_is_managed(job.metadata.namespace, lookups)


def _outgrown(old: Kind, new: Kind, integration: Integration[Any], elasticity: Elastic[Any], lookups: Lookups) -> bool:
    """Whether a running job is changed so that its controller would make pods which its Workload is not charged for.

    The job of a managed owner is not suspended, because its owner's controller would not resume it.
    """
    if integration.suspended(old) or integration.held(new) or not _is_queued(lookups, old, new):
        return False
    try:
        grows = elastic(integration, new, lookups.options) and elasticity.is_growth_gated(new)
        follows = grows and integration.sizing is None
        follows = follows and differ_in_counts(integration.pod_sets(old), integration.pod_sets(new))
        outgrown = elasticity.outgrown(old, new) and not follows
    except PermanentError:
        outgrown = True  # the pods that it asks for cannot be read
    return outgrown and managed_owner(new, lookups) is None


def _is_queued(lookups: Lookups, *versions: Kind) -> bool:
    """Whether a job names a queue in one of its versions, or need not name one."""
    named = any(each.metadata.labels.get(names.QUEUE_LABEL) for each in versions)
    return named or lookups.options.manage_jobs_without_queue_name


def _is_counted(job: Kind, lookups: Lookups) -> bool:
    """Whether an object is a pod that the reconciler counts, of a queued job whose pods others make: the executor of a
    Spark driver, a pod of a Deployment in an AppWrapper. It names the job, though not as its controller, and by the
    marks of an admission the Workload that charges for it. Raises Undecided while that job is suspended."""
    meta = job.metadata
    if names.PODSET_LABEL not in meta.labels:
        return False
    for made_by, parent in _counted_by(job, lookups):
        if _is_queued(lookups, parent) and may_be_named(made_by, parent, meta.annotations.get(names.WORKLOAD, "")):
            if made_by.suspended(parent):
                raise Undecided(f"{parent.KIND} {parent.metadata.key} is suspended, or not known yet to be resumed")
            return True
    return False


def _counted_by(job: Kind, lookups: Lookups) -> Iterator[tuple[Integration[Any], Kind]]:
    """The jobs that a pod names as a plain owner, or that its controllers lead to if it names one by a label. Any
    template may carry the label, so the owners decide. Raises Undecided if one of them is not known yet."""
    meta = job.metadata
    for owner in meta.owner_references:
        made_by = lookups.registry.by_owner(owner)
        if made_by is not None and made_by.counted_pods is not None and not owner.controller:
            parent = lookups.find(made_by.kind, f"{meta.namespace}/{owner.name}")
            if parent is not None and parent.metadata.uid == owner.uid:
                yield made_by, parent
    if meta.controller is None:
        return
    for made_by in lookups.registry.enabled:
        if (counted := made_by.counted_pods) is not None and counted.label in meta.labels:
            ancestor = owner_above(job, lookups, known=counted.below)
            if ancestor is not None and isinstance(ancestor.job, made_by.kind) and not ancestor.fault:
                yield made_by, ancestor.job


def _is_made(job: Kind, lookups: Lookups) -> bool:
    """Whether a queued job that makes such jobs made this one."""
    ancestor = managed_owner(job, lookups)
    return ancestor is not None and not ancestor.fault


def _claims(job: Kind, integration: Integration[Any]) -> bool:
    """Whether the pods name a pod set of the ancestor's Workload, which its start adds to pod templates. The reconciler
    finds out whether that Workload charges for them."""
    try:
        return all(each.pod_set for each in integration.claims(job))
    except PermanentError:
        return False


def validating(integration: Integration[Any], lookups: Lookups) -> Handler:
    """The validating handler of a job kind. It must never change the object."""
    decode = decoder(integration.kind)

    def validate(request: Request) -> Answer:
        new = decode(request.object)
        if integration.as_set is not None and integration.as_set.of_another_kind(new):
            return ALLOWED
        if integration.asked.validating_queued:
            versions = [new] if request.operation == CREATE else [new, decode(request.old_object)]
            if not _is_queued(lookups, *versions):
                return ALLOWED
        if request.operation == CREATE:
            errors = create_errors(
                new.metadata, request.kind, integration, lookups.options
            ) + integration.create_errors(new)
        elif new.metadata.deletion_timestamp is not None:
            return ALLOWED  # nothing may block the removal of finalizers
        else:
            old = decode(request.old_object)
            errors = update_errors(
                old.metadata,
                new.metadata,
                request.kind,
                integration,
                lookups.options,
                was_suspended=integration.suspended(old),
                suspended=integration.suspended(new),
                default_queue=lookups.default_local_queue(request.namespace or new.metadata.namespace),
            )
            errors += brought(
                create_errors(new.metadata, request.kind, integration, lookups.options),
                lambda: create_errors(old.metadata, request.kind, integration, lookups.options),
            )
            errors += integration.update_errors(old, new)
            errors += integration.copies.update_errors(old, new) if integration.copies is not None else []
            fixed = integration.as_set.charged_errors(old, new) if integration.as_set is not None else []
            if fixed and not _is_made(new, lookups):
                errors += fixed
        warnings: tuple[str, ...] = ()
        if integration.gated_pods is not None:
            owned = lookups.registry.manages(new.metadata.controller)
            warnings = integration.gated_pods.warnings(new, owned=owned)
        if errors:
            return denied(format_errors(errors), warnings=warnings)
        if request.operation == UPDATE and integration.suspended(new):
            found = advice(integration, new, lookups, old=decode(request.old_object))
            warnings += found.warnings
            if found.refusal:
                return denied(found.refusal, warnings=warnings)
        return Answer(warnings=warnings) if warnings else ALLOWED

    return guarded(validate, kind=integration.kind, operations={CREATE, UPDATE})
