"""How a Workload comes into the heap of its ClusterQueue, and back into it after a cycle.

A waiting Workload is in exactly one place of its ClusterQueue: active (in the heap), inadmissible (until something
changes) or inflight (the head that a cycle works on). Sources: Kueue's queue cache. Must never look at quota.
"""

from typing import TYPE_CHECKING, Final

from turnstile.api.meta import Condition
from turnstile.api.workload import EVICTED, REQUEUED
from turnstile.engine.queue.admissible import preemption_gated
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.heaps import Pending
from turnstile.engine.quota.info import same_requests
from turnstile.engine.quota.ordering import PRIORITY_BOOST
from turnstile.engine.reasons import PENDING_EVALUATION

if TYPE_CHECKING:
    from turnstile.engine.quota.info import Info


IMMEDIATE_FOR_BEST_EFFORT: Final = frozenset(
    ("FailedAfterNomination", "PendingPreemption", "PendingMigration", "PreemptionFailed")
)


def requeue(
    queue: ClusterQueue, info: "Info", reason: str, quota_reason: str, *, backoff_over: bool, again: bool = False
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


def pass_over(queue: ClusterQueue, info: "Info", quota_reason: str, *, backoff_over: bool) -> None:
    """Make a Workload inadmissible that has no room beside the claim of a preemptor, and all that ask for the same."""
    queue.pending.put_down(info.key)
    _make_inadmissible(queue.pending, info, quota_reason, together=bool(info.hash), backoff_over=backoff_over)


def _make_inadmissible(
    pending: Pending, info: "Info", quota_reason: str, *, together: bool, backoff_over: bool
) -> None:
    together = together and pending.in_classes
    if together:
        pending.make_class_inadmissible(info.hash, quota_reason or PENDING_EVALUATION)
    if together and backoff_over:
        pending.push(info)
    else:
        pending.inadmissible[info.key] = info


def push_or_update(queue: ClusterQueue, info: "Info", *, backoff_over: bool) -> None:
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


def could_help(old: "Info", new: "Info") -> bool:
    """Whether anything changed that could make an inadmissible Workload admissible."""
    before, after = old.workload, new.workload
    boost = new.surroundings.options.gates.priority_boost
    return (
        before.spec != after.spec
        or (boost and before.metadata.annotations.get(PRIORITY_BOOST) != after.metadata.annotations.get(PRIORITY_BOOST))
        or list(before.status.reclaimable_pods) != list(after.status.reclaimable_pods)
        or _state_of(old.condition(EVICTED)) != _state_of(new.condition(EVICTED))
        or _state_of(old.condition(REQUEUED)) != _state_of(new.condition(REQUEUED))
        or preemption_gated(before) != preemption_gated(after)
        or (old.failed_checks and not new.failed_checks)
        or not same_requests(old.totals, new.totals)
    )


def _state_of(condition: Condition | None) -> tuple[str, str, str, str] | None:
    if condition is None:
        return None
    return condition.status, condition.reason, condition.message, condition.last_transition_time
