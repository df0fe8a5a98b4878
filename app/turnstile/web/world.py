"""The world of the pages: a ledger of all objects that decisions depend on, kept up to date from stores.

The ledger never runs a cycle: it knows what exists, who waits in which order, and who holds quota, and the reason why a
Workload waits is what the leader wrote to its status. Changes are taken in soon after they come, in slices, and all
that came meanwhile together. Must never write.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar

from turnstile.api import workload as wl
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Kind, find_condition
from turnstile.api.workload import Workload
from turnstile.engine import Options, State
from turnstile.engine.cycle.recall import nominations
from turnstile.engine.decisions import preemptor_uid
from turnstile.engine.intake import FEEDING, PLACES
from turnstile.engine.pace import STRETCH, Pace
from turnstile.insight.positions import Place, Positions, Queueing, grouped
from turnstile.insight.snapshot import Snapshot
from turnstile.kube.slices import in_slices
from turnstile.kube.store import Store
from turnstile.web.listing import Listing

K = TypeVar("K", bound=Kind)

_FED: Final = FEEDING | PLACES
RECALL_SECONDS: Final = 3.0
"""Seconds between two looks at all Workloads for preemptors, while any Workload is preempted."""


class Source(Protocol):
    """Where the objects come from."""

    @property
    def stores(self) -> Mapping[type[Kind], Store[Any]]:
        """A store of each kind that decisions depend on, and of others that questions are about."""
        ...

    def missing(self) -> list[str]:
        """Kinds that are still being read for the first time."""
        ...

    def unread(self) -> dict[type[Kind], str]:
        """Kinds that cannot be read, with the reason."""
        ...


class World:
    """The ledger. `await follow()` in a task of its own."""

    def __init__(self, source: Source, options: Options, clock: Callable[[], datetime]) -> None:
        self.source = source
        self.options = options
        self.state = State(options)
        self.revision = 0
        """Grows whenever changes of objects were taken in."""
        self.news = 0
        """Grows with everything that pages may show."""
        self.refused: dict[tuple[str, str], str] = {}
        """Errors of objects that the ledger cannot interpret, by kind and key."""
        self._clock = clock
        self.listing = Listing()
        self._positions = Positions(options)
        self._victims: set[str] = set()
        """Workloads that were preempted, by key."""
        self._recalled = False
        """Whether it is known for whom they were."""
        self._dirty: dict[type[Kind], dict[str, None]] = {kind: {} for kind in _FED}
        self._noted = asyncio.Event()
        self._news_came = asyncio.Event()
        for kind in _FED:
            store = source.stores[kind]
            self._dirty[kind] = dict.fromkeys(store.keys())
            store.subscribe(self._noting(kind))
        self._noted.set()

    @property
    def now(self) -> datetime:
        """The time."""
        return self._clock()

    def of(self, kind: type[K]) -> Store[K]:
        """The store of a kind."""
        return self.source.stores[kind]

    def snapshot(self) -> Snapshot:
        """All objects as they are now, with the quota that holds."""
        stores = self.source.stores
        held = {kind: {each.metadata.key: each for each in store.values()} for kind, store in stores.items()}
        objects = {kind: dict[str, Kind](found) for kind, found in held.items()}
        return Snapshot(objects, self.source.unread()).heeding(self.options)

    async def changed(self, since: int) -> None:
        """Return once there are later news."""
        while self.news == since:
            await self._news_came.wait()

    def notify(self) -> None:
        """Something that pages show has changed."""
        self.news += 1
        news_came, self._news_came = self._news_came, asyncio.Event()
        news_came.set()

    # --- taking changes in --------------------------------------------------------------------------------------------

    def _noting(self, kind: type[Kind]) -> Callable[[str, Kind | None, Kind | None], None]:
        dirty = self._dirty[kind]

        def note(key: str, _: Kind | None, __: Kind | None) -> None:
            dirty[key] = None
            self._noted.set()

        return note

    async def follow(self) -> None:
        """Take changes in until cancelled."""
        loop = asyncio.get_running_loop()
        recall_at = loop.time()
        while True:
            await self._noted.wait()
            self._noted.clear()
            await in_slices(self._settle())
            if self._victims and not self._recalled:
                if loop.time() >= recall_at:
                    await in_slices(nominations(self.state, Pace()))
                    self._recalled, recall_at = True, loop.time() + RECALL_SECONDS
                else:
                    loop.call_at(recall_at, self._noted.set)
            self.revision += 1
            self.notify()

    def _settle(self) -> Generator[None, None, None]:
        for kind, feed in _FED.items():
            dirty = self._dirty[kind]
            store = self.of(kind)
            while dirty:
                self._recalled = False
                key = next(iter(dirty))
                del dirty[key]
                value = store.get(key)
                if kind is Workload:
                    self._place(key, value if isinstance(value, Workload) else None)
                try:
                    if value is None:
                        feed.drop(self.state, key, self.now.timestamp())
                    else:
                        feed.put(self.state, value, self.now.timestamp())
                    self.refused.pop((kind.KIND, key), None)
                except InvalidValue as error:
                    self.refused[kind.KIND, key] = str(error)
                yield
        yield from self.state.catching_up(Pace(STRETCH))

    def _place(self, key: str, workload: Workload | None) -> None:
        self._positions.put(key, workload)
        self.listing.put(key, workload)
        if workload is not None and workload.evicted and preemptor(workload):
            self._victims.add(key)
        else:
            self._victims.discard(key)

    # --- waiting ------------------------------------------------------------------------------------------------------

    def waiting(self, cluster_queue: str, *, offset: int, limit: int) -> list[Place]:
        """A page of the pending Workloads of a ClusterQueue, in the order in which they are tried."""
        found = self._positions.of_cluster_queue(self._queueing(cluster_queue), offset=offset, limit=limit)
        return [place for place in found if place is not None]

    def _queueing(self, cluster_queue: str) -> Queueing:
        state = self.state
        queue = state.cluster_queues.get(cluster_queue)
        if queue is None:
            return Queueing([])
        members = [
            key for key, each in state.queues.local_queues.items() if each.cluster_queue == cluster_queue and each.open
        ]
        by_usage = state.sharing.usage(queue, "") is not None
        usage = (lambda key: state.sharing.usage(queue, key) or 0.0) if by_usage else None
        return Queueing(grouped(members, usage), state.questions.comes_first(cluster_queue))

    def leaving(self) -> dict[str, str]:
        """Workloads that were preempted and still hold quota: the uid of the Workload for which they go, by key."""
        found = {}
        for key in self._victims:
            info = self.state.workloads.get(key)
            if info is not None and info.reserved:
                found[key] = preemptor(info.workload)
        return found


def preemptor(workload: Workload) -> str:
    """The uid of the Workload for which an evicted one was preempted; empty if it was not."""
    preempted = find_condition(workload.status.conditions, wl.PREEMPTED)
    return preemptor_uid(preempted.message) or "" if preempted is not None and preempted.status == "True" else ""
