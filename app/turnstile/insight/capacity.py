"""Whether demands fit the quotas, where each demand may be charged in several places: a maximum flow.

A place is a flavor of a ClusterQueue. A charge of a place or a Cohort flows to where it is counted: within the part of
its quota that it does not lend it counts in the node itself, the rest counts in its parent, at most as much as it lends
plus its borrowing limit. Demands fit if and only if all of them can flow. Where they do not, the places that are full
name the ClusterQueues in question (the minimum cut). One resource at a time. Must never know what demands.
"""

from collections import deque
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from turnstile.engine.quota.amounts import UNLIMITED
from turnstile.engine.quota.clusterqueue import ClusterQueue
from turnstile.engine.quota.ledger import Ledger
from turnstile.engine.quota.tree import Node

Place = tuple[str, str]
"""A ClusterQueue and a flavor, by their names."""
Places = frozenset[Place]

_Spot = tuple[Node, str]
"""A ClusterQueue or a Cohort, and a flavor."""
_Vertex = _Spot | Places | None
"""A part of the network; None is where everything flows to."""

_END: Final = None


@dataclass(frozen=True, slots=True)
class Excess:
    """Demands that do not fit: all that may be charged to `places` only, of which so much is too much."""

    resource: str
    places: Places
    used: int
    excess: int
    roots: frozenset[str]
    """The topmost ClusterQueues or Cohorts above the places."""


def excesses(
    ledger: Ledger[ClusterQueue], resource: str, demands: Mapping[Places, int]
) -> Generator[None, None, list[Excess]]:
    """The demands that no way of charging fits into the quotas of a settled ledger, in slices.

    A demand that may be charged nowhere is left out, and so is one that may be charged to a ClusterQueue whose Cohorts
    form a cycle, because nothing is known of its quota.
    """
    network = _Network(ledger, resource)
    unmet: list[tuple[set[_Vertex], int]] = []
    for places in sorted(demands, key=sorted):
        if places and network.add(places):
            left, reached = network.push(places, demands[places])
            if left:
                unmet.append((reached, left))
        yield
    return [network.excess(reached, left, demands) for reached, left in _merged(unmet)]


def _merged(unmet: Iterable[tuple[set[_Vertex], int]]) -> list[tuple[set[_Vertex], int]]:
    """Places that are full together are in question together."""
    merged: list[tuple[set[_Vertex], int]] = []
    for reached, left in unmet:
        apart = []
        for others, more in merged:
            if reached.isdisjoint(others):
                apart.append((others, more))
            else:
                reached, left = reached | others, left + more
        merged = [*apart, (reached, left)]
    return merged


class _Network:
    """Amounts that may still flow from each vertex to each other one."""

    def __init__(self, ledger: Ledger[ClusterQueue], resource: str) -> None:
        self._ledger = ledger
        self._resource = resource
        self._residual: dict[_Vertex, dict[_Vertex, int]] = {}

    def add(self, places: Places) -> bool:
        """Add a demand with its places, and what is above them. Returns whether the quotas of all places are known."""
        queues = [self._ledger.cluster_queues.get(queue) for queue, _ in places]
        if any(queue is None or self._ledger.cyclic(queue.node) for queue in queues):
            return False
        edges = self._residual[places] = {}
        for queue, flavor in sorted(places):
            node = self._ledger.cluster_queues[queue].node
            edges[node, flavor] = UNLIMITED
            self._add_spot(node, flavor)
        return True

    def _add_spot(self, node: Node | None, flavor: str) -> None:
        pair = self._ledger.catalog.pair(flavor, self._resource)
        while node is not None and (node, flavor) not in self._residual:
            quota, kept = node.subtree.get(pair, 0), node.guaranteed.get(pair, 0)
            parent, limit = node.parent, node.borrowing_limit.get(pair)
            if parent is None:
                self._residual[node, flavor] = {_END: quota}
            else:
                above = UNLIMITED if limit is None else max(0, quota - kept + limit)
                self._residual[node, flavor] = {_END: kept, (parent, flavor): above}
            node = parent

    def push(self, source: _Vertex, amount: int) -> tuple[int, set[_Vertex]]:
        """Let an amount flow. Returns what cannot flow, and every vertex that it would reach."""
        residual = self._residual
        while True:
            came: dict[_Vertex, _Vertex] = {source: source}
            following = deque([source])
            while following and _END not in came:
                vertex = following.popleft()
                for each, left in residual[vertex].items():
                    if left > 0 and each not in came:
                        came[each] = vertex
                        if each is not _END:
                            following.append(each)
            if _END not in came or amount <= 0:
                return max(0, amount), set(came)
            amount -= self._flow(came, source, amount)

    def _flow(self, came: dict[_Vertex, _Vertex], source: _Vertex, amount: int) -> int:
        """Let as much as possible, up to an amount, flow along one way."""
        way: list[tuple[_Vertex, _Vertex]] = []
        vertex: _Vertex = _END
        while vertex != source:
            way.append((came[vertex], vertex))
            vertex = came[vertex]
        flow = min(amount, *(self._residual[before][after] for before, after in way))
        for before, after in way:
            self._residual[before][after] -= flow
            if after is not _END:
                back = self._residual[after]
                back[before] = back.get(before, 0) + flow
        return flow

    def excess(self, reached: set[_Vertex], left: int, demands: Mapping[Places, int]) -> Excess:
        """The demands among the vertices that were reached."""
        found = [each for each in reached if isinstance(each, frozenset)]
        places: Places = frozenset().union(*found)
        roots = {f"{self._ledger.cluster_queues[queue].node.root!r}" for queue, _ in places}
        return Excess(self._resource, places, sum(demands[each] for each in found), left, frozenset(roots))
