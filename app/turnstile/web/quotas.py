"""Quota as a bar shows it: nominal, used, reserved, borrowed, lent, and held for a preemptor.

Amounts are the engine's whole numbers until a template asks for their text. Must never decide.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.quota import lending
from turnstile.engine.quota.amounts import UNLIMITED, FlavorResource, text
from turnstile.engine.quota.lending import Lending, borrowed
from turnstile.engine.quota.tree import Node, available
from turnstile.engine.quota.usage import Usage
from turnstile.web.world import World
from turnstile.wording.amounts import rank

Loans = Mapping[FlavorResource, Mapping[Node, Lending[int]]]
"""The loans in a tree, by Cohort."""


class Segment(NamedTuple):
    """A part of a bar: what it is, where it begins and how wide it is, in percent of the bar."""

    what: str
    at: float
    wide: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One resource of one flavor in a ClusterQueue, or in a Cohort with all below it."""

    pair: FlavorResource
    nominal: int
    admitted: int
    """Used by Workloads that may run."""
    reserved: int = 0
    """Used by Workloads that hold quota and wait for their admission checks."""
    leaving: int = 0
    """The part of what is used whose Workloads were preempted: it is held for their preemptors."""
    borrowed: int = 0
    """The part of what is used that is past the nominal quota."""
    lent: int = 0
    """The part of the nominal quota that others use."""
    available: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None

    @property
    def used(self) -> int:
        """The usage of Workloads."""
        return self.admitted + self.reserved

    @property
    def limited(self) -> bool:
        """Whether the nominal quota has an end."""
        return self.nominal < UNLIMITED

    @property
    def fullness(self) -> float:
        """How much of it is taken; more than 1 with borrowing, less than 0 without any quota."""
        if not self.nominal:
            return 2.0 if self.used else -1.0
        return (self.used + self.lent) / self.nominal

    def says(self, amount: int) -> str:
        """An amount as people write it."""
        return text(self.pair.resource, amount)

    @property
    def full(self) -> bool:
        """Whether nothing of it is left: for its own Workloads, or because others use it."""
        return self.limited and self.nominal > 0 and self.used + self.lent >= self.nominal

    def scale(self, widest: float) -> float:
        """The amount at the right end of the bar. Bars whose `widest` is one show the same part of a nominal quota at
        the same place; it is how many times the nominal quota the longest of them shows."""
        taken = self.used + self.lent
        if not self.limited or not self.nominal:
            return max(2 * taken if not self.limited else taken, 1)
        return max(self.nominal * widest, 1)

    def segments(self, widest: float = 1.0) -> Iterator[Segment]:
        """The parts of the bar, from left to right; the borrowed one lies over others. A part may be longer than the
        bar, which cuts it off."""
        scale, at = self.scale(widest), 0
        leaving = min(self.leaving, self.used)
        reserved = min(self.reserved, self.used - leaving)
        for what, amount in (("used", self.used - reserved - leaving), ("reserved", reserved), ("leaving", leaving)):
            if amount:
                yield Segment(what, 100 * at / scale, 100 * amount / scale)
                at += amount
        if self.borrowed:
            yield Segment("borrowed", 100 * (at - self.borrowed) / scale, 100 * self.borrowed / scale)
        if self.lent:
            end = self.nominal if self.limited else scale
            yield Segment("lent", 100 * (end - self.lent) / scale, 100 * self.lent / scale)

    def mark(self, widest: float = 1.0) -> float | None:
        """Where the nominal quota ends on the bar, in percent; None if that is the end of the bar."""
        scale = self.scale(widest)
        return 100 * self.nominal / scale if self.limited and self.nominal < scale else None


WIDEST: Final = 2.0
"""Times its nominal quota that a bar shows at most: a queue that borrows more has a bar to the end."""


def widest(quotas: Iterable[Quota]) -> float:
    """The length of the bars of some quotas, in times of the nominal quota: at least one, and as much as is used."""
    used = (each.used / each.nominal for each in quotas if each.limited and each.nominal)
    return min(WIDEST, max(1.0, *used, 1.0))


def scarcest(quotas: Iterable[Quota], lent: Container[FlavorResource] = ()) -> list[Quota]:
    """Quotas with the one first that is nearest to its end; of equal ones accelerators, and those of which something
    is lent."""
    return sorted(quotas, key=lambda each: (-each.fullness, each.pair not in lent, rank(each.pair.resource)))


def loans(world: World, node: Node) -> Loans:
    """The loans in the tree around a node."""
    if node.parent is None or world.state.ledger.cyclic(node):
        return {}
    root = node.root
    return {pair: lending.lendings(root, pair) for pair in root.subtree}


def of_queue(world: World, queue: ClusterQueue, lent: Loans, leaving: Usage) -> tuple[Quota, ...]:
    """The quotas of a ClusterQueue, in the order of its spec. `leaving` is what preempted Workloads still hold."""
    node, parent = queue.node, queue.node.parent
    cyclic = world.state.ledger.cyclic(node)
    held, admitted = queue.held(), queue.held(admitted_only=True)
    found = []
    for usage in world.state.questions.queue_usage(queue.name):
        pair = world.state.surroundings.catalog.pair(usage.flavor, usage.resource)
        lending = lent.get(pair, {}).get(parent) if parent is not None else None
        found.append(
            Quota(
                pair=pair,
                nominal=node.nominal.get(pair, 0),
                admitted=admitted.get(pair, 0),
                reserved=held.get(pair, 0) - admitted.get(pair, 0),
                leaving=leaving.of(pair),
                borrowed=usage.borrowed,
                lent=lending.lent_by(node) if lending is not None else 0,
                available=0 if cyclic else available(node, pair),
                borrowing_limit=node.borrowing_limit.get(pair),
                lending_limit=node.lending_limit.get(pair),
            )
        )
    return tuple(found)


def of_cohort(world: World, cohort: Node, lent: Loans) -> tuple[Quota, ...]:
    """The quotas of a Cohort with all below it, as if it were one ClusterQueue."""
    queues = [world.state.cluster_queues[node.name] for node in cohort.walk_queues()]
    nodes = [*(queue.node for queue in queues), *_cohorts(cohort)]
    held = [(queue.held(), queue.held(admitted_only=True)) for queue in queues]
    parent = cohort.parent
    found = []
    for pair in cohort.subtree:
        used = sum(each.get(pair, 0) for each, _ in held)
        admitted = sum(each.get(pair, 0) for _, each in held)
        lending = lent.get(pair, {}).get(parent) if parent is not None else None
        found.append(
            Quota(
                pair=pair,
                nominal=min(UNLIMITED, sum(node.nominal.get(pair, 0) for node in nodes)),
                admitted=admitted,
                reserved=used - admitted,
                borrowed=borrowed(cohort, pair),
                lent=lending.lent_by(cohort) if lending is not None else 0,
                available=available(cohort, pair),
                borrowing_limit=cohort.borrowing_limit.get(pair),
                lending_limit=cohort.lending_limit.get(pair),
            )
        )
    return tuple(found)


def _cohorts(cohort: Node) -> Iterator[Node]:
    yield cohort
    for node in cohort.cohorts.values():
        yield from _cohorts(node)


def totals(quotas: list[tuple[Quota, ...]]) -> list[Quota]:
    """Sums by flavor and resource, over ClusterQueues and Cohorts that have nothing in common."""
    found: dict[FlavorResource, Quota] = {}
    for each in (quota for group in quotas for quota in group):
        known = found.get(each.pair)
        found[each.pair] = Quota(
            pair=each.pair,
            nominal=min(UNLIMITED, each.nominal + (known.nominal if known else 0)),
            admitted=each.admitted + (known.admitted if known else 0),
            reserved=each.reserved + (known.reserved if known else 0),
        )
    return list(found.values())
