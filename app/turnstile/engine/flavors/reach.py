"""Whether a Workload could be admitted if nothing were in use: what its ClusterQueue can be given of each flavor, by
the limits of the whole tree of Cohorts, is enough for each of its pod sets, and for all of them together.

Judged without usage and without an order of flavors, so that the answer stays true until a quota, a flavor or the
Workload changes. A Workload that is out of reach for another reason, such as how its pod sets divide flavors among
them, counts as within reach. Must never look at usage.
"""

from itertools import combinations
from typing import TYPE_CHECKING

from turnstile.engine.flavors.demand import PODS, groups_of
from turnstile.engine.flavors.setup import Setup
from turnstile.engine.flavors.together import conflict
from turnstile.engine.quota import tree

if TYPE_CHECKING:
    from turnstile.api.resourceflavor import ResourceFlavor
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info

Requests = dict[str, int]


def within_reach(setup: Setup, queue: "ClusterQueue", info: "Info", *, partial: bool) -> bool:
    """Whether each pod set could get flavors if nothing were in use; `partial` if its least number of pods will do."""
    asked = []
    for item in info.totals:
        least = item.count if item.min_count is None or not partial else min(item.count, item.min_count)
        asked.append({**item.scaled(least), **({PODS: least} if queue.covers_pods else {})})
    every = _sum(asked)
    for resource, amount in every.items():
        group = queue.group_of.get(resource)
        if group is not None and amount > sum(_most(setup, queue, flavor, resource) for flavor in group.flavors):
            return False
    return all(
        _could_have(setup, queue, info, members, _sum([asked[each] for each in members]))
        for members in groups_of(info.totals)
    )


def _could_have(setup: Setup, queue: "ClusterQueue", info: "Info", members: list[int], requests: Requests) -> bool:
    """Whether pod sets that share their flavors could get one in each resource group."""
    suiting: dict[tuple[str, ...], list[ResourceFlavor]] = {}
    for resource, amount in requests.items():
        group = queue.group_of.get(resource)
        if group is None:
            if amount and not setup.ignore_undeclared:
                return False
            continue
        if group.flavors in suiting:
            continue
        wanted = {name: value for name, value in requests.items() if name in group.covered}
        found = [
            setup.flavors[flavor]
            for flavor in group.flavors
            if _suits(setup, queue, info, members, flavor)
            and all(value <= _most(setup, queue, flavor, name) for name, value in wanted.items())
        ]
        if not found:
            return False
        suiting[group.flavors] = found
    return all(
        any(conflict(one, other) is None for one in some for other in others)
        for some, others in combinations(suiting.values(), 2)
    )


def _suits(setup: Setup, queue: "ClusterQueue", info: "Info", members: list[int], flavor: str) -> bool:
    try:
        return setup.unfit(queue, info, members, flavor) is None
    except ValueError:  # a malformed affinity
        return False


def _most(setup: Setup, queue: "ClusterQueue", flavor: str, resource: str) -> int:
    return tree.potential(queue.node, setup.pair(flavor, resource))


def _sum(parts: list[Requests]) -> Requests:
    total: Requests = {}
    for part in parts:
        for resource, amount in part.items():
            total[resource] = total.get(resource, 0) + amount
    return total
