"""Ends the Workloads of a job that is gone: quota is freed when no pod and no child of the job needs it any more.

Must never end a Workload whose pods may still run.
"""

from typing import Final

from turnstile.api import names
from turnstile.api.workload import Workload
from turnstile.controllers.charging import charges
from turnstile.controllers.jobs.children import outlived, unheard
from turnstile.controllers.jobs.release import end_eviction, ended, released
from turnstile.controllers.runtime.actions import Action, RequeueAfter
from turnstile.controllers.view.clusterview import ClusterView
from turnstile.jobs.remote import job_uid

CHECK_SECONDS: Final = 1.0
"""Seconds between two looks at a Workload while a watch fails, or a copy of its job stops on another cluster."""


def ownerless(
    workloads: list[Workload], cluster: ClusterView, why: str, *, orphans: bool = False
) -> tuple[list[Action], str]:
    """Finish the Workloads of a deleted job, once none of their pods may run, which frees their quota; then remove
    their finalizer so that the garbage collector can delete them. `orphans`: the children are not deleted with the job,
    so they are not waited for, but suspended when the Workload is finished. An eviction that is under way ends first,
    in the same write: the deletion of a plain Pod is its stop."""
    actions: list[Action] = []
    for workload in workloads:
        meta = workload.metadata
        if charges.held(workload, cluster):
            why = f"{why}, but pods still run"
            actions.extend(ended(workload, cluster))
            continue
        if not orphans and outlived(workload, cluster):
            why = f"{why}, but what it made is still there"
            continue
        if cluster.multikueue.elsewhere.holds(workload):
            why = f"{why}, but its copy on another cluster still has quota there"
            actions.append(RequeueAfter(CHECK_SECONDS))
            continue
        seconds = charges.unseen_seconds(workload, cluster)
        if seconds or unheard(workload, cluster):
            actions.append(RequeueAfter(seconds or CHECK_SECONDS))
            why = f"{why}, but pods may be created still"
            continue
        if workload.finished or meta.deletion_timestamp or (meta.owner_references and not made_for_job(workload)):
            actions.extend(released(workload))
        elif made_for_job(workload):
            draft = cluster.draft(workload)
            if workload.evicted and workload.quota_reserved:
                end_eviction(draft, requeues=False)
            draft.finish("OwnerNotFound", "The workload's owner no longer exists")
            actions.append(draft.patch())
        else:
            why = f"{why}, or does not exist yet"
    return actions, why


def made_for_job(workload: Workload) -> bool:
    """Whether a Workload was made for a job, or a job took it over, so that the absence of the job is its end. A
    prebuilt Workload waits for its job, also one that is marked as a group's: the garbage collector takes the owners
    of a group's Workload away when it orphans the Workload, but not the finalizer with which it was made."""
    meta = workload.metadata
    if meta.controller is not None or job_uid(workload):
        return True
    of_group = names.IS_GROUP_WORKLOAD in meta.annotations
    return of_group and (bool(meta.owner_references) or names.RESOURCE_IN_USE in meta.finalizers)
