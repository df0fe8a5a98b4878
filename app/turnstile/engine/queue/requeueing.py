"""How a Workload comes into the heap of its ClusterQueue, and back into it after a cycle.

A waiting Workload is in exactly one place of its ClusterQueue: active (in the heap), inadmissible (until something
changes) or inflight (the head that a cycle works on). Sources: Kueue's queue cache. Must never look at quota.
"""

from typing import Final

from turnstile.engine.queue.changes import could_help
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.heaps import Pending
from turnstile.engine.quota.info import Info
from turnstile.engine.reasons import PENDING_EVALUATION

IMMEDIATE_FOR_BEST_EFFORT: Final = frozenset(
    ("FailedAfterNomination", "PendingPreemption", "PendingMigration", "PreemptionFailed")
)


def requeue(
    queue: ClusterQueue, info: Info, reason: str, quota_reason: str, *, backoff_over: bool, again: bool = False
) -> bool:
    """Put a head back after a cycle (Kueue: RequeueIfNotPresent): active if it is to be tried `again`, or if the reason
    or a change since calls for it; else inadmissible, and in a BestEffortFIFO queue all that ask for the same with it.
    True if it is active."""
    pending = queue.pending
    key = info.key
    if reason in {"PendingPreemption", "PendingMigration"}:
        pending.nominate(key, sticky=queue.best_effort)
    pending.put_down(key)
    immediate = reason in IMMEDIATE_FOR_BEST_EFFORT if queue.best_effort else reason != "NamespaceMismatch"
    last = info.last_assignment
    again = again or immediate or pending.retry_cycle >= pending.pop_cycle or (last is not None and last.pending)
    if backoff_over and again:
        info = pending.inadmissible.pop(key, info)
        if key in pending.active:
            return False
        pending.push(info)
        return True
    if key in pending.inadmissible or key in pending.active:
        return False
    together = bool(info.hash) and reason in {"NoFit", "PreemptionNoCandidates"}
    _make_inadmissible(pending, info, quota_reason, together=together, backoff_over=backoff_over)
    return False


def pass_over(queue: ClusterQueue, info: Info, quota_reason: str, *, backoff_over: bool) -> None:
    """Make a Workload inadmissible that has no room beside the claim of a preemptor, and all that ask for the same."""
    queue.pending.put_down(info.key)
    _make_inadmissible(queue.pending, info, quota_reason, together=bool(info.hash), backoff_over=backoff_over)


def _make_inadmissible(pending: Pending, info: Info, quota_reason: str, *, together: bool, backoff_over: bool) -> None:
    together = together and pending.in_classes
    if together:
        pending.make_class_inadmissible(info.hash, quota_reason or PENDING_EVALUATION)
    if together and backoff_over:
        pending.push(info)
    else:
        pending.inadmissible[info.key] = info


def push_or_update(queue: ClusterQueue, info: Info, *, backoff_over: bool) -> None:
    """Take in a workload that may wait (Kueue: PushOrUpdate): active, but inadmissible if it is that and
    nothing about it changed that could help, if its back-off is not over, or if an equal Workload was just refused."""
    pending = queue.pending
    key = info.key
    if pending.inflight is not None and any(info.key == key for info in pending.under_way):
        return
    known = pending.inadmissible.get(key)
    if known is not None:
        seen = pending.last_generation.get(key)
        if (seen is None or seen == info.generation) and not could_help(known, info):
            info.never = known.never
            pending.inadmissible[key] = info
            return
        del pending.inadmissible[key]
    if not backoff_over and not pending.is_active(key):
        pending.take_out(key)
        pending.inadmissible[key] = info
        return
    pending.push(info)
