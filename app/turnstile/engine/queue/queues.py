"""The Workloads that wait: each in its LocalQueue and, while both queues are open, in the heap of its ClusterQueue.

Must never look at quota, and never make what is inadmissible active: that is for `turnstile.engine.queue.retries`.
"""

from collections.abc import Mapping

from turnstile.engine.decisions import Decision
from turnstile.engine.instants import Instant
from turnstile.engine.options import Options
from turnstile.engine.queue.admissible import backoff_over, has_variants, is_admissible, is_parent
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.localqueue import LocalQueue
from turnstile.engine.queue.requeueing import push_or_update, requeue
from turnstile.engine.quota.info import Info
from turnstile.engine.reasons import RequeueReason


class Queues:
    """LocalQueues, the Workloads that wait in them, and the namespaces that ClusterQueues select. `cluster_queues` are
    those of the ledger."""

    __slots__ = ("_cluster_queues", "_options", "decisions", "held", "local_queues", "namespaces", "waiting")

    def __init__(self, cluster_queues: Mapping[str, ClusterQueue], options: Options) -> None:
        self._cluster_queues = cluster_queues
        self._options = options
        self.namespaces: dict[str, Mapping[str, str]] = {}
        """Labels by name."""
        self.local_queues: dict[str, LocalQueue] = {}
        self.waiting: dict[str, Info] = {}
        self.held: dict[str, Info] = {}
        """Those that wait in no queue, because it is not known what devices they are to be charged for."""
        self.decisions: dict[str, Decision] = {}
        """The last decision of a cycle on each Workload that waits."""

    def local(self, key: str) -> LocalQueue:
        """The LocalQueue, which need not exist in the API."""
        local = self.local_queues.get(key)
        if local is None:
            local = self.local_queues[key] = LocalQueue(key)
        return local

    def of(self, info: Info) -> ClusterQueue | None:
        """The ClusterQueue that the LocalQueue of a Workload names."""
        local = self.local_queues.get(info.local_queue)
        return self._cluster_queues.get(local.cluster_queue) if local is not None else None

    def selects(self, queue: ClusterQueue, namespace: str) -> bool:
        """Whether the namespace exists and the selector of the ClusterQueue matches it."""
        labels = self.namespaces.get(namespace)
        return labels is not None and queue.selects(labels)

    def admits(self, info: Info) -> bool:
        """Whether a Workload may wait in a queue at all. One that cannot be charged for its devices is held."""
        if not is_admissible(info.workload, self._options):
            return False
        queue = self.of(info) if self._options.gates.concurrent_admission else None
        if queue is not None and has_variants(info.workload, queue.api):
            return False
        if info.problem is not None:
            self.held[info.key] = info
        return info.problem is None

    def counts_variants_of(self, info: Info) -> bool:
        """Whether the quota of a Workload is that of a variant of it (concurrent admission)."""
        workload = info.workload
        if not self._options.gates.concurrent_admission or not is_parent(workload):
            return False
        admission = workload.status.admission
        queue = self.of(info) if admission is None else self._cluster_queues.get(admission.cluster_queue)
        return queue is not None and has_variants(workload, queue.api)

    # A Workload comes

    def wait(self, info: Info, now: Instant, *, after: RequeueReason | None = None) -> None:
        """A Workload waits: in its LocalQueue, and in the heap of its ClusterQueue if both are open."""
        local = self.local(info.local_queue)
        old = self.waiting.get(info.key)
        if old is not None and old.local_queue != info.local_queue:
            self.leave(info.key)
        if old is not None and info.last_assignment is not None and not _same_hash(old, info):
            info.last_assignment = None
        self.waiting[info.key] = info
        local.put(info)
        queue = self._cluster_queues.get(local.cluster_queue)
        if queue is None or not local.open:
            return
        info.cluster_queue = queue.name
        if after is not None:
            requeue(queue, info, after, "", backoff_over=backoff_over(info.workload, now))
        else:
            _push(queue, info, now)

    def carry_progress(self, old: Info, new: Info) -> None:
        """Let the scan of flavors for a newer version of a Workload go on where it was."""
        if self._options.gates.flavor_fungibility_preserve_scan_progress:
            new.last_assignment = old.last_assignment

    def open(self, local: LocalQueue, now: Instant) -> None:
        """All that waits in a LocalQueue becomes active, unless it is in its ClusterQueue already."""
        queue = self._cluster_queues.get(local.cluster_queue)
        if queue is None or not local.open:
            return
        for info in list(local.items.values()):
            if queue.pending.find(info.key) is None:
                _push(queue, info, now)

    def open_all(self, queue: ClusterQueue, now: Instant) -> None:
        """A ClusterQueue is new: all that waits in its LocalQueues becomes active."""
        for local in self.local_queues.values():
            if local.cluster_queue == queue.name:
                self.open(local, now)

    # A Workload goes

    def leave(self, key: str) -> None:
        """A Workload waits no more: it is admitted, gone, or not admissible."""
        local = self.leave_local(key)
        if local is None:
            return
        queue = self._cluster_queues.get(local.cluster_queue)
        if queue is not None:
            queue.pending.remove(key)

    def leave_local(self, key: str) -> LocalQueue | None:
        """A Workload waits no more, and its place in the ClusterQueue is for the caller. Returns its LocalQueue."""
        info = self.waiting.pop(key, None)
        if info is None:
            return None
        local = self.local_queues[info.local_queue]
        self.decisions.pop(key, None)
        local.drop(key)
        self._forget_if_empty(local)
        return local

    def close(self, local: LocalQueue, cluster_queue: str) -> None:
        """Take all that waits in a LocalQueue out of the heap of a ClusterQueue; it goes on waiting for another."""
        queue = self._cluster_queues.get(cluster_queue)
        if queue is None:
            return
        for key in local.items:
            queue.pending.remove(key)
            self.decisions.pop(key, None)

    def drop_local(self, local: LocalQueue) -> None:
        """The object of a LocalQueue is gone; its Workloads wait in no ClusterQueue until it comes back."""
        self.close(local, local.cluster_queue)
        local.api = None
        self._forget_if_empty(local)

    def _forget_if_empty(self, local: LocalQueue) -> None:
        if local.api is None and not local.items:
            del self.local_queues[local.key]

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> dict[str, None] | None:
        """A namespace exists, or its labels changed: the ClusterQueues that take its Workloads and did not before. None
        if nothing changed."""
        before = self.namespaces.get(name)
        if before == labels:
            return None
        self.namespaces[name] = dict(labels)
        return {
            queue.name: None
            for queue in self._cluster_queues.values()
            if queue.selector is not None
            and queue.selector.matches(labels)
            and (before is None or not queue.selector.matches(before))
        }

    def remember(self, decision: Decision) -> None:
        """A cycle decided on a Workload; forgotten when the Workload leaves its queue."""
        if decision.outcome != "admit":
            self.decisions[decision.key] = decision


def _push(queue: ClusterQueue, info: Info, now: Instant) -> None:
    info.cluster_queue = queue.name
    push_or_update(queue, info, backoff_over=backoff_over(info.workload, now))


def _same_hash(old: Info, new: Info) -> bool:
    return not old.hash or not new.hash or old.hash == new.hash
