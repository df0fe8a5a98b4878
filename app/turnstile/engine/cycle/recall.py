"""Nominations before the term of a new leader, as far as it knows them: the conditions of a victim name its preemptor.

Runs once, in the first cycle of a state, on all the Workloads that exist then. Must never choose victims.
"""

from collections.abc import Iterable
from typing import NamedTuple

from turnstile.api.workload import EVICTED, PREEMPTED, QUOTA_RESERVED
from turnstile.engine.decisions import preemptor_uid
from turnstile.engine.flavors.assignment import Assignment, PairOf, PodSetAssignment
from turnstile.engine.instants import Instant, instant_or_zero
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.reasons import FlavorChoice, Mode
from turnstile.engine.state import State


class _Victim(NamedTuple):
    info: Info
    preemptor: str
    at: Instant
    reason: str


def nominations(state: State, pace: Pace) -> Sliced[None]:
    """Nominate anew each pending Workload for which others were preempted while it waited; of several in a
    ClusterQueue the one that had the last victim."""
    victims: dict[str, list[_Victim]] = {}
    for info in state.workloads.values():
        pace.left -= 0.25
        if pace.left <= 0:
            yield
            pace.renew()
        victim = _victim(info) if info.evicted and not info.finished else None
        if victim is not None:
            victims.setdefault(victim.preemptor, []).append(victim)
    if not victims:
        return
    latest: dict[str, tuple[Instant, Info, list[_Victim]]] = {}
    for info in state.queues.waiting.values():
        pace.left -= 0.25
        if pace.left <= 0:
            yield
            pace.renew()
        theirs = [victim for victim in victims.get(info.uid, ()) if victim.at >= _waits_since(info)]
        if theirs:
            found = max(victim.at for victim in theirs), info, theirs
            name = info.cluster_queue
            if name not in latest or (-found[0], info.order) < (-latest[name][0], latest[name][1].order):
                latest[name] = found
    for name, (_, info, theirs) in latest.items():
        queue = state.cluster_queues.get(name)
        if queue is not None and queue.pending.find(info.key) is not None:
            reasons = {victim.info.key: victim.reason for victim in theirs}
            assignment = _assignment(queue, info, (victim.info for victim in theirs), state.surroundings.catalog.pair)
            queue.pending.nomination = Nomination(info.key, info.generation, queue.best_effort, reasons, assignment)


def _victim(info: Info) -> _Victim | None:
    evicted, preempted = info.condition(EVICTED), info.condition(PREEMPTED)
    if evicted is None or evicted.reason != PREEMPTED or preempted is None or preempted.status != "True":
        return None
    uid = preemptor_uid(preempted.message)
    return _Victim(info, uid, instant_or_zero(evicted.last_transition_time), preempted.reason) if uid else None


def _waits_since(info: Info) -> Instant:
    """When it lost its quota, which takes an eviction; 0 if it never had any. Victims that were preempted for it before
    that have served it."""
    reserved = info.condition(QUOTA_RESERVED) if info.evicted else None
    return instant_or_zero(reserved.last_transition_time) if reserved is not None else 0


def _assignment(queue: ClusterQueue, info: Info, victims: Iterable[Info], pair_of: PairOf) -> Assignment | None:
    """All its pods in the flavor that its victims still hold, if that is a single one and the ClusterQueue has a single
    resource group: then it was nominated for that flavor. Otherwise it is found anew."""
    held = {flavor for victim in victims if victim.reserved for flavor in victim.usage.flavors}
    if len(held) != 1 or len(queue.groups) != 1:
        return None
    (flavor,) = held
    group = queue.groups[0]
    assignment = Assignment(LastAssignment([], queue.generation, 0, info.hash))
    for item in info.totals:
        requests = {**item.requests, "pods": item.count} if queue.covers_pods else item.requests
        if flavor not in group.flavors or not group.covered.issuperset(requests):
            return None
        given = PodSetAssignment(item.name, item.count, requests)
        given.flavors = {resource: FlavorChoice(flavor, Mode.PREEMPT, 0) for resource in requests}
        assignment.pod_sets.append(given)
        assignment.last.tried.append({})
        for resource, amount in requests.items():
            assignment.usage.request(pair_of(flavor, resource), amount)
    assignment.mode = Mode.PREEMPT
    return assignment
