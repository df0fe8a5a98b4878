"""Finds the ancestor job that is queued in place of a job.

A job created by another job (a Job of a JobSet, for example) is not queued by itself: its topmost managed owner is, and
the children follow it. The search passes through kinds that are not enabled and ReplicaSets, and stops at any other
owner, and at an owner of one of the configuration's `externalFrameworks`: another controller manages those, and
Turnstile does not watch them. An owner must exist with the uid of the reference; whether it can be charged for the job
is decided by `controllers.jobs.children`, and by `Ancestor.fault` for a reference that no controller of the owner's
kind would write. Source: Kueue's FindAncestorJobManagedByKueue.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turnstile.api import names
from turnstile.api.errors import PermanentError
from turnstile.api.meta import Kind
from turnstile.jobs.options import JobOptions
from turnstile.jobs.registry import Registry

MAX_DEPTH: Final = 10


@dataclass(frozen=True, slots=True)
class Ancestor:
    """The owner that is queued in place of a job. `job` is None if another controller manages the owner.

    `between` are the owners between the two, the one nearest to the job first. `fault` says why the ancestor cannot be
    charged for the job: an owner is of a kind that makes no such objects.
    """

    kind: str
    name: str
    job: Kind | None
    between: tuple[Kind, ...] = ()
    fault: str = ""


def managed_ancestor(
    job: Kind, find: Callable[[type[Kind], str], Kind | None], *, options: JobOptions, registry: Registry
) -> Ancestor | None:
    """The topmost managed owner of a job, None if the job has none.

    `find` returns an object by kind and key. Owners of a kind that is not enabled do not count as jobs, nor do those
    that only lend their queue. An external
    owner is managed whatever its labels are, and ends the search; so does a deleted owner whose own owner is gone.
    Raises LookupError if the cache does not have an owner of an enabled kind that makes such objects, PermanentError
    past ten owners or if the owner references form a cycle.
    """
    found: Ancestor | None = None
    seen = {job.metadata.uid}
    passed: list[Kind] = []
    fault = ""
    current = job
    for _ in range(MAX_DEPTH + 1):
        owner = current.metadata.controller
        if owner is not None and registry.is_external(owner):
            return Ancestor(owner.kind, owner.name, None, tuple(passed))
        maker = registry.maker(owner, current) if owner is not None else None
        if owner is None or maker is None:
            return found
        if owner.uid in seen:
            raise PermanentError(f"owners of {job.metadata.key} go in a circle at {owner.kind} {owner.name}")
        namespace = job.metadata.namespace
        parent = find(maker.kind, f"{namespace}/{owner.name}")
        if parent is None:
            if current is not job and current.metadata.deletion_timestamp:
                return found  # its owner was deleted first
            if not (maker.makes and maker.charged):
                return found  # not all objects of the kind are read
            raise LookupError(f"workload owner not found: {owner.kind} {namespace}/{owner.name}")
        if parent.metadata.uid != owner.uid:
            return found
        if not maker.makes:
            fault = fault or f"the owner of {current.KIND} {current.metadata.name} is a {owner.kind}, which makes none"
        managed = options.manage_jobs_without_queue_name or parent.metadata.labels.get(names.QUEUE_LABEL)
        if maker.enabled and managed and not registry.lends_queue(parent):
            found = Ancestor(owner.kind, owner.name, parent, tuple(passed), fault)
        seen.add(owner.uid)
        passed.append(parent)
        current = parent
    raise PermanentError(f"{job.metadata.key} has more than {MAX_DEPTH} owners above it")


def lent_queue(job: Kind, find: Callable[[type[Kind], str], Kind | None], registry: Registry) -> str:
    """The queue of a job's owner, if each job that the owner's controller makes is queued by itself in that queue; else
    empty. `find` returns an object by kind and key."""
    owner = job.metadata.controller
    maker = registry.maker(owner, job) if owner is not None else None
    if owner is None or maker is None or not (maker.makes and maker.enabled):
        return ""
    parent = find(maker.kind, f"{job.metadata.namespace}/{owner.name}")
    lends = parent is not None and parent.metadata.uid == owner.uid and registry.lends_queue(parent)
    return parent.metadata.labels.get(names.QUEUE_LABEL, "") if parent is not None and lends else ""
