"""Which inadmissible Workloads are to be tried again, because something changed in the tree of their ClusterQueue.

A change marks a ClusterQueue or a Cohort, at once and at no cost; the Workloads of the tree become active at the start
of the next cycle. Must never know why a Workload is inadmissible.
"""

from collections.abc import Iterable, Iterator, Mapping

from turnstile.engine.instants import Instant
from turnstile.engine.pace import HASHING, Pace, Sliced
from turnstile.engine.queue.admissible import backoff_over
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.queues import Queues
from turnstile.engine.quota.ledger import Ledger
from turnstile.engine.quota.tree import Node


class Retries:
    """Marked ClusterQueues and Cohorts, by name."""

    __slots__ = ("_ledger", "_queues", "cluster_queues", "cohorts")

    def __init__(self, ledger: Ledger[ClusterQueue], queues: Queues) -> None:
        self._ledger = ledger
        self._queues = queues
        self.cluster_queues: dict[str, None] = {}
        self.cohorts: dict[str, None] = {}

    def mark(self, cluster_queue: str) -> None:
        """Inadmissible Workloads in the tree of this ClusterQueue are to be tried again."""
        self.cluster_queues[cluster_queue] = None

    def mark_all(self, cluster_queues: Mapping[str, None]) -> None:
        """The same of several ClusterQueues."""
        self.cluster_queues.update(cluster_queues)

    def mark_cohort(self, cohort: str) -> None:
        """Inadmissible Workloads in the tree of this Cohort are to be tried again."""
        self.cohorts[cohort] = None

    @property
    def marked(self) -> bool:
        """Whether any are."""
        return bool(self.cluster_queues or self.cohorts)

    def unmark(self, cluster_queues: Iterable[str]) -> None:
        """Take ClusterQueues off the marked ones."""
        for name in cluster_queues:
            self.cluster_queues.pop(name, None)

    def carry_out(self, now: Instant, shape: int, pace: Pace) -> Sliced[bool]:
        """Make inadmissible Workloads of marked trees active: those whose namespace is selected and whose back-off is
        over, but for those that can never be admitted while the objects are of that `shape`. Trees with a cycle stay as
        they are. True if any moved. No event may come in between; what is left undone is still marked."""
        queues, ledger = self._ledger.cluster_queues, self._ledger
        roots: dict[Node, None] = {}
        for node in self._marked_nodes():
            pace.left -= 0.5
            if pace.left <= 0:
                yield
                pace.renew()
            if not ledger.cyclic(node):
                roots[node.root] = None
        moved = False
        for root in roots:
            for node in root.walk_queues():
                pace.left -= 1
                if pace.left <= 0:
                    yield
                    pace.renew()
                moved = (yield from self.carry_out_in(queues[node.name], now, shape, pace)) or moved
        self.cluster_queues.clear()
        self.cohorts.clear()
        return moved

    def _marked_nodes(self) -> Iterator[Node]:
        for name in list(self.cluster_queues):
            if (queue := self._ledger.cluster_queues.get(name)) is not None:
                yield queue.node
        for name in list(self.cohorts):
            if (node := self._ledger.cohorts.get(name)) is not None:
                yield node

    def carry_out_in(self, queue: ClusterQueue, now: Instant, shape: int, pace: Pace) -> Sliced[bool]:
        """The same in one ClusterQueue, marked or not."""
        pending = queue.pending
        pending.retry_cycle = pending.pop_cycle
        if not pending.inadmissible and not pending.bulk_moved:
            return False
        moved = yield from pending.put_back_classes(pace)
        selected: dict[str, bool] = {}
        moving = []
        for info in pending.inadmissible.values():
            pace.left -= 1
            if pace.left <= 0:
                yield
                pace.renew()
            namespace = info.namespace
            good = selected.get(namespace)
            if good is None:
                good = selected[namespace] = self._queues.selects(queue, namespace)
            if good and info.never != shape and backoff_over(info.workload, now):
                moving.append(info)
        for info in moving:
            pace.left -= 1 if info.hashed or not pending.in_classes else HASHING
            if pace.left <= 0:
                yield
                pace.renew()
            del pending.inadmissible[info.key]
            pending.push(info)
        return moved or bool(moving)
