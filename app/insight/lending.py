"""Who lends quota to whom, of one resource in one flavor.

The quota tree says exactly what a ClusterQueue or Cohort uses past its own quota. It does not say whose quota that is
if several members could lend it: then it is shared out in proportion to what each of them has unused, and the sums are
exact all the same. Pure.
"""

from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

from app.engine.quota.amounts import FlavorResource
from app.engine.quota.tree import Node


class Lending(NamedTuple):
    """What the direct members of one Cohort borrow, and whose quota that is. No amount is 0."""

    borrowers: tuple[tuple[Node, int], ...]
    """Members and amounts; the Cohort itself for what it lends to its parent."""
    lenders: tuple[tuple[Node, int], ...]
    """Members and amounts; the Cohort itself for its own quota, its parent for what that lends."""

    def lent_by(self, node: Node) -> int:
        """How much of the quota of a node others use."""
        return sum(amount for lender, amount in self.lenders if lender is node)


def lendings(root: Node, pair: FlavorResource) -> dict[Node, Lending]:
    """By Cohort, the topmost first: what its members lend each other. Only Cohorts in which any do."""
    return {cohort: lending for cohort, lending in _walk(root, pair, 0) if lending.borrowers}


def borrowed(node: Node, pair: FlavorResource) -> int:
    """What a node uses past its own quota, and its parent's members lend."""
    if node.parent is None:
        return 0
    return max(0, node.usage.get(pair, 0) - node.subtree.get(pair, 0))


def unused(node: Node, pair: FlavorResource) -> int:
    """What a node could lend to the other members of its Cohort now."""
    kept = node.guaranteed.get(pair, 0)
    past = max(0, node.usage.get(pair, 0) - kept)
    return max(0, node.subtree.get(pair, 0) - kept - past)


def _walk(cohort: Node, pair: FlavorResource, upwards: int) -> Iterator[tuple[Node, Lending]]:
    """The lending in a Cohort that lends `upwards` to its parent, then that below it."""
    if cohort.is_queue:
        return
    members = [*cohort.queues.values(), *cohort.cohorts.values()]
    borrowers = [(node, amount) for node in members if (amount := borrowed(node, pair))]
    if upwards:
        borrowers.append((cohort, upwards))
    received = borrowed(cohort, pair)
    supplies = [(node, amount) for node in members if (amount := unused(node, pair))]
    if nominal := cohort.nominal.get(pair, 0):
        supplies.append((cohort, nominal))
    wanted = sum(amount for _, amount in borrowers) - received
    lenders = list(_shared_out(wanted, supplies))
    if received and cohort.parent is not None:
        lenders.append((cohort.parent, received))
    yield cohort, Lending(tuple(borrowers), tuple(lenders))
    of_member = dict(lenders)
    for node in cohort.cohorts.values():
        yield from _walk(node, pair, of_member.get(node, 0))


def _shared_out(wanted: int, supplies: list[tuple[Node, int]]) -> Iterator[tuple[Node, int]]:
    """The supplies' parts of an amount, which add up to it unless they are less together. The parts are multiples of
    the largest amount that divides all: no third of a GPU is lent."""
    left = sum(amount for _, amount in supplies)
    wanted = min(wanted, left)
    unit = gcd(wanted, *(amount for _, amount in supplies))
    for node, amount in supplies:
        part = wanted * amount // left // unit * unit
        wanted -= part
        left -= amount
        if part:
            yield node, part
