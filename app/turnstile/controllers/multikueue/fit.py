"""Which worker cluster has room for a Workload, by what its queue there has free. Pure.

The status of a worker's ClusterQueue says what is reserved; the Workloads that this manager has sent there since count
as well (`Claims`), because a status follows by seconds. An outlook orders workers and admits nothing: the worker's own
scheduler does. So it may be rough: a cohort is taken as flat.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Final

from turnstile.api.clusterqueue import ClusterQueue, FlavorUsage
from turnstile.api.quantity import to_int
from turnstile.api.workload import Admission

LAG: Final = timedelta(seconds=5)
"""Time until the status of a worker's queue tells of a reservation there."""

Amounts = Mapping[str, int]


class Fit(IntEnum):
    """Whether a worker has room: now, later, or never."""

    NOW = 0
    LATER = 1
    NEVER = 2


@dataclass(frozen=True, slots=True, order=True)
class Outlook:
    """The room that a worker has for a Workload. The smallest outlook is nominated first."""

    fit: Fit
    short: float = 0.0
    """The part of the requests without room now, added up over resources: the Workload waits, or others are preempted,
    until that much is free."""
    waiting: int = 0
    """Workloads that wait in the queue there."""


UNKNOWN: Final = Outlook(Fit.LATER, short=1.0)
"""The outlook of a worker whose queues cannot be read."""


@dataclass(slots=True)
class _Flavor:
    free: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    """All that there is of it, with nothing reserved."""


def requests_of(admission: Admission) -> list[dict[str, int]]:
    """The requests of each pod set, as the manager has counted them."""
    return [
        {name: to_int(name, amount) for name, amount in each.resource_usage.items()}
        for each in admission.pod_set_assignments
    ]


def outlook(
    requests: Sequence[Amounts], queue: ClusterQueue, members: Iterable[ClusterQueue], claimed: Amounts
) -> Outlook:
    """The outlook of a Workload in a ClusterQueue. `members` are the ClusterQueues of its cohort, `claimed` is what
    other Workloads of this manager have been sent there for."""
    groups = _groups(queue, members)
    _take(claimed, groups)
    short = 0.0
    for wanted in requests:
        part = _place(wanted, groups)
        if part is None:
            return Outlook(Fit.NEVER)
        short += part
    return Outlook(Fit.LATER if short else Fit.NOW, short, queue.status.pending_workloads)


def _groups(queue: ClusterQueue, members: Iterable[ClusterQueue]) -> list[list[_Flavor]]:
    """The flavors of each resource group, with what is free in each."""
    held = _reserved(queue.status.flavors_reservation)
    lenders = [each for each in members if each.metadata.name != queue.metadata.name]
    spare, lent = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for each in lenders:
        theirs = _reserved(each.status.flavors_reservation)
        for place, nominal, _, lending in _quotas(each):
            most = nominal if lending is None else min(nominal, lending)
            left = nominal - theirs.get(place, 0)
            spare[place] += min(left, most)
            lent[place] += most
    found: list[list[_Flavor]] = []
    quotas = {place: (nominal, borrowing) for place, nominal, borrowing, _ in _quotas(queue)}
    for group in queue.spec.resource_groups:
        flavors = []
        for given in group.flavors:
            flavor = _Flavor()
            for quota in given.resources:
                place = given.name, quota.name
                nominal, limit = quotas[place]
                used = held.get(place, 0)
                borrowable, most = max(0, spare[place]), lent[place]
                if limit is not None:
                    borrowable, most = min(borrowable, max(0, limit - max(0, used - nominal))), min(most, limit)
                flavor.free[quota.name] = nominal - used + borrowable
                flavor.most[quota.name] = nominal + most
            flavors.append(flavor)
        found.append(flavors)
    return found


def _quotas(queue: ClusterQueue) -> Iterable[tuple[tuple[str, str], int, int | None, int | None]]:
    """Nominal quota, borrowing limit and lending limit by flavor and resource."""
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            for each in flavor.resources:
                borrowing, lending = (
                    None if limit is None else to_int(each.name, limit)
                    for limit in (each.borrowing_limit, each.lending_limit)
                )
                yield (flavor.name, each.name), to_int(each.name, each.nominal_quota), borrowing, lending


def _reserved(usages: Iterable[FlavorUsage]) -> dict[tuple[str, str], int]:
    return {(flavor.name, each.name): to_int(each.name, each.total) for flavor in usages for each in flavor.resources}


def _place(wanted: Amounts, groups: Sequence[Sequence[_Flavor]]) -> float | None:
    """Take the requests of a pod set from the flavors; the part that had no room, None if it never has any."""
    left, short = {name: amount for name, amount in wanted.items() if amount > 0}, 0.0
    for flavors in groups:
        mine = {name: left.pop(name) for name in list(left) if flavors and name in flavors[0].most}
        able = [each for each in flavors if all(amount <= each.most.get(name, 0) for name, amount in mine.items())]
        if mine and not able:
            return None
        if mine:
            lacks, best = min(((_short(mine, each), each) for each in able), key=lambda pair: pair[0])
            short += lacks
            for name, amount in mine.items():
                best.free[name] -= amount
    return None if left else short


def _short(wanted: Amounts, flavor: _Flavor) -> float:
    return sum(max(0, amount - max(0, flavor.free[name])) / amount for name, amount in wanted.items())


def _take(claimed: Amounts, groups: Sequence[Sequence[_Flavor]]) -> None:
    """Take claims from the flavors, each resource from the first that has some; the last goes below nothing."""
    for flavors in groups:
        for name in flavors[0].free if flavors else ():
            left = claimed.get(name, 0)
            for place, flavor in enumerate(flavors):
                part = left if place == len(flavors) - 1 else min(left, max(0, flavor.free[name]))
                flavor.free[name] -= part
                left -= part


class Claims:
    """The requests of Workloads that were sent to each queue of each worker, until its status has them."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[str, tuple[str, ...], Counter[str]]] = {}
        self._totals: dict[tuple[str, str], Counter[str]] = {}
        self._leaving: deque[tuple[datetime, str]] = deque()

    def __contains__(self, key: str) -> bool:
        return key in self._noted

    def note(self, key: str, queue: str, clusters: Sequence[str], requests: Iterable[Amounts]) -> None:
        """A Workload is sent to a queue (`namespace/name`) of these clusters, and of no others."""
        self.drop(key)
        amounts = Counter[str]()
        for each in requests:
            amounts.update(each)
        self._noted[key] = queue, tuple(clusters), amounts
        for cluster in clusters:
            self._totals.setdefault((cluster, queue), Counter()).update(amounts)

    def settle(self, key: str, now: datetime) -> None:
        """A worker has reserved quota for the Workload."""
        if key in self._noted and all(each != key for _, each in self._leaving):
            self._leaving.append((now + LAG, key))

    def drop(self, key: str) -> None:
        """Forget a Workload."""
        queue, clusters, amounts = self._noted.pop(key, ("", (), Counter()))
        for cluster in clusters:
            total = self._totals[cluster, queue]
            total.subtract(amounts)
            if not any(total.values()):
                del self._totals[cluster, queue]

    def on(self, cluster: str, queue: str, key: str, now: datetime) -> dict[str, int]:
        """The requests of other Workloads that were sent to a queue of a cluster."""
        while self._leaving and self._leaving[0][0] <= now:
            self.drop(self._leaving.popleft()[1])
        found = dict(self._totals.get((cluster, queue), {}))
        own_queue, clusters, amounts = self._noted.get(key, ("", (), Counter()))
        if own_queue == queue and cluster in clusters:
            found = {name: total - amounts[name] for name, total in found.items()}
        return found
