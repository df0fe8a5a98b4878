"""Who lends quota to whom, of one resource in one flavor.

The quota tree says exactly what a ClusterQueue or Cohort uses past its own quota. It does not say whose quota that is,
so a rule does. Borrowed quota comes from the nearest Cohort that has some. A Cohort lends its own quota first: no
member has to get that back. The rest comes from the unused quotas of its members, in proportion to the amount that each
could lend, and the rest of that from the Cohort above. The sums are exact. Pure.
"""

from collections.abc import Callable, Iterator, Sequence
from math import gcd
from typing import Generic, NamedTuple, TypeVar

from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.tree import Node

Amount = TypeVar("Amount", int, float)
_Divide = Callable[[Amount, Sequence[tuple[Node, int]]], Iterator[tuple[Node, Amount]]]


class Lending(NamedTuple, Generic[Amount]):
    """Amounts that the direct members of one Cohort borrow, and whose quota that is. No amount is 0."""

    borrowers: tuple[tuple[Node, Amount], ...]
    """Members and amounts; the Cohort itself for what it lends to its parent."""
    lenders: tuple[tuple[Node, Amount], ...]
    """Members and amounts; the Cohort itself for its own quota, its parent for what that lends."""

    def lent_by(self, node: Node) -> Amount:
        """How much of the quota of a node others use."""
        return sum(amount for lender, amount in self.lenders if lender is node)


def lendings(root: Node, pair: FlavorResource) -> dict[Node, Lending[int]]:
    """By Cohort, the topmost first: what its members lend each other at this moment, in whole pieces: no third of a GPU
    is lent. Only Cohorts in which any do."""
    return {cohort: lending for cohort, lending in _walk(root, pair, 0, _in_pieces) if lending.borrowers}


def lent(root: Node, pair: FlavorResource) -> dict[Node, float]:
    """Amounts that each ClusterQueue and each Cohort lends of the quota that it has itself: exact parts, which may be
    added up over time."""
    found: dict[Node, float] = {}
    for cohort, lending in _walk(root, pair, 0.0, _exactly):
        for lender, amount in lending.lenders:
            if lender.is_queue or lender is cohort:
                found[lender] = found.get(lender, 0.0) + amount
    return found


def borrowed(node: Node, pair: FlavorResource) -> int:
    """Usage of a node past its own quota, which its parent's members lend."""
    if node.parent is None:
        return 0
    return max(0, node.usage.get(pair, 0) - node.subtree.get(pair, 0))


def unused(node: Node, pair: FlavorResource) -> int:
    """Amounts that a node could lend to the other members of its Cohort now."""
    kept = node.guaranteed.get(pair, 0)
    past = max(0, node.usage.get(pair, 0) - kept)
    return max(0, node.subtree.get(pair, 0) - kept - past)


def _walk(
    cohort: Node, pair: FlavorResource, upwards: Amount, divide: "_Divide[Amount]"
) -> Iterator[tuple[Node, Lending[Amount]]]:
    """The lending in a Cohort that lends `upwards` to its parent, then that below it."""
    if cohort.is_queue:
        return
    members = [*cohort.queues.values(), *cohort.cohorts.values()]
    borrowers: list[tuple[Node, Amount]] = [(node, amount) for node in members if (amount := borrowed(node, pair))]
    if upwards:
        borrowers.append((cohort, upwards))
    received = borrowed(cohort, pair)
    wanted = sum(amount for _, amount in borrowers) - received
    lenders: list[tuple[Node, Amount]] = []
    if own := min(wanted, cohort.nominal.get(pair, 0)):
        lenders.append((cohort, own))
        wanted -= own
    lenders += divide(wanted, [(node, amount) for node in members if (amount := unused(node, pair))])
    if received and cohort.parent is not None:
        lenders.append((cohort.parent, received))
    yield cohort, Lending(tuple(borrowers), tuple(lenders))
    of_member = dict(lenders)
    for node in cohort.cohorts.values():
        yield from _walk(node, pair, of_member.get(node, 0), divide)


def _in_pieces(wanted: int, supplies: Sequence[tuple[Node, int]]) -> Iterator[tuple[Node, int]]:
    """The supplies' parts of an amount, which add up to it unless they are less together. The parts are multiples of
    the largest amount that divides all."""
    left = sum(amount for _, amount in supplies)
    wanted = min(wanted, left)
    unit = gcd(wanted, *(amount for _, amount in supplies))
    for node, amount in supplies:
        part = wanted * amount // left // unit * unit
        wanted -= part
        left -= amount
        if part:
            yield node, part


def _exactly(wanted: float, supplies: Sequence[tuple[Node, int]]) -> Iterator[tuple[Node, float]]:
    """The supplies' parts of an amount in proportion, which add up to it unless they are less together."""
    left = sum(amount for _, amount in supplies)
    share = min(1.0, wanted / left) if left else 0.0
    if share > 0:
        yield from ((node, amount * share) for node, amount in supplies)
