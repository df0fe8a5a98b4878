"""Which job above another one is the one that is queued.

A job made by a job (a Job of a JobSet, say) is not queued by itself: the topmost managed owner is, and its children
follow that owner. Owner kinds that are not job kinds leave the child on its own. Owners of the configuration's
`externalFrameworks` are managed by another controller; nothing of them is watched here, so the search ends at such an
owner. Source: Kueue's FindAncestorJobManagedByKueue, which reads external owners and walks through ReplicaSets and job
kinds that are not enabled.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from app.api import names
from app.api.errors import PermanentError
from app.api.meta import Kind
from app.jobs.options import Options
from app.jobs.registry import Registry

MAX_DEPTH: Final = 10


@dataclass(frozen=True, slots=True)
class Ancestor:
    """The owner that a job is queued with. `job` is None if another controller manages it."""

    kind: str
    name: str
    job: Kind | None


def managed_ancestor(
    job: Kind, find: Callable[[type[Kind], str], Kind | None], *, options: Options, registry: Registry
) -> Ancestor | None:
    """The topmost managed owner of a job, None if it stands on its own.

    `find` looks an object up by kind and key. Owners of a kind that is not enabled are no jobs. An external owner is
    managed whatever its labels are, and none above it is looked for.
    Raises LookupError if an owner of a job kind is not to be seen, PermanentError past ten owners or if owners go in a
    circle.
    """
    found: Ancestor | None = None
    seen = {job.metadata.uid}
    current = job
    for _ in range(MAX_DEPTH + 1):
        owner = current.metadata.controller
        if owner is not None and registry.is_external(owner):
            return Ancestor(owner.kind, owner.name, None)
        integration = registry.by_owner(owner) if owner is not None else None
        if owner is None or integration is None or not integration.watched:
            return found
        if owner.uid in seen:
            raise PermanentError(f"owners of {job.metadata.key} go in a circle at {owner.kind} {owner.name}")
        namespace = job.metadata.namespace
        parent = find(integration.kind, f"{namespace}/{owner.name}")
        if parent is None:
            raise LookupError(f"workload owner not found: {owner.kind} {namespace}/{owner.name}")
        if parent.metadata.uid != owner.uid:
            return found
        if options.manage_jobs_without_queue_name or parent.metadata.labels.get(names.QUEUE_LABEL):
            found = Ancestor(owner.kind, owner.name, parent)
        seen.add(owner.uid)
        current = parent
    raise PermanentError(f"{job.metadata.key} has more than {MAX_DEPTH} owners above it")
