"""Whether a newer version of a Workload says anything new to those who decide on it, or wait for it.

Must never look at queues or quota.
"""

from turnstile.api.meta import Condition
from turnstile.api.workload import EVICTED, PREEMPTED, REQUEUED
from turnstile.engine.queue.admissible import pods_ready, preemption_gated
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.ordering import PRIORITY_BOOST
from turnstile.engine.quota.podsets import same_requests


def could_help(old: Info, new: Info) -> bool:
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


def by_preemption(before: Info, after: Info) -> bool:
    """Whether a workload changed only as workloads do that are let in, preempted, and active again."""
    evicted = after.condition(EVICTED) if after.evicted and not before.evicted else None
    return (
        before.workload.metadata.generation == after.workload.metadata.generation
        and list(before.workload.status.reclaimable_pods) == list(after.workload.status.reclaimable_pods)
        and not after.finished
        and (evicted is None or evicted.reason == PREEMPTED)
    )


def same_to_others(before: Info, after: Info) -> bool:
    """Whether a workload that holds quota looks the same to those who wait for it."""
    return (
        before.usage == after.usage
        and before.order == after.order
        and before.evicted == after.evicted
        and before.admitted == after.admitted
        and before.cluster_queue == after.cluster_queue
        and pods_ready(before.workload) == pods_ready(after.workload)
    )
