"""Which worker cluster may preempt for a Workload: one at a time (orchestrated preemption). Pure.

Each copy is created with a closed preemption gate. The gate of the worker that has been blocked by it for longest is
opened; another one only if that has not led to an admission within some minutes.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from turnstile.api import workload as wl
from turnstile.api.conditions import instant
from turnstile.api.meta import find_condition
from turnstile.api.workload import Workload
from turnstile.controllers.multikueue.situation import Remote

GATE: Final = "kueue.x-k8s.io/multikueue"
PATIENCE_SECONDS: Final = 300.0
"""Between two openings for one Workload, as in Kueue."""
CHECK_SECONDS: Final = 10.0
"""Between two looks at whether it is the turn of a worker that is blocked."""


def opening(remotes: Mapping[str, Remote], now: datetime) -> tuple[str, float]:
    """The worker whose gate is to be opened now, empty if none is; and seconds until another may be."""
    found = {name: each.workload for name, each in remotes.items() if each.connected and each.workload is not None}
    opened = [since for each in found.values() if (since := _opened(each)) is not None]
    if opened and (left := PATIENCE_SECONDS - (now - max(opened)).total_seconds()) > 0:
        return "", left
    waiting = [
        (since, name)
        for name, each in found.items()
        if _opened(each) is None and (since := blocked_since(each)) is not None
    ]
    return min(waiting)[1] if waiting else "", CHECK_SECONDS


def blocked_since(workload: Workload) -> datetime | None:
    """Since when a Workload would have preempted others, but for its gate."""
    found = find_condition(workload.status.conditions, wl.BLOCKED_ON_PREEMPTION_GATES)
    return instant(found.last_transition_time) if found is not None and found.status == "True" else None


def _opened(workload: Workload) -> datetime | None:
    """Since when the gate is open."""
    for each in workload.status.preemption_gates:
        if each.name == GATE and each.position == "Open":
            return instant(each.last_transition_time)
    return None
