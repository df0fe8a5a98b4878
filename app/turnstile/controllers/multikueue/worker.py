"""Decides what one worker cluster is to have of a Workload. Pure.

A worker has the Workload while it is nominated or has won, and the job only once it has won. Whatever it has beyond
that is removed, the job first. Only objects with the manager's label are given to these decisions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from turnstile.api import names
from turnstile.api import workload as wl
from turnstile.api.meta import find_condition, is_true
from turnstile.api.workload import Workload
from turnstile.controllers.multikueue.situation import Remote, RemoteJob, SizedRemoteJob, same_priority, same_spec
from turnstile.engine.causes import Eviction
from turnstile.jobs.labels import prebuilt_name

EVICTED_ON_MANAGER: Final = "EvictedOnManagerCluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The writes to the worker, in this order; nothing by default."""

    why: str
    delete_jobs: Sequence[RemoteJob] = ()
    """The copies to delete."""
    delete_workload: bool = False
    create_workload: bool = False
    create_jobs: bool = False
    """Whether the objects of the job that are missing are created."""
    follow_priority: bool = False
    resize: bool = False
    """Whether the copy gets the size of the job, and if it names a Workload, the name of this one."""
    open_gate: bool = False
    deactivate: str = ""
    """The message with which the Workload is deactivated."""
    stop: bool = False
    """Whether the Workload, which is being deleted, is taken out of use, so that the worker deletes its pods."""


def decide(
    name: str, workload: Workload | None, remote: Remote, *, dispatched: bool, opens: bool = False, kept: bool = False
) -> Order:
    """The next writes to the cluster of that name. `workload` is the manager's; `dispatched` if it has a check that
    sends it to other clusters, and has not been rejected. `opens`: it is this cluster's turn to preempt for it. `kept`:
    it has finished, and the time for which the copy of a finished job stays is not over."""
    there = remote.workload
    if workload is not None and workload.finished and kept and workload.status.cluster_name == name:
        return Order(why="finished, and kept for a while")
    if workload is None or not dispatched or workload.finished or not workload.quota_reserved:
        return _removed(remote, "nothing is to run here")
    status = workload.status
    if workload.evicted or workload.metadata.deletion_timestamp:
        if there is None or not remote.jobs:
            return _removed(remote, "evicted before the job was sent")
        return _stopped(workload, there)
    winner, nominated = status.cluster_name or "", name in status.nominated_cluster_names
    if winner != name and (winner or not nominated):
        return _removed(remote, f"runs on {winner}" if winner else "not nominated")
    if there is None:
        if winner:
            return _removed(remote, "the Workload is gone, and is to be dispatched anew")
        return Order(why=remote.lacks or "nominated", create_workload=not remote.lacks)
    if there.metadata.deletion_timestamp:
        return Order(why="the Workload is being deleted", delete_jobs=remote.jobs_left)
    origin = there.metadata.annotations.get(names.MULTIKUEUE_ORIGIN_UID, workload.metadata.uid)
    elastic = names.SLICE_NAME in workload.metadata.annotations
    if origin != workload.metadata.uid or not same_spec(workload, there, resized=elastic):
        return _removed(remote, "the Workload is another one by now")
    if not same_priority(workload, there):
        return Order(why="the priority has changed", follow_priority=True)
    wanted = bool(winner) and there.admitted and not (there.evicted or there.finished)
    return Order(
        why="has won" if winner else "nominated",
        delete_jobs=[each for each in remote.strays if not each.metadata.deletion_timestamp],
        create_jobs=wanted and bool(remote.missing),
        resize=wanted and _other_size(workload, remote),
        open_gate=opens and not winner,
    )


def _other_size(workload: Workload, remote: Remote) -> bool:
    """Whether the copy has another size than the job, or names another slice of it."""
    size = remote.size or {}
    return remote.size is not None and any(
        prebuilt_name(each) not in ("", workload.metadata.name)
        or any(getattr(each.spec, name) != value for name, value in size.items())
        for each in remote.jobs
        if isinstance(each, SizedRemoteJob)
    )


def _removed(remote: Remote, why: str) -> Order:
    there = remote.workload
    going = there is not None and bool(there.metadata.deletion_timestamp)
    # A finalizer, which any tenant of the worker may add, keeps a deleted copy there, and its pods with it.
    kept = not remote.shared and any(each.metadata.deletion_timestamp for each in (*remote.jobs, *remote.strays))
    return Order(
        why=why,
        delete_jobs=remote.jobs_left,
        delete_workload=there is not None and not going,
        stop=going and kept and remote.holds and there is not None and there.spec.active,
    )


def _stopped(workload: Workload, there: Workload) -> Order:
    """Have the worker stop the job; the copy stays until the manager has released the quota."""
    evicted = find_condition(workload.status.conditions, wl.EVICTED)
    why = evicted.message if evicted is not None else "the workload is deleted"
    message = f"{Eviction.ON_MANAGER.says()}: {why}"
    stops = there.evicted or is_true(there.status.conditions, wl.DEACTIVATION_TARGET)
    done = stops or there.finished or not there.spec.active
    return Order(why=message, deactivate="" if done else message)
