"""Which flavor each resource of each pod set gets, and how: by fitting, by borrowing, by preempting.

A generator, which stops after each stretch of work and goes on from there. Pod sets get their flavors one after the
other, and how far each scan came is in the result, so that the next attempt goes on from there. Source: Kueue's
flavorassigner. Must never change usage: what would be used is in the result.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from turnstile.api.quantity import MAX_INT64
from turnstile.engine.flavors.assignment import Assignment, Pins, PodSetAssignment
from turnstile.engine.flavors.demand import PODS, Demand, groups_of
from turnstile.engine.flavors.places import PlaceFinder
from turnstile.engine.flavors.plain import PlainFits
from turnstile.engine.flavors.search import Found, Search
from turnstile.engine.flavors.setup import Setup
from turnstile.engine.pace import Sliced
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.reasons import FlavorChoice, Mode

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info
    from turnstile.engine.quota.podsets import PodSetTotals

_LONE: Final = [[0]]


class Assigner:
    """Finds flavors for Workloads. `cycle` is the number of the cycle, which the results carry."""

    __slots__ = ("_places", "_plain", "_setup", "cycle")

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._plain = PlainFits(setup)
        self._places = PlaceFinder(
            setup.nodes, setup.policy, setup.pace, delays=setup.delays, observable=setup.observable
        )
        self.cycle = 0

    def assign(
        self,
        queue: "ClusterQueue",
        info: "Info",
        *,
        counts: list[int] | None = None,
        pins: Pins | None = None,
        replaced: "Info | None" = None,
        carried: "Mapping[int, PodSetTotals] | None" = None,
    ) -> Sliced[Assignment]:
        """Flavors for all pod sets, at reduced `counts` if given, only the flavors in `pins` if given.

        `replaced` is the workload slice whose quota this one takes over: flavors stay, and only the difference counts.
        So they do for what other Workloads are charged for: `carried`, by index of the pod set.
        """
        totals = info.totals
        counts = counts or [item.count for item in totals]
        result = Assignment(LastAssignment([], queue.generation, self.cycle, info.hash if info.last_assignment else ""))
        pod_sets = [_asked(queue, item, count) for item, count in zip(totals, counts, strict=True)]
        before = dict(enumerate(replaced.totals)) if replaced is not None else carried or {}
        room = self._setup.room if self._setup.room is not None and self._setup.room.asks(queue) else None
        pods: Sequence[int] = ()
        if room is not None:
            run = [item.count for item in replaced.totals] if replaced is not None else [0] * len(counts)
            pods = [count - own for count, own in zip(counts, run, strict=False)]
            result.room_version = room.version
        groups = _LONE if len(totals) == 1 else groups_of(totals)
        for members in groups:
            demand = Demand(
                queue,
                info,
                members,
                pod_sets[members[0]].requests
                if len(members) == 1
                else _sum([pod_sets[each].requests for each in members]),
                result.usage,
                pins.get(totals[members[0]].name, {}) if pins is not None else None,
                {each: before[each] for each in members if each in before} if before else {},
                pods,
                result.asked,
            )
            if len(members) == 1 and pins is None and not demand.replaced and room is None:
                plain = self._plain.first(demand)
                if plain is not None:
                    pod_set = pod_sets[members[0]]
                    pod_set.attempts = plain.attempts
                    pod_set.take(plain.choices, plain.names)
                    result.add(pod_set, plain.tried)
                    continue
            search = Search(self._setup, self._plain, demand)
            found = yield from search.run()
            result.resumed = result.resumed or search.resumed
            for each in members:
                self._give(result, demand, each, pod_sets[each], found)
            if found.choices is None:
                break
            if room is not None:
                result.asked += room.asked(demand, sorted({each.flavor for each in found.choices.values()}))
        if len(totals) > len(groups):
            result.arrange([each for members in groups for each in members])
        if len(result.pod_sets) == 1:
            result.mode = result.pod_sets[0].mode
        else:
            result.mode = min([pod_set.mode for pod_set in result.pod_sets], default=Mode.FIT)
        if self._setup.nodes.trees:
            yield from self._places.give(queue, info, result)
        return result

    def _give(self, result: Assignment, demand: Demand, index: int, pod_set: PodSetAssignment, found: Found) -> None:
        """Give one pod set what a search found for it and those that share its flavors."""
        pod_set.reasons, pod_set.error = found.reasons, found.error
        pod_set.attempts, pod_set.undeclared = found.attempts, found.undeclared
        choices = found.choices or {}
        given = {resource: choices[resource] for resource in pod_set.requests if resource in choices}
        old = demand.replaced.get(index)
        pair_of = self._setup.pair
        for resource, choice in given.items():
            value = pod_set.requests[resource]
            if old is not None:
                value -= old.requests.get(resource, 0)
            result.usage.request(pair_of(choice.flavor, resource), value)
            result.borrowing = max(result.borrowing, choice.borrow)
        if not given and len(demand.members) > 1:
            given = self._with_topology(choices)
        pod_set.flavors = given
        result.add(pod_set, {resource: choice.tried_index for resource, choice in given.items()})

    def _with_topology(self, choices: dict[str, FlavorChoice]) -> dict[str, FlavorChoice]:
        """The flavors with a topology, which a pod set that asks for nothing has too if others share its flavors."""
        found = {resource: self._setup.flavors.get(choice.flavor) for resource, choice in choices.items()}
        return {
            resource: choices[resource]
            for resource, flavor in found.items()
            if flavor is not None and flavor.spec.topology_name is not None
        }


def _asked(queue: "ClusterQueue", item: "PodSetTotals", count: int) -> PodSetAssignment:
    """A pod set with what so many of its pods ask for, and without flavors."""
    requests = item.requests if count == item.count else item.scaled(count)
    if queue.covers_pods:
        requests = {**requests, PODS: count}
    return PodSetAssignment(item.name, count, requests)


def _sum(parts: Sequence[dict[str, int]]) -> dict[str, int]:
    """Requests of pod sets together, within int64."""
    total: dict[str, int] = {}
    for part in parts:
        for resource, value in part.items():
            total[resource] = min(total.get(resource, 0) + value, MAX_INT64)
    return total
