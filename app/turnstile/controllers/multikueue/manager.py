"""Decides what is written to the manager about a Workload that is sent to other clusters. Pure.

A verdict is a value. The order of the rules is Kueue's; that of the winner is not: the first Workload that the manager
saw admitted wins, and its cluster is written down before its job is created there. So no two clusters ever get the job
for one admission, whatever happens to the manager in between.
"""

from dataclasses import dataclass, replace
from typing import Final

from turnstile.api import workload as wl
from turnstile.api.meta import find_condition
from turnstile.api.workload import CheckState
from turnstile.controllers.jobs import slices
from turnstile.controllers.multikueue.situation import NOT_SAME, Remote, Situation

Check = tuple[CheckState, str]
"""State and message of the check."""

_UNRECORDED: Final = (
    "Admission check is Ready but no admitting cluster is recorded; this is unexpected, please report it"
)


_GIVEN_UP: Final = "No worker cluster has admitted the Workload in time; its quota is free for others meanwhile"
_FIRST_PAUSE, _LONGEST_PAUSE = 60, 1800
"""Seconds until a Workload that was given up may have quota again; twice as long each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The writes to the manager, in this order; nothing by default. `wait` is in seconds."""

    why: str
    copy_from: str = ""
    """The cluster whose status of the job is copied."""
    reset_job: bool = False
    """Whether the job's status is cleared: it counts pods of a copy that is gone, or whose worker is lost."""
    check: Check | None = None
    winner: str = ""
    nominated: tuple[str, ...] | None = None
    finish: tuple[str, str] | None = None
    """Reason and message with which the Workload has finished."""
    forget: bool = False
    """The cluster and the nominations belong to a reservation that is lost."""
    wait: float | None = None
    again: int | None = None
    """Seconds after which a Workload whose check is in Retry may have quota again."""


def decide(now: Situation) -> Verdict:
    """The next writes to the manager for one Workload."""
    workload, state = now.workload, now.check.state
    if workload.finished:
        return Verdict(why="finished")
    if state == "Rejected":
        return Verdict(why="rejected")
    if now.refusal:
        return _changed(now, "Rejected", now.refusal)
    if not workload.quota_reserved:
        return _without_quota(now)
    if workload.evicted or workload.metadata.deletion_timestamp:
        return _stopping(now)
    if state == "Ready":
        return _running(now)
    if state == "Retry":
        return Verdict(why="to be evicted")
    return _dispatched(now)


def _changed(now: Situation, state: CheckState, message: str) -> Verdict:
    before = now.check.state
    says = message if before == state else f'{message}, Previously: "{before}"'
    return Verdict(why=message, check=(state, says))


def _refused(now: Situation, message: str) -> Verdict:
    """The Workload gives its quota back for a while, which is longer each time."""
    again = min(_FIRST_PAUSE * 2 ** min(now.check.retry_count or 0, 16), _LONGEST_PAUSE)
    return replace(_changed(now, "Retry", message), again=again)


def _without_quota(now: Situation) -> Verdict:
    status = now.workload.status
    held = bool(status.cluster_name or status.nominated_cluster_names)
    why = "holds no quota"
    if now.check.state == "Ready":
        return replace(_changed(now, "Pending", "The reservation was lost"), forget=held, reset_job=now.job_active)
    return Verdict(why=why, forget=held, reset_job=now.job_active and not _holders(now))


def _holders(now: Situation) -> list[str]:
    """Clusters that are heard of and have a copy of the job."""
    return [name for name, remote in now.remotes.items() if remote.connected and remote.jobs]


def _stopping(now: Situation) -> Verdict:
    """Copy the status of a job that is to stop, until it has; what cannot be heard of is taken for stopped once the
    worker is lost."""
    why = "evicted"
    for name in _holders(now):
        if _to_copy(now, name):
            return Verdict(why=why, copy_from=name)
        if now.remotes[name].holds or now.remotes[name].workload is None or not now.follows:
            return Verdict(why=why)
    if not now.job_active:
        return Verdict(why=why)
    if holding := [name for name, remote in now.remotes.items() if remote.connected and remote.holds]:
        return Verdict(why=f"evicted; {', '.join(holding)} has not released its quota yet")
    waits = [left for remote in now.remotes.values() if not remote.connected and (left := _left(now, remote)) > 0]
    if waits and now.check.state != "Retry" and not _was_lost(now):
        return Verdict(why="evicted; a worker cannot be asked whether the job runs there", wait=min(waits))
    return Verdict(why=why, reset_job=True)


def _was_lost(now: Situation) -> bool:
    """Whether the Workload was evicted because its worker was lost."""
    evicted = find_condition(now.workload.status.conditions, wl.EVICTED)
    return evicted is not None and _LOST in evicted.message


_LOST: Final = "Admitting remote lost"


def _left(now: Situation, remote: Remote) -> float:
    return max(0.0, now.lost_limit - remote.lost_seconds)


def _to_copy(now: Situation, name: str) -> bool:
    jobs = now.remotes[name].jobs if now.follows else ()
    return any(now.copied.get(each.metadata.uid) != each.metadata.resource_version for each in jobs)


def _running(now: Situation) -> Verdict:
    """Follow the cluster that has won."""
    name = now.workload.status.cluster_name or ""
    if not name:
        return _changed(now, "Retry", _UNRECORDED)
    remote = now.remotes.get(name) or Remote(connected=False, lost_seconds=now.lost_limit)
    if not remote.connected:
        if (left := _left(now, remote)) > 0:
            return Verdict(why=f"{name} is not heard of", wait=left)
        return _changed(now, "Retry", _LOST)
    found = remote.workload
    if found is None:
        return _changed(now, "Retry", "Admitting remote no longer exists")
    if (finished := find_condition(found.status.conditions, wl.FINISHED)) is not None and finished.status == "True":
        if finished.reason == slices.REPLACED:
            return Verdict(why="a larger slice runs there in its place, and is to be admitted here")
        if finished.reason == NOT_SAME:
            says = f'Remote workload on worker cluster "{name}" is out of sync with its user job'
            return _changed(now, "Retry", f"{says}, resetting for re-dispatch")
        copy = name if _to_copy(now, name) else ""
        done = None if copy else (finished.reason, finished.message)
        return Verdict(why=f"finished on {name}", copy_from=copy, finish=done)
    if remote.taken and remote.missing:
        return _refused(now, remote.taken)
    if found.evicted:
        says = f'Workload evicted on worker cluster: "{name}", resetting for re-admission. Previously: "Ready"'
        return Verdict(why=says, check=("Retry", says))
    if now.job_waits or not _to_copy(now, name):
        return Verdict(why=f"runs on {name}")
    return Verdict(why=f"runs on {name}", copy_from=name)


def _dispatched(now: Situation) -> Verdict:
    """Take the first cluster that has admitted the Workload, else nominate."""
    if now.workload.status.cluster_name:
        return Verdict(why="its cluster is of an earlier reservation", forget=True)
    nominated = tuple(now.workload.status.nominated_cluster_names)
    admitted = [(remote.seen, name) for name, remote in now.remotes.items() if name in nominated and remote.admitted]
    if admitted:
        winner = min(admitted)[1]
        return replace(_changed(now, "Ready", f'The workload was admitted on "{winner}"'), winner=winner)
    others = [each for each in now.workload.status.admission_checks if each.name != now.check.name]
    if any(each.state != "Ready" for each in others):
        return Verdict(why="its other checks come first")
    reset = now.job_active and not _holders(now)
    if now.give_up is not None and now.give_up <= 0:
        return replace(_refused(now, _GIVEN_UP), reset_job=reset)
    taken = [each.taken for name in nominated if (each := now.remotes.get(name)) is not None and each.taken]
    if taken and len(taken) == len(nominated):
        return replace(_refused(now, "; ".join(taken)), reset_job=reset)
    if leaving := [name for name in _holders(now) if not now.remotes[name].shared]:
        return Verdict(why=f"a copy of an earlier run is being deleted on {', '.join(leaving)}", reset_job=reset)
    if now.nominees is None or tuple(now.nominees) == nominated:
        sent = Verdict(why=f"sent to {', '.join(nominated) or 'no cluster'}", reset_job=reset, wait=now.give_up)
        return _explained(now, sent, nominated)
    return Verdict(why=f"nominates {', '.join(now.nominees)}", nominated=tuple(now.nominees), reset_job=reset)


def _explained(now: Situation, verdict: Verdict, nominated: tuple[str, ...]) -> Verdict:
    """With a message of the check that says for each cluster why it has not admitted the Workload, if they say so."""
    reasons = ((name, _reason(now.remotes.get(name))) for name in nominated)
    message = "; ".join(f"{name}: {why}" for name, why in reasons if why)
    if not message or message == now.check.message:
        return verdict
    if now.reports_in > 0:
        return replace(verdict, wait=min(now.reports_in, verdict.wait or now.reports_in))
    return replace(verdict, check=("Pending", message))


def _reason(remote: Remote | None) -> str:
    """Why a cluster has not admitted the Workload; empty if it does not say."""
    if remote is None or not remote.connected:
        return "nothing is heard of the cluster"
    found = find_condition(remote.workload.status.conditions, wl.QUOTA_RESERVED) if remote.workload else None
    return remote.lacks or remote.taken or (found.message if found is not None and found.status == "False" else "")
