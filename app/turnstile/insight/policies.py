"""The rules of a ClusterQueue that keep a pending Workload from preempting those that hold what it lacks.

Told beside the amounts that are short. Must never decide: the engine has found that nobody is preempted.
"""

from collections.abc import Iterable, Iterator, Mapping

from turnstile.api.clusterqueue import Preemption
from turnstile.engine import State
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.quota.info import Info
from turnstile.engine.reasons import Figure
from turnstile.wording.standing import kept_by_lower, kept_lent


def forbidding(state: State, key: str, figures: Iterable[Figure]) -> Iterator[str]:
    """The rules, each as a sentence without a full stop."""
    info = state.queues.waiting.get(key)
    queue = state.cluster_queues.get(info.cluster_queue) if info is not None else None
    if info is None or queue is None:
        return
    policy = queue.api.spec.preemption or Preemption()
    for figure in dict.fromkeys(figures):
        where = figure.resource, figure.flavor, queue.name
        asked = figure.requested + figure.assumed
        if queue.node.parent is not None and asked <= figure.nominal - figure.used:
            borrows = policy.borrow_within_cohort
            if policy.reclaim_within_cohort == "Never":
                yield kept_lent(*where, ())
            elif (borrows is None or borrows.policy == "Never") and (more := _borrowed(state, queue, info, figure)):
                yield kept_lent(*where, more)
        if policy.within_cluster_queue == "Never" and _held_by_lower(state, queue, info, figure):
            yield kept_by_lower(*where)


def _borrowed(state: State, queue: ClusterQueue, info: Info, figure: Figure) -> list[str]:
    """The resources of which the Workload asks for more than the ClusterQueue has left of its own."""
    asked: dict[str, int] = {}
    for item in info.totals:
        for resource, amount in item.requests.items():
            asked[resource] = asked.get(resource, 0) + amount
    return sorted(each for each in asked if _borrows(state, queue, each, asked, figure.flavor))


def _borrows(state: State, queue: ClusterQueue, resource: str, asked: Mapping[str, int], flavor: str) -> bool:
    group = queue.group_of.get(resource)
    if group is None:
        return False
    flavors = [flavor] if flavor in group.flavors else group.flavors
    pairs = [state.surroundings.catalog.pair(each, resource) for each in flavors]
    node = queue.node
    return all(asked[resource] + node.usage.get(pair, 0) > node.nominal.get(pair, 0) for pair in pairs)


def _held_by_lower(state: State, queue: ClusterQueue, info: Info, figure: Figure) -> bool:
    pair = state.surroundings.catalog.pair(figure.flavor, figure.resource)
    return any(each.priority < info.priority and each.usage.of(pair) for each in queue.workloads.values())
