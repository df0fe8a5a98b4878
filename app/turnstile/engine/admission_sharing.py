"""Admission fair sharing in the state: lines ordered by the decayed usage of their LocalQueues.

What was consumed is kept here and in the status of LocalQueues, from which it is seeded once, so that it outlives the
process; penalties of workloads that hold quota are recalled from these. Must never read a clock.
"""

from collections.abc import Mapping

from turnstile.api.pods import Quantity
from turnstile.engine.instants import Instant, instant_or_zero
from turnstile.engine.options import AdmissionFairSharing
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.consumption import (
    Consumed,
    LineUsage,
    entry_penalty,
    from_amount,
    from_quantities,
    to_quantities,
    weighted,
)
from turnstile.engine.quota.clusterqueue import ClusterQueue as QuotaQueue
from turnstile.engine.quota.info import Info
from turnstile.engine.tables import Lines


class UsageSharing(Lines):
    """Lines by usage."""

    __slots__ = ()

    @property
    def usage_sharing(self) -> AdmissionFairSharing | None:
        """Its configuration, if it is on."""
        return self.options.usage_sharing

    def line_usage(self, queue: QuotaQueue, local_queue: str) -> float | None:
        """Usage of a LocalQueue that orders its ClusterQueue's line; None if usage does not count there."""
        sharing = self.usage_sharing
        if sharing is None or not queue.usage_based:
            return None
        line = self.lines.get(local_queue)
        local = self.local_queues.get(local_queue)
        weight = local.weight if local is not None else 1.0
        if line is None:
            return weighted({}, {}, sharing.resource_weights, weight)
        return weighted(line.consumed, line.penalty, sharing.resource_weights, weight)

    def order_lines(self, queue: ClusterQueue) -> None:
        """Arrange the line as the queue's spec wants it."""
        by_usage = self.usage_sharing is not None and queue.usage_based
        queue.pending.arrange(
            (lambda line: self.line_usage(queue, line) or 0.0) if by_usage else None,
            in_classes=queue.best_effort and self.options.gates.scheduling_equivalence_hashing,
        )

    def _line(self, local_queue: str) -> LineUsage:
        line = self.lines.get(local_queue)
        if line is None:
            line = self.lines[local_queue] = LineUsage()
        return line

    def set_consumed(self, local_queue: str, resources: Mapping[str, Quantity], last_update: Instant) -> None:
        """What a LocalQueue consumed until then, as its status has it. Raises InvalidValue."""
        line = self._line(local_queue)
        line.consumed = from_quantities(resources)
        line.last_update = last_update
        line.seeded = True
        line.inherited = False

    def consumed(self, local_queue: str) -> tuple[dict[str, str], Instant | None]:
        """What a LocalQueue consumed and when that was counted, for its status."""
        line = self.lines.get(local_queue)
        return (to_quantities(line.consumed), line.last_update) if line is not None else ({}, None)

    def last_sample(self, local_queue: str) -> Instant | None:
        """When a LocalQueue's usage was last sampled; None if it was not yet."""
        line = self.lines.get(local_queue)
        return line.sampled if line is not None else None

    def sample_usage(self, local_queue: str, now: Instant) -> float | None:
        """Let time work on a LocalQueue's usage; seconds until it is due again, None if usage is not counted at all or
        its ClusterQueue does not exist. To be called for every LocalQueue, whether or not usage orders its
        ClusterQueue, and then its status written from `consumed` if it is older than `last_sample`. While a cycle is
        under way, which sorts by usage, nothing is counted before its end: it is due again at once."""
        local = self.local_queues.get(local_queue)
        queue = self.cluster_queues.get(local.cluster_queue) if local is not None else None
        sharing = self.usage_sharing
        if queue is None or sharing is None:
            return None
        if self.cycling:
            self.deferred.append(lambda: self.sample_usage(local_queue, now))
            return 0.0
        line = self._line(local_queue)
        before = line.last_update
        due = line.sample(self._admitted_usage(queue, local_queue), now, sharing)
        line.seeded = True
        if line.last_update != before and queue.usage_based:
            self.epoch += 1
        self.took("sample_usage", (local_queue, now), {})
        return due

    def _admitted_usage(self, queue: ClusterQueue, local_queue: str) -> dict[str, int]:
        """By resource, also of those that are not in use."""
        line = queue.holders.get(local_queue)
        total = {resource: 0 for group in queue.api.spec.resource_groups for resource in group.covered_resources}
        for pair, amount in line.admitted_usage.items() if line is not None else ():
            total[pair.resource] = total.get(pair.resource, 0) + from_amount(pair.resource, amount)
        return total

    def push_penalty(self, info: Info, queue: ClusterQueue, now: Instant) -> None:
        """A workload was admitted: it counts before its usage shows. One that held quota already counted then."""
        sharing = self.usage_sharing
        if sharing is None or not queue.usage_based or info.reserved:
            return
        self._line(info.local_queue).push(info.key, self._penalty(info, queue, sharing), now)

    def _penalty(self, info: Info, queue: ClusterQueue, sharing: AdmissionFairSharing) -> Consumed:
        ignore = self.options.gates.quota_check_strategy and self.options.quota_check_strategy == "IgnoreUndeclared"
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
        sharing = self.usage_sharing
        queue = self.cluster_queues.get(info.cluster_queue)
        if sharing is None or queue is None or not queue.usage_based or info.evicted:
            return
        line = self._line(info.local_queue)
        since = now
        if info.admitted:
            admitted = info.condition("Admitted")
            since = instant_or_zero(admitted.last_transition_time) if admitted is not None else 0.0
            if not line.seeded or line.last_update is None or since <= line.last_update:
                return
        elif info.key in line.penalties:
            return
        line.push(info.key, self._penalty(info, queue, sharing), since)
        if info.admitted:
            self.settle_penalty(info, since)

    def settle_penalty(self, info: Info, now: Instant) -> None:
        """The workload runs: its usage shows now."""
        sharing = self.usage_sharing
        line = self.lines.get(info.local_queue)
        queue = self.cluster_queues.get(info.cluster_queue)
        if sharing is None or line is None or queue is None or info.key not in line.penalties:
            return
        current = self._admitted_usage(queue, info.local_queue)
        self._line(info.local_queue).settle(info.key, current, now, sharing.usage_half_life)

    def drop_penalty(self, info: Info) -> None:
        """The workload is not going to run."""
        line = self.lines.get(info.local_queue)
        if line is not None and info.key in line.penalties:
            self._line(info.local_queue).penalties.pop(info.key)
