"""The room that a Topology has for the pods of a Workload that waits: how many fit at each level, and where.

Read off the ledger on which the engine decided. Must never decide, and never name a Workload that the asker may not
see.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from turnstile.engine import State
from turnstile.engine.pace import Pace, finish
from turnstile.engine.quota.info import Info
from turnstile.engine.quota.podsets import PodSetTotals
from turnstile.engine.topology.counting import Counts, Kind, counts_of
from turnstile.engine.topology.nodes import Nodes
from turnstile.engine.topology.places import Places
from turnstile.engine.topology.shape import Shape, shape_of
from turnstile.engine.topology.tree import Capacity, Domain, Tree
from turnstile.insight.snapshot import Sees, names_of
from turnstile.wording import room as words

TRIED: Final = 200
"""Maximum number of Workloads, those with the fewest places first, for which it is tried whether all pods fit once that
Workload has ended."""
NAMED: Final = 3
"""Workloads that are named at most, and flavors about which is told."""


class Hole(msgspec.Struct, frozen=True):
    """The domain of a level in which the most pods fit now."""

    level: str
    """The node label."""
    domain: str
    pods: int


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The room for the pods of one pod set on the nodes of one flavor."""

    pod_set: str
    flavor: str
    pods: int
    """Pods that need a place."""
    level: str = ""
    """The level at which a single domain has to have room for all pods; empty if any domains will do."""
    fit: int
    """Pods that fit now: into one domain of that level, or into all domains together."""
    most: int
    """Pods that would fit if topology had placed no other pods."""
    holes: tuple[Hole, ...]
    """The largest hole of each level, the widest level first."""
    ends: tuple[str, ...] = ()
    """Workloads: all pods fit once one of them has ended."""
    into: str = ""
    """The domain in which they fit then."""

    @property
    def sentence(self) -> str:
        """Why it waits, as far as room is the reason; empty if there is room."""
        if self.fit >= self.pods:
            return ""
        hole = next((each for each in self.holes if each.level == self.level), None)
        domain = hole.domain if hole is not None else ""
        if self.most < self.pods:
            return words.never(self.pods, self.level, self.flavor, self.most)
        return words.waits(self.pods, self.level, self.flavor, domain, self.fit) + words.after(self.ends, self.into)


def rooms(state: State, key: str, sees: Sees) -> Iterator[Room]:
    """The room for each pod set of a pending Workload that topology would place, in each flavor that it may get."""
    info = state.queues.waiting.get(key)
    if info is None:
        return
    nodes = state.surroundings.nodes
    for totals in info.totals:
        for flavor in _flavors(state, info, totals)[:NAMED]:
            found = _room(nodes, info, totals, flavor, sees)
            if found is not None:
                yield found


def _flavors(state: State, info: Info, totals: PodSetTotals) -> list[str]:
    """The flavors with nodes in domains: the one that the engine chose last, or else all of its ClusterQueue."""
    trees = state.surroundings.nodes.trees
    decision = state.queues.decisions.get(info.key)
    if decision is not None and decision.assignment is not None:
        for pod_set in decision.assignment.pod_sets:
            chosen = {choice.flavor for choice in pod_set.flavors.values()} & trees.keys()
            if pod_set.name == totals.name and chosen:
                return sorted(chosen)
    local = state.queues.local_queues.get(info.local_queue)
    queue = state.cluster_queues.get(local.cluster_queue) if local is not None else None
    if queue is None:
        return []
    groups = [queue.group_of[resource] for resource in totals.requests if resource in queue.group_of]
    return [name for name in dict.fromkeys(name for group in groups for name in group.flavors) if name in trees]


def _room(nodes: Nodes, info: Info, totals: PodSetTotals, flavor: str, sees: Sees) -> Room | None:
    tree = nodes.trees[flavor]
    request = totals.pod_set.topology_request if totals.pod_set is not None else None
    shape = shape_of(request, tree.levels)
    if isinstance(shape, str) or not totals.count or not tree.domains(0):
        return None
    asked = _Asked(nodes, tree, info, totals, shape)
    into, keys = asked.endings() if asked.now < asked.pods <= asked.most else ("", [])
    return Room(
        pod_set=totals.name,
        flavor=flavor,
        pods=totals.count,
        level=tree.levels[shape.level] if shape.required else "",
        fit=asked.now,
        most=asked.most,
        holes=tuple(asked.holes()),
        ends=names_of(keys, sees, most=NAMED),
        into=into,
    )


class _Asked:
    """The counts of one pod set in one tree, as things are and as they would be without other pods."""

    def __init__(self, nodes: Nodes, tree: Tree, info: Info, totals: PodSetTotals, shape: Shape) -> None:
        self._nodes = nodes
        self._tree = tree
        self._shape = shape
        self.pods = totals.count
        where = info.where(totals) if tree.by_host else None
        kind = Kind(info.ask(totals), None, where, None, shape.slice_level, shape.slice_size, shape.inner, False, False)
        self._counts = finish(counts_of(tree, kind, nodes.frees, Pace()))
        self._empty = finish(counts_of(tree, kind._replace(empty=True), nodes.frees, Pace()))
        self.now, self.most = self._fit(self._counts), self._fit(self._empty)

    def _pods(self, counts: Counts, domain: Domain) -> int:
        """Pods that fit into a domain in whole slices, where it may hold any."""
        size = self._shape.slice_size
        if size > 1 and domain.level <= self._shape.slice_level:
            return counts.slices[domain.at] * size
        return counts.pods[domain.at]

    def _fit(self, counts: Counts) -> int:
        found = [self._pods(counts, domain) for domain in self._tree.domains(self._level)]
        return max(found) if self._shape.required else sum(found)

    @property
    def _level(self) -> int:
        return self._shape.level if self._shape.required else 0

    def holes(self) -> Iterator[Hole]:
        """The largest hole of each level."""
        for number, level in enumerate(self._tree.levels):
            domains = self._tree.domains(number)
            domain = max(domains, key=lambda each: self._pods(self._counts, each))
            yield Hole(level, called(domain, domains), self._pods(self._counts, domain))

    def endings(self) -> tuple[str, list[str]]:
        """The domain in which all pods fit once one of some Workloads has ended, and these; the first one found."""
        domains = self._tree.domains(self._level)
        large = {each.at for each in domains if self._pods(self._empty, each) >= self.pods}
        found: dict[str, list[str]] = {}
        tried = 0
        for key, places in sorted(self._nodes.holders.items(), key=lambda each: (len(each[1]), each[0])):
            freed = self._freed(places, large if self._shape.required else None)
            if not freed:
                continue
            if (tried := tried + 1) > TRIED:
                break
            counts = self._counts.assuming(freed)
            if self._fit(counts) >= self.pods:
                into = max(domains, key=lambda each: self._pods(counts, each)) if self._shape.required else None
                found.setdefault(called(into, domains) if into is not None else "", []).append(key)
        return next(iter(found.items()), ("", []))

    def _freed(self, places: Places, large: set[int] | None) -> dict[Capacity, Mapping[str, int]]:
        """The amounts, below zero, that would not be in use, if any of them are in domains that are large enough."""
        found: dict[Capacity, Mapping[str, int]] = {}
        concerns = large is None
        for place in places.capacities:
            leaf = next((each for each in place.leaves if each.tree is self._tree), None)
            if leaf is None:
                continue
            domain: Domain | None = leaf
            while domain is not None and domain.level > self._level:
                domain = domain.parent
            concerns = concerns or (domain is not None and large is not None and domain.at in large)
            found[place] = {name: -amount for name, amount in (places.amounts(place) or {}).items()}
        return found if concerns else {}


def called(domain: Domain, siblings: Sequence[Domain]) -> str:
    """The value of its level, if no other domain of the level has it; else with those of the levels above."""
    last = domain.values[-1]
    return last if sum(each.values[-1] == last for each in siblings) == 1 else "/".join(domain.values)
