"""Places in a topology for the pod sets of an assignment, in the flavors that they got.

Quota comes first: places are looked for only if there is quota, or could be. Source: Kueue's flavorassigner. Must never
change what is in use.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from turnstile.engine.causes import Cause
from turnstile.engine.flavors.assignment import Assignment, PodSetAssignment
from turnstile.engine.options import Gates
from turnstile.engine.pace import Pace, Sliced, finish
from turnstile.engine.reasons import TOPOLOGY_PLACEMENT_FAILED, Attempt, FlavorChoice, Mode, Possibility
from turnstile.engine.topology.nodes import Nodes
from turnstile.engine.topology.placement import Placed, Placer, Policy, Wanted, groups
from turnstile.engine.topology.places import Places
from turnstile.engine.topology.tree import Capacity, Domain

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info

_MUCH: Final = 1e9
"""More work than any search for places takes."""
Found = Mapping[str, Placed | str]
"""By pod set: its places, or why there are none."""
Delays = Callable[["ClusterQueue", str], bool]
"""Whether pods in a flavor of a ClusterQueue get their places only once its admission checks are ready."""


def policy_of(gates: Gates) -> Policy:
    """The part of the feature gates that changes where pods go."""
    return Policy(
        mixed=gates.tas_profile_mixed,
        balanced=gates.tas_balanced_placement,
        multi_layer=gates.tas_multi_layer_topology,
        liking=gates.tas_respect_node_affinity_preferred,
    )


class Seeker:
    """The question which places the pod sets of an assignment get."""

    __slots__ = ("_nodes", "_pace", "_policy", "_wanted", "key")

    def __init__(self, nodes: Nodes, policy: Policy, pace: Pace, wanted: Mapping[str, Sequence[Wanted]]) -> None:
        self._nodes = nodes
        self._policy = policy
        self._pace = pace
        self._wanted = wanted
        """By flavor."""
        self.key: Hashable = tuple(
            (flavor, each.name, each.pods, each.ask, each.where, id(each.request))
            for flavor, members in wanted.items()
            for each in members
        )

    def find(self, *, empty: bool = False) -> Sliced[Found]:
        """Places as things are, or as they would be without the pods that topology placed. Ends with the first pod set
        that gets none."""
        return self._find(self._pace, empty=empty, explained=True)

    def _find(self, pace: Pace, *, empty: bool, explained: bool) -> Sliced[Found]:
        found: dict[str, Placed | str] = {}
        taken: Mapping[Capacity, Mapping[str, int]] = {}
        for flavor, members in self._wanted.items():
            placer = Placer(
                self._nodes.trees[flavor],
                self._nodes.frees,
                policy=self._policy,
                empty=empty,
                pace=pace,
                taken=taken,
                explained=explained,
            )
            found.update((yield from placer.place(members)))
            if any(isinstance(each, str) for each in found.values()):
                break
            taken = placer.taken
        if any(isinstance(each, str) for each in found.values()):
            for flavor in self._wanted:
                self._nodes.trees[flavor].lacking = True
        return found

    def fits(self) -> bool:
        """Whether all get places as things are: at one stretch, after which the search that asks is to stop."""
        pace = Pace(_MUCH)
        found = finish(self._find(pace, empty=False, explained=False))
        self._pace.left -= _MUCH - pace.left
        return not any(isinstance(each, str) for each in found.values())

    def domains(self) -> Sliced[set[Domain]]:
        """Domains that would each have room for all pods of a pod set without the pods that topology placed."""
        found: set[Domain] = set()
        for flavor, members in self._wanted.items():
            tree, frees = self._nodes.trees[flavor], self._nodes.frees
            placer = Placer(tree, frees, policy=self._policy, empty=True, pace=self._pace)
            for group in groups(members):
                found.update((yield from placer.wide(group)))
        return found

    def places(self, found: Found) -> Places:
        """Usage of the pods in these places."""
        total = Places()
        for flavor, members in self._wanted.items():
            levels = self._nodes.trees[flavor].levels
            for member in members:
                placed = found.get(member.name)
                if isinstance(placed, Placed):
                    total.include(self._nodes.places(flavor, levels, placed.places, member.ask))
        return total


class PlaceFinder:
    """Gives assignments their places."""

    __slots__ = ("_delays", "_nodes", "_observable", "_pace", "_policy")

    def __init__(self, nodes: Nodes, policy: Policy, pace: Pace, *, delays: Delays, observable: bool = True) -> None:
        self._delays = delays
        self._observable = observable
        self._nodes = nodes
        self._policy = policy
        self._pace = pace

    def give(self, queue: "ClusterQueue", info: "Info", result: Assignment) -> Sliced[None]:
        """Give places, if there is quota for the assignment, or could be; else change its mode and say why."""
        if result.mode is Mode.NO_FIT:
            return
        wanted = self._wanted(queue, info, result)
        if any(pod_set.error is not None for pod_set in result.pod_sets):
            result.mode = Mode.NO_FIT
            return
        if not wanted:
            return
        seeker = Seeker(self._nodes, self._policy, self._pace, wanted)
        if result.mode is Mode.FIT:
            found = yield from seeker.find()
            if not self._failed(result, found):
                take(result, seeker, found)
                return
        found = yield from seeker.find(empty=True)
        if self._failed(result, found):
            for pod_set in result.pod_sets:
                if isinstance(found.get(pod_set.name), str):
                    self._set_mode(pod_set, Mode.NO_FIT)
                    if self._observable:
                        self._refuse(pod_set)
            result.mode = Mode.NO_FIT
            return
        for pod_set in result.pod_sets:
            if pod_set.name in found:
                self._set_mode(pod_set, Mode.PREEMPT)
        result.mode = Mode.PREEMPT
        result.seeker = seeker
        result.usage.sought = seeker

    def _wanted(self, queue: "ClusterQueue", info: "Info", result: Assignment) -> dict[str, list[Wanted]]:
        wanted: dict[str, list[Wanted]] = {}
        trees = self._nodes.trees
        for pod_set, totals in zip(result.pod_sets, info.totals, strict=False):
            request = totals.pod_set.topology_request if totals.pod_set is not None else None
            flavors = sorted({choice.flavor for choice in pod_set.flavors.values()} & trees.keys())
            if not pod_set.count or (not flavors and (request is None or not request.is_explicit)):
                continue
            if len(flavors) != 1:
                names = ", ".join(flavors)
                several = Cause.TOPOLOGY_FLAVORS.says(flavors=names)
                pod_set.error = several if flavors else Cause.TOPOLOGY_NO_FLAVOR.says()
                return {}
            if self._delays(queue, flavors[0]):
                pod_set.delayed = "Pending"
                continue
            assert totals.shape is not None
            group = request.pod_set_group_name or "" if request is not None else ""
            wanted.setdefault(flavors[0], []).append(
                Wanted(pod_set.name, pod_set.count, info.ask(totals), request, totals.shape, group)
            )
        return wanted

    @staticmethod
    def _failed(result: Assignment, found: Found) -> bool:
        """Whether a pod set has no places; its reasons say why."""
        failed = False
        for pod_set in result.pod_sets:
            why = found.get(pod_set.name)
            if isinstance(why, str):
                failed = True
                if why not in pod_set.reasons:
                    pod_set.reasons = [*pod_set.reasons, why]
        return failed

    def _set_mode(self, pod_set: PodSetAssignment, mode: Mode) -> None:
        """Have the flavors with a topology fit no better than this."""
        trees = self._nodes.trees
        pod_set.flavors = {
            resource: FlavorChoice(choice.flavor, mode, choice.borrow, choice.tried_index)
            if choice.flavor in trees
            else choice
            for resource, choice in pod_set.flavors.items()
        }

    def _refuse(self, pod_set: PodSetAssignment) -> None:
        """There would be no place even without the pods that topology placed."""
        pod_set.attempts = [
            [self._refused(attempt) if attempt.flavor in self._nodes.trees else attempt for attempt in group]
            for group in pod_set.attempts
        ]

    @staticmethod
    def _refused(attempt: Attempt) -> Attempt:
        if attempt.mode is Mode.NO_FIT:
            return attempt
        refused = Attempt(attempt.flavor)
        refused.mode, refused.borrow, refused.possibility = Mode.NO_FIT, attempt.borrow, Possibility.NO_FIT
        refused.reasons, refused.figures = attempt.reasons, attempt.figures
        refused.no_fit_reason = TOPOLOGY_PLACEMENT_FAILED
        return refused


def take(result: Assignment, seeker: Seeker, found: Found) -> None:
    """Have the pod sets of an assignment get these places."""
    for pod_set in result.pod_sets:
        placed = found.get(pod_set.name)
        if isinstance(placed, Placed):
            pod_set.placed = placed
    result.usage.sought = None
    result.usage.places = seeker.places(found)
