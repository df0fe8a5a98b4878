"""How Turnstile itself fares, as far as its objects and these watches tell.

The leader by its Lease; the worker clusters that it sends jobs to; the watches of this page; whether what queues'
statuses say is what Workloads add up to; and how many Workloads were created, admitted, evicted and finished in the
last hour. Must never compare clocks: how old the Lease is counts from when its change was seen.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Final, NamedTuple

from turnstile.api import workload as wl
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import find_condition
from turnstile.api.multikueue import MultiKueueCluster
from turnstile.api.quantity import to_int
from turnstile.api.workload import Workload
from turnstile.engine.instants import instant_or_zero
from turnstile.engine.quota.amounts import text
from turnstile.kube.lease import Lease
from turnstile.kube.slices import in_slices
from turnstile.kube.store import Store
from turnstile.web.sight import EVERYTHING, Sight
from turnstile.web.world import World
from turnstile.wording.standing import leader_is_late, nobody_leads

CHECK_SECONDS: Final = 5.0
"""Seconds between two comparisons of statuses with Workloads."""
PATIENCE_SECONDS: Final = 15.0
"""A status may lag so long behind the Workloads: in a burst the leader writes it every few seconds."""
MINUTES: Final = 60
HAPPENINGS: Final = ("created", "admitted", "evicted", "finished")


class Watch(NamedTuple):
    """One kind that this page follows."""

    name: str
    state: str
    reason: str
    objects: int


class Difference(NamedTuple):
    """A figure of a ClusterQueue's status that is not what the Workloads add up to."""

    cluster_queue: str
    what: str
    status: str
    counted: str


class Leader(NamedTuple):
    """The Lease, and seconds since it was seen to change."""

    holder: str
    transitions: int
    acquired: str
    seconds: int
    late: bool


class Worker(NamedTuple):
    """A MultiKueueCluster, and how many unfinished Workloads run on it."""

    name: str
    connected: bool | None
    """None before the manager has first tried to connect."""
    reason: str
    """Why it is not connected; empty if it is."""
    workloads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The values of the page."""

    leader: Leader | None
    lease: str
    """Namespace and name of the Lease."""
    problem: tuple[str, str] | None
    """Why nothing is admitted, and what to do, as two sentences; None while a process leads."""
    workers: tuple[Worker, ...]
    watches: tuple[Watch, ...]
    differences: tuple[tuple[Difference, int], ...]
    """Those that last, with the seconds for which they were seen."""
    refused: tuple[tuple[str, str, str], ...]
    """Objects that the ledger cannot interpret: kind, key and why."""
    rates: tuple[tuple[str, tuple[int, ...]], ...]
    """An event, and how often it happened in each minute of the last hour."""


class Observer:
    """Watches for what no single object says. `await run()` in a task of its own."""

    def __init__(
        self,
        world: World,
        watches: Callable[[], list[Watch]],
        leases: Store[Lease] | None = None,
        lease: str = "",
    ) -> None:
        self._world = world
        self._watches = watches
        self._leases = leases
        self._lease = lease
        self._since: dict[Difference, datetime] = {}
        self._renewed: datetime | None = world.now if leases is not None and len(leases) else None
        self._minutes: dict[int, Counter[str]] = {}
        self._elsewhere: Counter[str] = Counter()
        """Unfinished Workloads by the worker cluster that has admitted them."""
        self._workers = world.source.stores.get(MultiKueueCluster)
        if self._workers is not None:
            self._workers.subscribe(lambda *_: world.notify())
        for workload in world.of(Workload).values():
            self._count("", None, workload)
        world.of(Workload).subscribe(self._count)
        if leases is not None:
            leases.subscribe(self._renew)

    def _renew(self, _: str, __: Lease | None, ___: Lease | None) -> None:
        self._renewed = self._world.now
        self._world.notify()

    async def run(self) -> None:
        """Compare statuses with Workloads again and again, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            found = set[Difference]()

            await in_slices(self._compare(found))
            now = self._world.now
            self._since = {each: self._since.get(each, now) for each in found}
            oldest = int(now.timestamp()) // 60 - MINUTES
            for minute in [each for each in self._minutes if each <= oldest]:
                del self._minutes[minute]
            self._world.notify()

    def _compare(self, found: set[Difference]) -> Generator[None, None, None]:
        for queue in self._world.of(ClusterQueue).values():
            found.update(differences(self._world, queue))
            yield

    def health(self, sight: Sight = EVERYTHING) -> Health:
        """As things stand."""
        now = self._world.now
        lasting = [(each, int((now - since).total_seconds())) for each, since in self._since.items()]
        leader = self._leader(now) if Lease not in sight.unlisted else None
        return Health(
            leader=leader,
            lease=self._lease,
            problem=self._problem(leader),
            workers=tuple(self._connections()) if MultiKueueCluster not in sight.unlisted else (),
            watches=tuple(self._watches()),
            differences=tuple(sorted(item for item in lasting if item[1] >= PATIENCE_SECONDS)),
            refused=tuple((kind, key, why) for (kind, key), why in sorted(self._world.refused.items())),
            rates=tuple((what, self._per_minute(what, now)) for what in HAPPENINGS),
        )

    def _problem(self, leader: Leader | None) -> tuple[str, str] | None:
        if leader is None:
            return None
        if not leader.holder:
            return nobody_leads(self._lease)
        return leader_is_late() if leader.late else None

    def _leader(self, now: datetime) -> Leader | None:
        lease = next(iter(self._leases.values()), None) if self._leases is not None else None
        if lease is None or self._renewed is None:
            return None
        spec, seconds = lease.spec, int((now - self._renewed).total_seconds())
        return Leader(
            holder=spec.holder_identity or "",
            transitions=spec.lease_transitions or 0,
            acquired=spec.acquire_time or "",
            seconds=seconds,
            late=seconds > (spec.lease_duration_seconds or 15),
        )

    def _connections(self) -> Iterator[Worker]:
        for each in sorted(
            self._workers.values() if self._workers is not None else (), key=attrgetter("metadata.name")
        ):
            active = find_condition(each.status.conditions, "Active")
            connected = None if active is None else active.status == "True"
            reason = active.message if active is not None and not connected else ""
            yield Worker(each.metadata.name, connected, reason, self._elsewhere[each.metadata.name])

    # --- what happened ------------------------------------------------------------------------------------------------

    def _count(self, _: str, old: Workload | None, new: Workload | None) -> None:
        for workload, change in ((old, -1), (new, 1)):
            if workload is not None and workload.status.cluster_name and not workload.finished:
                self._elsewhere[workload.status.cluster_name] += change
        if new is None:
            return
        if old is None:
            self._happened("created", new.metadata.creation_timestamp)
        for kind, what in ((wl.ADMITTED, "admitted"), (wl.EVICTED, "evicted"), (wl.FINISHED, "finished")):
            at = _when(new, kind)
            if at and (old is None or at != _when(old, kind)):
                self._happened(what, at)

    def _happened(self, what: str, at: str | None) -> None:
        minute = int(instant_or_zero(at)) // 60
        if minute > int(self._world.now.timestamp()) // 60 - MINUTES:
            self._minutes.setdefault(minute, Counter())[what] += 1

    def _per_minute(self, what: str, now: datetime) -> tuple[int, ...]:
        last = int(now.timestamp()) // 60
        return tuple(self._minutes.get(minute, Counter())[what] for minute in range(last - MINUTES + 1, last + 1))


def _when(workload: Workload, kind: str) -> str:
    """When a condition became true; empty if it is not."""
    found = find_condition(workload.status.conditions, kind)
    return found.last_transition_time if found is not None and found.status == "True" else ""


def differences(world: World, queue: ClusterQueue) -> Iterator[Difference]:
    """Figures of a status that are not what the Workloads add up to."""
    name, status = queue.metadata.name, queue.status
    counts = world.state.questions.queue_counts(name)
    for what, said, counted in (
        ("pending Workloads", status.pending_workloads, counts.pending),
        ("Workloads with quota", status.reserving_workloads, counts.reserving),
        ("admitted Workloads", status.admitted_workloads, counts.admitted),
    ):
        if said != counted:
            yield Difference(name, what, str(said), str(counted))
    said_of = {
        (flavor.name, each.name): each.total for flavor in status.flavors_reservation for each in flavor.resources
    }
    for usage in world.state.questions.queue_usage(name):
        given = said_of.get((usage.flavor, usage.resource), 0)
        try:
            amount = to_int(usage.resource, given)
        except InvalidValue:
            amount = -1
        if amount != usage.total:
            what = f"{usage.resource} of flavor {usage.flavor} in use"
            yield Difference(name, what, str(given), text(usage.resource, usage.total))
