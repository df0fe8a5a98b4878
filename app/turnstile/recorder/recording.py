"""Follows the stores of the leader, and puts what happens into the writer's queue. Only the leader runs this.

It begins with all that the objects show: what was recorded before is not stored twice, what was missed is made up for,
and what is gone since is recorded as deleted. That is repeated when records were dropped or the store is another one.
Must never decide anything, nor wait for the writer while the leader acts.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.core import Pod
from turnstile.api.errors import InvalidValue
from turnstile.api.workload import Workload
from turnstile.engine import Decision
from turnstile.engine.instants import Instant
from turnstile.kube.slices import Slice
from turnstile.kube.store import Store
from turnstile.recorder.facts import Fact, Record, attempt_of, kept, of_change, of_pods, of_quota
from turnstile.recorder.writer import Settled, Writer
from turnstile.wording.lost import lost

CHECK_SECONDS: Final = 5.0
"""Seconds between two looks whether all has to be recorded again."""
FULL_SECONDS: Final = 0.1
"""Seconds for which the recording of all objects waits when many records wait to be written."""
AGAIN_SECONDS: Final = 60.0
"""A Workload that is tried again and again with other amounts in the message is recorded once in so many seconds."""

SHORT: Final = 40
"""Amounts of one decision that are recorded at most."""

log = structlog.get_logger(__name__)


class Tries:
    """The last decision about each Workload that waits, so that the same one is not recorded again. One each term."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[str, tuple[Instant, str, str, str]] = {}

    def of(self, decision: Decision, now: Instant) -> Fact | None:
        """The fact that the scheduler tried a Workload; None if it came to the same before."""
        uid = decision.uid
        if decision.outcome in ("admit", "place", "evict"):
            self._last.pop(uid, None)  # the condition will tell, once it is written
            return None
        preempts = [each for each in decision.victims if each.new]
        last = self._last.get(uid)
        if last is not None and not preempts:
            at, outcome, reason, message = last
            if (outcome, reason) == (decision.outcome, decision.condition_reason) and (
                message == decision.message or now - at < AGAIN_SECONDS
            ):
                return None
        self._last[uid] = now, decision.outcome, decision.condition_reason, decision.message
        detail: dict[str, Any] = {"outcome": decision.outcome, "cluster_queue": decision.cluster_queue}
        if short := decision.short:
            detail["short"] = short[:SHORT]
        if preempts:
            detail["preempts"] = [[each.uid, each.key, each.reason, lost(each.held, each.ran)] for each in preempts]
        reason, message = decision.condition_reason, kept(decision.message)
        attempt = attempt_of(decision.workload)
        return Fact(uid, "tried", now, attempt, f"{now:.3f}", True, reason, message, detail)

    def forget(self, uid: str) -> None:
        """A Workload is gone."""
        self._last.pop(uid, None)


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of all Workloads, and what the recording asks about them."""

    store: Store[Pod]
    runs: Callable[[Pod], bool]
    """Whether a container of a pod runs."""
    workloads_of: Callable[[Pod], Iterable[Workload]]
    """The Workloads that a pod is charged to."""
    in_use: Callable[[Workload], bool]
    """Whether a pod of a Workload runs."""


class Recording:
    """The recording of one leader in one term."""

    def __init__(
        self,
        writer: Writer,
        *,
        workloads: Store[Workload],
        cluster_queues: Store[ClusterQueue],
        cohorts: Store[Cohort],
        pods: Pods,
        clock: Callable[[], datetime],
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        self._writer = writer
        self._workloads = workloads
        self._quotas: tuple[Store[ClusterQueue] | Store[Cohort], ...] = (cluster_queues, cohorts)
        self._pods = pods
        self._moved: dict[str, Instant] = {}
        """Workloads, by key, some of whose pods began or ceased to run, and since when that is not recorded."""
        self._clock = clock
        self._check_seconds = check_seconds
        self._tries = Tries()
        self._seen: list[str] | None = None

    async def run(self) -> None:
        """Record until cancelled."""
        stats = self._writer.stats
        with ExitStack() as subscriptions:
            subscriptions.callback(self._workloads.subscribe(self.changed))
            for store in self._quotas:
                subscriptions.callback(store.subscribe(self._quota_changed))
            subscriptions.callback(self._pods.store.subscribe(self._pod_changed))
            while True:
                known = stats.dropped, max(1, stats.opened)
                try:
                    await self._record_all()
                except Exception:  # a fault of the recorder must not end the term
                    log.exception("recorder.broken")
                while True:
                    await asyncio.sleep(self._check_seconds)
                    await self._record_pods()
                    if known != (stats.dropped, max(1, stats.opened)) and not len(self._writer):
                        break

    def tried(self, decision: Decision) -> None:
        """The scheduler decided about a Workload."""
        try:
            fact = self._tries.of(decision, self._clock().timestamp())
        except Exception:  # a fault of the recorder must not keep a decision from being written
            log.exception("recorder.broken", workload=decision.key)
            return
        if fact is not None:
            self._writer.put(fact)

    def changed(self, _: str, old: Workload | None, new: Workload | None) -> None:
        """A Workload changed."""
        if new is None and old is not None:
            self._tries.forget(old.metadata.uid)
        elif new is not None and old is None and self._seen is not None:
            self._seen.append(new.metadata.uid)
        if new is not None and new.quota_reserved and (old is None or not old.quota_reserved):
            self._moved.setdefault(new.metadata.key, self._clock().timestamp())
        for record in of_change(old, new, self._clock().timestamp()):
            self._writer.put(record)

    def _pod_changed(self, _: str, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None or (old is not None and self._pods.runs(old)) == (new is not None and self._pods.runs(new)):
            return
        for workload in self._pods.workloads_of(pod):
            self._moved.setdefault(workload.metadata.key, self._clock().timestamp())

    async def _record_pods(self) -> None:
        """Record of Workloads that hold quota whether a pod of them runs, where that may have changed. A gang that
        starts changes it once, however many pods it has."""
        if not self._pods.store.complete:
            return
        turn = Slice()
        moved, self._moved = self._moved, {}
        for key, since in moved.items():
            try:
                workload = self._workloads.get(key)
                if workload is not None and workload.quota_reserved and not workload.finished:
                    self._writer.put(of_pods(workload, run=self._pods.in_use(workload), since=since))
            except Exception:  # a fault of one Workload must not end the recording
                log.exception("recorder.broken", workload=key)
            if turn.over:
                await turn.rest()

    def _quota_changed(self, _: str, old: ClusterQueue | Cohort | None, new: ClusterQueue | Cohort | None) -> None:
        for record in self._of_quota(old, new):
            self._writer.put(record)

    def _of_quota(self, old: ClusterQueue | Cohort | None, new: ClusterQueue | Cohort | None) -> Iterator[Record]:
        try:
            yield from of_quota(old, new, self._clock().timestamp())
        except InvalidValue as error:
            log.warning("recorder.quota_unread", error=str(error))

    async def _record_all(self) -> None:
        """Record all that the objects show, in slices."""
        turn = Slice()
        self._seen = []
        for store in self._quotas:
            for obj in store.values():
                for record in self._of_quota(None, obj):
                    self._writer.put(record)
                if turn.over:
                    await turn.rest()
        keys = self._workloads.keys()
        for key in keys:
            workload = self._workloads.get(key)
            if workload is None:
                continue
            self._seen.append(workload.metadata.uid)
            if workload.quota_reserved:
                self._moved.setdefault(key, self._clock().timestamp())
            for record in of_change(None, workload, self._clock().timestamp()):
                self._writer.put(record)
            while self._writer.half_full:
                await asyncio.sleep(FULL_SECONDS)
                turn.begin()
            if turn.over:
                await turn.rest()
        seen, self._seen = self._seen, None
        if all(store.complete for store in (self._workloads, *self._quotas)):
            names = [f"{type(obj).KIND}/{obj.metadata.name}" for store in self._quotas for obj in store.values()]
            self._writer.put(Settled(seen, names, self._clock().timestamp()))
