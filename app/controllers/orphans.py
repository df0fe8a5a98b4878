"""Ends the Workloads of a job that is gone: quota is freed when no pod and no child of the job needs it any more.

Must never end a Workload whose pods may still run.
"""

from typing import Final

from app.api import names
from app.api.workload import Workload
from app.controllers import charges
from app.controllers.actions import Action, RequeueAfter
from app.controllers.children import outlived, unheard
from app.controllers.clusterview import ClusterView
from app.controllers.reconcile import ended, released

LOOK_SECONDS: Final = 1.0
"""Seconds between two looks at a Workload while a watch fails."""


def ownerless(
    workloads: list[Workload], cluster: ClusterView, why: str, *, orphans: bool = False
) -> tuple[list[Action], str]:
    """Finish the Workloads of a deleted job, once none of their pods may run, which frees their quota; then remove
    their finalizer so that the garbage collector can delete them. `orphans`: the children are not deleted with the job,
    so they are not waited for, but suspended when the Workload is finished."""
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
        seconds = charges.unseen_seconds(workload, cluster)
        if seconds or unheard(workload, cluster):
            actions.append(RequeueAfter(seconds or LOOK_SECONDS))
            why = f"{why}, but pods may be created still"
            continue
        made_for_job = meta.controller is not None or names.IS_GROUP_WORKLOAD in meta.annotations
        if not workload.finished and not meta.deletion_timestamp and made_for_job:
            draft = cluster.draft(workload)
            draft.finish("OwnerNotFound", "The workload's owner no longer exists")
            actions.append(draft.patch())
        else:
            actions.extend(released(workload))
    return actions, why
