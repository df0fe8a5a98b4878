"""A ClusterQueue as the scheduler knows it: what quota knows of it, and the Workloads that wait in it.

A Workload that waits is in exactly one place: in the heap, inadmissible until something changes, or inflight (the head
that a cycle works on). Source: Kueue's queue cache. Must never look at usage.
"""

from turnstile.engine.queue.heaps import Pending
from turnstile.engine.quota import clusterqueue


class ClusterQueue(clusterqueue.ClusterQueue):
    """A ClusterQueue with its heap."""

    __slots__ = ("pending",)

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.pending = Pending()
