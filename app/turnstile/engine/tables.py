"""Which Workloads wait where and which hold quota: the state of the engine below its events.

LocalQueues and their workloads, the lines of ClusterQueues, reservations, retries of what is inadmissible. Must
never decide whether a workload fits.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from turnstile.api.core import LimitRange
from turnstile.api.errors import InvalidValue
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import EVICTED, Admission
from turnstile.engine.instants import Instant, instant
from turnstile.engine.options import Options
from turnstile.engine.pace import HASHING, Pace, Sliced, finish
from turnstile.engine.preemption.repeats import Repeats
from turnstile.engine.queue.activity import ActivityJudge, Check
from turnstile.engine.queue.admissible import backoff_over, pods_ready
from turnstile.engine.queue.clusterqueue import ClusterQueue
from turnstile.engine.queue.consumption import LineUsage
from turnstile.engine.queue.localqueue import LocalQueue
from turnstile.engine.queue.requeueing import push_or_update, requeue
from turnstile.engine.quota.info import Info, Surroundings
from turnstile.engine.quota.ledger import Ledger
from turnstile.engine.reasons import RequeueReason

if TYPE_CHECKING:
    from turnstile.engine.decisions import Decision
    from turnstile.engine.quota.tree import Node

COUNTING: Final = 20.0
"""Work to count what one Workload requests, and to put it in its place."""


class Assumed(NamedTuple):
    """An admission that was decided and is not yet seen in the API; `waiting` is the workload as it waited."""

    info: Info
    waiting: Info
    cluster_queue: str


class Overdue(NamedTuple):
    """A victim that did not go in time: the UID of its preemptor, if its conditions name one, and since when it should
    have gone, as the API has it."""

    preemptor: str
    evicted_at: str


class Claim(NamedTuple):
    """What a preemptor waits for: its key, what it will use (`Usage.key`), and its victims."""

    preemptor: str
    usage: Hashable
    victims: tuple[str, ...]


class Lines:
    """The state without its events; see `turnstile.engine.state` for what it promises."""

    __slots__ = (
        "activity",
        "assumed",
        "backed",
        "checks",
        "cycling",
        "deferred",
        "device_classes",
        "epoch",
        "evicting",
        "flavors",
        "last_decisions",
        "leaving",
        "ledger",
        "limit_ranges",
        "limits_changed",
        "lines",
        "local_queues",
        "namespaces",
        "not_ready",
        "options",
        "overdue",
        "overheads_changed",
        "passed_over",
        "quiet_at",
        "refused",
        "repeats",
        "retry_cohorts",
        "retry_queues",
        "scheduling_cycle",
        "shape",
        "surroundings",
        "topologies",
        "waiting",
        "workloads",
    )

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.surroundings = Surroundings(self.options)
        self.ledger = Ledger(self.surroundings.catalog, ClusterQueue)
        self.flavors: dict[str, ResourceFlavor] = {}
        self.topologies: dict[str, tuple[str, ...] | None] = {}
        self.device_classes: dict[str, str] = {}
        """The extended resource that each DeviceClass backs; empty if it names none."""
        self.backed: frozenset[str] = frozenset()
        """Extended resources that DeviceClasses name."""
        self.checks: dict[str, Check] = {}
        self.activity = ActivityJudge(
            self.ledger.cluster_queues,
            flavors=self.flavors,
            checks=self.checks,
            topologies=self.topologies if self.options.gates.topology_aware_scheduling else None,
            judged=self._judged,
        )
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.limit_ranges: dict[str, dict[str, LimitRange]] = {}
        self.limits_changed: dict[str, Instant] = {}
        """Namespaces in which the requests of Workloads that wait are to be counted anew, and since when."""
        self.overheads_changed: dict[str, Instant] = {}
        """RuntimeClasses of whose pods the same is true."""
        self.local_queues: dict[str, LocalQueue] = {}
        self.lines: dict[str, LineUsage] = {}
        self.workloads: dict[str, Info] = {}
        self.waiting: dict[str, Info] = {}
        self.assumed: dict[str, Assumed] = {}
        self.evicting: dict[str, str] = {}  # victims by key: the reason, until Evicted is seen
        self.leaving: dict[str, Instant] = {}
        """Workloads that were evicted and still hold quota: the time of the eviction."""
        self.overdue: dict[str, Overdue] = {}
        """Those of them that no preemptor waits for any more."""
        self.passed_over: dict[str, tuple[Claim, ...]] = {}
        """Claims of preemptors that made later Workloads inadmissible, by ClusterQueue. When such a claim ends, those
        Workloads are tried again once."""
        self.repeats = Repeats(self.ledger)
        self.not_ready: dict[str, None] = {}
        self.last_decisions: dict[str, Decision] = {}
        self.retry_queues: dict[str, None] = {}
        self.retry_cohorts: dict[str, None] = {}
        self.scheduling_cycle = 0
        self.epoch = 0
        self.shape = 0
        """Number of changes of objects other than Workloads: of queues, quotas, flavors, limits."""
        self.quiet_at = -1
        self.cycling = False
        self.deferred: list[Callable[[], object]] = []
        self.refused: list[InvalidValue] = []
        """Errors of events that came during a cycle, for the driver to report and clear."""

    def took(self, event: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """A method that changes the state was called, and ended just now: its name and arguments. For a subclass that
        records them."""

    @property
    def cluster_queues(self) -> dict[str, ClusterQueue]:
        """ClusterQueues by name."""
        return self.ledger.cluster_queues

    # Reservations

    def hold(self, info: Info, admission: Admission) -> None:
        """Count a reservation that is seen in the API; an assumption of it is fulfilled."""
        key = info.key
        old = self.ledger.holder(key)
        where = self.ledger.holders.get(key)
        self.assumed.pop(key, None)
        self.end_nomination(key)
        self.track_readiness(info)
        self._track_leaving(info)
        queue = self.cluster_queues.get(admission.cluster_queue)
        if old is not None and queue is not None and where == queue.name and old.usage == info.usage:
            queue.hold(info)
            if old.priority != info.priority:
                self.mark_retry(where)
            return
        if old is not None:
            shrunk = info.usage.below(old.usage)
            self.ledger.release(key)
            if where is not None and (shrunk or queue is None or where != queue.name):
                self.mark_retry(where)
        if queue is None:
            self.ledger.hold_for_missing(admission.cluster_queue, info)
        else:
            self.ledger.hold(queue, info)

    def release(self, key: str) -> None:
        """Quota comes back: inadmissible Workloads of the tree are tried again."""
        for table in (self.assumed, self.evicting, self.not_ready, self.leaving, self.overdue):
            table.pop(key, None)
        queue = self.ledger.release(key)
        if queue is not None:
            self.mark_retry(queue.name)

    def is_evicted(self, info: Info) -> bool:
        """Whether a Workload is evicted, or was chosen as a victim and the eviction is not seen yet."""
        return info.evicted or info.key in self.evicting

    def queue_of(self, info: Info) -> ClusterQueue | None:
        """The ClusterQueue a workload holds quota or waits in."""
        name = self.ledger.holders.get(info.key)
        if name is None:
            local = self.local_queues.get(info.local_queue)
            name = local.cluster_queue if local is not None else ""
        return self.cluster_queues.get(name)

    def end_nomination(self, key: str) -> None:
        """What was preempted for a workload that holds quota has served it: should it come back, it has no precedence
        any more."""
        queue = self.cluster_queues.get(self.ledger.holders.get(key, ""))
        if queue is not None and queue.pending.nomination is not None:
            queue.pending.end_nomination(key)

    def track_readiness(self, info: Info) -> None:
        """Remember reservations whose pods are not ready, if admission waits for them."""
        if self.options.wait_for_pods_ready.block_admission:
            if pods_ready(info.workload):
                self.not_ready.pop(info.key, None)
            else:
                self.not_ready[info.key] = None

    def _track_leaving(self, info: Info) -> None:
        evicted = info.condition(EVICTED) if info.evicted else None
        if evicted is not None and evicted.last_transition_time:
            self.leaving[info.key] = instant(evicted.last_transition_time)
        elif info.key in self.leaving:
            for table in (self.leaving, self.overdue):
                table.pop(info.key, None)

    # Lines

    def local(self, key: str) -> LocalQueue:
        """The LocalQueue, which need not exist in the API."""
        local = self.local_queues.get(key)
        if local is None:
            local = self.local_queues[key] = LocalQueue(key)
        return local

    def line_up(self, local: LocalQueue, now: Instant) -> None:
        """All that waits in a LocalQueue becomes active, unless it is in its ClusterQueue already."""
        queue = self.cluster_queues.get(local.cluster_queue)
        if queue is None or not local.open:
            return
        for info in list(local.items.values()):
            if queue.pending.find(info.key) is None:
                self._push(queue, info, now)

    def wait(self, info: Info, now: Instant, *, after: RequeueReason | None = None) -> None:
        """A workload waits: in its LocalQueue, and in the line of its ClusterQueue if both are open."""
        local = self.local(info.local_queue)
        old = self.waiting.get(info.key)
        if old is not None and old.local_queue != info.local_queue:
            self.leave(info.key)
        if old is not None and info.last_assignment is not None and not _same_hash(old, info):
            info.last_assignment = None
        self.waiting[info.key] = info
        local.put(info)
        queue = self.cluster_queues.get(local.cluster_queue)
        if queue is None or not local.open:
            return
        info.cluster_queue = queue.name
        if after is not None:
            requeue(queue, info, after, "", backoff_over=backoff_over(info.workload, now))
        else:
            self._push(queue, info, now)

    def _push(self, queue: ClusterQueue, info: Info, now: Instant) -> None:
        info.cluster_queue = queue.name
        push_or_update(queue, info, backoff_over=backoff_over(info.workload, now))

    def counting_again(self, pace: Pace) -> Sliced[None]:
        """Count anew what Workloads that wait request, where an event changed what decides that. No event may come in
        between; to be begun anew if it is left early."""
        limits, overheads = self.limits_changed, self.overheads_changed
        if not limits and not overheads:
            return
        concerned: list[tuple[Info, Instant]] = []
        for info in self.waiting.values():
            pace.left -= 0.25
            if pace.left <= 0:
                yield
                pace.renew()
            since = [limits[info.namespace]] if info.namespace in limits else []
            if overheads:
                classes = (item.template.spec.runtime_class_name for item in info.workload.spec.pod_sets)
                since += [overheads[name] for name in classes if name in overheads]
            if since:
                concerned.append((info, max(since)))
        while concerned:
            info, now = concerned.pop()  # each is freed as it is replaced, and not all at the end
            pace.left -= COUNTING
            if pace.left <= 0:
                yield
                pace.renew()
            again = Info(info.workload, self.surroundings, born=info.order[2])
            self.carry_progress(info, again)
            self.wait(again, now)
            queue = self.cluster_queues.get(again.cluster_queue)
            if queue is not None and queue.pending.is_inadmissible(again):
                self.mark_retry(queue.name)  # limits may let it through now although its requests are the same
        limits.clear()
        overheads.clear()

    def carry_progress(self, old: Info, new: Info) -> None:
        """Let the scan of flavors for a newer version of a Workload go on where it was."""
        if self.options.gates.flavor_fungibility_preserve_scan_progress:
            new.last_assignment = old.last_assignment

    def leave(self, key: str) -> None:
        """Out of line for good: admitted, gone, or not admissible."""
        local = self.leave_line(key)
        if local is None:
            return
        queue = self.cluster_queues.get(local.cluster_queue)
        if queue is not None:
            queue.pending.remove(key)

    def withdraw(self, key: str) -> None:
        """Out of line because it is deleted, finished or deactivated: Workloads that are inadmissible in the tree are
        tried again, as in Kueue. A head counts as using quota in its cycle, and so does a preemptor."""
        info = self.waiting.get(key)
        queue = self.queue_of(info) if info is not None else None
        self.leave(key)
        if queue is not None:
            self.mark_retry(queue.name)

    def leave_line(self, key: str) -> LocalQueue | None:
        """No longer one of those who wait; where it stood is for the caller."""
        info = self.waiting.get(key)
        if info is None:
            return None
        local = self.local_queues[info.local_queue]
        self.forget_decision(key)
        del self.waiting[key]
        local.drop(key)
        if local.api is None and not local.items:
            del self.local_queues[local.key]
        return local

    def close(self, local: LocalQueue, queue: ClusterQueue | None) -> None:
        """Take all that waits in a LocalQueue out of the line of its ClusterQueue; it goes on waiting for another."""
        if queue is None:
            return
        for key in local.items:
            queue.pending.remove(key)
            self.forget_decision(key)

    def forget_decision(self, key: str) -> None:
        """A workload left its line: what the last cycle found says nothing about the time after its return."""
        if key in self.last_decisions:
            del self.last_decisions[key]

    # Retries

    def mark_retry(self, cluster_queue: str) -> None:
        """Inadmissible Workloads in the tree of this ClusterQueue are to be tried again."""
        self.retry_queues[cluster_queue] = None

    def mark_retry_cohort(self, cohort: str) -> None:
        """Inadmissible Workloads in the tree of this Cohort are to be tried again."""
        self.retry_cohorts[cohort] = None

    def flush_retries(self, now: Instant) -> bool:
        """Make inadmissible Workloads of marked trees active: those whose namespace is selected and whose back-off is
        over. Trees with a cycle stay as they are. True if any moved."""
        finish(self.catching_up(Pace()))
        return finish(self.retry_marked(now, Pace()))

    @property
    def behind(self) -> bool:
        """Whether events left work for `catching_up`."""
        return bool(self.activity.marked or self.limits_changed or self.overheads_changed)

    def catching_up(self, pace: Pace) -> Sliced[None]:
        """Do the work that events left for later: count requests anew, and judge ClusterQueues. The first thing that a
        cycle does; for whoever runs none, to be done after events."""
        yield from self.counting_again(pace)
        yield from self.activity.judging(pace)

    def retry_marked(self, now: Instant, pace: Pace) -> Sliced[bool]:
        """As `flush_retries`, in slices: no event may come in between. What is left undone is still marked."""
        starts = [queue.node for name in self.retry_queues if (queue := self.cluster_queues.get(name)) is not None]
        starts += [node for name in self.retry_cohorts if (node := self.ledger.cohorts.get(name)) is not None]
        pace.left -= len(starts) // 8
        roots: dict[int, Node] = {}
        for node in starts:
            pace.left -= 0.5
            if pace.left <= 0:
                yield
                pace.renew()
            if not self.ledger.cyclic(node):
                root = node.root
                roots[id(root)] = root
        moved = False
        for root in roots.values():
            for node in root.walk_queues():
                pace.left -= 1
                if pace.left <= 0:
                    yield
                    pace.renew()
                moved = (yield from self._retry(self.cluster_queues[node.name], now, pace)) or moved
        self.retry_queues.clear()
        self.retry_cohorts.clear()
        return moved

    def retry(self, queue: ClusterQueue, now: Instant) -> bool:
        """Make what is inadmissible in one ClusterQueue active, as `flush_retries` does. True if any moved."""
        return finish(self._retry(queue, now, Pace()))

    def _retry(self, queue: ClusterQueue, now: Instant, pace: Pace) -> Sliced[bool]:
        pending = queue.pending
        pending.retry_cycle = pending.pop_cycle
        if not pending.inadmissible and not pending.bulk_moved:
            return False
        moved = yield from pending.put_back_classes(pace)
        selected: dict[str, bool] = {}
        moving = []
        for info in pending.inadmissible.values():
            pace.left -= 1
            if pace.left <= 0:
                yield
                pace.renew()
            namespace = info.namespace
            good = selected.get(namespace)
            if good is None:
                good = selected[namespace] = self.selects(queue, namespace)
            if good and info.never != self.shape and backoff_over(info.workload, now):
                moving.append(info)
        for info in moving:
            pace.left -= 1 if info.hashed or not pending.in_classes else HASHING
            if pace.left <= 0:
                yield
                pace.renew()
            del pending.inadmissible[info.key]
            pending.push(info)
        return moved or bool(moving)

    def selects(self, queue: ClusterQueue, namespace: str) -> bool:
        """Whether the namespace exists and the queue's selector matches it."""
        labels = self.namespaces.get(namespace)
        return labels is not None and queue.selects(labels)

    def end_claims(self) -> None:
        """Where a preemptor is no longer active, Workloads that its claim left no room are to be tried again."""
        for name, claims in list(self.passed_over.items()):
            queue = self.cluster_queues.get(name)
            if queue is None or not queue.pending.is_active(claims[-1].preemptor):
                del self.passed_over[name]
                self.mark_retry(name)

    def _judged(self, queue: ClusterQueue, reopened: bool) -> None:
        """A ClusterQueue was judged: one that admits again tries its inadmissible Workloads."""
        if reopened:
            self.mark_retry(queue.name)
        if queue.node.idle == queue.active:
            self.ledger.set_idle(queue)


def _same_hash(old: Info, new: Info) -> bool:
    return not old.hash or not new.hash or old.hash == new.hash
