"""The run of an admitted Workload: since when, on which quota, with how many pods, and how much it has used until now.

Worked out of the Workload alone; a run that ended early gave back what it held, so amounts are those of what it holds
now. Must never decide.
"""

from collections.abc import Iterator, Sequence

import msgspec

from turnstile.api import workload as wl
from turnstile.api.conditions import instant
from turnstile.api.meta import find_condition
from turnstile.api.quantity import from_int, to_int
from turnstile.api.workload import PodSetAssignment, Workload
from turnstile.engine.instants import Instant
from turnstile.wording.lost import unit


class PodSetRun(msgspec.Struct, frozen=True):
    """A pod set with its flavors, in the order of its resources."""

    name: str
    pods: int
    """Pods that were admitted."""
    done: int
    """Pods of these that have ended and given their quota back."""
    flavors: tuple[str, ...]


class Used(msgspec.Struct, frozen=True):
    """A resource that is held: the amount as people write it, and its hours until now."""

    resource: str
    amount: str
    hours: float
    unit: str


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A run that goes on, or the last one of a Workload that has finished."""

    cluster_queue: str
    since: str
    until: str
    """When it finished; empty if it goes on."""
    seconds: float
    pod_sets: tuple[PodSetRun, ...]
    used: tuple[Used, ...]
    evicted: int
    """How often it was evicted before."""
    cluster: str = ""
    """The worker cluster of MultiKueue that has its pods; empty if they are here."""


def running(workload: Workload, now: Instant) -> Running | None:
    """The run of a Workload; None for one that is not admitted."""
    conditions, admission = workload.status.conditions, workload.status.admission
    admitted = find_condition(conditions, wl.ADMITTED)
    since = instant(admitted.last_transition_time) if admitted is not None and admitted.status == "True" else None
    if admitted is None or since is None or admission is None:
        return None
    finished = find_condition(conditions, wl.FINISHED) if workload.finished else None
    until = instant(finished.last_transition_time) if finished is not None else None
    seconds = max(0.0, (now if until is None else until.timestamp()) - since.timestamp())
    done = {each.name: each.count for each in workload.status.reclaimable_pods}
    stats = workload.status.scheduling_stats
    return Running(
        cluster_queue=admission.cluster_queue,
        since=admitted.last_transition_time,
        until=finished.last_transition_time if finished is not None else "",
        seconds=seconds,
        pod_sets=tuple(_pod_set(each, workload, done) for each in admission.pod_set_assignments),
        used=tuple(_used(admission.pod_set_assignments, seconds)),
        evicted=sum(each.count for each in stats.evictions) if stats is not None else 0,
        cluster=workload.status.cluster_name or "",
    )


def _pod_set(given: PodSetAssignment, workload: Workload, done: dict[str, int]) -> PodSetRun:
    asked = next((each.count for each in workload.spec.pod_sets if each.name == given.name), 0)
    pods = given.count if given.count is not None else asked
    return PodSetRun(given.name, pods, min(pods, done.get(given.name, 0)), tuple(dict.fromkeys(given.flavors.values())))


def held(assignments: Sequence[PodSetAssignment]) -> dict[str, int]:
    """The quota of an admission, by resource, in all flavors together."""
    total: dict[str, int] = {}
    for given in assignments:
        for resource in given.flavors:
            amount = max(0, to_int(resource, given.resource_usage.get(resource, 0)))
            total[resource] = total.get(resource, 0) + amount
    return total


def _used(assignments: Sequence[PodSetAssignment], seconds: float) -> Iterator[Used]:
    for resource, amount in sorted(held(assignments).items(), key=lambda each: "/" not in each[0]):
        if amount:
            name, size = unit(resource)
            yield Used(resource, str(from_int(resource, amount)), amount / size * seconds / 3600, name)
