"""Gauges of queues and Cohorts: what the ledger and the queues of the leader hold at the moment of a scrape.

Names and labels are Kueue's. Nothing is counted here and nothing is kept, so the series of a deleted queue, flavor or
Cohort are not in the next scrape. No Workloads are walked, but for those that are inadmissible one by one, and for
custom labels of Workloads; such walks rest in between (`Steps`). Must never change anything.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.samples import Sample

from turnstile.api.clusterqueue import ClusterQueue as ApiClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.quantity import MAX_INT64
from turnstile.controllers.metrics.gauges import Gauges, Row, Rows, amount, gauge_of, meta_of, resting
from turnstile.controllers.metrics.localqueues import LocalQueueMetrics
from turnstile.controllers.metrics.series import Values
from turnstile.engine.quota.amounts import Amounts
from turnstile.engine.quota.shares import Share
from turnstile.engine.quota.tree import Node
from turnstile.http.exposition import Lazy, Steps

_STATES: Final = ("pending", "active", "terminating")


class QueueMetrics(Gauges):
    """The gauges of one term of leadership."""

    def collect(self) -> Iterator[Metric]:
        """The gauges as they are when each is read."""
        if not self._state.log.cycling:
            self._state.ledger.settle()
        yield from self._of_cluster_queues()
        if self._options.resources:
            yield from self._of_resources()
        if self._options.cohorts:
            yield from self._of_cohorts()
        if self._options.local_queues:
            sources = self._cluster, self._state, self._counted, self._tallies, self._options
            yield from LocalQueueMetrics(*sources).collect()

    # --- ClusterQueues ------------------------------------------------------------------------------------------------

    def _of_cluster_queues(self) -> Iterator[Metric]:
        custom = self._options.names("ClusterQueue")
        of_workload = self._options.names("Workload")
        queue = ("cluster_queue",)

        def gauge(name: str, text: str, labels: Values, rows: Rows) -> Metric:
            return gauge_of(name, text, (*queue, *labels, *custom), rows)

        yield gauge(
            "pending_workloads",
            "Workloads that wait: active ones will be tried in their turn, inadmissible ones after a change.",
            ("status", *of_workload),
            self._pending,
        )
        yield gauge(
            "pending_scheduling_hashes",
            "Classes of equal Workloads that wait in ClusterQueues with BestEffortFIFO.",
            ("status",),
            self._hashes,
        )
        yield gauge("finished_workloads", "Finished Workloads that exist still.", (), self._finished)
        yield gauge(
            "reserving_active_workloads",
            "Workloads that hold quota.",
            (),
            lambda: self._each_queue(lambda name: self._state.questions.queue_counts(name).reserving),
        )
        yield gauge("admitted_active_workloads", "Admitted Workloads.", of_workload, self._admitted)
        yield gauge("cluster_queue_status", "1 for the status of a ClusterQueue.", ("status",), self._status)
        if self._options.unadmitted:
            labels = "reason", "underlying_cause"
            yield gauge("unadmitted_workloads", "Workloads that are not admitted.", labels, self._unadmitted)
        if self._options.cohorts:
            cohorts = "parent_cohort", "root_cohort"
            yield gauge("cluster_queue_info", "The Cohorts of a ClusterQueue.", cohorts, self._info)
        yield self._heads()
        if self._counted.on:
            text = "Weighted share of what the ClusterQueue borrows; NaN for a weight of 0."
            yield gauge("cluster_queue_weighted_share", text, ("cohort",), self._shares)

    def _each_queue(self, value: Callable[[str], float]) -> Iterator[Row]:
        for name, _, custom in self._queues():
            yield (name, *custom), value(name)

    def _pending(self) -> Iterator[Row]:
        by_workload = "Workload" in self._options.by_source
        for name, queue, custom in self._queues():
            active, inadmissible = queue.pending.counts()
            admits = self._admits(name)
            if not admits:
                active, inadmissible = 0, active + inadmissible
            if not by_workload:
                yield (name, "active", *custom), active
                yield (name, "inadmissible", *custom), inadmissible
                continue
            found: Counter[tuple[str, Values]] = Counter()
            pending = queue.pending
            for info in resting((*pending.active.values(), *pending.inadmissible.values(), *pending.under_way)):
                if info is None:
                    yield None
                    continue
                status = "inadmissible" if not admits or pending.is_inadmissible(info) else "active"
                values = self._options.values("Workload", info.workload.metadata)
                found[status, values] += 1
            for (status, values), count in found.items():
                yield (name, status, *values, *custom), count

    def _heads(self) -> Metric:
        name = "turnstile_cluster_queue_head_wait_seconds"

        def steps() -> Steps:
            now = self._cluster.now.timestamp()
            for queue, held, _ in self._queues():
                under_way = held.pending.under_way
                head = under_way[0] if under_way else held.pending.peek()
                waited = max(0.0, now - head.order[1]) if head is not None else 0.0
                yield Sample(name, {"cluster_queue": queue}, waited)

        text = "Time since the Workload that is tried next joined its ClusterQueue; 0 without one."
        return Lazy(name, text, "gauge", steps)

    def _hashes(self) -> Iterator[Row]:
        for name, queue, custom in self._queues():
            pending = queue.pending
            if not pending.in_classes:
                continue
            active = {found for found, _ in pending.members if found not in pending.bulk_moved}
            inadmissible = {found for found, _ in pending.members if found in pending.bulk_moved}
            active |= {info.hash for info in pending.under_way if info.hashed}
            for info in resting(tuple(pending.inadmissible.values())):
                if info is None:
                    yield None
                elif info.hashed:
                    inadmissible.add(info.hash)
            if not self._admits(name):
                active, inadmissible = set(), active | inadmissible
            yield (name, "active", *custom), len(active - {""})
            yield (name, "inadmissible", *custom), len(inadmissible - {""})

    def _finished(self) -> Iterator[Row]:
        counts: Counter[str] = Counter()
        for (queue, local_queue), count in list(self._tallies.finished.items()):
            counts[queue or self._queue_of(local_queue)] += count
        yield from self._each_queue(lambda name: counts[name])

    def _queue_of(self, local_queue: str) -> str:
        local = self._cluster.local_queues.get(local_queue)
        return (local.spec.cluster_queue or "") if local is not None else ""

    def _admitted(self) -> Iterator[Row]:
        if "Workload" not in self._options.by_source:
            yield from self._each_queue(lambda name: self._state.questions.queue_counts(name).admitted)
            return
        for name, queue, custom in self._queues():
            found: Counter[Values] = Counter()
            for info in resting(tuple(queue.workloads.values())):
                if info is None:
                    yield None
                elif info.admitted:
                    found[self._options.values("Workload", info.workload.metadata)] += 1
            for values, count in found.items():
                yield (name, *values, *custom), count

    def _status(self) -> Iterator[Row]:
        for name, queue, custom in self._queues():
            status = "terminating" if queue.terminating else "active" if self._admits(name) else "pending"
            for each in _STATES:
                yield (name, each, *custom), float(each == status)

    def _unadmitted(self) -> Iterator[Row]:
        found: Counter[Values] = Counter()
        for (local_queue, *why), count in list(self._tallies.unadmitted.items()):
            found[self._queue_of(local_queue), *why] += count
        for values, count in found.items():
            meta = meta_of(self._cluster.cluster_queues.get(values[0]))
            if meta is not None:
                yield (*values, *self._options.values("ClusterQueue", meta)), count

    def _info(self) -> Iterator[Row]:
        for name, queue, custom in self._queues():
            yield (name, *self._above(queue.node), *custom), 1

    def _above(self, node: Node) -> tuple[str, str]:
        """Parent and root; no root in a cycle, the node's own name without a parent."""
        if node.parent is None:
            return "", "" if node.is_queue else node.name
        return node.parent.name, "" if self._state.ledger.cyclic(node) else node.root.name

    def _shares(self) -> Iterator[Row]:
        for name, queue, custom in self._queues():
            share = self._counted.get(ApiClusterQueue, name)
            if share is not None:
                yield (name, _parent(queue.node), *custom), _share(share)

    # --- resources of ClusterQueues -----------------------------------------------------------------------------------

    def _of_resources(self) -> Iterator[Metric]:
        custom = self._options.names("ClusterQueue")
        labels = ("cohort", "cluster_queue", "flavor", "resource", *custom)

        def gauge(name: str, text: str, rows: Rows) -> Metric:
            return gauge_of(f"cluster_queue_{name}", text, labels, rows)

        yield gauge("resource_reservation", "Reserved quota.", lambda: self._used(admitted_only=False))
        yield gauge("resource_usage", "Quota used by admitted Workloads.", lambda: self._used(admitted_only=True))
        yield gauge("nominal_quota", "Nominal quota.", lambda: self._quotas(lambda node: node.nominal))
        limit = self._quotas
        yield gauge("borrowing_limit", "Borrowing limit.", lambda: limit(lambda node: node.borrowing_limit))
        yield gauge("lending_limit", "Lending limit.", lambda: limit(lambda node: node.lending_limit))
        yield gauge_of(
            "cluster_queue_resource_pending",
            "What the Workloads that wait request together.",
            ("cluster_queue", "resource", *custom),
            self._requested,
        )

    def _used(self, *, admitted_only: bool) -> Iterator[Row]:
        for name, queue, custom in self._queues():
            for usage in self._state.questions.queue_usage(name, admitted_only=admitted_only):
                labels = (_parent(queue.node), name, usage.flavor, usage.resource, *custom)
                yield labels, amount(usage.resource, usage.total)

    def _quotas(self, quotas: Callable[[Node], Amounts]) -> Iterator[Row]:
        """Nominal quotas or limits of every flavor and resource; an absent limit is infinite."""
        for name, queue, custom in self._queues():
            found = quotas(queue.node)
            for pair in queue.node.nominal:
                labels = (_parent(queue.node), name, pair.flavor, pair.resource, *custom)
                yield labels, amount(pair.resource, found.get(pair, MAX_INT64))

    def _requested(self) -> Iterator[Row]:
        requested: dict[str, Counter[str]] = {}
        for local in list(self._state.queues.local_queues.values()):
            if local.open and local.requested:
                requested.setdefault(local.cluster_queue, Counter()).update(local.requested)
            yield None
        for name, queue, custom in self._queues():
            for resource in queue.group_of:
                yield (name, resource, *custom), amount(resource, requested.get(name, Counter())[resource])

    # --- Cohorts ------------------------------------------------------------------------------------------------------

    def _of_cohorts(self) -> Iterator[Metric]:
        custom = self._options.names("Cohort")

        def gauge(name: str, text: str, labels: Values, rows: Rows) -> Metric:
            return gauge_of(f"cohort_{name}", text, ("cohort", *labels, *custom), rows)

        yield gauge("info", "The Cohorts above a Cohort.", ("parent_cohort", "root_cohort"), self._cohort_info)
        amounts = "flavor", "resource"
        yield gauge("subtree_quota", "Quota of a Cohort and of all below it.", amounts, self._cohort_quota)
        text = "Quota reserved in the ClusterQueues below a Cohort."
        yield gauge("subtree_resource_reservations", text, amounts, self._cohort_reserved)
        yield gauge_of(
            "cohort_subtree_admitted_active_workloads",
            "Admitted Workloads in the ClusterQueues below a Cohort.",
            ("cohort", *self._options.names("ClusterQueue")),
            self._cohort_admitted,
        )
        if self._counted.on:
            text = "Weighted share of what the Cohort borrows; NaN for a weight of 0."
            yield gauge("weighted_share", text, (), self._cohort_shares)

    def _cohorts(self) -> Iterator[tuple[str, Node, Values]]:
        for name in list(self._state.ledger.cohorts):
            node = self._state.ledger.cohorts.get(name)
            if node is not None:
                yield name, node, self._options.values("Cohort", meta_of(self._cluster.cohorts.get(name)))

    def _cohort_info(self) -> Iterator[Row]:
        for name, node, custom in self._cohorts():
            yield (name, *self._above(node), *custom), 1

    def _cohort_quota(self) -> Iterator[Row]:
        for name, node, custom in self._cohorts():
            for pair, quota in list(node.subtree.items()):
                yield (name, pair.flavor, pair.resource, *custom), amount(pair.resource, quota)

    def _cohort_reserved(self) -> Iterator[Row]:
        """From who holds quota, as the usage of the tree is simulated on during a cycle."""
        total: dict[str, Amounts] = {}
        for name, queue, _ in self._queues():
            held = queue.held()
            for cohort in self._state.questions.cohorts_above(name):
                below = total.setdefault(cohort, {})
                for pair, value in held.items():
                    below[pair] = below.get(pair, 0) + value
            yield None
        for name, node, custom in self._cohorts():
            for pair in dict.fromkeys((*node.subtree, *total.get(name, ()))):
                value = total.get(name, {}).get(pair, 0)
                yield (name, pair.flavor, pair.resource, *custom), amount(pair.resource, value)

    def _cohort_admitted(self) -> Iterator[Row]:
        total: Counter[Values] = Counter()
        if "ClusterQueue" not in self._options.by_source:
            total.update({(name,): 0 for name, _, _ in self._cohorts()})
        for name, _, custom in self._queues():
            admitted = self._state.questions.queue_counts(name).admitted
            for cohort in self._state.questions.cohorts_above(name):
                total[cohort, *custom] += admitted
            yield None
        yield from total.items()

    def _cohort_shares(self) -> Iterator[Row]:
        for name, _, custom in self._cohorts():
            share = self._counted.get(Cohort, name)
            if share is not None:
                yield (name, *custom), _share(share)


def _parent(node: Node) -> str:
    return node.parent.name if node.parent is not None else ""


def _share(share: Share) -> float:
    return math.nan if share.infinite else share.value
