"""The result of a search for flavors: flavors and reasons of each pod set, quota it would take, how far the scan came.

Values, and what follows from them. Must never look for anything.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from turnstile.api.topology import TopologyAssignment
from turnstile.api.topologyassignment import encode
from turnstile.engine.causes import Cause
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.podsets import Delay
from turnstile.engine.quota.progress import LastAssignment
from turnstile.engine.quota.usage import Usage
from turnstile.engine.reasons import NO_MATCHING_FLAVOR, Attempt, FlavorChoice, Mode, most_hopeful, most_severe, why

if TYPE_CHECKING:
    from turnstile.engine.flavors.places import Seeker
    from turnstile.engine.topology.placement import Placed
    from turnstile.engine.topology.room import Asked

PairOf = Callable[[str, str], FlavorResource]
"""The pair of a flavor and a resource (`Catalog.pair`)."""

Pins = Mapping[str, Mapping[str, str]]
"""Flavor by pod set and resource."""


class PodSetAssignment:
    """Flavors of one pod set, or the reasons why there are none or no room in them."""

    __slots__ = (
        "_flavor_names",
        "attempts",
        "count",
        "delayed",
        "error",
        "flavors",
        "name",
        "placed",
        "reasons",
        "requests",
        "undeclared",
    )

    def __init__(
        self,
        name: str,
        count: int,
        requests: dict[str, int],
        *,
        reasons: Sequence[str] = (),
        error: str | None = None,
        attempts: Sequence[Sequence[Attempt]] = (),
        undeclared: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.count = count
        self.requests = requests
        self.flavors: dict[str, FlavorChoice] = {}
        self._flavor_names: dict[str, str] | None = None
        self.reasons = reasons
        self.error = error
        self.attempts = attempts
        self.undeclared = undeclared
        self.placed: Placed | None = None
        """Where its pods go, if topology places them."""
        self.delayed: Delay | None = None

    def take(self, flavors: dict[str, FlavorChoice], names: dict[str, str]) -> None:
        """Flavors that were found, and their names, which others may have too: they must not be changed."""
        self.flavors, self._flavor_names = flavors, names

    @property
    def flavor_names(self) -> dict[str, str]:
        """Names of its flavors by resource; not to be changed."""
        if self._flavor_names is not None:
            return self._flavor_names
        return {resource: choice.flavor for resource, choice in self.flavors.items()}

    @property
    def mode(self) -> Mode:
        """The worst over its resources."""
        if self.error is not None:
            return Mode.NO_FIT
        if not self.reasons:
            return Mode.FIT
        if not self.flavors:
            return Mode.NO_FIT
        return min(choice.mode for choice in self.flavors.values())

    @property
    def topology(self) -> TopologyAssignment | None:
        """Where its pods go, as the API has it."""
        return encode(self.placed.levels, self.placed.places) if self.placed is not None else None

    def merged_attempts(self) -> list[Attempt]:
        """One attempt a flavor over all resource groups, in order of first appearance."""
        merged: dict[str, Attempt] = {}
        for group in self.attempts:
            for attempt in group:
                known = merged.get(attempt.flavor)
                if known is None:
                    merged[attempt.flavor] = attempt
                    continue
                both = Attempt(attempt.flavor)
                both.mode = min(known.mode, attempt.mode)
                both.borrow = max(known.borrow, attempt.borrow)
                both.possibility = min(known.possibility, attempt.possibility)
                both.reasons = [*known.reasons, *attempt.reasons]
                both.figures = [*known.figures, *attempt.figures]
                both.no_fit_reason = most_severe((known.no_fit_reason, attempt.no_fit_reason))
                merged[attempt.flavor] = both
        return list(merged.values())


class Assignment:
    """Flavors of a workload. `usage` is what it would take, `borrowing` the highest borrowing level; `resumed`
    says that a scan went on from where the last one stopped, so that earlier flavors were not looked at."""

    __slots__ = ("asked", "borrowing", "last", "mode", "pod_sets", "resumed", "room_version", "seeker", "usage")

    def __init__(self, last: LastAssignment) -> None:
        self.pod_sets: list[PodSetAssignment] = []
        self.usage = Usage({})
        self.borrowing = 0
        self.mode = Mode.FIT
        self.last = last
        self.resumed = False
        self.seeker: Seeker | None = None
        """The question for places that others have to make room for."""
        self.asked: list[Asked] = []
        """Pods for which nodes have to have room, if the ClusterQueue asks for that."""
        self.room_version = 0
        """The pods that were expected on nodes when that was judged (`Room.version`)."""

    def add(self, pod_set: PodSetAssignment, tried: dict[str, int]) -> None:
        """One more pod set, and how far the scans for its resources came."""
        self.pod_sets.append(pod_set)
        self.last.tried.append(tried)

    def arrange(self, indexes: Sequence[int]) -> None:
        """Put the pod sets in the order of the workload. They were added group by group, as `indexes` lists their
        places in the workload; those of the last groups are missing if no flavor was found for an earlier group."""
        added = dict(zip(indexes, zip(self.pod_sets, self.last.tried, strict=True), strict=False))
        self.pod_sets = [added[index][0] for index in sorted(added)]
        self.last.tried = [added[index][1] if index in added else {} for index in range(max(added, default=-1) + 1)]

    def again(self) -> "Assignment":
        """The same, for another cycle to take over and mark as it needs."""
        before = self.last
        last = LastAssignment(before.tried, before.generation, before.cycle, before.hash)
        result = Assignment(last)
        result.pod_sets, result.usage, result.borrowing = self.pod_sets, self.usage, self.borrowing
        result.mode, result.resumed, result.seeker = self.mode, self.resumed, self.seeker
        result.asked, result.room_version = self.asked, self.room_version
        return result

    @property
    def message(self) -> str:
        """Kueue's sentence; empty if all fits."""
        parts = []
        for pod_set in self.pod_sets:
            if pod_set.error is not None:
                parts.append(Cause.AFFINITY_MALFORMED.says(pod_set=pod_set.name, error=pod_set.error))
            elif pod_set.reasons:
                parts.append(why(pod_set.name, pod_set.reasons))
        return "; ".join(parts)

    @property
    def no_fit_reason(self) -> str:
        """Reason of the QuotaReserved condition of a workload that no flavor fits."""
        found = []
        for pod_set in self.pod_sets:
            if pod_set.mode is not Mode.NO_FIT:
                continue
            if pod_set.undeclared or pod_set.error is not None:
                found.append(NO_MATCHING_FLAVOR)
            found.extend(
                most_hopeful([attempt.no_fit_reason for attempt in group]) if group else NO_MATCHING_FLAVOR
                for group in pod_set.attempts
                if all(attempt.mode is Mode.NO_FIT for attempt in group)
            )
        return most_severe(found)

    def needing_preemption(self, pair_of: PairOf) -> set[FlavorResource]:
        """Pairs whose flavor has no room as things are."""
        return {
            pair_of(choice.flavor, resource)
            for pod_set in self.pod_sets
            for resource, choice in pod_set.flavors.items()
            if choice.mode is Mode.PREEMPT
        }

    def pins(self) -> Pins:
        """Flavor by pod set and resource, to hold a recomputation to the same choice."""
        return {pod_set.name: pod_set.flavor_names for pod_set in self.pod_sets}
