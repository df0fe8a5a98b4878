"""A LocalQueue: the Workloads that wait in it, and what they request together.

Must never look at quota.
"""

from typing import TYPE_CHECKING

from turnstile.api.localqueue import LocalQueue as ApiLocalQueue
from turnstile.engine.quota.info import Info

if TYPE_CHECKING:
    pass


class LocalQueue:
    """A LocalQueue as the engine holds it. `items` are its workloads that wait, `requested` what they request together
    by resource; the object may not exist (yet)."""

    __slots__ = ("api", "items", "key", "requested", "weight")

    def __init__(self, key: str) -> None:
        self.key = key
        self.api: ApiLocalQueue | None = None
        self.items: dict[str, Info] = {}
        self.requested: dict[str, int] = {}
        self.weight = 1.0

    @property
    def cluster_queue(self) -> str:
        """Name of its ClusterQueue, empty if it has none."""
        return (self.api.spec.cluster_queue or "") if self.api is not None else ""

    @property
    def open(self) -> bool:
        """Whether its Workloads may be active."""
        return self.api is not None and self.api.spec.stop_policy == "None"

    def put(self, info: Info) -> None:
        """A workload waits here, or a newer version of it."""
        old = self.items.get(info.key)
        self.items[info.key] = info
        if old is not info:
            if old is not None:
                self._count(old, -1)
            self._count(info, 1)

    def drop(self, key: str) -> None:
        """A workload waits here no more."""
        old = self.items.pop(key, None)
        if old is not None:
            self._count(old, -1)

    def _count(self, info: Info, times: int) -> None:
        """Sums hold no zeros."""
        requested = self.requested
        for item in info.totals:
            for resource, amount in item.requests.items():
                total = requested.get(resource, 0) + times * amount
                if total:
                    requested[resource] = total
                else:
                    requested.pop(resource, None)
