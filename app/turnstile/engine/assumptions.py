"""What a cycle decided and the API does not show yet: assumed admissions, expected evictions, and the end of the cycle.

Called by cycles, and by the outcomes of writes. Must never decide.
"""

from turnstile.api.errors import InvalidValue
from turnstile.engine.decisions import Decision
from turnstile.engine.instants import Instant
from turnstile.engine.questions import Questions
from turnstile.engine.queue.admissible import is_admissible
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.quota.info import Info
from turnstile.engine.tables import Assumed


class Assumptions(Questions):
    """The state as cycles change it."""

    __slots__ = ()

    def take_back(self, key: str, now: Instant) -> None:
        """Undo an assumed admission."""
        assumed = self.assumed.get(key)
        if assumed is None:
            return
        self.release(key)
        self.drop_penalty(assumed.waiting)
        latest = self.workloads.get(key)
        if latest is None or not is_admissible(latest.workload, self.options, self.backed):
            return
        latest.last_assignment = None  # the flavor was right: look at all of them again
        self.wait(latest, now, after="FailedAfterNomination")

    def assume(self, info: Info, waiting: Info, queue: ClusterQueue, now: Instant, *, counted: bool) -> None:
        """Hold quota for an admission that was decided, which may be counted already; the workload no longer waits."""
        key = info.key
        if queue.usage_based:
            self.push_penalty(waiting, queue, now)
        self.leave_line(key)
        queue.pending.last_generation.pop(key, None)
        self.assumed[key] = Assumed(info, waiting, queue.name)
        self.track_readiness(info)
        self.ledger.hold(queue, info, counted=counted)

    def expect_eviction(self, key: str, reason: str) -> None:
        """A victim was chosen; it holds its quota until it is seen without."""
        self.evicting[key] = reason

    def remember(self, decision: Decision) -> None:
        """The last decision about a workload that waits."""
        if decision.outcome != "admit":
            self.last_decisions[decision.key] = decision

    def end_cycle(self, *, changed: bool, progress: bool) -> None:
        """The cycle is over: what came meanwhile is applied. `changed` if others may decide differently now,
        `progress` if a head may."""
        self.cycling = False
        if changed:
            self.epoch += 1
        self.quiet_at = -1 if progress or changed else self.epoch
        deferred, self.deferred = self.deferred, []
        for event in deferred:
            try:
                event()
            except InvalidValue as error:  # who sent it is gone; the object counts as it was
                self.refused.append(error)

    @property
    def has_work(self) -> bool:
        """Whether another cycle could decide something new."""
        if self.quiet_at == self.epoch:
            return False
        if self.behind or self.retry_queues or self.retry_cohorts or self.passed_over:
            return True
        return any(queue.pending.waits and queue.active for queue in self.cluster_queues.values())
