"""The nodes of the cluster, the trees that they form for flavors with a Topology, and the pods that are bound to them.

Changed in place, object by object. Must never place a pod.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from turnstile.api.pods import Taint, Toleration
from turnstile.api.topology import HOSTNAME
from turnstile.api.topologyassignment import Domain
from turnstile.engine.topology.capacity import Ask, Frees, Held
from turnstile.engine.topology.counting import helped
from turnstile.engine.topology.fits import Overlay
from turnstile.engine.topology.loads import Bound, Loads
from turnstile.engine.topology.places import Places
from turnstile.engine.topology.room import Room
from turnstile.engine.topology.tree import Capacity, Node, Tree, Values

MOST_JUDGED: Final = 32
"""Places that a Workload has given up which are compared with what others look for."""


class Nodes:
    """All of them. Without a flavor that has a Topology there are no trees, and a node costs its own few fields."""

    __slots__ = ("_by_host", "_by_name", "_loads", "_shared", "_wide", "frees", "room", "trees")

    def __init__(self, *, shared: bool = True) -> None:
        """`shared`: what Workloads of one flavor hold on a host is in use for all flavors with that host."""
        self._shared = shared
        self.frees = Frees()
        self.trees: dict[str, Tree] = {}
        """By flavor."""
        self.room: Room | None = None
        """Room for pods that no Topology places; None until it is asked for."""
        self._by_name: dict[str, Node] = {}
        self._loads = Loads()
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
                    before.forgot = True
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
            for node in self._by_name.values():
                node.capacities = self._capacities(node)

    def open_room(self) -> Room:
        """Room on nodes is asked for from now on."""
        if self.room is None:
            self.room = Room(self.frees)
            for node in self._by_name.values():
                if (capacity := self._enter("", self.room.tree, node)) is not None:
                    capacity.settle()
            for pod in self._loads.bound_pods:
                self.room.count(pod, 1, self._by_name.get(pod.node))
        return self.room

    @property
    def _all_trees(self) -> Iterator[tuple[str, Tree]]:
        """The trees of flavors, and that of all nodes."""
        yield from self.trees.items()
        if self.room is not None:
            yield "", self.room.tree

    def freed(self, runs: Iterable[str]) -> Overlay:
        """The amounts, below zero, that are not in use for the room of pods once those of some runs are gone."""
        return self.room.given_up(runs, self._loads.claims, self._by_name) if self.room is not None else {}

    def capacity(self, flavor: str, levels: Sequence[str], values: Values) -> Capacity:
        """The place that an assignment of a flavor names by the values of these levels, whether it exists or not."""
        if levels[-1] == HOSTNAME and self._shared:
            host = self._by_host.get(values[-1])
            if host is None:
                host = self._by_host[values[-1]] = Capacity(self.frees, self._loads.held)
            return host
        wide = self._wide.get((flavor, values))
        if wide is None:
            wide = self._wide[flavor, values] = Capacity(self.frees, self._loads.held)
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
        if capacity not in node.capacities:
            node.capacities.append(capacity)
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
            for capacity in before.capacities:
                capacity.settle()
            return True
        if before is not None:
            self.drop_node(name)
        load = self._loads.on(name)
        node = self._by_name[name] = Node(name, labels=labels, allocatable=amounts, load=load, taints=kept)
        for flavor, tree in self._all_trees:
            if (entered := self._enter(flavor, tree, node)) is not None:
                entered.settle()
        return True

    def drop_node(self, name: str) -> bool:
        """A node is gone, or takes no pods. Whether it took any before."""
        node = self._by_name.pop(name, None)
        if node is None:
            return False
        for _, tree in self._all_trees:
            if (values := tree.values_of(node)) is not None:
                tree.remove(values, node)
        for capacity in node.capacities:
            capacity.settle()
        self._loads.forget(name)
        return True

    def _capacities(self, node: Node) -> list[Capacity]:
        found: dict[int, Capacity] = {}
        for _, tree in self._all_trees:
            values = tree.values_of(node)
            leaf = tree.leaf(tree.key(values)) if values is not None else None
            if leaf is not None:
                found[id(leaf.capacity)] = leaf.capacity
        return list(found.values())

    def flavors_with(self, name: str) -> list[str]:
        """Flavors with a Topology that have a node."""
        node = self._by_name.get(name)
        return [flavor for flavor, tree in self.trees.items() if node is not None and tree.values_of(node) is not None]

    def flavors_helped(self, name: str) -> list[str]:
        """The part of these in which pods that found no room may find it, now that the node has more free."""
        node = self._by_name.get(name)
        leaves = {id(leaf.tree): leaf for each in (node.capacities if node is not None else ()) for leaf in each.leaves}
        return [
            flavor
            for flavor, tree in self.trees.items()
            if (leaf := leaves.get(id(tree))) is not None and helped(tree, leaf)
        ]

    def room_helped(self, name: str) -> bool:
        """Whether pods that no Topology places, and that found no room, may find it now that a node has more free."""
        node = self._by_name.get(name)
        return node is not None and self.room is not None and self.room.helps(node)

    def flavors_freed(self, places: Places) -> list[str]:
        """Flavors in which pods that found no room may find it, now that a Workload has given these places up. The
        first places are compared with what is looked for; if there are more, any may do."""
        lacking = sum(tree.lacking for tree in self.trees.values())
        found: set[int] = set()
        for number, capacity in enumerate(places.capacities if lacking else ()):
            for leaf in capacity.leaves:
                tree = leaf.tree
                if tree.lacking and id(tree) not in found and (number >= MOST_JUDGED or helped(tree, leaf)):
                    found.add(id(tree))
            if len(found) == lacking:
                break
        flavors = [flavor for flavor, tree in self.trees.items() if id(tree) in found]
        for flavor in flavors:
            self.trees[flavor].lacking = False
        return flavors

    def _follow_pods(self, node: Node) -> bool:
        """Whether any place that the node is part of has more than before."""
        more = [capacity.follow_pods() for capacity in node.capacities]
        return any(more)

    def _follow_pods_of(self, names: Iterable[str]) -> None:
        for name in names:
            if (node := self._by_name.get(name)) is not None:
                self._follow_pods(node)

    # Pods

    def put_pod(self, key: str, node: str, requests: Mapping[str, int], workload: str = "") -> str | None:
        """A pod is bound and may run; `workload` (`namespace/name`) is the one that it names. The node that has more
        free than before, if any."""
        pod = self._loads.bound(node, requests, workload)
        before = self._loads.pod(key)
        if before == pod:
            return None
        if before is not None:
            self._drop(key, before)
        self._put(key, pod)
        if before is None:
            self._changed(pod, None)
            return None
        return self._changed(before, pod)

    def drop_pod(self, key: str) -> str | None:
        """A pod is gone, or has ended. The node that has more free than before, if any."""
        before = self._loads.pod(key)
        if before is None:
            return None
        self._drop(key, before)
        return self._changed(before, None)

    def _put(self, key: str, pod: Bound) -> None:
        self._loads.put(key, pod)
        if self.room is not None:
            self.room.count(pod, 1, self._by_name.get(pod.node))

    def _drop(self, key: str, pod: Bound) -> None:
        self._loads.drop(key)
        if self.room is not None:
            self.room.count(pod, -1, self._by_name.get(pod.node))

    def drop_pods_of(self, workload: str) -> list[str]:
        """The pods that name a Workload (`namespace/name`) are gone. The nodes that have more free than before."""
        return [name for key in self._loads.pods_of(workload) if (name := self.drop_pod(key)) is not None]

    def _changed(self, before: Bound, after: Bound | None) -> str | None:
        """The pod `before` is another now, or gone: the node that it leaves, if it has more free."""
        name = before.node
        if after is not None and after.node != name and (other := self._by_name.get(after.node)) is not None:
            self._follow_pods(other)
        node = self._by_name.get(name)
        if node is not None and node.capacities:
            return name if self._follow_pods(node) else None
        if node is None:
            self._loads.forget(name)
        return name if after is None or after.node != name or _less(before.amounts, after.amounts) else None

    def hold(self, workload: str, places: Places) -> None:
        """A Workload (`namespace/name`) holds these places, and none of those before: its pods there count in them."""
        self._follow_pods_of(self._loads.hold(workload, places))

    def release(self, workload: str) -> None:
        """A Workload holds no places any more: pods that are left of it count by themselves."""
        self._follow_pods_of(self._loads.release(workload))

    @property
    def names(self) -> Iterable[str]:
        """Nodes that are ready and take pods."""
        return self._by_name

    @property
    def holders(self) -> Mapping[str, Places]:
        """The places of Workloads (`namespace/name`) that hold any."""
        return self._loads.held

    def outside(self, node: str) -> Mapping[str, int]:
        """Requests of the pods on a node that name no Workload which holds places."""
        return self._loads.on(node).outside


def _less(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    """Whether a pod asks for less of anything than before."""
    return any(amount > after.get(resource, 0) for resource, amount in before.items())
