"""Gauges of LocalQueues: what the ledger and the queues of the leader hold at the moment of a scrape.

As `turnstile.controllers.metrics.queues` does for ClusterQueues and Cohorts. Must never change anything.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client import Metric

from turnstile.api.localqueue import LocalQueue
from turnstile.controllers.metrics.gauges import Gauges, Row, Rows, amount, gauge_of, resting
from turnstile.controllers.metrics.series import Values
from turnstile.controllers.queues.statuses import local_queue_activity
from turnstile.engine.queue.heaps import Pending


class LocalQueueMetrics(Gauges):
    """The gauges of the LocalQueues of one term of leadership."""

    def collect(self) -> Iterator[Metric]:
        """The gauges as they are when each is read."""
        custom, of_workload = self._options.names("LocalQueue"), self._options.names("Workload")

        def gauge(name: str, text: str, labels: Values, rows: Rows) -> Metric:
            return gauge_of(f"local_queue_{name}", text, ("name", "namespace", *labels, *custom), rows)

        yield gauge("pending_workloads", "Workloads that wait.", ("status",), self._local_queue_pending)
        yield gauge("finished_workloads", "Finished Workloads that exist still.", (), self._local_queue_finished)
        yield gauge(
            "reserving_active_workloads",
            "Workloads that hold quota.",
            (),
            lambda: self._each_local_queue(lambda key: self._state.questions.local_queue_counts(key).reserving),
        )
        yield gauge("admitted_active_workloads", "Admitted Workloads.", of_workload, self._local_queue_admitted)
        yield gauge("status", "1 for the status of the Active condition.", ("active",), self._local_queue_status)
        amounts = "flavor", "resource"
        reserved = "Quota reserved by the Workloads of a LocalQueue."
        yield gauge("resource_reservation", reserved, amounts, lambda: self._local_queue_used(admitted_only=False))
        used = "Quota used by the admitted Workloads of a LocalQueue."
        yield gauge("resource_usage", used, amounts, lambda: self._local_queue_used(admitted_only=True))
        if self._state.sharing.config is not None:
            text = "Usage that orders the LocalQueues of a ClusterQueue, over their weight."
            yield gauge("admission_fair_sharing_usage", text, ("cluster_queue",), self._local_queue_usage)
        if self._options.unadmitted:
            labels = "cluster_queue", "reason", "underlying_cause"
            text = "Workloads that are not admitted."
            yield gauge("unadmitted_workloads", text, labels, self._local_queue_unadmitted)

    def _local_queues(self) -> Iterator[tuple[str, LocalQueue, Values, Values]]:
        """Key, object, name and namespace, and custom label values of each LocalQueue that has metrics."""
        for local in self._cluster.local_queues.values():
            meta = local.metadata
            if self._options.shows(meta) and meta.key in self._cluster.local_queues:
                yield meta.key, local, (meta.name, meta.namespace), self._options.values("LocalQueue", meta)

    def _each_local_queue(self, value: Callable[[str], float]) -> Iterator[Row]:
        for key, _, name, custom in self._local_queues():
            yield (*name, *custom), value(key)

    def _local_queue_pending(self) -> Iterator[Row]:
        counts: Counter[str] = Counter()
        for each, queue, _ in self._queues():
            if self._admits(each):
                yield from _count_inadmissible(queue.pending, counts)
            yield None
        for key, local, name, custom in self._local_queues():
            held = self._state.queues.local_queues.get(key)
            waiting = len(held.items) if held is not None else 0
            if held is None or not held.open or not self._admits(local.spec.cluster_queue or ""):
                inadmissible = waiting
            else:
                inadmissible = min(waiting, counts[key])
            yield (*name, "active", *custom), waiting - inadmissible
            yield (*name, "inadmissible", *custom), inadmissible

    def _local_queue_finished(self) -> Iterator[Row]:
        counts: Counter[str] = Counter()
        for (_, local_queue), count in list(self._tallies.finished.items()):
            counts[local_queue] += count
        yield from self._each_local_queue(lambda key: counts[key])

    def _local_queue_admitted(self) -> Iterator[Row]:
        if "Workload" not in self._options.by_source:
            yield from self._each_local_queue(lambda key: self._state.questions.local_queue_counts(key).admitted)
            return
        found: dict[str, Counter[Values]] = {}
        for _, queue, _ in self._queues():
            for info in resting(tuple(queue.workloads.values())):
                if info is None:
                    yield None
                elif info.admitted:
                    values = self._options.values("Workload", info.workload.metadata)
                    found.setdefault(info.local_queue, Counter())[values] += 1
        for key, _, name, custom in self._local_queues():
            for values, count in found.get(key, Counter()).items():
                yield (*name, *values, *custom), count

    def _local_queue_status(self) -> Iterator[Row]:
        for _, local, name, custom in self._local_queues():
            active = "True" if local_queue_activity(local, self._cluster, self._state).active else "False"
            for each in ("True", "False", "Unknown"):
                yield (*name, each, *custom), float(each == active)

    def _local_queue_used(self, *, admitted_only: bool) -> Iterator[Row]:
        for key, _, name, custom in self._local_queues():
            for usage in self._state.questions.local_queue_usage(key, admitted_only=admitted_only):
                yield (*name, usage.flavor, usage.resource, *custom), amount(usage.resource, usage.total)

    def _local_queue_usage(self) -> Iterator[Row]:
        for key, local, name, custom in self._local_queues():
            queue = self._state.cluster_queues.get(local.spec.cluster_queue or "")
            usage = self._state.sharing.usage(queue, key) if queue is not None else None
            if queue is not None and usage is not None:
                yield (*name, queue.name, *custom), usage

    def _local_queue_unadmitted(self) -> Iterator[Row]:
        for (local_queue, *why), count in list(self._tallies.unadmitted.items()):
            local = self._cluster.local_queues.get(local_queue)
            if local is not None and self._options.shows(local.metadata):
                meta = local.metadata
                where = meta.name, meta.namespace, local.spec.cluster_queue or ""
                yield (*where, *why, *self._options.values("LocalQueue", meta)), count


def _count_inadmissible(pending: Pending, counts: Counter[str]) -> Iterator[None]:
    """Count the inadmissible Workloads of a ClusterQueue by LocalQueue."""
    counts.update(pending.inadmissible_members())
    for info in resting(tuple(pending.inadmissible.values())):
        if info is None:
            yield None
        else:
            counts[info.local_queue] += 1
