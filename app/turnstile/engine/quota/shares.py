"""Dominant resource shares of ClusterQueues and Cohorts.

The share of a node is how much it borrows, relative to what its parent could lend, of the resource where that is most,
divided by its weight. Sources: KEP-1714, Kueue's fair sharing. Must never change usage.
"""

from typing import TYPE_CHECKING, NamedTuple

from turnstile.api.quantity import MAX_INT64
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import bounded
from turnstile.engine.quota.tree import Node

if TYPE_CHECKING:
    pass


class Share(NamedTuple):
    """A dominant resource share; compares as fair sharing does. Borrowing with weight 0 is past every other share and
    then counts by its ratio."""

    infinite: bool
    value: float

    @property
    def status(self) -> int:
        """As `status.fairSharing.weightedShare` has it: rounded up, within int64, and its largest if infinite."""
        return MAX_INT64 if self.infinite else min(MAX_INT64, -int(-self.value // 1))


ZERO = Share(False, 0.0)


def lendable(cohort: Node) -> dict[str, int]:
    """By resource, what the children of a cohort could be given if nothing were in use."""
    if not cohort.lendable:
        found: dict[str, int] = {}
        for pair in cohort.root.subtree:
            found[pair.resource] = bounded(found.get(pair.resource, 0) + tree.potential(cohort, pair))
        cohort.lendable = found
    return cohort.lendable


def dominant(node: Node) -> tuple[float, str]:
    """Ratio in thousandths and name of the resource the node borrows most of; 0 and empty if it borrows none."""
    if node.parent is None:
        return 0.0, ""
    borrowed: dict[str, int] = {}
    usage = node.usage
    for pair, quota in node.subtree.items():
        over = usage.get(pair, 0) - quota
        if over > 0:
            borrowed[pair.resource] = bounded(borrowed.get(pair.resource, 0) + over)
    if not borrowed:
        return 0.0, ""
    base = lendable(node.parent)
    best, name = 0.0, ""
    for resource in sorted(borrowed):
        available = base.get(resource, 0)
        if available > 0:
            ratio = borrowed[resource] * 1000.0 / available
            if ratio > best:
                best, name = ratio, resource
    return best, name


def share(node: Node) -> Share:
    """Weighted dominant resource share of a node as things are."""
    ratio, _ = dominant(node)
    return weighted(ratio, node.weight)


def weighted(ratio: float, weight: float) -> Share:
    """The share of a node of this weight that borrows in this ratio."""
    if ratio == 0.0:
        return ZERO
    return Share(True, ratio) if weight == 0 else Share(False, ratio / weight)
