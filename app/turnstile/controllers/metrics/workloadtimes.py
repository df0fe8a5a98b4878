"""Changes between two versions of a Workload: phases, waits, evictions, executions. For its metrics.

Pure functions of the versions that a watch has seen, whatever client wrote them. Must never decide anything.
"""

from datetime import datetime
from typing import Literal, NamedTuple

from turnstile.api import workload as wl
from turnstile.api.conditions import instant
from turnstile.api.meta import Condition, find_condition
from turnstile.api.workload import Workload
from turnstile.engine.queue.protections import began

Phase = Literal["pending", "quotaReserved", "admitted", "finished"]


def phase(workload: Workload) -> Phase:
    """The last phase that a Workload has reached."""
    if workload.finished:
        return "finished"
    if workload.admitted:
        return "admitted"
    return "quotaReserved" if workload.quota_reserved else "pending"


def lost_quota(before: Phase, after: Phase) -> bool:
    """Whether a Workload released its quota and waits for another attempt."""
    return before in {"quotaReserved", "admitted"} and after == "pending"


def eviction_latency(old: Workload, new: Workload, now: datetime) -> tuple[str, str, float] | None:
    """ClusterQueue, reason and seconds from an eviction until the quota was released; None if this change did not
    release the quota of an evicted Workload."""
    evicted = _true(new, wl.EVICTED)
    admission = old.status.admission
    if evicted is None or admission is None or not admission.cluster_queue or not lost_quota(phase(old), phase(new)):
        return None
    since = instant(evicted.last_transition_time)
    return (admission.cluster_queue, evicted.reason, (now - since).total_seconds()) if since is not None else None


class Eviction(NamedTuple):
    """Evictions of one Workload for one reason in one change: `times` is 1, unless the watch missed versions.
    `cluster_queue` is where the Workload held quota, `first` whether it is its first eviction for this reason."""

    cluster_queue: str
    reason: str
    cause: str
    times: int
    first: bool


def evictions(old: Workload, new: Workload) -> list[Eviction]:
    """Evictions between two versions of a Workload, by the counts in its status. An eviction of a Workload without
    quota does not count, as in Kueue."""
    admission = old.status.admission or new.status.admission
    stats = new.status.scheduling_stats
    if admission is None or stats is None or stats is old.status.scheduling_stats:
        return []
    past = old.status.scheduling_stats
    before = {(each.reason, each.underlying_cause): each.count for each in (past.evictions if past is not None else ())}
    found = []
    for each in stats.evictions:
        known = before.get((each.reason, each.underlying_cause), 0)
        if each.count > known:
            times = each.count - known
            found.append(Eviction(admission.cluster_queue, each.reason, each.underlying_cause, times, known == 0))
    return found


def seconds_ready(old: Workload, new: Workload) -> float | None:
    """Seconds for which the pods were ready when the Workload was evicted; None if they were not."""
    ready, evicted = _true(old, wl.PODS_READY), _true(new, wl.EVICTED)
    begin = instant(ready.last_transition_time) if ready is not None else None
    end = instant(evicted.last_transition_time) if evicted is not None else None
    return (end - begin).total_seconds() if begin is not None and end is not None else None


def seconds_run(new: Workload) -> float | None:
    """Seconds for which the pods of a Workload ran until its eviction (`began`); None if it was not admitted."""
    reserved, evicted = _true(new, wl.QUOTA_RESERVED), _true(new, wl.EVICTED)
    if not new.admitted or reserved is None or evicted is None:
        return None
    begin, end = instant(reserved.last_transition_time), instant(evicted.last_transition_time)
    if begin is None or end is None:
        return None
    return max(0.0, end.timestamp() - began(new.status.conditions, begin.timestamp()))


def execution_seconds(workload: Workload) -> float | None:
    """Seconds for which a Workload was admitted in all its runs; None unless it finished while admitted."""
    finished, admitted = _true(workload, wl.FINISHED), _true(workload, wl.ADMITTED)
    if finished is None or admitted is None:
        return None
    end, begin = instant(finished.last_transition_time), instant(admitted.last_transition_time)
    if end is None or begin is None:
        return None
    return (end - begin).total_seconds() + (workload.status.accumulated_past_execution_time_seconds or 0)


def _true(workload: Workload, kind: str) -> Condition | None:
    found = find_condition(workload.status.conditions, kind)
    return found if found is not None and found.status == "True" else None


def queued_since(workload: Workload) -> datetime | None:
    """When the Workload joined the queue: when it was requeued or last evicted, else when it was created."""
    for kind in (wl.REQUEUED, wl.EVICTED):
        condition = _true(workload, kind)
        if condition is not None:
            return instant(condition.last_transition_time)
    return instant(workload.metadata.creation_timestamp)


def checks_seconds(workload: Workload) -> float | None:
    """Seconds from the reservation to the admission of a Workload with admission checks; None without any."""
    reserved, admitted = _true(workload, wl.QUOTA_RESERVED), _true(workload, wl.ADMITTED)
    if not workload.status.admission_checks or reserved is None or admitted is None:
        return None
    return _between(reserved, admitted)


def became_ready(old: Workload, new: Workload) -> bool:
    """Whether the pods of an admitted Workload became ready."""
    return new.admitted and _true(new, wl.PODS_READY) is not None and _true(old, wl.PODS_READY) is None


def admitted_until_ready(workload: Workload) -> float | None:
    """Seconds from the admission until all pods were ready."""
    admitted, ready = _true(workload, wl.ADMITTED), _true(workload, wl.PODS_READY)
    return _between(admitted, ready) if admitted is not None and ready is not None else None


def unadmitted(workload: Workload) -> tuple[str, str] | None:
    """Reason and underlying cause for which a Workload is not admitted; None if it is, or will not be any more."""
    if workload.finished or workload.admitted:
        return None
    admitted = find_condition(workload.status.conditions, wl.ADMITTED)
    reserved = find_condition(workload.status.conditions, wl.QUOTA_RESERVED)
    reason = admitted.reason if admitted is not None and admitted.reason else "NoReservation"
    if reserved is not None and reserved.status == "True":
        return reason, ""
    return reason, reserved.reason if reserved is not None and reserved.reason else "PendingEvaluation"


def _between(begin: Condition, end: Condition) -> float | None:
    first, last = instant(begin.last_transition_time), instant(end.last_transition_time)
    return max(0.0, (last - first).total_seconds()) if first is not None and last is not None else None
