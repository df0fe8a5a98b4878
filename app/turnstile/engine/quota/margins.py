"""How much more may be counted at each Cohort above a ClusterQueue before a usage no longer fits; and how much of a
usage is counted there.

A cycle compares the two to find out which preemptors an admission could take quota from. Must never change usage.
"""

from collections.abc import Iterator
from typing import Final

from turnstile.api.quantity import MAX_INT64
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.trial import View
from turnstile.engine.quota.usage import Usage

Place = tuple[Node, FlavorResource]
"""A Cohort, and what is counted there."""
ENDLESS: Final = 1 << 300
"""More than there is anywhere."""


def lefts(usage: Usage, node: Node) -> Iterator[tuple[Place, int]]:
    """How much more may arrive at each Cohort above a ClusterQueue, from elsewhere, until the usage does not fit."""
    for pair, amount in usage.quota.items():
        if amount <= 0:
            continue
        below, rest = node, amount
        while below.parent is not None:
            rest -= tree.spare(below, pair)
            below = below.parent
            yield (below, pair), tree.available(below, pair) - rest


def arrivals(usage: Usage, node: Node, view: View | None) -> Iterator[tuple[Place, int]]:
    """How much of a usage in a ClusterQueue arrives at each Cohort above it. It may be less once victims have gone,
    never more. Past int64 usage counts as endless, and so does what arrives there."""
    held = view.usage if view is not None else {}
    for pair, amount in usage.quota.items():
        below, rest = node, amount
        while below.parent is not None:
            used = held.get(below, below.usage).get(pair, 0)
            rest -= max(0, below.guaranteed.get(pair, 0) - used)
            if rest <= 0:
                break
            below = below.parent
            used = held.get(below, below.usage).get(pair, 0)
            yield (below, pair), ENDLESS if used + rest >= MAX_INT64 else rest
