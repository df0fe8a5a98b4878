"""How one flavor suits a Workload by its quota: the Workload fits, or by borrowing, or by preempting others, or never.

Sources: Kueue's flavorassigner. Must never change usage, nor choose among flavors.
"""

from typing import TYPE_CHECKING, Protocol

from turnstile.api.quantity import MAX_INT64
from turnstile.engine.flavors.assignment import PairOf
from turnstile.engine.flavors.fungibility import FIT, NO_FIT, better
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import FlavorResource, quantity, text
from turnstile.engine.quota.usage import Usage
from turnstile.engine.reasons import (
    EXCEEDS_MAX_QUOTA,
    MODE_OF,
    NO_MATCHING_FLAVOR,
    WAITING_FOR_QUOTA,
    Attempt,
    Figure,
    FlavorChoice,
    Mode,
    Possibility,
)

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info, PodSetTotals


class Oracle(Protocol):
    """Whether room can be made for so much more in one flavor: the possibility, and the borrowing level after it."""

    def __call__(
        self, queue: "ClusterQueue", info: "Info", pair: FlavorResource, amount: int
    ) -> tuple[Possibility, int]:
        """Simulate; change nothing."""


class QuotaJudge:
    """Judges flavors for one cycle."""

    __slots__ = ("_fair_sharing", "_fungible", "_oracle", "_pair", "own_quota_only")

    def __init__(self, *, pair: PairOf, oracle: Oracle, fungible: bool, fair_sharing: bool) -> None:
        self._pair = pair
        self._oracle = oracle
        self._fungible = fungible
        self._fair_sharing = fair_sharing
        self.own_quota_only = False
        """Whether a Workload is given free nominal quota of its ClusterQueue only."""

    def suits(
        self,
        queue: "ClusterQueue",
        info: "Info",
        assumed: Usage,
        members: list[int],
        flavor: str,
        wanted: dict[str, int],
        replaced: "Info | None",
        attempt: Attempt,
    ) -> tuple[dict[str, FlavorChoice], Possibility, int]:
        """How the flavor suits all wanted resources together: the worst of them. No choices if all just fit."""
        how, level_ = FIT, 0
        others: dict[str, FlavorChoice] = {}
        if replaced is not None and self._other_flavor(wanted, members, flavor, replaced, attempt):
            return {}, NO_FIT, 0
        for resource, value in wanted.items():
            if replaced is not None:
                value -= sum(old.requests.get(resource, 0) for old in _old_totals(replaced, members))
            pair = self._pair(flavor, resource)
            one, one_level = self._fits_quota(queue, info, pair, assumed.quota.get(pair, 0), value, attempt)
            if one is not FIT or one_level > 0:  # nothing is better than to fit without borrowing
                if better(how, level_, one, one_level, queue.fungibility, fungible=self._fungible):
                    how, level_ = one, one_level
                if how is NO_FIT:
                    return {}, NO_FIT, level_
                others[resource] = FlavorChoice(flavor, MODE_OF[one], one_level)
                attempt.borrow = max(attempt.borrow, one_level)
        if not others:
            return others, how, level_
        return {name: others.get(name) or FlavorChoice(flavor, Mode.FIT, 0) for name in wanted}, how, level_

    @staticmethod
    def _other_flavor(
        wanted: dict[str, int], members: list[int], flavor: str, replaced: "Info", attempt: Attempt
    ) -> bool:
        """Whether the slice that is replaced has another flavor, which the new one must keep."""
        for resource in wanted:
            for old in _old_totals(replaced, members):
                given = (old.flavors or {}).get(resource)
                if given is not None and given != flavor:
                    attempt.refuse(
                        f"could not assign {flavor} flavor since the original workload is assigned: {given}",
                        NO_MATCHING_FLAVOR,
                    )
        return bool(attempt.reasons)

    def _fits_quota(
        self, queue: "ClusterQueue", info: "Info", pair: FlavorResource, assumed: int, request: int, attempt: Attempt
    ) -> tuple[Possibility, int]:
        """How one resource in one flavor suits: fits, or room could be made, or never will."""
        node = queue.node
        value = min(assumed + request, MAX_INT64)
        free = tree.available(node, pair)
        if self.own_quota_only and node.parent is not None:
            free = min(free, node.subtree.get(pair, 0) - node.usage.get(pair, 0))
        if free < 0:  # debts elsewhere in the tree are not for a message
            free = 0
        if value <= free:  # what is available is never past the maximum
            return FIT, tree.level(node, pair, value)[0]
        maximum = tree.potential(node, pair)
        attempt.figures = [*attempt.figures, _figure(queue, pair, request, assumed, free, maximum)]
        resource, flavor = pair.resource, pair.flavor
        if value > maximum:
            attempt.refuse(
                f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests"
                f" ({text(resource, assumed)}) + current podset request ({quantity(resource, request)})"
                f" > maximum capacity ({text(resource, maximum)})",
                EXCEEDS_MAX_QUOTA,
            )
            return NO_FIT, 0
        level_, may_reclaim = tree.level(node, pair, value)
        attempt.refuse(
            f"insufficient unused quota for {resource} in flavor {flavor}, {text(resource, value - free)} more needed"
        )
        own = node.nominal.get(pair, 0) >= value
        if not self.own_quota_only and (own or may_reclaim or queue.may_preempt_while_borrowing(self._fair_sharing)):
            return self._oracle(queue, info, pair, value)
        attempt.no_fit_reason = WAITING_FOR_QUOTA
        return NO_FIT, level_


def _old_totals(replaced: "Info", members: list[int]) -> "list[PodSetTotals]":
    return [replaced.totals[index] for index in members if index < len(replaced.totals)]


def _figure(queue: "ClusterQueue", pair: FlavorResource, request: int, assumed: int, free: int, maximum: int) -> Figure:
    node = queue.node
    return Figure(
        flavor=pair.flavor,
        resource=pair.resource,
        requested=request,
        assumed=assumed,
        available=free,
        maximum=maximum,
        nominal=node.nominal.get(pair, 0),
        used=node.usage.get(pair, 0),
        borrowing_limit=node.borrowing_limit.get(pair),
    )
