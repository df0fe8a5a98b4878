"""What a Workload takes of what there is: counted in the tree, taken off again, and asked whether it fits.

Ledger, trials, claims and searches for victims know what Workloads take by this alone. Quota is its one part; a second
one (places in a topology) is another field here, counted by the same methods. Must never know who takes it.
"""

from collections.abc import Hashable
from typing import Final

from turnstile.engine.quota.amounts import Amounts
from turnstile.engine.quota.tree import Node, add_usage, available, borrowing_with, remove_usage


class Usage:
    """Held by a Workload, or by several together, or what one would take in a ClusterQueue."""

    __slots__ = ("quota",)

    def __init__(self, quota: Amounts) -> None:
        self.quota = quota

    def __repr__(self) -> str:
        return f"Usage({self.quota})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and self.quota == other.quota

    __hash__ = None  # type: ignore[assignment]

    # In the tree

    def add_to(self, node: Node) -> None:
        """Count it in a ClusterQueue."""
        for pair, amount in self.quota.items():
            add_usage(node, pair, amount)

    def remove_from(self, node: Node) -> None:
        """Count it no more: the inverse of `add_to`."""
        for pair, amount in self.quota.items():
            remove_usage(node, pair, amount)

    def fits(self, node: Node, *, borrow: bool = True) -> bool:
        """Whether a ClusterQueue can be given all of it now, by borrowing or without."""
        for pair, amount in self.quota.items():
            if amount > available(node, pair) and amount > 0:
                return False
            if not borrow and borrowing_with(node, pair, amount):
                return False
        return True

    # Together with others

    def copy(self) -> "Usage":
        """The same, to be changed."""
        return Usage(self.quota.copy())

    def include(self, other: "Usage") -> None:
        """So much more."""
        total = self.quota
        for pair, amount in other.quota.items():
            total[pair] = total.get(pair, 0) + amount

    def cover(self, freed: "Usage") -> "Usage":
        """The part of it that is among what others free. It is taken off: the rest is still to be covered."""
        needed = self.quota
        taken = {pair: min(amount, needed[pair]) for pair, amount in freed.quota.items() if needed.get(pair, 0) > 0}
        for pair, amount in taken.items():
            needed[pair] -= amount
        return Usage(taken)

    # As a question

    def needed(self) -> "Usage":
        """Only the amounts above zero: a request of zero never justifies a preemption."""
        return Usage({pair: amount for pair, amount in self.quota.items() if amount})

    @property
    def key(self) -> Hashable:
        """Equal for equal usages."""
        return frozenset(self.quota.items())


NO_USAGE: Final = Usage({})
"""Not to be changed."""
