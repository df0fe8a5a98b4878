"""The rules of waitForPodsReady: the PodsReady condition, the timeouts, and the back-off after an eviction.

Must never decide to evict or requeue a Workload: `controllers.jobs.jobreconciler` writes the condition,
`controllers.workloads.workload` evicts. Source: Kueue's workload controller and job reconciler, KEP-349.
"""

from datetime import datetime
from typing import Final, Literal

from turnstile.api import workload as wl
from turnstile.api.conditions import instant, later
from turnstile.api.meta import Condition, ConditionStatus, find_condition
from turnstile.api.workload import Workload
from turnstile.controllers.status.spans import Spans
from turnstile.jobs.options import PodsReadyOptions

Cause = Literal["WaitForStart", "WaitForRecovery"]

WAIT_FOR_START: Final = "WaitForStart"
WAIT_FOR_RECOVERY: Final = "WaitForRecovery"
STARTED: Final = "Started"
RECOVERED: Final = "Recovered"

_WAITING: Final = (WAIT_FOR_START, "Not all pods are ready or succeeded")
_FAILED: Final = (WAIT_FOR_RECOVERY, "At least one pod has failed, waiting for recovery")
_RUNNING: Final = "All pods reached readiness and the workload is running"


def condition(workload: Workload, *, ready: bool) -> tuple[ConditionStatus, str, str]:
    """Status, reason and message of PodsReady; `ready` if all pods of the job are ready. Pods that were ready in this
    run and no longer are count as failed."""
    before = find_condition(workload.status.conditions, wl.PODS_READY)
    if not workload.admitted:
        return "False", *_WAITING
    if ready:
        again = before is not None and before.reason in {WAIT_FOR_RECOVERY, RECOVERED}
        return "True", RECOVERED if again else STARTED, _RUNNING
    once = before is not None and (before.status == "True" or before.reason == WAIT_FOR_RECOVERY)
    return "False", *(_FAILED if once and _of_this_run(workload, before) else _WAITING)


def patience(
    workload: Workload, options: PodsReadyOptions, now: datetime, *, spans: Spans | None = None
) -> tuple[Cause, float] | None:
    """The event that an admitted Workload without ready pods waits for, and the seconds until the timeout (0: evict
    now); None if no timeout applies."""
    spans = spans or Spans()
    admitted = find_condition(workload.status.conditions, wl.ADMITTED)
    if admitted is None or admitted.status != "True" or not workload.spec.active or workload.evicted:
        return None
    ready = find_condition(workload.status.conditions, wl.PODS_READY)
    if ready is not None and ready.status == "True":
        return None
    if ready is not None and ready.reason == WAIT_FOR_RECOVERY and _of_this_run(workload, ready):
        if not options.recovery_timeout:
            return None
        return "WaitForRecovery", _left(ready.last_transition_time, options.recovery_timeout, now, spans)
    return "WaitForStart", _left(admitted.last_transition_time, options.timeout, now, spans)


def _of_this_run(workload: Workload, ready: Condition | None) -> bool:
    """Whether PodsReady is about the pods of the present admission. A Workload may be admitted again before the
    condition of its last run is written anew."""
    admitted = find_condition(workload.status.conditions, wl.ADMITTED)
    begin = instant(admitted.last_transition_time) if admitted is not None else None
    reported_at = instant(ready.last_transition_time) if ready is not None else None
    return begin is None or reported_at is None or reported_at >= begin


def _left(since: str, limit: float, now: datetime, spans: Spans) -> float:
    return max(0.0, spans.left(instant(since) or now, limit, now))


def next_attempt(count: int, options: PodsReadyOptions, now: datetime) -> datetime | None:
    """Time of the next attempt of a Workload that was requeued `count` times because of its pods; None if that exceeds
    the back-off limit. The wait doubles each time, up to a maximum."""
    if options.backoff_limit is not None and count + 1 > options.backoff_limit:
        return None
    wait = options.backoff_base * 2.0 ** min(count, 64)
    return later(now, min(wait, options.backoff_max))
