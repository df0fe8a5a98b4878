"""The nodes of the cluster, the trees that they form for flavors with a Topology, and pods that topology did not place.

Changed in place, object by object. Must never place a pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from sys import intern
from typing import Final, NamedTuple

from turnstile.api.pods import Taint, Toleration
from turnstile.api.topology import HOSTNAME
from turnstile.api.topologyassignment import Domain
from turnstile.engine.topology.capacity import Ask, Frees, Held
from turnstile.engine.topology.places import Places
from turnstile.engine.topology.tree import Capacity, Node, Tree, Values

_NO_PODS: Final[Mapping[str, int]] = {}
"""Requests where there are no pods. Not to be changed."""


class _Outside(NamedTuple):
    """A pod that topology did not place."""

    node: str
    ask: Ask


class Nodes:
    """All of them. Without a flavor that has a Topology there are no trees, and a node costs its own few fields."""

    __slots__ = ("_by_host", "_by_name", "_outside", "_pods", "_wide", "frees", "trees")

    def __init__(self) -> None:
        self.frees = Frees()
        self.trees: dict[str, Tree] = {}
        """By flavor."""
        self._by_name: dict[str, Node] = {}
        self._pods: dict[str, _Outside] = {}
        self._outside: dict[str, dict[str, int]] = {}
        """Requests of those pods by node, together."""
        self._by_host: Held[str, Capacity] = Held()
        self._wide: Held[tuple[str, Values], Capacity] = Held()

    # Trees

    def put_flavor(
        self,
        name: str,
        topology: str,
        levels: Sequence[str],
        labels: Mapping[str, str],
        tolerations: Sequence[Toleration] = (),
    ) -> None:
        """A flavor has a Topology that exists, or either changed."""
        before = self.trees.get(name)
        if before is not None:
            if (before.topology, before.levels, before.node_labels) == (topology, tuple(levels), labels):
                if before.tolerations != tuple(tolerations):
                    before.tolerations = tuple(tolerations)
                    before.counts.clear()
                return
            self.drop_flavor(name)
        tree = self.trees[name] = Tree(topology, levels, labels, tolerations)
        capacities = [capacity for node in self._by_name.values() if (capacity := self._enter(name, tree, node))]
        for capacity in capacities:
            capacity.settle()

    def drop_flavor(self, name: str) -> None:
        """A flavor has no Topology that exists."""
        tree = self.trees.pop(name, None)
        if tree is not None:
            tree.clear()

    def capacity(self, flavor: str, levels: Sequence[str], values: Values) -> Capacity:
        """The place that an assignment of a flavor names by the values of these levels, whether it exists or not."""
        if levels[-1] == HOSTNAME:
            host = self._by_host.get(values[-1])
            if host is None:
                host = self._by_host[values[-1]] = Capacity(self.frees)
            return host
        wide = self._wide.get((flavor, values))
        if wide is None:
            wide = self._wide[flavor, values] = Capacity(self.frees)
        return wide

    def places(self, flavor: str, levels: Sequence[str], places: Iterable[Domain], ask: Ask) -> Places:
        """The usage of pods in the places of an assignment."""
        found = Places()
        for place in places:
            found.put(self.capacity(flavor, levels, place.values), ask, place.pods)
        return found

    def _enter(self, flavor: str, tree: Tree, node: Node) -> Capacity | None:
        values = tree.values_of(node)
        if values is None:
            return None
        capacity = self.capacity(flavor, tree.levels, tree.key(values))
        tree.add(values, node, capacity)
        return capacity

    # Nodes

    def put_node(
        self, name: str, *, labels: Mapping[str, str], allocatable: Mapping[str, int], taints: Sequence[Taint]
    ) -> bool:
        """A node is ready and takes pods, or changed. Whether anything that counts did."""
        before = self._by_name.get(name)
        kept, amounts = tuple(taints), self.frees.of(allocatable)
        if before is not None and before.labels == labels and before.taints == kept:
            if before.allocatable is amounts:
                return False
            before.allocatable = amounts
            self._settle(before)
            return True
        if before is not None:
            self.drop_node(name)
        outside = self._outside.get(name, _NO_PODS)
        shared = {intern(key): intern(value) for key, value in labels.items()}
        node = self._by_name[name] = Node(name, labels=shared, allocatable=amounts, outside=outside, taints=kept)
        for flavor, tree in self.trees.items():
            if (capacity := self._enter(flavor, tree, node)) is not None:
                capacity.settle()
        return True

    def drop_node(self, name: str) -> bool:
        """A node is gone, or takes no pods. Whether it took any before."""
        node = self._by_name.pop(name, None)
        if node is None:
            return False
        capacities = self._capacities(node)
        for tree in self.trees.values():
            if (values := tree.values_of(node)) is not None:
                tree.remove(values, node)
        for capacity in capacities:
            capacity.settle()
        return True

    def _capacities(self, node: Node) -> list[Capacity]:
        found: dict[int, Capacity] = {}
        for tree in self.trees.values():
            values = tree.values_of(node)
            leaf = tree.leaf(tree.key(values)) if values is not None else None
            if leaf is not None:
                found[id(leaf.capacity)] = leaf.capacity
        return list(found.values())

    def capacities(self, name: str) -> list[Capacity]:
        """The places that a node is part of."""
        node = self._by_name.get(name)
        return self._capacities(node) if node is not None else []

    def _settle(self, node: Node) -> None:
        for capacity in self._capacities(node):
            capacity.settle()

    # Pods that topology did not place

    def put_pod(self, key: str, node: str, requests: Mapping[str, int]) -> str | None:
        """A pod is bound and may run. The node on which it needs less than before, if any."""
        ask = self.frees.ask(requests)
        before = self._pods.get(key)
        if before is not None:
            if before == (node, ask):
                return None
            self._count(before, -1)
        after = self._pods[key] = _Outside(node, ask)
        self._count(after, 1)
        if before is None:
            return None
        less = before.node != node or any(
            amount > ask.amounts.get(name, 0) for name, amount in before.ask.amounts.items()
        )
        return before.node if less else None

    def drop_pod(self, key: str) -> str | None:
        """A pod is gone, has ended, or is none of these. The node on which it was, if it was one."""
        before = self._pods.pop(key, None)
        if before is None:
            return None
        self._count(before, -1)
        return before.node

    @property
    def names(self) -> Iterable[str]:
        """Nodes that are ready and take pods."""
        return self._by_name

    def outside(self, node: str) -> Mapping[str, int]:
        """Requests of the pods on a node that topology did not place."""
        return self._outside.get(node, {})

    def _count(self, pod: _Outside, sign: int) -> None:
        total = self._outside.setdefault(pod.node, {})
        for resource, amount in pod.ask.amounts.items():
            left = total.get(resource, 0) + sign * amount
            if left:
                total[resource] = left
            else:
                total.pop(resource, None)
        if not total:
            del self._outside[pod.node]
        node = self._by_name.get(pod.node)
        if node is not None:
            node.outside = total or _NO_PODS
            self._settle(node)
