"""Pages of pending Workloads, from the stores of this process.

Every controller process answers: the order follows from the Workloads, the queues and the configuration, which all
processes have. The leader adds what only it knows: the preemptor that comes first while it waits for its
victims, and usage of LocalQueues that is not written to their status yet.

Changed Workloads are noted, and sorted in soon afterwards in slices, so that a request finds nearly all of them in
order. Sorting in and reading a page exclude each other.
"""

import asyncio
from collections.abc import Callable, Generator, Iterator
from typing import Final

import msgspec

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import ObjectMeta, OwnerReference
from turnstile.api.workload import Workload
from turnstile.engine import Options, State
from turnstile.insight.positions import Place, Positions, Queueing, grouped, published_usage
from turnstile.kube.slices import in_slices
from turnstile.kube.store import Store
from turnstile.visibility.resources import PendingWorkload

SETTLE_SECONDS: Final = 0.2
"""Seconds after a change until changed Workloads are sorted in, unless a request comes first."""
PIECE: Final = 32 * 1024
"""Bytes of items in one piece of an answer, about."""

Leading = Callable[[], State | None]
"""Returns the engine's state while this process leads."""

_BY_CLUSTER_QUEUE: Final = "by cluster queue, for visibility"


class PendingWorkloads:
    """The pending Workloads of each queue in order."""

    def __init__(
        self,
        *,
        workloads: Store[Workload],
        local_queues: Store[LocalQueue],
        cluster_queues: Store[ClusterQueue],
        options: Options,
        leading: Leading = lambda: None,
    ) -> None:
        self._workloads = workloads
        self._local_queues = local_queues
        self._cluster_queues = cluster_queues
        self._options = options
        self._leading = leading
        self._positions = Positions(options)
        self._changed: dict[str, None] = dict.fromkeys(workloads.keys())
        self._lock = asyncio.Lock()
        self._noted = asyncio.Event()
        if self._changed:
            self._noted.set()
        local_queues.add_index(
            _BY_CLUSTER_QUEUE, lambda queue: [queue.spec.cluster_queue] if queue.spec.cluster_queue else []
        )
        workloads.subscribe(self._note)

    def _note(self, key: str, old: Workload | None, new: Workload | None) -> None:
        self._changed[key] = None
        self._noted.set()

    async def follow(self) -> None:
        """Sort in what changes, until cancelled."""
        while True:
            await self._noted.wait()
            await asyncio.sleep(SETTLE_SECONDS)
            async with self._lock:
                await in_slices(self._settle())

    def _settle(self) -> Generator[None, None, None]:
        while self._changed:
            key, _ = self._changed.popitem()
            self._positions.put(key, self._workloads.get(key))
            yield
        self._noted.clear()

    # --- pages --------------------------------------------------------------------------------------------------------

    async def of_cluster_queue(self, name: str, *, limit: int, offset: int) -> list[bytes] | None:
        """The items of a page as JSON, in pieces; None if there is no such ClusterQueue."""
        if name not in self._cluster_queues:
            return None

        def places() -> Iterator[Place | None]:
            return self._positions.of_cluster_queue(self._queueing(name), offset=offset, limit=limit)

        return await self._page(places)

    async def of_local_queue(self, namespace: str, name: str, *, limit: int, offset: int) -> list[bytes] | None:
        """The items of a page as JSON, in pieces; None if there is no such LocalQueue."""
        key = f"{namespace}/{name}"
        local = self._local_queues.get(key)
        if local is None:
            return None
        cluster_queue = local.spec.cluster_queue or ""

        def places() -> Iterator[Place | None]:
            if cluster_queue not in self._cluster_queues:
                return iter(())
            return self._positions.of_local_queue(key, self._queueing(cluster_queue), offset=offset, limit=limit)

        return await self._page(places)

    async def _page(self, places: Callable[[], Iterator[Place | None]]) -> list[bytes]:
        def steps() -> Generator[None, None, list[bytes]]:
            yield from self._settle()
            pieces: list[bytes] = []
            piece = bytearray()
            for place in places():
                workload = self._workloads.get(place.workload) if place is not None else None
                if place is not None and workload is not None:  # not deleted since
                    if pieces or piece:
                        piece += b","
                    piece += _encode(_item(workload, place))
                    if len(piece) > PIECE:
                        pieces.append(bytes(piece))
                        piece.clear()
                yield
            return [*pieces, bytes(piece)] if piece else pieces

        async with self._lock:
            return await in_slices(steps())

    def _queueing(self, name: str) -> Queueing:
        """The order of a ClusterQueue: as the engine has it if this process leads, else as the stores do."""
        members = [
            key
            for key in self._local_queues.keys_by_index(_BY_CLUSTER_QUEUE, name)
            if (local := self._local_queues.get(key)) is not None and local.spec.stop_policy == "None"
        ]
        state = self._leading()
        queue = state.cluster_queues.get(name) if state is not None else None
        if state is not None and queue is not None:
            by_usage = state.sharing.usage(queue, "") is not None
            usage = (lambda key: state.sharing.usage(queue, key) or 0.0) if by_usage else None
            return Queueing(grouped(members, usage), state.questions.comes_first(name))
        return Queueing(grouped(members, self._published if self._by_usage(name) else None))

    def _by_usage(self, name: str) -> bool:
        queue = self._cluster_queues.get(name)
        scope = queue.spec.admission_scope if queue is not None else None
        return (
            self._options.usage_sharing is not None
            and scope is not None
            and scope.admission_mode == "UsageBasedAdmissionFairSharing"
        )

    def _published(self, key: str) -> float:
        local, sharing = self._local_queues.get(key), self._options.usage_sharing
        assert sharing is not None
        try:
            return published_usage(local, sharing) if local is not None else 0.0
        except InvalidValue:  # as the engine, which does not take such a LocalQueue in
            return 0.0


_encode = msgspec.json.Encoder().encode


def _item(workload: Workload, place: Place) -> PendingWorkload:
    meta = workload.metadata
    owners = tuple(
        OwnerReference(api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid)
        for owner in meta.owner_references
    )
    return PendingWorkload(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            creation_timestamp=meta.creation_timestamp,
            owner_references=owners,
        ),
        priority=workload.spec.priority or 0,
        local_queue_name=workload.spec.queue_name or "",
        position_in_cluster_queue=place.in_cluster_queue,
        position_in_local_queue=place.in_local_queue,
    )
