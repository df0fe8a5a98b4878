"""Answers for people and writers of statuses: counts, usage, why a queue is inactive, why a Workload waits.

They may ask in the middle of a cycle: the answers come from who holds quota and who waits, never from the usage of the
tree. Shares alone come from there, and are to be asked for between cycles. Must never change anything.
"""

from collections.abc import Sequence
from typing import NamedTuple

from turnstile.engine.causes import Cause, Inactive
from turnstile.engine.log import Log
from turnstile.engine.options import Options
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.queues import Queues
from turnstile.engine.quota import shares
from turnstile.engine.quota.amounts import Amounts, bounded
from turnstile.engine.quota.ledger import Ledger
from turnstile.engine.quota.tree import standing
from turnstile.engine.reasons import MISCONFIGURED, PENDING_EVALUATION, SUSPENDED, WAITING_FOR_QUOTA, Figure, legacy


class Counts(NamedTuple):
    """Workloads of a queue; reserving ones include the admitted ones."""

    pending: int
    reserving: int
    admitted: int


class FlavorUsage(NamedTuple):
    """Usage of one resource in one flavor: amounts in the engine's units, within int64."""

    flavor: str
    resource: str
    total: int
    borrowed: int


class Activity(NamedTuple):
    """The Active condition of a queue: whether it may admit, with Kueue's reason and message."""

    active: bool
    reason: str
    message: str


class Why(NamedTuple):
    """Why a workload waits: reason and message of its QuotaReserved condition, and the amounts, where they are the
    reason."""

    reason: str
    message: str
    figures: Sequence[Figure] = ()


class Questions:
    """Answers from the queues and the ledger of a state."""

    __slots__ = ("_ledger", "_log", "_observable", "_queues")

    def __init__(self, queues: Queues, ledger: Ledger[ClusterQueue], log: Log, options: Options) -> None:
        self._queues = queues
        self._ledger = ledger
        self._log = log
        self._observable = options.gates.unadmitted_workloads_observability

    def queue_counts(self, cluster_queue: str) -> Counts:
        """Workloads of a ClusterQueue; zeros if there is none of that name."""
        queue = self._ledger.cluster_queues.get(cluster_queue)
        if queue is None:
            return Counts(0, 0, 0)
        return Counts(len(queue.pending), len(queue.workloads), sum(held.admitted for held in queue.holders.values()))

    def local_queue_counts(self, key: str) -> Counts:
        """Workloads of a LocalQueue (`namespace/name`)."""
        local = self._queues.local_queues.get(key)
        queue = self._ledger.cluster_queues.get(local.cluster_queue) if local is not None else None
        held = queue.holders.get(key) if queue is not None else None
        pending = len(local.items) if local is not None else 0
        return Counts(pending, held.count, held.admitted) if held is not None else Counts(pending, 0, 0)

    def queue_usage(self, cluster_queue: str, *, admitted_only: bool = False) -> list[FlavorUsage]:
        """Usage of every flavor and resource of a ClusterQueue, in the order of its spec, with the borrowed part."""
        queue = self._ledger.cluster_queues.get(cluster_queue)
        if queue is None:
            return []
        return self._usages(queue, queue.held(admitted_only=admitted_only), borrowed=True)

    def local_queue_usage(self, key: str, *, admitted_only: bool = False) -> list[FlavorUsage]:
        """Usage of a LocalQueue by every flavor and resource of its ClusterQueue; `borrowed` is 0."""
        local = self._queues.local_queues.get(key)
        queue = self._ledger.cluster_queues.get(local.cluster_queue) if local is not None else None
        if queue is None:
            return []
        local_queue = queue.holders.get(key)
        held: Amounts = {}
        if local_queue is not None:
            held = local_queue.admitted_usage if admitted_only else local_queue.usage
        return self._usages(queue, held, borrowed=False)

    def _usages(self, queue: ClusterQueue, held: Amounts, *, borrowed: bool) -> list[FlavorUsage]:
        pair_of = self._ledger.catalog.pair
        found = []
        for group in queue.api.spec.resource_groups:
            for flavor in group.flavors:
                for resource in flavor.resources:
                    pair = pair_of(flavor.name, resource.name)
                    total = held.get(pair, 0)
                    nominal, _, _ = standing(queue.node, pair)
                    over = max(0, total - nominal) if borrowed and queue.node.parent else 0
                    found.append(FlavorUsage(flavor.name, resource.name, bounded(total), bounded(over)))
        return found

    def cohorts_above(self, cluster_queue: str) -> list[str]:
        """Names of the Cohorts above a ClusterQueue, nearest first; none if they form a cycle."""
        queue = self._ledger.cluster_queues.get(cluster_queue)
        if queue is None or self._ledger.cyclic(queue.node):
            return []
        return [cohort.name for cohort in queue.node.ancestors()]

    def weighted_share(self, name: str, *, cohort: bool) -> shares.Share | None:
        """Weighted share of a ClusterQueue or Cohort; None if there is none of that name, or while a
        cycle is under way. In a cycle of Cohorts no ClusterQueue borrows."""
        queue = None if cohort else self._ledger.cluster_queues.get(name)
        node = self._ledger.cohorts.get(name) if cohort else queue.node if queue is not None else None
        if node is None or self._log.cycling:
            return None
        if self._ledger.cyclic(node):
            return shares.ZERO
        self._ledger.settle()
        return shares.share(node)

    def active_reason(self, cluster_queue: str) -> Activity:
        """The Active condition of a ClusterQueue."""
        queue = self._ledger.cluster_queues.get(cluster_queue)
        if queue is None:
            return Activity(active=False, reason="NotFound", message="ClusterQueue not found")
        if queue.terminating:
            message = f"Can't admit new workloads; {Inactive.TERMINATING.says()}"
            return Activity(active=False, reason="Terminating", message=message)
        problems = list(queue.problems)
        if not self._log.cycling:
            self._ledger.settle()
        if fault := self._ledger.fault_above(queue.node):
            # Kueue has no reason of its own for this, and so it is the one it keeps for what has none.
            problems.append(("Unknown", fault))
        if not problems:
            return Activity(active=True, reason="Ready", message="Can admit new workloads")
        message = f"Can't admit new workloads: {', '.join(text for _, text in problems)}."
        return Activity(active=False, reason=problems[0][0], message=message)

    def pending(self, cluster_queue: str) -> list[str]:
        """Keys of all that wait in a ClusterQueue: the active ones in the order they will be tried, then the others."""
        queue = self._ledger.cluster_queues.get(cluster_queue)
        if queue is None:
            return []
        in_order = queue.pending.in_order()
        inadmissible = sorted(queue.pending.inadmissible_infos(), key=lambda info: info.order)
        return [info.key for info in (*queue.pending.under_way, *in_order, *inadmissible)]

    def comes_first(self, cluster_queue: str) -> str | None:
        """Key of the Workload that is tried before the others of its ClusterQueue, or of its LocalQueue where usage
        orders them, because it waits for the victims of its preemption."""
        queue = self._ledger.cluster_queues.get(cluster_queue)
        return queue.pending.first if queue is not None else None

    def waits(self, key: str) -> Why | None:
        """Why a workload that waits is not being looked at: what its queues say, or that an equal one failed. None
        if it is active, or does not wait."""
        info = self._queues.waiting.get(key)
        if info is None:
            return None
        name = info.workload.spec.queue_name or ""
        local = self._queues.local_queues[info.local_queue]
        misconfigured, suspended = (MISCONFIGURED, SUSPENDED) if self._observable else ("Inadmissible", "Inadmissible")
        if local.api is None:
            return Why(misconfigured, Cause.LOCAL_QUEUE_MISSING.says(queue=name))
        if not local.open:
            return Why(suspended, Cause.LOCAL_QUEUE_STOPPED.says(queue=name))
        queue = self._ledger.cluster_queues.get(local.cluster_queue)
        if queue is None:
            return Why(misconfigured, Cause.CLUSTER_QUEUE_MISSING.says(queue=local.cluster_queue))
        if not queue.active or (self._ledger.broken and self._ledger.cyclic(queue.node)):
            return Why(suspended, Cause.CLUSTER_QUEUE_INACTIVE.says(queue=queue.name))
        kept_for = queue.pending.active.get(queue.pending.kept_for)
        if kept_for is not None and kept_for.order < info.order:
            kept = Cause.KEPT_FOR_ANOTHER.says(queue=queue.name)
            return Why(WAITING_FOR_QUOTA if self._observable else legacy(WAITING_FOR_QUOTA), kept)
        reason = queue.pending.bulk_moved.get(info.hash) if queue.pending.bulk_moved else None
        if reason is not None and queue.pending.is_inadmissible(info) and key not in self._queues.decisions:
            return Why(reason if self._observable else legacy(reason), Cause.EQUAL_FAILED.says())
        return None

    def why(self, key: str) -> Why | None:
        """The last known reason why a workload waits: from its queues, else from the last cycle that looked at it,
        else that it was not looked at yet. None if it does not wait."""
        if key not in self._queues.waiting:
            return None
        found = self.waits(key)
        if found is not None:
            return found
        decision = self._queues.decisions.get(key)
        if decision is not None and decision.condition_reason:
            return Why(decision.condition_reason, decision.message, decision.figures)
        reason = PENDING_EVALUATION if self._observable else legacy(PENDING_EVALUATION)
        return Why(reason, Cause.NOT_TRIED.says())

    def holders(self, flavor: str, resource: str, cluster_queue: str) -> list[tuple[str, int]]:
        """Who holds a resource of a flavor in the tree of a ClusterQueue: names and amounts, the largest first."""
        queue = self._ledger.cluster_queues.get(cluster_queue)
        if queue is None or self._ledger.cyclic(queue.node):
            return []
        pair = self._ledger.catalog.pair(flavor, resource)
        nodes = queue.node.root.walk_queues()  # not their usage: a cycle may be trying something on it
        held = [(node.name, self._ledger.cluster_queues[node.name].held().get(pair, 0)) for node in nodes]
        return sorted((item for item in held if item[1] > 0), key=lambda item: (-item[1], item[0]))
