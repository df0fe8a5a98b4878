"""Which changes of an object call for another look at a job or at a Workload; the others cost nothing.

A Job in Kubernetes changes with every pod that starts or ends, and a Workload with every word about why it waits. What
is decided about depends on little of that. The rule: a change may be passed over only if no decision reads what
changed, so a decision that reads something new adds it here, or to its kind's `significant`. Must never decide
anything.
"""

from typing import Any

from app.api import names
from app.api import workload as wl
from app.api.meta import Kind, ObjectMeta, find_condition
from app.api.workload import Workload
from app.jobs.integration import Integration
from app.jobs.options import Options
from app.kube import raws


def job_concerned(old: Kind | None, new: Kind | None, *, integration: Integration[Any], options: Options) -> bool:
    """Whether a job has to be looked at after this change of itself."""
    if old is None or new is None or _metadata(old.metadata) != _metadata(new.metadata):
        return True
    if raws.stripped(old) != raws.stripped(new):
        return True
    if options.pods_ready is not None and integration.pods_ready(old) != integration.pods_ready(new):
        return True
    return integration.significant(old) != integration.significant(new)


def owner_concerned(old: Workload | None, new: Workload | None) -> bool:
    """Whether the job of a Workload has to be looked at after this change of the Workload."""
    if old is None or new is None:
        return True
    return _to_release(old, new) or _told_to_job(old) != _told_to_job(new)


def workload_concerned(old: Workload | None, new: Workload | None) -> bool:
    """Whether a Workload has to be looked at after this change of itself: once finished it only waits to be removed."""
    if old is None or new is None or not (old.finished and new.finished):
        return True
    return _to_release(old, new) or _metadata(old.metadata) != _metadata(new.metadata)


def _metadata(meta: ObjectMeta) -> tuple[object, ...]:
    """What is decided by, without finalizers of a Workload's own."""
    finalizers = [each for each in meta.finalizers if each != names.RESOURCE_IN_USE]
    deletion = meta.deletion_timestamp, meta.deletion_grace_period_seconds
    return meta.uid, deletion, meta.labels, meta.annotations, finalizers, meta.owner_references


def _to_release(old: Workload, new: Workload) -> bool:
    """Whether there is a finalizer to take away that was not there: nobody misses one that is gone."""
    return names.RESOURCE_IN_USE in new.metadata.finalizers and names.RESOURCE_IN_USE not in old.metadata.finalizers


def _told_to_job(workload: Workload) -> tuple[object, ...]:
    status = workload.status
    return (
        workload.metadata.generation,
        _metadata(workload.metadata),
        workload.quota_reserved,
        workload.admitted,
        find_condition(status.conditions, wl.EVICTED),
        find_condition(status.conditions, wl.FINISHED),
        find_condition(status.conditions, wl.PODS_READY),
        find_condition(status.conditions, wl.WAITING_FOR_REPLACEMENT_PODS),
        status.admission,
        status.admission_checks,
        status.reclaimable_pods,
    )
