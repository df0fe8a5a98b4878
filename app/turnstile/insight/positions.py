"""The positions of pending Workloads in their ClusterQueue and LocalQueue, in the order in which cycles try them.

The order is that of the engine's queues, from the same key (`turnstile.engine.quota.ordering.order_key`): a
ClusterQueue with usage based admission tries the LocalQueue with the least usage first; the preemptor that waits for
its victims comes before the others; then priority, queue timestamp and UID decide. Inadmissible Workloads keep their
place in it, as in Kueue's visibility API.

The order of each LocalQueue is kept as a sorted list, and so is the order of LocalQueues that are ordered together
(all of a ClusterQueue, or those of equal usage). A change costs a binary search, and a page costs its items. Reads no
store and no clock.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Generator, Iterable, Iterator
from heapq import merge
from itertools import groupby
from typing import Final, NamedTuple

from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.engine.options import AdmissionFairSharing, Options
from turnstile.engine.queue.admissible import is_admissible
from turnstile.engine.queue.consumption import from_quantities, weighted
from turnstile.engine.quota.ledger import weight_of
from turnstile.engine.quota.ordering import OrderKey, birth, order_key

MERGED: Final = 256
"""Entries that are merged in one step."""


class Place(NamedTuple):
    """A pending Workload by its key, and its positions, both from 0."""

    workload: str
    in_cluster_queue: int
    in_local_queue: int


Places = Generator[Place | None, None, None]
"""A page, read step by step, between which nothing may be put; None is a step without an item. A list of them would be
thousands of objects for the garbage collector to look at."""


class Queueing(NamedTuple):
    """Everything that orders a ClusterQueue besides its Workloads: its LocalQueues that are not stopped, in groups of
    which the first is tried first, and the key of the Workload that comes first in its group."""

    groups: list[tuple[str, ...]]
    first: str | None = None


def published_usage(local_queue: LocalQueue, sharing: AdmissionFairSharing) -> float:
    """The usage that orders a LocalQueue, as its status has it. Raises InvalidValue."""
    status = local_queue.status.fair_sharing
    counted = status.admission_fair_sharing_status if status is not None else None
    consumed = from_quantities(counted.consumed_resources) if counted is not None else {}
    return weighted(consumed, {}, sharing.resource_weights, weight_of(local_queue.spec.fair_sharing))


def grouped(local_queues: Iterable[str], usage: Callable[[str], float] | None) -> list[tuple[str, ...]]:
    """The groups of LocalQueues that are ordered together: all, or by usage, the least first."""
    names = sorted(local_queues)
    if usage is None:
        return [tuple(names)] if names else []
    used = sorted((usage(name), name) for name in names)
    return [tuple(name for _, name in group) for _, group in groupby(used, key=lambda pair: pair[0])]


class _Group:
    """LocalQueues that are ordered together, and their pending Workloads in order."""

    __slots__ = ("entries", "local_queues")

    def __init__(self, local_queues: tuple[str, ...], entries: list[OrderKey]) -> None:
        self.local_queues = local_queues
        self.entries = entries


class _Ordered:
    """A sorted list in which one entry, if it is there, comes first."""

    __slots__ = ("_entries", "_first")

    def __init__(self, entries: list[OrderKey], first: OrderKey | None) -> None:
        self._entries = entries
        self._first = -1
        if first is not None:
            at = bisect_left(entries, first)
            if at < len(entries) and entries[at] == first:
                self._first = at

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, position: int) -> OrderKey:
        if position > self._first:
            return self._entries[position]
        return self._entries[position - 1 if position else self._first]

    def position(self, entry: OrderKey) -> int:
        """The position of an entry of the list."""
        at = bisect_left(self._entries, entry)
        if at > self._first:
            return at
        return at + 1 if at < self._first else 0


class Positions:
    """The pending Workloads of all LocalQueues in order."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._listed: dict[str, tuple[str, OrderKey]] = {}
        """LocalQueue and entry of each pending Workload."""
        self._births: dict[str, tuple[str, int]] = {}
        """UID and birth of each Workload, until it is gone: what the engine orders those of one second
        by."""
        self._lists: dict[str, list[OrderKey]] = {}
        self._groups: dict[str, _Group] = {}
        """By LocalQueue the group that was last built of it."""

    def __len__(self) -> int:
        return len(self._listed)

    def put(self, key: str, workload: Workload | None) -> None:
        """A Workload exists or changed, or is gone."""
        listed = None
        if workload is None:
            self._births.pop(key, None)
        else:
            uid, (known, born) = workload.metadata.uid, self._births.get(key, ("", 0))
            if known != uid:
                born = birth(workload)
                self._births[key] = (uid, born)
            if is_admissible(workload, self._options):
                local_queue = f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}"
                listed = (local_queue, order_key(workload, self._options, born=born))
        before = self._listed.get(key)
        if before == listed:
            return
        if before is not None:
            del self._listed[key]
            for entries in self._lists_of(before[0]):
                del entries[bisect_left(entries, before[1])]
            if not self._lists[before[0]]:
                del self._lists[before[0]]
        if listed is not None:
            self._listed[key] = listed
            self._lists.setdefault(listed[0], [])
            for entries in self._lists_of(listed[0]):
                insort(entries, listed[1])

    def _lists_of(self, local_queue: str) -> Iterator[list[OrderKey]]:
        yield self._lists[local_queue]
        group = self._groups.get(local_queue)
        if group is not None:
            yield group.entries

    def of_cluster_queue(self, queueing: Queueing, *, offset: int, limit: int) -> Places:
        """A page of a ClusterQueue."""
        first = self._first(queueing)
        before = 0
        lists: dict[str, _Ordered] = {}
        for names in queueing.groups:
            group = yield from self._ordered(names, first)
            for position in range(max(0, offset - before), min(len(group), offset + limit - before)):
                entry = group[position]
                name = self._listed[entry[-1]][0]
                local = lists.get(name)
                if local is None:
                    local = lists[name] = _Ordered(self._lists[name], first)
                yield Place(entry[-1], before + position, local.position(entry))
            before += len(group)

    def of_local_queue(self, local_queue: str, queueing: Queueing, *, offset: int, limit: int) -> Places:
        """A page of a LocalQueue; empty if it is not one of its ClusterQueue's."""
        first = self._first(queueing)
        before = 0
        for names in queueing.groups:
            group = yield from self._ordered(names, first)
            if local_queue in names:
                break
            before += len(group)
        else:
            return
        local = _Ordered(self._lists.get(local_queue, []), first)
        for position in range(offset, min(len(local), offset + limit)):
            entry = local[position]
            yield Place(entry[-1], before + group.position(entry), position)

    def _first(self, queueing: Queueing) -> OrderKey | None:
        listed = self._listed.get(queueing.first) if queueing.first is not None else None
        return listed[1] if listed is not None else None

    def _ordered(self, names: tuple[str, ...], first: OrderKey | None) -> Generator[None, None, _Ordered]:
        """A group in order: as it was built before, or merged from its LocalQueues now."""
        if len(names) == 1:
            return _Ordered(self._lists.get(names[0], []), first)
        group = self._groups.get(names[0])
        if group is None or group.local_queues != names:
            entries: list[OrderKey] = []
            for entry in merge(*(self._lists[name] for name in names if name in self._lists)):
                entries.append(entry)
                if not len(entries) % MERGED:
                    yield
            for name in names:
                self._forget_group(name)
            self._groups |= dict.fromkeys(names, group := _Group(names, entries))
        return _Ordered(group.entries, first)

    def _forget_group(self, local_queue: str) -> None:
        group = self._groups.get(local_queue)
        for name in group.local_queues if group is not None else ():
            del self._groups[name]
