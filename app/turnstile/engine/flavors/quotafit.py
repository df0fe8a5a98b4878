"""How one flavor suits a Workload by its quota: the Workload fits, or by borrowing, or by preempting others, or never.

Sources: Kueue's flavorassigner. Must never change usage, nor choose among flavors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from turnstile.api.quantity import MAX_INT64
from turnstile.engine.causes import Cause
from turnstile.engine.flavors.assignment import PairOf
from turnstile.engine.flavors.demand import Demand
from turnstile.engine.flavors.fungibility import FIT, NO_FIT, better
from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.quota import tree
from turnstile.engine.quota.amounts import FlavorResource, quantity, text
from turnstile.engine.reasons import (
    EXCEEDS_MAX_QUOTA,
    MODE_OF,
    NO_MATCHING_FLAVOR,
    WAITING_FOR_QUOTA,
    Attempt,
    Figure,
    Possibility,
)

if TYPE_CHECKING:
    from turnstile.engine.quota.clusterqueue import ClusterQueue
    from turnstile.engine.quota.info import Info

Rating = tuple[Possibility, int]
"""How one resource suits, and its borrowing level."""

REFUSING: Final = 8.0
"""Work to judge a resource that does not simply fit: its figures and reasons are noted."""


Oracle = Callable[["ClusterQueue", "Info", FlavorResource, int], Sliced[Rating]]
"""Finds whether quota can be freed for so much more in one flavor: the possibility, and the borrowing level then."""


class Verdict(NamedTuple):
    """How a flavor suits all resources together: the worst of them, and its borrowing level."""

    how: Possibility
    level: int
    ratings: Mapping[str, Rating]
    """Ratings of the resources that do not simply fit, up to the first that never will."""
    attempt: Attempt
    reasons: Sequence[str]


class QuotaJudge:
    """Judges flavors for one cycle."""

    __slots__ = ("_fair_sharing", "_fungible", "_oracle", "_pace", "_pair", "own_quota_only")

    def __init__(self, *, pair: PairOf, oracle: Oracle, fungible: bool, fair_sharing: bool, pace: Pace) -> None:
        self._pair = pair
        self._oracle = oracle
        self._fungible = fungible
        self._fair_sharing = fair_sharing
        self._pace = pace
        self.own_quota_only = False
        """Whether a Workload is given free nominal quota of its ClusterQueue only."""

    def may_fit_freely(self, queue: "ClusterQueue", info: "Info") -> bool:
        """Whether for each resource of each pod set alone some flavor has enough without borrowing and without
        preempting. If not, no search finds flavors that have."""
        for item in info.totals:
            for resource, value in item.requests.items():
                group = queue.group_of.get(resource)
                if group is None or resource in item.once:  # another Workload may be charged for that
                    continue
                if not any(self._free(queue, flavor, resource, value) for flavor in group.flavors):
                    return False
        return True

    def _free(self, queue: "ClusterQueue", flavor: str, resource: str, value: int) -> bool:
        node, pair = queue.node, self._pair(flavor, resource)
        return value <= max(0, tree.available(node, pair)) and tree.level(node, pair, value)[0] == 0

    def suits(self, demand: Demand, flavor: str, wanted: dict[str, int]) -> Sliced[Verdict]:
        """How the flavor suits all wanted resources together."""
        attempt = Attempt(flavor)
        if demand.replaced and self._other_flavor(demand, flavor, wanted, attempt):
            return self._verdict(NO_FIT, 0, {}, attempt)
        queue, pace = demand.queue, self._pace
        how, level = FIT, 0
        ratings: dict[str, Rating] = {}
        for resource, value in wanted.items():
            for old in demand.replaced.values():
                value -= old.requests.get(resource, 0)
            pair = self._pair(flavor, resource)
            rating = self._as_things_are(demand, pair, value, attempt)
            if rating is None:
                amount = min(demand.assumed.of(pair) + value, MAX_INT64)
                rating = yield from self._oracle(queue, demand.info, pair, amount)
            one, one_level = rating
            if one is FIT and one_level == 0:  # nothing is better
                continue
            if better(how, level, one, one_level, queue.fungibility, fungible=self._fungible):
                how, level = rating
            if how is NO_FIT:
                return self._verdict(how, level, ratings, attempt)
            ratings[resource] = rating
            pace.left -= REFUSING
            if pace.left <= 0:
                yield
                pace.renew()
        return self._verdict(how, level, ratings, attempt)

    @staticmethod
    def _verdict(how: Possibility, level: int, ratings: dict[str, Rating], attempt: Attempt) -> Verdict:
        reasons = attempt.reasons
        if reasons:
            attempt.reasons = list(dict.fromkeys(reasons))
        attempt.mode, attempt.possibility = MODE_OF[how], how
        attempt.borrow = max([level, *(each for _, each in ratings.values())])
        return Verdict(how, level, ratings, attempt, reasons)

    @staticmethod
    def _other_flavor(demand: Demand, flavor: str, wanted: dict[str, int], attempt: Attempt) -> bool:
        """Whether the slice that is replaced has another flavor, which the new one must keep, or the devices of a
        claim have."""
        for resource in wanted:
            for old in demand.replaced.values():
                given = (old.flavors or {}).get(resource)
                if given is not None and given != flavor:
                    reason = (
                        Cause.CLAIM_FLAVOR.says(flavor=flavor, claim=old.claim, given=given)
                        if old.claim and old.requests == old.once  # no slice, but the devices of a claim
                        else Cause.SLICE_FLAVOR.says(flavor=flavor, given=given)
                    )
                    attempt.refuse(reason, NO_MATCHING_FLAVOR)
        return bool(attempt.reasons)

    def _as_things_are(self, demand: Demand, pair: FlavorResource, request: int, attempt: Attempt) -> Rating | None:
        """How one resource in one flavor suits: it fits, or never will; None if others could be preempted for it."""
        queue, assumed = demand.queue, demand.assumed.of(pair)
        node = queue.node
        value = min(assumed + request, MAX_INT64)
        free = tree.available(node, pair)
        if self.own_quota_only and node.parent is not None:
            free = min(free, tree.unused_own(node, pair))
        if free < 0:  # debts elsewhere in the tree are not for a message
            free = 0
        if value <= free:  # what is available is never past the maximum
            return FIT, tree.level(node, pair, value)[0]
        maximum = tree.potential(node, pair)
        attempt.figures = [*attempt.figures, _figure(queue, pair, request, assumed, free, maximum)]
        resource, flavor = pair.resource, pair.flavor
        if value > maximum:
            reason = Cause.BEYOND_MAXIMUM.says(
                resource=resource,
                flavor=flavor,
                assumed=text(resource, assumed),
                asked=quantity(resource, request),
                most=text(resource, maximum),
            )
            attempt.refuse(reason, EXCEEDS_MAX_QUOTA)
            return NO_FIT, 0
        level, may_reclaim = tree.level(node, pair, value)
        attempt.refuse(Cause.QUOTA_IN_USE.says(resource=resource, flavor=flavor, more=text(resource, value - free)))
        nominal, _, _ = tree.standing(node, pair)
        if not self.own_quota_only and (
            nominal >= value or may_reclaim or queue.may_preempt_while_borrowing(self._fair_sharing)
        ):
            return None
        attempt.no_fit_reason = WAITING_FOR_QUOTA
        return NO_FIT, level


def _figure(queue: "ClusterQueue", pair: FlavorResource, request: int, assumed: int, free: int, maximum: int) -> Figure:
    nominal, used, borrowing_limit = tree.standing(queue.node, pair)
    return Figure(
        flavor=pair.flavor,
        resource=pair.resource,
        requested=request,
        assumed=assumed,
        available=free,
        maximum=maximum,
        nominal=nominal,
        used=used,
        borrowing_limit=borrowing_limit,
    )
