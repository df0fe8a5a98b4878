"""The quota tree: ClusterQueues as leaves, Cohorts above them, and what is available where.

Terms, each per flavor and resource of a node: *nominal* is its own quota; *subtree* its own plus what its children lend
it; *guaranteed* the part of its subtree that it never lends to its parent; *usage* of a ClusterQueue is the sum of its
reservations, of a Cohort the sum of what its children use past their guaranteed part.
Sources: KEP-79 (hierarchical cohorts), Kueue's resource node. Must never know a workload.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from turnstile.api.quantity import MAX_INT64
from turnstile.engine.quota.amounts import UNLIMITED, Amounts, FlavorResource, endless


class Node:
    """A ClusterQueue or a Cohort in the tree. Amounts are ints, weights floats."""

    __slots__ = (
        "borrowing_limit",
        "cohorts",
        "guaranteed",
        "height",
        "idle",
        "is_queue",
        "lendable",
        "lending_limit",
        "name",
        "nominal",
        "parent",
        "queues",
        "subtree",
        "usage",
        "weight",
    )

    def __init__(self, name: str, *, is_queue: bool) -> None:
        self.name = name
        self.is_queue = is_queue
        self.parent: Node | None = None
        self.cohorts: dict[str, Node] = {}
        self.queues: dict[str, Node] = {}
        self.nominal: Amounts = {}
        self.borrowing_limit: Amounts = {}
        self.lending_limit: Amounts = {}
        self.subtree: Amounts = {}
        self.guaranteed: Amounts = {}
        self.usage: Amounts = {}
        self.weight = 1.0
        self.height = 0
        self.idle = False
        """Whether it is a ClusterQueue that admits nothing. Its quota is lent and its usage counts all the same, but
        it adds nothing to the height of a Cohort."""
        self.lendable: dict[str, int] = {}  # what children may take, by resource; computed when asked for

    def __repr__(self) -> str:
        return f"{'ClusterQueue' if self.is_queue else 'Cohort'} {self.name}"

    def ancestors(self) -> Iterator["Node"]:
        """Cohorts above, nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    @property
    def root(self) -> "Node":
        """The topmost cohort, or the node itself."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def walk_queues(self) -> Iterator["Node"]:
        """The ClusterQueues below (or the node itself, if it is one), child cohorts after direct ones, by name. Below
        cohorts that form a cycle each once."""
        rest, seen = [self], {id(self)}
        while rest:
            node = rest.pop()
            if node.is_queue:
                yield node
                continue
            for name in sorted(node.queues):
                yield node.queues[name]
            children = [node.cohorts[name] for name in sorted(node.cohorts, reverse=True)]
            rest += [child for child in children if id(child) not in seen]
            seen.update(map(id, children))

    def path(self) -> str:
        """`/topmost/.../name`."""
        path, above = f"/{self.name}", self.parent
        while above is not None:
            path, above = f"/{above.name}{path}", above.parent
        return path


MOST_LEVELS: Final = 100
"""Cohorts above one another in a tree that admits. Counting for a ClusterQueue takes a step for each level, and the
quota of a tree is computed level within level: no number of objects may make that endless, or end it."""


def too_deep(root: Node) -> bool:
    """Whether a tree without cycles has more than `MOST_LEVELS` levels of cohorts."""
    level = [root]
    for _ in range(MOST_LEVELS):
        level = [child for cohort in level for child in cohort.cohorts.values()]
        if not level:
            return False
    return True


def rebuild(root: Node) -> None:
    """Recompute subtree quotas, guaranteed parts, heights and cohort usages below a root, from nominal quotas and the
    usages of ClusterQueues. Linear in the size of the tree; needed after every change of quota or shape."""
    for _ in rebuilding(root):
        pass


def rebuilding(root: Node) -> Iterator[None]:
    """As `rebuild`, with a stop for each node. Until the end nothing may be read or changed; to be begun anew if it is
    left early."""
    yield
    if not root.is_queue:
        subtree = dict(root.nominal)
        usage: Amounts = {}
        for child in (*root.cohorts.values(), *root.queues.values()):
            yield from rebuilding(child)
            guaranteed = child.guaranteed
            for pair, amount in child.subtree.items():
                subtree[pair] = endless(subtree.get(pair, 0) + amount - guaranteed.get(pair, 0))
            for pair, amount in child.usage.items():
                over = amount - guaranteed.get(pair, 0)
                if over > 0:
                    usage[pair] = usage.get(pair, 0) + over
        root.subtree = subtree
        root.usage = usage
        root.height = _height(root)
    else:
        root.subtree = root.nominal
    root.guaranteed = {
        pair: endless(max(0, root.subtree.get(pair, 0) - limit)) for pair, limit in root.lending_limit.items()
    }
    root.lendable = {}


def _height(cohort: Node) -> int:
    if cohort.cohorts:
        return 1 + max(child.height for child in cohort.cohorts.values())
    return int(any(not queue.idle for queue in cohort.queues.values()))


def measure(queue: Node) -> None:
    """A ClusterQueue became idle, or is so no more: heights above it follow."""
    for cohort in queue.ancestors():
        # Of thousands that are idle no more, each would else search the others for the first that is not idle.
        first = cohort is queue.parent and not queue.idle and not cohort.cohorts
        height = 1 if first else _height(cohort)
        if height == cohort.height:
            return
        cohort.height = height


def available(node: Node, pair: FlavorResource) -> int:
    """Amount that a workload below this node can still be given, its borrowing and its ancestors' included. May be
    negative.

    A node gives what it keeps for itself, plus what its parent can give it, within its borrowing limit.
    """
    parent = node.parent
    used = node.usage.get(pair, 0)
    if used >= MAX_INT64:
        used = UNLIMITED
    if parent is None:
        return node.subtree.get(pair, 0) - used
    kept = node.guaranteed.get(pair, 0)
    above = available(parent, pair)
    limit = node.borrowing_limit.get(pair)
    if limit is not None:
        deposit = node.subtree.get(pair, 0) - kept
        within = deposit - (used - kept if used > kept else 0) + limit
        if within < above:
            above = within
    return above + kept - used if kept > used else above


def potential(node: Node, pair: FlavorResource) -> int:
    """Amount that could be given if nothing were in use: the maximum capacity of messages, the lendable base of
    shares."""
    way = [node]
    while (parent := way[-1].parent) is not None:
        way.append(parent)
    amount = way.pop().subtree.get(pair, 0)
    for below in reversed(way):
        amount += below.guaranteed.get(pair, 0)
        limit = below.borrowing_limit.get(pair)
        if limit is not None:
            amount = min(below.subtree.get(pair, 0) + limit, amount)
    return amount


def add_usage(node: Node, pair: FlavorResource, amount: int) -> None:
    """Count usage in a node; what is past its guaranteed part counts in its parent too. Less than nothing is taken off,
    so that the usage of a parent is always what its children use past their guaranteed parts."""
    if amount < 0:
        remove_usage(node, pair, -amount)
        return
    while True:
        usage = node.usage
        used = usage.get(pair, 0)
        usage[pair] = used + amount
        parent = node.parent
        if parent is None:
            return
        spare = node.guaranteed.get(pair, 0) - used
        if spare > 0:
            amount -= spare
        if amount <= 0:
            return
        node = parent


def remove_usage(node: Node, pair: FlavorResource, amount: int) -> None:
    """The inverse of `add_usage`."""
    if amount < 0:
        add_usage(node, pair, -amount)
        return
    while True:
        usage = node.usage
        used = usage.get(pair, 0)
        usage[pair] = used - amount
        parent = node.parent
        if parent is None:
            return
        above = used - node.guaranteed.get(pair, 0)
        if above <= 0:
            return
        if above < amount:
            amount = above
        node = parent


def spare(node: Node, pair: FlavorResource) -> int:
    """The unused rest of the guaranteed part."""
    left = node.guaranteed.get(pair, 0) - node.usage.get(pair, 0)
    return max(0, left)


def borrowing_with(node: Node, pair: FlavorResource, amount: int) -> bool:
    """Whether the node would use more than its (subtree) quota with so much more."""
    return node.subtree.get(pair, 0) < node.usage.get(pair, 0) + amount


def is_borrowing(node: Node) -> bool:
    """Whether any usage is past the (subtree) quota, over all pairs in use."""
    subtree = node.subtree
    return any(amount > subtree.get(pair, 0) for pair, amount in node.usage.items())


def within_nominal(node: Node, pairs: Iterable[FlavorResource]) -> bool:
    """Whether the node uses no more than its (subtree) quota, for these pairs."""
    usage, subtree = node.usage, node.subtree
    return all(usage.get(pair, 0) <= subtree.get(pair, 0) for pair in pairs)


def has_unused(node: Node, pairs: Iterable[FlavorResource]) -> bool:
    """Whether the node uses less than its nominal quota, of each of these pairs."""
    return all(node.nominal.get(pair, 0) > node.usage.get(pair, 0) for pair in pairs)


def unused_own(node: Node, pair: FlavorResource) -> int:
    """The unused rest of the node's own (subtree) quota; below zero by what it borrows."""
    return node.subtree.get(pair, 0) - node.usage.get(pair, 0)


class Standing(NamedTuple):
    """Figures of one pair in a node, for people and for what is worded for them."""

    nominal: int
    used: int
    borrowing_limit: int | None


def standing(node: Node, pair: FlavorResource) -> Standing:
    """The figures of a node."""
    return Standing(node.nominal.get(pair, 0), node.usage.get(pair, 0), node.borrowing_limit.get(pair))


def level(node: Node, pair: FlavorResource, amount: int) -> tuple[int, bool]:
    """Height of the lowest subtree around a ClusterQueue that holds so much more within its own quota, and whether that
    subtree is smaller than the whole tree. Height 0 is not borrowing (Kueue: FindHeightOfLowestSubtreeThatFits)."""
    if node.parent is None or not borrowing_with(node, pair, amount):
        return 0, node.parent is not None
    rest = amount - spare(node, pair)
    above: Node = node
    while above.parent is not None:
        above = above.parent
        if not borrowing_with(above, pair, rest):
            return above.height, above.parent is not None
        rest -= spare(above, pair)
    return above.height, False
