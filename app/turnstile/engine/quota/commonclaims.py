"""ResourceClaims that pods of several Workloads name: the ClusterQueue is charged for the devices of each once.

A ResourceClaim has its devices for all pods that name it, whichever Workloads they are of. The status of each of these
Workloads states the whole charge of the claim, so who is charged follows from the statuses alone, also for a new
leader: of the Workloads that hold quota for one claim in the same flavors and for the same amounts, the one with the
highest priority *carries* it, or the earliest of these, and it leaves out of the usage of the others. When the carrier
gives its quota up, the next carries the claim, so the usage of the ClusterQueue stays as it was.

Workloads of different ClusterQueues are each charged: otherwise, when one of these Workloads ends, the devices would
pass to a ClusterQueue that may have no quota for them. Workloads with different amounts, because the claim was deleted
and created again in between, are each charged too. Kueue admits no Workload that names a ResourceClaim.
Must never decide who gets quota.
"""

from bisect import insort
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from turnstile.engine.instants import Instant
from turnstile.engine.quota.amounts import Amounts, FlavorResource
from turnstile.engine.quota.usage import Usage

if TYPE_CHECKING:
    from turnstile.engine.quota.info import Info
    from turnstile.engine.quota.podsets import PodSetTotals


class Common(NamedTuple):
    """The devices of a claim, as a pod set is charged for them."""

    claim: str
    """`namespace/name`."""
    amounts: frozenset[tuple[FlavorResource, int]]

    @property
    def usage(self) -> Usage:
        """The amounts as a usage."""
        return Usage(dict(self.amounts))


def shared_claim(info: "Info", totals: "PodSetTotals") -> str:
    """The ResourceClaim, as `namespace/name`, that all devices of a pod set are of; empty if its charge may be for
    others too, because the record of an admission does not tell them apart."""
    name = totals.claim
    if not name or totals.pod_set is None:
        return ""
    counts = info.surroundings.counted(totals.pod_set.template.spec, info.namespace).counts
    return f"{info.namespace}/{name}" if totals.once.keys().isdisjoint(counts) else ""


def commons_of(info: "Info") -> tuple[Common, ...]:
    """The claims for which a Workload holds quota, and which others may name too."""
    found: dict[Common, None] | None = None
    for totals in info.totals:
        if totals.once and totals.flavors and (claim := shared_claim(info, totals)):
            pair, flavors = info.surroundings.catalog.pair, totals.flavors
            found = found or {}
            amounts: Amounts = {
                pair(flavors[resource], resource): amount
                for resource, amount in totals.once.items()
                if amount and resource in flavors
            }
            if amounts:
                found[Common(claim, frozenset(amounts.items()))] = None
    return tuple(found) if found else ()


Rank = tuple[int, Instant, str]
"""Priority, the highest first; the time of the reservation; the key."""


class CommonClaims:
    """The claims that Workloads hold quota for in one ClusterQueue, and who carries each."""

    __slots__ = ("_by_claim", "_holders", "_ranks", "carriers")

    def __init__(self) -> None:
        self._by_claim: dict[str, dict[Common, None]] = {}
        self._holders: dict[Common, list[Rank]] = {}
        """In the order in which they carry it."""
        self._ranks: dict[str, tuple[Rank, tuple[Common, ...]]] = {}
        """By key of a holder."""
        self.carriers: dict[Common, str] = {}
        """Keys of those that are charged: `Reservations` moves a charge as soon as another Workload is the first."""

    def put(self, info: "Info") -> None:
        """A Workload holds quota, or a newer version of it."""
        commons = info.commons
        if not commons and (not self._ranks or info.key not in self._ranks):
            return
        self.drop(info.key)
        if commons:
            rank = -info.priority, info.reserved_at or 0.0, info.key
            self._ranks[info.key] = rank, commons
            for common in commons:
                insort(self._holders.setdefault(common, []), rank)
                self._by_claim.setdefault(common.claim, {})[common] = None

    def drop(self, key: str) -> None:
        """It holds none any more."""
        if not self._ranks:
            return
        rank, commons = self._ranks.pop(key, (None, ()))
        for common in commons:
            holders = self._holders[common]
            assert rank is not None
            holders.remove(rank)
            if not holders:
                del self._holders[common]
                of_claim = self._by_claim[common.claim]
                del of_claim[common]
                if not of_claim:
                    del self._by_claim[common.claim]

    def first(self, common: Common) -> str | None:
        """The key of the Workload that is to carry a claim; None if no Workload holds quota for it."""
        holders = self._holders.get(common)
        return holders[0][2] if holders else None

    def relieve(self, info: "Info") -> None:
        """Leave the claims that others carry out of the usage of a Workload."""
        for common in info.commons:
            if self.carriers.get(common, info.key) != info.key:
                info.leave_out(common)

    def of_claim(self, claim: str, amounts: Mapping[str, int]) -> Iterator[Common]:
        """The flavors in which Workloads hold quota for a claim, of these amounts."""
        for common in self._by_claim.get(claim, ()):
            if {pair.resource: amount for pair, amount in common.amounts} == amounts:
                yield common
