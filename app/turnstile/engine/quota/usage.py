"""Amounts that a Workload takes: counted in the tree, taken off again, and asked whether it fits.

Ledger, trials, claims and searches for victims know what Workloads take by this alone. Quota is one part of it, places
in a topology are the other, counted by the same methods. So no module outside this room reads `quota`, which a test
holds. Must never know who takes it.
"""

from collections.abc import Hashable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from turnstile.api.quantity import MAX_INT64
from turnstile.engine.quota.amounts import Amounts, FlavorResource
from turnstile.engine.quota.tree import Node, add_usage, available, borrowing_with, remove_usage, spare
from turnstile.engine.topology.places import Places, Sought


class Usage:
    """Held by a Workload, or by several together, or what one would take in a ClusterQueue."""

    __slots__ = ("places", "quota", "sought")

    def __init__(self, quota: Amounts, places: Places | None = None, sought: Sought | None = None) -> None:
        self.quota = quota
        self.places = places
        """None without a topology, and while they are sought."""
        self.sought = sought
        """Places that are yet to be found: asked for by `fits`, and not counted."""

    def __repr__(self) -> str:
        return f"Usage({self.quota})" if self.places is None else f"Usage({self.quota}, {self.places})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and self.quota == other.quota and self.places == other.places

    __hash__ = None  # type: ignore[assignment]

    # In the tree

    def add_to(self, node: Node) -> None:
        """Count it in a ClusterQueue."""
        self.add_quota(node)
        if self.places is not None:
            self.places.occupy()

    def remove_from(self, node: Node) -> None:
        """Count it no more: the inverse of `add_to`."""
        self.remove_quota(node)
        if self.places is not None:
            self.places.vacate()

    def add_quota(self, node: Node) -> None:
        """Count its quota alone, in a view: places are counted for all of them."""
        for pair, amount in self.quota.items():
            add_usage(node, pair, amount)

    def remove_quota(self, node: Node) -> None:
        """The inverse of `add_quota`."""
        for pair, amount in self.quota.items():
            remove_usage(node, pair, amount)

    def fits(self, node: Node, *, borrow: bool = True) -> bool:
        """Whether a ClusterQueue can be given all of it now, by borrowing or without."""
        for pair, amount in self.quota.items():
            if amount > available(node, pair) and amount > 0:
                return False
            if not borrow and borrowing_with(node, pair, amount):
                return False
        if self.places is not None and not self.places.fits():
            return False
        return self.sought is None or self.sought.fits()

    def fits_own(self, node: Node) -> tuple[bool, "Usage"]:
        """Whether it fits a node's own (subtree) quota, and the part of it that reaches the node's parent."""
        fits = not any(borrowing_with(node, pair, amount) for pair, amount in self.quota.items())
        return fits, Usage({pair: max(0, amount - spare(node, pair)) for pair, amount in self.quota.items()})

    def borrows(self, node: Node) -> bool:
        """Whether a node uses more than its (subtree) quota of anything above zero in it, which is counted."""
        return any(amount > 0 and borrowing_with(node, pair, 0) for pair, amount in self.quota.items())

    def reservable(self, node: Node, *, borrow: bool) -> "Usage":
        """The part of it that a ClusterQueue has, by its own quota, or by as much as it may `borrow` too. Places
        only if that is all of the quota: nodes belong to ClusterQueues of other trees as well."""
        reserved: Amounts = {}
        for pair, amount in self.quota.items():
            left = node.nominal.get(pair, 0) - node.usage.get(pair, 0)
            if borrow:
                limit = node.borrowing_limit.get(pair)
                left = amount if limit is None else left + limit
            reserved[pair] = max(0, min(amount, left))
        whole = all(reserved[pair] >= amount for pair, amount in self.quota.items())
        return Usage(reserved, self.places if whole else None)

    def with_more(self, node: Node, pairs: Sequence[FlavorResource], amounts: Iterable[int]) -> "Usage | None":
        """It and so much more of some pairs; None if a ClusterQueue cannot be given that without borrowing."""
        total = self.quota.copy()
        for pair, amount in zip(pairs, amounts, strict=True):
            value = amount + total.get(pair, 0)
            if value > MAX_INT64 or value > available(node, pair):
                return None
            if node.parent is not None and borrowing_with(node, pair, value):
                return None
            total[pair] = value
        return Usage(total, self.places)

    # Together with others

    def copy(self) -> "Usage":
        """The same, to be changed."""
        return Usage(self.quota.copy(), self.places.copy() if self.places is not None else None, self.sought)

    def include(self, other: "Usage") -> None:
        """So much more."""
        total = self.quota
        for pair, amount in other.quota.items():
            total[pair] = total.get(pair, 0) + amount
        if other.places is not None:
            if self.places is None:
                self.places = Places()
            self.places.include(other.places)

    def become(self, other: "Usage") -> None:
        """As much as the other, which is not to be changed any more."""
        self.quota, self.places, self.sought = other.quota, other.places, other.sought

    def request(self, pair: FlavorResource, amount: int) -> None:
        """So much more of one resource in one flavor, within int64."""
        self.quota[pair] = min(self.quota.get(pair, 0) + amount, MAX_INT64)

    def cover(self, freed: "Usage") -> "Usage":
        """The part of it that is among what others free. It is taken off: the rest is still to be covered."""
        needed = self.quota
        taken = {pair: min(amount, needed[pair]) for pair, amount in freed.quota.items() if needed.get(pair, 0) > 0}
        for pair, amount in taken.items():
            needed[pair] -= amount
        if self.places is None or freed.places is None:
            return Usage(taken)
        return Usage(taken, self.places.cover(freed.places))

    def left_by(self, other: "Usage") -> Places | None:
        """The part of its places that is not among those of another; None if it has none."""
        if self.places is None:
            return None
        left = self.places.copy()
        if other.places is not None:
            left.cover(other.places)
        return left

    # As a question

    def needed(self) -> "Usage":
        """Only the amounts above zero: a request of zero never justifies a preemption."""
        return Usage({pair: amount for pair, amount in self.quota.items() if amount}, self.places, self.sought)

    def of(self, pair: FlavorResource) -> int:
        """The amount of one resource in one flavor."""
        return self.quota.get(pair, 0)

    def uses(self, pairs: AbstractSet[FlavorResource]) -> bool:
        """Whether any of these pairs is in it."""
        return not pairs.isdisjoint(self.quota)

    def beyond(self, other: "Usage") -> "Usage":
        """The part of it that is more than another usage has: no places, which are counted once for both."""
        more = {pair: amount - other.quota.get(pair, 0) for pair, amount in self.quota.items()}
        return Usage({pair: amount for pair, amount in more.items() if amount > 0})

    def without(self, other: "Usage") -> "Usage":
        """The same, less another usage, with all its places, and without the pairs that are used up by it."""
        taken = other.quota
        left = {pair: amount - taken.get(pair, 0) for pair, amount in self.quota.items()}
        return Usage({pair: amount for pair, amount in left.items() if amount > 0 or pair not in taken}, self.places)

    def below(self, other: "Usage") -> bool:
        """Whether it is less than another of anything that is in it."""
        if any(amount < other.quota.get(pair, 0) for pair, amount in self.quota.items()):
            return True
        return other.places is not None and (self.places or Places()).below(other.places)

    @property
    def pairs(self) -> AbstractSet[FlavorResource]:
        """The pairs in it."""
        return self.quota.keys()

    @property
    def flavors(self) -> set[str]:
        """Names of the flavors in it."""
        return {pair.flavor for pair in self.quota}

    @property
    def negative(self) -> bool:
        """Whether any amount is below zero."""
        return any(amount < 0 for amount in self.quota.values())

    @property
    def size(self) -> int:
        """Number of amounts: to count it, or to ask whether it fits, takes as many steps."""
        return len(self.quota)

    @property
    def key(self) -> Hashable:
        """Equal for equal usages."""
        quota = frozenset(self.quota.items())
        if self.places is None and self.sought is None:
            return quota
        return quota, self.places.key if self.places is not None else None, self.sought and self.sought.key


NO_USAGE: Final = Usage({})
"""Not to be changed."""
