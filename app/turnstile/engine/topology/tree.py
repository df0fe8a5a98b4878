"""The domains that the nodes of a flavor form by the levels of its Topology: blocks, racks, hosts.

Changed in place as nodes come and go, with a log by which counts are kept up. Must never know what pods ask for.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Final, Protocol

from turnstile.api.pods import Taint, Toleration
from turnstile.api.topology import HOSTNAME
from turnstile.engine.topology.capacity import Free, Frees

_NONE: Final[list["Domain"]] = []
"""Domains below those of the lowest level. Not to be changed."""
_BY_VALUES: Final = attrgetter("values")

Values = tuple[str, ...]
_NONE_HELD: Final[Mapping[str, int]] = {}
"""Not to be changed."""


class Load(Protocol):
    """Requests of the pods on a node."""

    @property
    def outside(self) -> Mapping[str, int]:
        """Requests of pods that topology did not place."""

    @property
    def members(self) -> Mapping[str, Mapping[str, int]]:
        """Requests of pods that name a Workload which holds places somewhere, by Workload."""


class Holder(Protocol):
    """The places that a Workload holds."""

    def amounts(self, place: "Capacity") -> Mapping[str, int] | None:
        """Requests of its pods in a place, if it holds that."""


class Node:
    """A node that is ready and takes pods."""

    __slots__ = ("allocatable", "capacities", "labels", "load", "name", "taints")

    def __init__(
        self,
        name: str,
        *,
        labels: Mapping[str, str],
        allocatable: Free,
        load: Load,
        taints: tuple[Taint, ...] = (),
    ) -> None:
        self.name = name
        self.labels = labels
        self.allocatable = allocatable
        self.load = load
        self.capacities: list[Capacity] = []
        """Places that it is part of."""
        self.taints = taints
        """Those that keep pods away which do not tolerate them."""


class Capacity:
    """Amounts of a place: of a host, shared by all trees with that host, or of a wider domain of one flavor."""

    __slots__ = ("__weakref__", "_frees", "_held", "bare", "free", "leaves", "used")

    def __init__(self, frees: Frees, held: Mapping[str, Holder]) -> None:
        self._frees = frees
        self._held = held
        """Workloads that hold places anywhere."""
        self.leaves: list[Leaf] = []
        """The domains, of all trees, that have it."""
        self.used: Mapping[str, int] = {}
        """Requests of the pods that topology placed here. Replaced and never changed, so it can be put back."""
        self.bare = frees.nothing
        """Free if none of those pods were here."""
        self.free = frees.nothing

    def settle(self) -> None:
        """Nodes have come, gone or changed."""
        self.bare = self._frees.of(self._without_pods_placed())
        self.put_back(self.used)

    def follow_pods(self) -> bool:
        """Pods that are bound here have come, gone or changed. Whether there is more of anything than before."""
        before, self.bare = self.bare, self._frees.of(self._without_pods_placed())
        if self.bare is before:
            return False
        self.put_back(self.used)
        return any(amount > before.amounts.get(resource, 0) for resource, amount in self.bare.amounts.items())

    def _without_pods_placed(self) -> dict[str, int]:
        nodes = {node.name: node for leaf in self.leaves for node in leaf.nodes}
        total: dict[str, int] = {}
        for node in nodes.values():
            outside = node.load.outside
            for resource, amount in node.allocatable.amounts.items():
                total[resource] = total.get(resource, 0) + amount - outside.get(resource, 0)
        self._take_surplus(total, [node.load.members for node in nodes.values() if node.load.members])
        return total

    def _take_surplus(self, total: dict[str, int], members: Sequence[Mapping[str, Mapping[str, int]]]) -> None:
        """Take off the requests of pods beyond what the Workloads that they name hold here."""
        together: dict[str, dict[str, int]] = {}
        for each in members:
            for workload, amounts in each.items():
                mine = together.setdefault(workload, {})
                for resource, amount in amounts.items():
                    mine[resource] = mine.get(resource, 0) + amount
        for workload, mine in together.items():
            holder = self._held.get(workload)
            held = (holder.amounts(self) if holder is not None else None) or _NONE_HELD
            for resource, amount in mine.items():
                surplus = amount - held.get(resource, 0)
                if surplus > 0 and resource in total:
                    total[resource] -= surplus

    def take(self, amounts: Mapping[str, int], pods: int) -> None:
        """So many more pods with these requests; fewer if below zero."""
        used = dict(self.used)
        for resource, amount in amounts.items():
            left = used.get(resource, 0) + amount * pods
            if left:
                used[resource] = left
            else:
                used.pop(resource, None)
        self.put_back(used)

    def put_back(self, used: Mapping[str, int]) -> None:
        """Have so much in use, as it was before."""
        self.used = used
        self.free = (
            self._frees.of({name: amount - used.get(name, 0) for name, amount in self.bare.amounts.items()})
            if used
            else self.bare
        )
        for leaf in self.leaves:
            leaf.tree.note(leaf)


class Domain:
    """A domain of a tree: a block, a rack, a host."""

    __slots__ = ("at", "children", "level", "parent", "values")

    def __init__(self, level: int, values: Values, parent: "Domain | None", at: int) -> None:
        self.level = level
        self.values = values
        """Values of the node labels of its level and those above, the widest first."""
        self.parent = parent
        """None once it is gone."""
        self.at = at
        """Its place in lists of figures of the tree."""
        self.children: list[Domain] = []
        """By values."""

    def __repr__(self) -> str:
        return "/".join(self.values)

    def within(self, other: "Domain") -> bool:
        """Whether it is the other, or in it."""
        return self.values[: other.level + 1] == other.values


class Leaf(Domain):
    """A domain of the lowest level."""

    __slots__ = ("capacity", "node", "others", "tree")

    def __init__(
        self, tree: "Tree", values: Values, parent: Domain, at: int, *, node: Node, capacity: Capacity
    ) -> None:
        super().__init__(parent.level + 1, values, parent, at)
        self.tree = tree
        self.children = _NONE
        self.capacity = capacity
        self.node = node
        """Its node; any of them if it has several."""
        self.others: tuple[Node, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All its nodes."""
        return (self.node, *self.others)

    def free(self, *, empty: bool) -> Free:
        """Amounts that are free, or would be without the pods that topology placed."""
        return self.capacity.bare if empty else self.capacity.free


class Tree:
    """The domains of one flavor."""

    __slots__ = (
        "_by_values",
        "_leaves",
        "_levels",
        "_spare",
        "counts",
        "forgot",
        "lacking",
        "levels",
        "log",
        "node_labels",
        "revision",
        "root",
        "size",
        "start",
        "tolerations",
        "topology",
    )

    def __init__(
        self, topology: str, levels: Sequence[str], node_labels: Mapping[str, str], tolerations: Sequence[Toleration]
    ) -> None:
        self.topology = topology
        self.levels = tuple(levels)
        self.node_labels = node_labels
        self.tolerations = tuple(tolerations)
        self.root = Domain(-1, (), None, 0)
        self.revision = 0
        """Grows when a domain of the lowest level comes or goes, or another node becomes its first."""
        self.size = 1
        self._spare: list[int] = []
        self._leaves: dict[Values, Leaf] = {}
        self._by_values: dict[Values, Domain] = {(): self.root}
        self._levels: list[list[Domain]] | None = None
        self.log: list[Domain] = []
        """Domains of which something changed."""
        self.start = 0
        """Number of changes before the log."""
        self.counts: dict[object, object] = {}
        """Counts that are kept up with the log, by what is counted: of `counting`."""
        self.lacking = False
        """Whether places were looked for in vain since others last gave theirs up and Workloads were tried again."""
        self.forgot = False
        """Whether counts were dropped, so that it is not known any more for which pods places were looked for."""

    @property
    def by_host(self) -> bool:
        """Whether its lowest level is a host."""
        return self.levels[-1:] == (HOSTNAME,)

    def key(self, values: Values) -> Values:
        """The values that an assignment gives of a domain of the lowest level."""
        return values[-1:] if self.by_host else values

    @property
    def assigned_levels(self) -> tuple[str, ...]:
        """Node labels that an assignment gives."""
        return self.key(self.levels)

    def leaf(self, values: Values) -> Leaf | None:
        """The domain of the lowest level that an assignment names."""
        return self._leaves.get(values)

    @property
    def leaves(self) -> list[Leaf]:
        """All domains of the lowest level."""
        return list(self._leaves.values())

    def domains(self, level: int) -> list[Domain]:
        """All domains of a level, by values. Not to be changed."""
        if self._levels is None:
            self._levels = []
            below = self.root.children
            while below:
                self._levels.append(below)
                below = [child for domain in below for child in domain.children]
        return self._levels[level] if level < len(self._levels) else []

    def values_of(self, node: Node) -> Values | None:
        """Where a node is; None if it is none of this flavor."""
        return self.values_in(node.labels)

    def values_in(self, labels: Mapping[str, str]) -> Values | None:
        """Where a node with these labels is; None if it is none of this flavor."""
        if any(labels.get(key) != value for key, value in self.node_labels.items()):
            return None
        values = tuple(labels[level] for level in self.levels if level in labels)
        return values if len(values) == len(self.levels) else None

    def add(self, values: Values, node: Node, capacity: Capacity) -> None:
        """A node comes. The capacity has to be settled."""
        key = self.key(values)
        leaf = self._leaves.get(key)
        if leaf is None:
            parent = self.root
            for level in range(len(self.levels) - 1):
                parent = self._inner(parent, values[: level + 1])
            leaf = self._leaves[key] = Leaf(self, values, parent, self._place(), node=node, capacity=capacity)
            insort(parent.children, leaf, key=_BY_VALUES)
            capacity.leaves.append(leaf)
            self._levels = None
            self.revision += 1
        elif all(each.name != node.name for each in leaf.nodes):
            leaf.others = (*leaf.others, node)

    def remove(self, values: Values, node: Node) -> None:
        """A node goes. The capacity has to be settled."""
        leaf = self._leaves.get(self.key(values))
        if leaf is None:
            return
        rest = [each for each in leaf.nodes if each.name != node.name]
        if rest:
            leaf.node, leaf.others = rest[0], tuple(rest[1:])
            self.revision += 1
            return
        del self._leaves[self.key(values)]
        leaf.capacity.leaves.remove(leaf)
        self._levels = None
        self.revision += 1
        gone: Domain = leaf
        while not gone.children and gone.parent is not None:
            parent = gone.parent
            del parent.children[bisect_left(parent.children, gone.values, key=_BY_VALUES)]
            if not isinstance(gone, Leaf):
                del self._by_values[gone.values]
            gone.parent = None
            self._spare.append(gone.at)
            gone = parent
        self.note(gone)

    def clear(self) -> None:
        """The tree goes."""
        for leaf in self._leaves.values():
            leaf.capacity.leaves.remove(leaf)

    def note(self, domain: Domain) -> None:
        """Something changed there."""
        log = self.log
        log.append(domain)
        if len(log) > 2 * self.size + 1024:
            self.start += len(log)
            log.clear()

    def _inner(self, parent: Domain, values: Values) -> Domain:
        found = self._by_values.get(values)
        if found is None:
            found = self._by_values[values] = Domain(parent.level + 1, values, parent, self._place())
            insort(parent.children, found, key=_BY_VALUES)
        return found

    def _place(self) -> int:
        if self._spare:
            return self._spare.pop()
        self.size += 1
        return self.size - 1
