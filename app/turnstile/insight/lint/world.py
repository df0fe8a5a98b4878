"""The world of the rules: objects of a cluster, a dump or files, and the jobs among them. Must never read anything."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from turnstile.advice.offer import OFFERED, Offer
from turnstile.advice.submission import Asked
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.errors import InvalidValue
from turnstile.api.meta import Kind
from turnstile.engine import Options
from turnstile.engine.queue.clusterqueue import ClusterQueue as EngineQueue
from turnstile.insight.snapshot import Snapshot


class Place(NamedTuple):
    """An object, by its kind and key."""

    kind: str
    key: str

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


def place(obj: Kind) -> Place:
    """The place of an object."""
    return Place(obj.KIND, obj.metadata.key)


@dataclass(frozen=True, slots=True)
class World:
    """Objects of all kinds, at one moment. `whole`: they are all that a cluster has, not only those of some files."""

    snapshot: Snapshot
    offer: Offer
    """The queues and quotas of the snapshot."""
    jobs: Sequence[tuple[Place, Asked]]
    nodes: Sequence[Mapping[str, str]] | None
    """Labels of each node; None if nodes were not read."""
    whole: bool
    unreadable: Sequence[tuple[Place, InvalidValue]]
    """Objects with an amount that cannot be read; they are not in the snapshot."""

    def complete(self, *kinds: type[Kind]) -> bool:
        """Whether an object of these kinds that is not here does not exist. With files, that holds for the kinds of
        their objects: who keeps some of them in files is taken to keep all of them there."""
        if not self.snapshot.whole(*kinds):
            return False
        return self.whole or all(any(True for _ in self.snapshot.of(kind)) for kind in kinds)

    def queues(self) -> Iterator[tuple[ClusterQueue, EngineQueue]]:
        """The ClusterQueues whose quota can be computed, as they are written and as the engine has them."""
        for api in self.snapshot.of(ClusterQueue):
            queue = self.offer.cluster_queue(api.metadata.name)
            if queue is not None and not self.offer.cyclic(queue):
                yield api, queue


def world(
    snapshot: Snapshot,
    options: Options,
    *,
    jobs: Sequence[tuple[Place, Asked]] = (),
    nodes: Sequence[Mapping[str, str]] | None = None,
    whole: bool = False,
) -> World:
    """The world of a snapshot, with the quota that holds."""
    snapshot = snapshot.heeding(options)
    offer, unreadable = Offer(options), list[tuple[Place, InvalidValue]]()
    dropped: list[tuple[type[Kind], str]] = []
    for kind in OFFERED:
        for obj in snapshot.of(kind):
            try:
                offer.put(obj)
            except InvalidValue as error:
                unreadable.append((place(obj), error))
                dropped.append((kind, obj.metadata.key))
    return World(snapshot.changed(drop=dropped), offer, jobs, nodes, whole, unreadable)
