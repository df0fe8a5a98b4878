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

from app.api.clusterqueue import ClusterQueue as ApiClusterQueue
from app.api.cohort import Cohort
from app.api.localqueue import LocalQueue
from app.api.meta import ObjectMeta
from app.api.quantity import MAX_INT64
from app.controllers.clusterview import ClusterView
from app.controllers.ledgerfeed import LedgerBooks
from app.controllers.metriclabels import MetricOptions
from app.controllers.queues import local_queue_activity
from app.controllers.series import Values, labelled
from app.controllers.tallies import Tallies
from app.engine import State
from app.engine.amounts import Amounts
from app.engine.fairness import Share
from app.engine.info import Info
from app.engine.pending import Pending
from app.engine.queues import ClusterQueue
from app.engine.tree import Node
from app.http.exposition import Lazy, Steps

Row = tuple[Values, float] | None
"""Label values and value of a series; None to rest."""
Rows = Callable[[], Iterator[Row]]

REST: Final = 256
"""Workloads that are looked at between two rests."""

_STATES: Final = ("pending", "active", "terminating")


def amount(resource: str, value: int) -> float:
    """An amount of the engine as metrics have it: cores of cpu, infinite if it is unlimited."""
    if value >= MAX_INT64:
        return math.inf
    return value / 1000 if resource == "cpu" else float(value)


class QueueMetrics:
    """The gauges of one term of leadership."""

    def __init__(
        self, cluster: ClusterView, state: State, books: LedgerBooks, tallies: Tallies, options: MetricOptions
    ) -> None:
        self._cluster = cluster
        self._state = state
        self._books = books
        self._tallies = tallies
        self._options = options

    def collect(self) -> Iterator[Metric]:
        """The gauges as they are when each is read."""
        if not self._state.cycling:
            self._state.ledger.settle()
        yield from self._of_cluster_queues()
        if self._options.resources:
            yield from self._of_resources()
        if self._options.cohorts:
            yield from self._of_cohorts()
        if self._options.local_queues:
            yield from self._of_local_queues()

    # --- ClusterQueues ------------------------------------------------------------------------------------------------

    def _of_cluster_queues(self) -> Iterator[Metric]:
        custom = self._options.names("ClusterQueue")
        of_workload = self._options.names("Workload")
        queue = ("cluster_queue",)

        def gauge(name: str, text: str, labels: Values, rows: Rows) -> Metric:
            return _gauge(name, text, (*queue, *labels, *custom), rows)

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
            lambda: self._each_queue(lambda name: self._state.queue_counts(name).reserving),
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
        if self._books.fair_sharing:
            text = "Weighted share of what the ClusterQueue borrows; NaN for a weight of 0."
            yield gauge("cluster_queue_weighted_share", text, ("cohort",), self._shares)

    def _queues(self) -> Iterator[tuple[str, ClusterQueue, Values]]:
        """Name, queue and custom label values of each ClusterQueue."""
        for name in list(self._state.cluster_queues):
            queue = self._state.cluster_queues.get(name)
            if queue is not None:
                meta = _meta(self._cluster.cluster_queues.get(name)) or queue.api.metadata
                yield name, queue, self._options.values("ClusterQueue", meta)

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
            for info in _resting((*pending.active.values(), *pending.inadmissible.values(), *pending.under_way)):
                if info is None:
                    yield None
                    continue
                parked = not admits or pending.is_parked(info)
                values = self._options.values("Workload", info.workload.metadata)
                found["inadmissible" if parked else "active", values] += 1
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

    def _admits(self, name: str) -> bool:
        return self._state.active_reason(name)[0]

    def _hashes(self) -> Iterator[Row]:
        for name, queue, custom in self._queues():
            pending = queue.pending
            if not pending.in_classes:
                continue
            active = {found for found, _ in pending.members if found not in pending.bulk_moved}
            parked = {found for found, _ in pending.members if found in pending.bulk_moved}
            active |= {info.hash for info in pending.under_way if info.hashed}
            for info in _resting(tuple(pending.inadmissible.values())):
                if info is None:
                    yield None
                elif info.hashed:
                    parked.add(info.hash)
            if not self._admits(name):
                active, parked = set(), active | parked
            yield (name, "active", *custom), len(active - {""})
            yield (name, "inadmissible", *custom), len(parked - {""})

    def _finished(self) -> Iterator[Row]:
        counts: Counter[str] = Counter()
        for (queue, line), count in list(self._tallies.finished.items()):
            counts[queue or self._queue_of(line)] += count
        yield from self._each_queue(lambda name: counts[name])

    def _queue_of(self, line: str) -> str:
        local = self._cluster.local_queues.get(line)
        return (local.spec.cluster_queue or "") if local is not None else ""

    def _admitted(self) -> Iterator[Row]:
        if "Workload" not in self._options.by_source:
            yield from self._each_queue(lambda name: self._state.queue_counts(name).admitted)
            return
        for name, queue, custom in self._queues():
            found: Counter[Values] = Counter()
            for info in _resting(tuple(queue.workloads.values())):
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
        for (line, *why), count in list(self._tallies.unadmitted.items()):
            found[self._queue_of(line), *why] += count
        for values, count in found.items():
            meta = _meta(self._cluster.cluster_queues.get(values[0]))
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
            share = self._books.share(ApiClusterQueue, name)
            if share is not None:
                yield (name, _parent(queue.node), *custom), _share(share)

    # --- resources of ClusterQueues -----------------------------------------------------------------------------------

    def _of_resources(self) -> Iterator[Metric]:
        custom = self._options.names("ClusterQueue")
        labels = ("cohort", "cluster_queue", "flavor", "resource", *custom)

        def gauge(name: str, text: str, rows: Rows) -> Metric:
            return _gauge(f"cluster_queue_{name}", text, labels, rows)

        yield gauge("resource_reservation", "Reserved quota.", lambda: self._used(admitted_only=False))
        yield gauge("resource_usage", "Quota used by admitted Workloads.", lambda: self._used(admitted_only=True))
        yield gauge("nominal_quota", "Nominal quota.", lambda: self._quotas(lambda node: node.nominal))
        limit = self._quotas
        yield gauge("borrowing_limit", "Borrowing limit.", lambda: limit(lambda node: node.borrowing_limit))
        yield gauge("lending_limit", "Lending limit.", lambda: limit(lambda node: node.lending_limit))
        yield _gauge(
            "cluster_queue_resource_pending",
            "What the Workloads that wait request together.",
            ("cluster_queue", "resource", *custom),
            self._requested,
        )

    def _used(self, *, admitted_only: bool) -> Iterator[Row]:
        for name, queue, custom in self._queues():
            for usage in self._state.queue_usage(name, admitted_only=admitted_only):
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
        for local in list(self._state.local_queues.values()):
            if local.open and local.requested:
                requested.setdefault(local.cluster_queue, Counter()).update(local.requested)
        for name, queue, custom in self._queues():
            for resource in queue.group_of:
                yield (name, resource, *custom), amount(resource, requested.get(name, Counter())[resource])

    # --- Cohorts ------------------------------------------------------------------------------------------------------

    def _of_cohorts(self) -> Iterator[Metric]:
        custom = self._options.names("Cohort")

        def gauge(name: str, text: str, labels: Values, rows: Rows) -> Metric:
            return _gauge(f"cohort_{name}", text, ("cohort", *labels, *custom), rows)

        yield gauge("info", "The Cohorts above a Cohort.", ("parent_cohort", "root_cohort"), self._cohort_info)
        amounts = "flavor", "resource"
        yield gauge("subtree_quota", "Quota of a Cohort and of all below it.", amounts, self._cohort_quota)
        text = "Quota reserved in the ClusterQueues below a Cohort."
        yield gauge("subtree_resource_reservations", text, amounts, self._cohort_reserved)
        yield _gauge(
            "cohort_subtree_admitted_active_workloads",
            "Admitted Workloads in the ClusterQueues below a Cohort.",
            ("cohort", *self._options.names("ClusterQueue")),
            self._cohort_admitted,
        )
        if self._books.fair_sharing:
            text = "Weighted share of what the Cohort borrows; NaN for a weight of 0."
            yield gauge("weighted_share", text, (), self._cohort_shares)

    def _cohorts(self) -> Iterator[tuple[str, Node, Values]]:
        for name in list(self._state.ledger.cohorts):
            node = self._state.ledger.cohorts.get(name)
            if node is not None:
                yield name, node, self._options.values("Cohort", _meta(self._cluster.cohorts.get(name)))

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
            for cohort in self._state.cohorts_above(name):
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
            admitted = self._state.queue_counts(name).admitted
            for cohort in self._state.cohorts_above(name):
                total[cohort, *custom] += admitted
            yield None
        yield from total.items()

    def _cohort_shares(self) -> Iterator[Row]:
        for name, _, custom in self._cohorts():
            share = self._books.share(Cohort, name)
            if share is not None:
                yield (name, *custom), _share(share)

    # --- LocalQueues --------------------------------------------------------------------------------------------------

    def _of_local_queues(self) -> Iterator[Metric]:
        custom, of_workload = self._options.names("LocalQueue"), self._options.names("Workload")

        def gauge(name: str, text: str, labels: Values, rows: Rows) -> Metric:
            return _gauge(f"local_queue_{name}", text, ("name", "namespace", *labels, *custom), rows)

        yield gauge("pending_workloads", "Workloads that wait.", ("status",), self._line_pending)
        yield gauge("finished_workloads", "Finished Workloads that exist still.", (), self._line_finished)
        yield gauge(
            "reserving_active_workloads",
            "Workloads that hold quota.",
            (),
            lambda: self._each_line(lambda key: self._state.local_queue_counts(key).reserving),
        )
        yield gauge("admitted_active_workloads", "Admitted Workloads.", of_workload, self._line_admitted)
        yield gauge("status", "1 for the status of the Active condition.", ("active",), self._line_status)
        amounts = "flavor", "resource"
        reserved = "Quota reserved by the Workloads of a LocalQueue."
        yield gauge("resource_reservation", reserved, amounts, lambda: self._line_used(admitted_only=False))
        used = "Quota used by the admitted Workloads of a LocalQueue."
        yield gauge("resource_usage", used, amounts, lambda: self._line_used(admitted_only=True))
        if self._state.usage_sharing is not None:
            text = "Usage that orders the LocalQueues of a ClusterQueue, over their weight."
            yield gauge("admission_fair_sharing_usage", text, ("cluster_queue",), self._line_usage)
        if self._options.unadmitted:
            labels = "cluster_queue", "reason", "underlying_cause"
            yield gauge("unadmitted_workloads", "Workloads that are not admitted.", labels, self._line_unadmitted)

    def _lines(self) -> Iterator[tuple[str, LocalQueue, Values, Values]]:
        """Key, object, name and namespace, and custom label values of each LocalQueue that has metrics."""
        for local in self._cluster.local_queues.values():
            meta = local.metadata
            if self._options.shows(meta) and meta.key in self._cluster.local_queues:
                yield meta.key, local, (meta.name, meta.namespace), self._options.values("LocalQueue", meta)

    def _each_line(self, value: Callable[[str], float]) -> Iterator[Row]:
        for key, _, name, custom in self._lines():
            yield (*name, *custom), value(key)

    def _line_pending(self) -> Iterator[Row]:
        parked: Counter[str] = Counter()
        for each, queue, _ in self._queues():
            if self._admits(each):
                yield from _count_parked(queue.pending, parked)
        for key, local, name, custom in self._lines():
            held = self._state.local_queues.get(key)
            waiting = len(held.items) if held is not None else 0
            if held is None or not held.open or not self._admits(local.spec.cluster_queue or ""):
                inadmissible = waiting
            else:
                inadmissible = min(waiting, parked[key])
            yield (*name, "active", *custom), waiting - inadmissible
            yield (*name, "inadmissible", *custom), inadmissible

    def _line_finished(self) -> Iterator[Row]:
        counts: Counter[str] = Counter()
        for (_, line), count in list(self._tallies.finished.items()):
            counts[line] += count
        yield from self._each_line(lambda key: counts[key])

    def _line_admitted(self) -> Iterator[Row]:
        if "Workload" not in self._options.by_source:
            yield from self._each_line(lambda key: self._state.local_queue_counts(key).admitted)
            return
        found: dict[str, Counter[Values]] = {}
        for _, queue, _ in self._queues():
            for info in _resting(tuple(queue.workloads.values())):
                if info is None:
                    yield None
                elif info.admitted:
                    values = self._options.values("Workload", info.workload.metadata)
                    found.setdefault(info.local_queue, Counter())[values] += 1
        for key, _, name, custom in self._lines():
            for values, count in found.get(key, Counter()).items():
                yield (*name, *values, *custom), count

    def _line_status(self) -> Iterator[Row]:
        for _, local, name, custom in self._lines():
            active = "True" if local_queue_activity(local, self._cluster, self._books).active else "False"
            for each in ("True", "False", "Unknown"):
                yield (*name, each, *custom), float(each == active)

    def _line_used(self, *, admitted_only: bool) -> Iterator[Row]:
        for key, _, name, custom in self._lines():
            for usage in self._state.local_queue_usage(key, admitted_only=admitted_only):
                yield (*name, usage.flavor, usage.resource, *custom), amount(usage.resource, usage.total)

    def _line_usage(self) -> Iterator[Row]:
        for key, local, name, custom in self._lines():
            queue = self._state.cluster_queues.get(local.spec.cluster_queue or "")
            usage = self._state.line_usage(queue, key) if queue is not None else None
            if queue is not None and usage is not None:
                yield (*name, queue.name, *custom), usage

    def _line_unadmitted(self) -> Iterator[Row]:
        for (line, *why), count in list(self._tallies.unadmitted.items()):
            local = self._cluster.local_queues.get(line)
            if local is not None and self._options.shows(local.metadata):
                meta = local.metadata
                where = meta.name, meta.namespace, local.spec.cluster_queue or ""
                yield (*where, *why, *self._options.values("LocalQueue", meta)), count


def _gauge(name: str, text: str, labels: Values, rows: Rows) -> Metric:
    name = f"kueue_{name}"

    def steps() -> Steps:
        for row in rows():
            yield Sample(name, labelled(labels, row[0]), row[1]) if row is not None else None

    return Lazy(name, text, "gauge", steps)


def _resting(infos: tuple[Info, ...]) -> Iterator[Info | None]:
    """The Workloads, with a rest after every few."""
    for count, info in enumerate(infos, 1):
        yield info
        if count % REST == 0:
            yield None


def _count_parked(pending: Pending, parked: Counter[str]) -> Iterator[None]:
    """Count those that are inadmissible by LocalQueue."""
    parked.update(pending.parked_members())
    for info in _resting(tuple(pending.inadmissible.values())):
        if info is None:
            yield None
        else:
            parked[info.local_queue] += 1


def _meta(value: ApiClusterQueue | Cohort | None) -> ObjectMeta | None:
    return value.metadata if value is not None else None


def _parent(node: Node) -> str:
    return node.parent.name if node.parent is not None else ""


def _share(share: Share) -> float:
    return math.nan if share.infinite else share.value
