"""Admission fair sharing: the Workloads of a ClusterQueue in the order of the decayed usage of their LocalQueues.

Consumption is kept here and in the status of LocalQueues, from which it is seeded once, so that it outlives the
process; penalties of Workloads that hold quota are recalled from these. Must never read a clock.
"""

from collections.abc import Mapping

from turnstile.api.localqueue import AdmissionFairSharingStatus
from turnstile.api.pods import Quantity
from turnstile.engine.instants import Instant, instant_or_zero
from turnstile.engine.options import AdmissionFairSharing, Options
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.consumption import (
    Consumed,
    LocalQueueUsage,
    entry_penalty,
    from_amount,
    from_quantities,
    to_quantities,
    weighted,
)
from turnstile.engine.queue.localqueue import LocalQueue
from turnstile.engine.quota.clusterqueue import ClusterQueue as QuotaQueue
from turnstile.engine.quota.info import Info


class UsageSharing:
    """Consumption of each LocalQueue. `cluster_queues` are those of the ledger, `local_queues` those that exist."""

    __slots__ = ("_cluster_queues", "_local_queues", "_options", "config", "usages")

    def __init__(
        self, cluster_queues: Mapping[str, ClusterQueue], local_queues: Mapping[str, LocalQueue], options: Options
    ) -> None:
        self._cluster_queues = cluster_queues
        self._local_queues = local_queues
        self._options = options
        self.config: AdmissionFairSharing | None = options.usage_sharing
        """The configuration, if admission fair sharing is on."""
        self.usages: dict[str, LocalQueueUsage] = {}
        """By LocalQueue."""

    def usage(self, queue: QuotaQueue, local_queue: str) -> float | None:
        """Usage of a LocalQueue that orders the Workloads of its ClusterQueue; None if usage does not count there."""
        sharing = self.config
        if sharing is None or not queue.usage_based:
            return None
        known = self.usages.get(local_queue)
        local = self._local_queues.get(local_queue)
        weight = local.weight if local is not None else 1.0
        if known is None:
            return weighted({}, {}, sharing.resource_weights, weight)
        return weighted(known.consumed, known.penalty, sharing.resource_weights, weight)

    def arrange(self, queue: ClusterQueue) -> None:
        """Order the Workloads that wait in a ClusterQueue as its spec wants it."""
        by_usage = self.config is not None and queue.usage_based
        queue.pending.arrange(
            (lambda local_queue: self.usage(queue, local_queue) or 0.0) if by_usage else None,
            in_classes=queue.best_effort and self._options.gates.scheduling_equivalence_hashing,
        )

    def of(self, local_queue: str) -> LocalQueueUsage:
        """The usage of a LocalQueue, which is nothing at first."""
        known = self.usages.get(local_queue)
        if known is None:
            known = self.usages[local_queue] = LocalQueueUsage()
        return known

    def forget(self, local_queue: str) -> None:
        """A LocalQueue is gone: its usage is not that of the next of its name."""
        self.usages.pop(local_queue, None)

    def seed(self, local_queue: str, seen: AdmissionFairSharingStatus) -> bool:
        """Take over what the status of a LocalQueue says, unless its usage is counted here already. Whether it was
        taken over. Raises InvalidValue."""
        if self.config is None or self.of(local_queue).seeded:
            return False
        self.set_consumed(local_queue, seen.consumed_resources, instant_or_zero(seen.last_update))
        self.of(local_queue).inherited = True
        return True

    def set_consumed(self, local_queue: str, resources: Mapping[str, Quantity], last_update: Instant) -> None:
        """Consumption of a LocalQueue until then, as its status has it. Raises InvalidValue."""
        known = self.of(local_queue)
        known.consumed = from_quantities(resources)
        known.last_update = last_update
        known.seeded = True
        known.inherited = False

    def consumed(self, local_queue: str) -> tuple[dict[str, str], Instant | None]:
        """Consumption of a LocalQueue and the time when it was counted, for its status."""
        known = self.usages.get(local_queue)
        return (to_quantities(known.consumed), known.last_update) if known is not None else ({}, None)

    def last_sample(self, local_queue: str) -> Instant | None:
        """When a LocalQueue's usage was last sampled; None if it was not yet."""
        known = self.usages.get(local_queue)
        return known.sampled if known is not None else None

    def counted(self, local_queue: str) -> ClusterQueue | None:
        """The ClusterQueue of a LocalQueue whose usage is counted; None if it is not counted, or has none."""
        local = self._local_queues.get(local_queue)
        if local is None or self.config is None:
            return None
        return self._cluster_queues.get(local.cluster_queue)

    def sample(self, local_queue: str, queue: ClusterQueue, now: Instant) -> tuple[float, bool]:
        """Let time work on the usage of a LocalQueue that is `counted` there: seconds until it is due again, and
        whether that changed the order of Workloads."""
        assert self.config is not None
        known = self.of(local_queue)
        before = known.last_update
        due = known.sample(self._admitted_usage(queue, local_queue), now, self.config)
        known.seeded = True
        return due, known.last_update != before and queue.usage_based

    def _admitted_usage(self, queue: ClusterQueue, local_queue: str) -> dict[str, int]:
        """By resource, also of those that are not in use."""
        held = queue.holders.get(local_queue)
        total = {resource: 0 for group in queue.api.spec.resource_groups for resource in group.covered_resources}
        for pair, amount in held.admitted_usage.items() if held is not None else ():
            total[pair.resource] = total.get(pair.resource, 0) + from_amount(pair.resource, amount)
        return total

    def push_penalty(self, info: Info, queue: ClusterQueue, now: Instant) -> None:
        """A workload was admitted: it counts before its usage shows. One that held quota already counted then."""
        sharing = self.config
        if sharing is None or not queue.usage_based or info.reserved:
            return
        self.of(info.local_queue).push(info.key, self._penalty(info, queue, sharing), now)

    def _penalty(self, info: Info, queue: ClusterQueue, sharing: AdmissionFairSharing) -> Consumed:
        ignore = self._options.gates.quota_check_strategy and self._options.quota_check_strategy == "IgnoreUndeclared"
        requests: dict[str, int] = {}
        for item in info.totals:
            for resource, amount in item.requests.items():
                if not ignore or resource in queue.group_of:
                    requests[resource] = requests.get(resource, 0) + from_amount(resource, amount)
        return entry_penalty(requests, sharing)

    def recall_penalty(self, info: Info, now: Instant) -> None:
        """A workload that holds quota is seen for the first time, so another process gave it: what it counts for is
        not lost with that process. One that is not admitted yet has its penalty open. One that was admitted after the
        usage of its LocalQueue was last written down is not in there: its penalty is settled as of then."""
        sharing = self.config
        queue = self._cluster_queues.get(info.cluster_queue)
        if sharing is None or queue is None or not queue.usage_based or info.evicted:
            return
        known = self.of(info.local_queue)
        since = now
        if info.admitted:
            admitted = info.condition("Admitted")
            since = instant_or_zero(admitted.last_transition_time) if admitted is not None else 0.0
            if not known.seeded or known.last_update is None or since <= known.last_update:
                return
        elif info.key in known.penalties:
            return
        known.push(info.key, self._penalty(info, queue, sharing), since)
        if info.admitted:
            self.settle_penalty(info, since)

    def settle_penalty(self, info: Info, now: Instant) -> None:
        """The workload runs: its usage shows now."""
        sharing = self.config
        known = self.usages.get(info.local_queue)
        queue = self._cluster_queues.get(info.cluster_queue)
        if sharing is None or known is None or queue is None or info.key not in known.penalties:
            return
        current = self._admitted_usage(queue, info.local_queue)
        self.of(info.local_queue).settle(info.key, current, now, sharing.usage_half_life)

    def drop_penalty(self, info: Info) -> None:
        """The workload is not going to run."""
        known = self.usages.get(info.local_queue)
        if known is not None and info.key in known.penalties:
            self.of(info.local_queue).penalties.pop(info.key)
