"""How many Workloads are over, and how many are not admitted and why: kept up with every change, so that no scrape
counts Workloads.

Must be made before the store has many objects: the first count is of all that are in it.
"""

from collections import Counter
from typing import TypeVar

from turnstile.api.workload import Workload
from turnstile.controllers.metrics.workloadtimes import unadmitted
from turnstile.kube.store import Store

K = TypeVar("K")


class Tallies:
    """Counts of the Workloads of one store."""

    def __init__(self, workloads: Store[Workload]) -> None:
        self.finished: Counter[tuple[str, str]] = Counter()
        """By the ClusterQueue of the admission, empty without one, and LocalQueue (`namespace/name`)."""
        self.unadmitted: Counter[tuple[str, str, str]] = Counter()
        """By LocalQueue, reason and underlying cause."""
        workloads.subscribe(self._changed, replay=True)

    def _changed(self, _: str, old: Workload | None, new: Workload | None) -> None:
        if old is not None:
            self._count(old, -1)
        if new is not None:
            self._count(new, 1)

    def _count(self, workload: Workload, times: int) -> None:
        local_queue = f"{workload.metadata.namespace}/{workload.spec.queue_name or ''}"
        if workload.finished:
            admission = workload.status.admission
            _add(self.finished, (admission.cluster_queue if admission is not None else "", local_queue), times)
        elif (why := unadmitted(workload)) is not None:
            _add(self.unadmitted, (local_queue, *why), times)


def _add(counts: Counter[K], key: K, times: int) -> None:
    """Counts hold no zeros."""
    counts[key] += times
    if not counts[key]:
        del counts[key]
