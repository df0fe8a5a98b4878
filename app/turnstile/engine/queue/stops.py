"""The effect of a stop policy on a Workload with quota: the rule of the controller, which what-if asks too. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.workload import Workload
from turnstile.engine.causes import Cause, Eviction


class Stop(NamedTuple):
    """A Workload has to give its quota back. `evicts`: it was admitted, so its pods are stopped; otherwise only the
    reservation is released. `message` is that of the condition."""

    word: str
    """`LocalQueue` or `ClusterQueue`."""
    message: str
    evicts: bool

    @property
    def reason(self) -> str:
        """The reason of the eviction."""
        return f"{self.word}Stopped"


def stop_of(workload: Workload, queues: Iterable[tuple[str, LocalQueue | ClusterQueue | None]]) -> Stop | None:
    """The effect of the queues' stop policies on a Workload; None if it keeps its quota.

    HoldAndDrain evicts an admitted Workload. Under Hold or HoldAndDrain, a reservation that was never admitted is
    released, even if it could be admitted now. `queues` are its queues with their kind.
    """
    if not workload.quota_reserved:
        return None
    for word, queue in queues:
        policy = queue.spec.stop_policy if queue is not None else "None"
        if queue is None or policy == "None":
            continue
        if not workload.admitted:
            return Stop(word, Cause.QUEUE_STOPPED.says(kind=word, queue=queue.metadata.name), evicts=False)
        if policy == "HoldAndDrain" and not workload.evicted:
            return Stop(word, Eviction.QUEUE_DRAINED.says(kind=word), evicts=True)
    return None
