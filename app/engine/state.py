"""The state of the engine: what exists, who waits, who holds quota. Fed with API objects, read by cycles and people.

An admission that a cycle decided is *assumed*: its quota counts until the write is seen (`put_workload` with the
reservation) or `forget` says that it failed. Events that come while a cycle is under way are kept and applied when it
ends, so a cycle sees one instant. Must never do I/O or read a clock: `now` is an argument, in Unix seconds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Concatenate, Final, NamedTuple, ParamSpec

from app.api import names
from app.api.clusterqueue import ClusterQueue as ApiClusterQueue
from app.api.cohort import Cohort
from app.api.core import LimitRange, RuntimeClass
from app.api.localqueue import LocalQueue as ApiLocalQueue
from app.api.pods import Quantity
from app.api.resourceflavor import ResourceFlavor
from app.api.workload import Admission, Workload
from app.engine.amounts import Amounts, bounded
from app.engine.info import (
    Info,
    Surroundings,
    backoff_over,
    is_admissible,
    pods_ready,
)
from app.engine.instants import Instant, instant_or_zero
from app.engine.journal import Journal
from app.engine.ledger import Ledger, weight_of
from app.engine.options import AdmissionFairSharing, Options
from app.engine.queues import ClusterQueue, push_or_update, requeue
from app.engine.reasons import MISCONFIGURED, PENDING_EVALUATION, SUSPENDED, RequeueReason
from app.engine.requests import summarize
from app.engine.usage import LineUsage, entry_penalty, from_amount, from_quantities, to_quantities, weighted

if TYPE_CHECKING:
    from app.engine.decisions import Decision

_P = ParamSpec("_P")


class LocalQueue:
    """A LocalQueue as the engine holds it. `items` are its workloads that wait; the object may not exist (yet)."""

    __slots__ = ("api", "items", "key", "weight")

    def __init__(self, key: str) -> None:
        self.key = key
        self.api: ApiLocalQueue | None = None
        self.items: dict[str, Info] = {}
        self.weight = 1.0

    @property
    def cluster_queue(self) -> str:
        """Name of its ClusterQueue, empty if it has none."""
        return (self.api.spec.cluster_queue or "") if self.api is not None else ""

    @property
    def open(self) -> bool:
        """Whether its workloads stand in line."""
        return self.api is not None and self.api.spec.stop_policy == "None"


class Assumed(NamedTuple):
    """An admission that was decided and is not yet seen in the API; `waiting` is the workload as it stood in line."""

    info: Info
    waiting: Info
    cluster_queue: str


class Check(NamedTuple):
    """An AdmissionCheck: whether it is ready, and the name of the controller that answers it."""

    active: bool
    controller: str


class Counts(NamedTuple):
    """Workloads of a queue; reserving ones include the admitted ones."""

    pending: int
    reserving: int
    admitted: int


class Usage(NamedTuple):
    """Usage of one resource in one flavor: amounts in the engine's units, within int64."""

    flavor: str
    resource: str
    total: int
    borrowed: int


class Why(NamedTuple):
    """Why a workload waits: reason and message of its QuotaReserved condition, and a sentence with amounts for people,
    where amounts are the reason."""

    reason: str
    message: str
    explanation: str = ""


BYPASSED: Final = "Bypassed scheduling evaluation because an equivalent workload recently failed"


def _event(
    method: "Callable[Concatenate[State, _P], None]",
) -> "Callable[Concatenate[State, _P], None]":
    """An event: kept while a cycle is under way, else applied at once."""

    def apply(self: "State", /, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if self.cycling:
            self.deferred.append(lambda: method(self, *args, **kwargs))
        else:
            self.epoch += 1
            method(self, *args, **kwargs)

    apply.__name__ = method.__name__
    apply.__doc__ = method.__doc__
    return apply


class State:
    """Everything the engine knows.

    `put_*` takes an object as it is now, `drop_*` says that it is gone; both may be repeated and may come in any order
    (a Workload before its queue, a ClusterQueue before its flavors). What lets parked workloads be tried again is
    marked at once and carried out at the start of the next cycle, or by `flush_retries`; Kueue's batch delay of one
    second is for the driver to add, if it wants it.
    """

    __slots__ = (
        "assumed",
        "checks",
        "cycling",
        "deferred",
        "epoch",
        "evicting",
        "flavors",
        "journal",
        "last_decisions",
        "ledger",
        "limit_ranges",
        "lines",
        "local_queues",
        "namespaces",
        "not_ready",
        "options",
        "quiet_at",
        "retry_cohorts",
        "retry_queues",
        "scheduling_cycle",
        "surroundings",
        "topologies",
        "versions",
        "waiting",
        "workloads",
    )

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.surroundings = Surroundings(self.options)
        self.ledger = Ledger(self.surroundings.catalog)
        self.flavors: dict[str, ResourceFlavor] = {}
        self.topologies: dict[str, tuple[str, ...]] = {}
        self.checks: dict[str, Check] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.limit_ranges: dict[str, dict[str, LimitRange]] = {}
        self.local_queues: dict[str, LocalQueue] = {}
        self.lines: dict[str, LineUsage] = {}
        self.workloads: dict[str, Info] = {}
        self.waiting: dict[str, Info] = {}
        self.assumed: dict[str, Assumed] = {}
        self.evicting: dict[str, str] = {}  # victims by key: the reason, until Evicted is seen
        self.not_ready: dict[str, None] = {}
        self.versions: dict[str, int] = {}
        self.last_decisions: dict[str, Decision] = {}
        self.retry_queues: dict[str, None] = {}
        self.retry_cohorts: dict[str, None] = {}
        self.scheduling_cycle = 0
        self.epoch = 0
        self.quiet_at = -1
        self.cycling = False
        self.deferred: list[Callable[[], None]] = []
        self.journal: Journal | None = None

    @property
    def cluster_queues(self) -> dict[str, ClusterQueue]:
        """ClusterQueues by name."""
        return self.ledger.cluster_queues

    # What quota is made of

    @_event
    def put_flavor(self, flavor: ResourceFlavor) -> None:
        """A ResourceFlavor exists or changed."""
        name = flavor.metadata.name
        self._keep(self.flavors)
        self.flavors[name] = flavor
        self.surroundings.shapes.forget_answers()
        self._flavor_changed(name)

    @_event
    def drop_flavor(self, name: str) -> None:
        """A ResourceFlavor is gone."""
        self._keep(self.flavors)
        self.flavors.pop(name, None)
        self.surroundings.shapes.forget_answers()
        self._flavor_changed(name)

    def _flavor_changed(self, name: str) -> None:
        for queue in self.cluster_queues.values():
            if name in queue.flavors():
                self._find_problems(queue)
                self.mark_retry(queue.name)

    @_event
    def put_topology(self, name: str, levels: tuple[str, ...] = ()) -> None:
        """A Topology exists; the node labels of its levels, the widest first."""
        self._keep(self.topologies)
        self.topologies[name] = levels
        self._find_all_problems()

    @_event
    def drop_topology(self, name: str) -> None:
        """A Topology is gone."""
        self._keep(self.topologies)
        self.topologies.pop(name, None)
        self._find_all_problems()

    @_event
    def put_admission_check(self, name: str, *, active: bool, controller: str = "") -> None:
        """An AdmissionCheck exists; whether it is ready, and who answers it."""
        self._keep(self.checks)
        self.checks[name] = Check(active, controller)
        self._find_all_problems()

    @_event
    def drop_admission_check(self, name: str) -> None:
        """An AdmissionCheck is gone."""
        self._keep(self.checks)
        self.checks.pop(name, None)
        self._find_all_problems()

    def _find_all_problems(self) -> None:
        for queue in self.cluster_queues.values():
            before = queue.problems
            self._find_problems(queue)
            if queue.problems != before and not queue.problems:
                self.mark_retry(queue.name)

    @_event
    def put_cluster_queue(self, api: ApiClusterQueue, now: Instant) -> None:
        """A ClusterQueue exists or changed. Raises InvalidValue for a malformed quantity, and changes nothing."""
        known = self.cluster_queues.get(api.metadata.name)
        if known is not None and known.api.spec == api.spec and known.terminating == _terminating(api):
            known.api = api
            return
        old_root = known.node.root.name if known is not None and not self.ledger.cyclic(known.node) else None
        queue = self.ledger.put_cluster_queue(api)
        self._find_problems(queue)
        self.order_lines(queue)
        if known is None:
            for local in self.local_queues.values():
                if local.cluster_queue == queue.name:
                    self._line_up(local, now)
        self.mark_retry(queue.name)
        if old_root is not None:
            self._mark_retry_cohort(old_root)

    @_event
    def drop_cluster_queue(self, name: str) -> None:
        """A ClusterQueue is gone; its workloads wait for it to come back."""
        queue = self.cluster_queues.get(name)
        if queue is None:
            return
        if not self.ledger.cyclic(queue.node):
            self._mark_retry_cohort(queue.node.root.name)
        self.ledger.drop_cluster_queue(name)

    @_event
    def put_cohort(self, api: Cohort) -> None:
        """A Cohort exists or changed. Raises InvalidValue for a malformed quantity."""
        known = self.ledger.declared.get(api.metadata.name)
        if known is not None and known.spec == api.spec:
            return
        node = self.ledger.put_cohort(api)
        self._mark_retry_cohort(node.name)

    @_event
    def drop_cohort(self, name: str) -> None:
        """A Cohort object is gone."""
        self._mark_retry_cohort(name)
        self.ledger.drop_cohort(name)

    # Who waits

    @_event
    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """A namespace exists or its labels changed."""
        if self.namespaces.get(name) == labels:
            return
        before = self.namespaces.get(name)
        self._keep(self.namespaces)
        self.namespaces[name] = dict(labels)
        for queue in self.cluster_queues.values():
            selector = queue.selector
            if (
                selector is not None
                and selector.matches(labels)
                and not (before is not None and selector.matches(before))
            ):
                self.mark_retry(queue.name)

    @_event
    def drop_namespace(self, name: str) -> None:
        """A namespace is gone."""
        self._keep(self.namespaces)
        self.namespaces.pop(name, None)

    @_event
    def put_local_queue(self, api: ApiLocalQueue, now: Instant) -> None:
        """A LocalQueue exists or changed."""
        local = self._local(f"{api.metadata.namespace}/{api.metadata.name}")
        before, was_open = local.cluster_queue, local.open
        if self.journal is not None:
            self.journal.keep_slots(local)
        created = local.api is None
        weight = weight_of(api.spec.fair_sharing)
        local.api, local.weight = api, weight
        seen = api.status.fair_sharing.admission_fair_sharing_status if api.status.fair_sharing is not None else None
        if seen is not None and self.usage_sharing is not None and not self._line(local.key).seeded:
            self.set_consumed(local.key, seen.consumed_resources, instant_or_zero(seen.last_update))
        if was_open and (before != local.cluster_queue or not local.open):
            queue = self.cluster_queues.get(before)
            if queue is not None:
                self.touch(queue)
                for key in local.items:
                    queue.pending.remove(key)
        if local.open and (created or not was_open or before != local.cluster_queue):
            self._line_up(local, now)

    @_event
    def drop_local_queue(self, key: str) -> None:
        """A LocalQueue is gone; its workloads stand in no line until it comes back."""
        local = self.local_queues.get(key)
        if local is None:
            return
        queue = self.cluster_queues.get(local.cluster_queue)
        if queue is not None:
            self.touch(queue)
            for item in local.items:
                queue.pending.remove(item)
        if self.journal is not None:
            self.journal.keep_slots(local)
        local.api = None
        if not local.items:
            self._keep(self.local_queues)
            del self.local_queues[key]

    @_event
    def put_limit_range(self, limit_range: LimitRange, now: Instant) -> None:
        """A LimitRange exists or changed: the requests of what waits in its namespace are counted anew."""
        namespace = limit_range.metadata.namespace
        ranges = {**self.limit_ranges.get(namespace, {}), limit_range.metadata.name: limit_range}
        self._set_limits(namespace, ranges, now)

    @_event
    def drop_limit_range(self, key: str, now: Instant) -> None:
        """A LimitRange (`namespace/name`) is gone."""
        namespace, _, name = key.partition("/")
        ranges = {other: value for other, value in self.limit_ranges.get(namespace, {}).items() if other != name}
        self._set_limits(namespace, ranges, now)

    def _set_limits(self, namespace: str, ranges: dict[str, LimitRange], now: Instant) -> None:
        summary = summarize(ranges[name] for name in sorted(ranges))
        self._keep(self.limit_ranges)
        self._keep(self.surroundings.limits)
        self.limit_ranges[namespace] = ranges
        self.surroundings.limits[namespace] = summary
        self._count_again(lambda info: info.workload.metadata.namespace == namespace, now)

    @_event
    def put_runtime_class(self, runtime_class: RuntimeClass, now: Instant) -> None:
        """A RuntimeClass exists or changed."""
        self._set_overhead(runtime_class.metadata.name, runtime_class, now)

    @_event
    def drop_runtime_class(self, name: str, now: Instant) -> None:
        """A RuntimeClass is gone."""
        self._set_overhead(name, None, now)

    def _set_overhead(self, name: str, runtime_class: RuntimeClass | None, now: Instant) -> None:
        overheads = self.surroundings.overheads
        self._keep(overheads)
        if runtime_class is None or runtime_class.overhead is None:
            overheads.pop(name, None)
        else:
            overheads[name] = runtime_class.overhead.pod_fixed
        self._count_again(
            lambda info: any(item.template.spec.runtime_class_name == name for item in info.workload.spec.pod_sets),
            now,
        )

    def _count_again(self, chosen: Callable[[Info], bool], now: Instant) -> None:
        waiting = [info for local in self.local_queues.values() for info in local.items.values() if chosen(info)]
        for info in waiting:
            self._wait(Info(info.workload, self.surroundings), now)

    @_event
    def put_workload(self, workload: Workload, now: Instant) -> None:
        """A Workload exists or changed. Raises InvalidValue for a malformed quantity, and changes nothing."""
        key = workload.metadata.key
        version = _version(workload)
        if version is not None:
            if version < self.versions.get(key, 0):
                return
            self._keep(self.versions)
            self.versions[key] = version
        info = Info(workload, self.surroundings)
        before = self.workloads.get(key)
        self._keep(self.workloads)
        self.workloads[key] = info
        if info.evicted or info.finished:
            self._keep(self.evicting)
            self.evicting.pop(key, None)
        if before is not None and (
            info.finished or before.local_queue != info.local_queue or not (info.active or info.reserved)
        ):
            self._drop_penalty(before)
        if info.finished:
            self._leave(key)
            self._release(key)
        elif info.reserved and workload.status.admission is not None:
            self._leave(key)
            self._hold(info, workload.status.admission)
            if info.admitted and not (before is not None and before.admitted):
                self._settle_penalty(info, now)
        elif key in self.assumed:
            return  # the write is on its way: what is seen may be older
        else:
            if self.ledger.holder(key) is not None:
                self._release(key)
            if is_admissible(workload, self.options):
                if before is not None:
                    info.last_assignment = before.last_assignment
                self._wait(info, now)
            else:
                self._leave(key)

    @_event
    def drop_workload(self, key: str) -> None:
        """A Workload is gone."""
        if (gone := self.workloads.get(key)) is not None:
            self._drop_penalty(gone)
        self._leave(key)
        self._release(key)
        for table in (self.workloads, self.versions, self.evicting, self.last_decisions):
            self._keep(table)
            table.pop(key, None)

    # Outcome of writes

    @_event
    def confirm(self, key: str, resource_version: str = "") -> None:
        """The write of an assumed admission came back. Older versions of the object are ignored from now on."""
        if resource_version.isdecimal():
            self._keep(self.versions)
            self.versions[key] = max(self.versions.get(key, 0), int(resource_version))

    @_event
    def forget(self, key: str, now: Instant) -> None:
        """The write of an assumed admission failed: the workload returns to its place in line."""
        assumed = self.assumed.get(key)
        if assumed is None:
            return
        self._release(key)
        self._drop_penalty(assumed.waiting)
        latest = self.workloads.get(key)
        if latest is None or not is_admissible(latest.workload, self.options):
            return
        latest.last_assignment = None  # the flavor was right: look at all of them again
        self._wait(latest, now, after="FailedAfterNomination")

    @_event
    def forget_eviction(self, key: str) -> None:
        """The write of an eviction failed: the victim may be chosen again."""
        self._keep(self.evicting)
        self.evicting.pop(key, None)

    # Reservations

    def _hold(self, info: Info, admission: Admission) -> None:
        key = info.key
        old = self.ledger.holder(key)
        where = self.ledger.holders.get(key)
        self._keep(self.assumed)
        self.assumed.pop(key, None)
        self._track_readiness(info)
        queue = self.cluster_queues.get(admission.cluster_queue)
        if old is not None and queue is not None and where == queue.name and old.usage == info.usage:
            self._keep(queue.workloads)
            queue.workloads[key] = info
            if old.priority != info.priority:
                self.mark_retry(where)
            return
        if old is not None:
            shrunk = any(amount < old.usage.get(pair, 0) for pair, amount in info.usage.items())
            self.ledger.release(key)
            if where is not None and (shrunk or queue is None or where != queue.name):
                self.mark_retry(where)
        if queue is None:
            self.ledger.hold_for_missing(admission.cluster_queue, info)
        else:
            self.ledger.hold(queue, info)

    def _release(self, key: str) -> None:
        """Quota comes back: who is parked in the tree is tried again."""
        for table in (self.assumed, self.evicting, self.not_ready):
            self._keep(table)
            table.pop(key, None)
        queue = self.ledger.release(key)
        if queue is not None:
            self.mark_retry(queue.name)

    def _track_readiness(self, info: Info) -> None:
        if self.options.wait_for_pods_ready.block_admission:
            self._keep(self.not_ready)
            if pods_ready(info.workload):
                self.not_ready.pop(info.key, None)
            else:
                self.not_ready[info.key] = None

    # Lines

    def _local(self, key: str) -> LocalQueue:
        local = self.local_queues.get(key)
        if local is None:
            self._keep(self.local_queues)
            local = self.local_queues[key] = LocalQueue(key)
        return local

    def _line_up(self, local: LocalQueue, now: Instant) -> None:
        """All that waits in a LocalQueue goes into line, unless it is there."""
        queue = self.cluster_queues.get(local.cluster_queue)
        if queue is None or not local.open:
            return
        for info in list(local.items.values()):
            if queue.pending.find(info.key) is None:
                self.touch(queue)
                self._push(queue, info, now)

    def _wait(self, info: Info, now: Instant, *, after: RequeueReason | None = None) -> None:
        """A workload waits: in its LocalQueue, and in the line of its ClusterQueue if both are open."""
        local = self._local(info.local_queue)
        old = self.waiting.get(info.key)
        if old is not None and old.local_queue != info.local_queue:
            self._leave(info.key)
        if old is not None and info.last_assignment is not None and not _same_hash(old, info):
            info.last_assignment = None
        self._keep(local.items)
        self._keep(self.waiting)
        local.items[info.key] = self.waiting[info.key] = info
        queue = self.cluster_queues.get(local.cluster_queue)
        if queue is None or not local.open:
            return
        info.cluster_queue = queue.name
        self.touch(queue)
        if after is not None:
            requeue(queue, info, after, "", backoff_over=backoff_over(info.workload, now))
        else:
            self._push(queue, info, now)

    def _push(self, queue: ClusterQueue, info: Info, now: Instant) -> None:
        self.touch_info(info)
        info.cluster_queue = queue.name
        push_or_update(queue, info, backoff_over=backoff_over(info.workload, now))

    def _leave(self, key: str) -> None:
        """Out of line for good: admitted, gone, or not admissible."""
        local = self._leave_line(key)
        if local is None:
            return
        queue = self.cluster_queues.get(local.cluster_queue)
        if queue is not None:
            self.touch(queue)
            queue.pending.remove(key)

    def _leave_line(self, key: str) -> LocalQueue | None:
        info = self.waiting.get(key)
        if info is None:
            return None
        self._keep(self.waiting)
        del self.waiting[key]
        local = self.local_queues[info.local_queue]
        self._keep(local.items)
        local.items.pop(key, None)
        if local.api is None and not local.items:
            self._keep(self.local_queues)
            del self.local_queues[local.key]
        return local

    # Retries

    def mark_retry(self, cluster_queue: str) -> None:
        """Workloads parked in the tree of this ClusterQueue are to be tried again."""
        self._keep(self.retry_queues)
        self.retry_queues[cluster_queue] = None

    def _mark_retry_cohort(self, cohort: str) -> None:
        self._keep(self.retry_cohorts)
        self.retry_cohorts[cohort] = None

    def flush_retries(self, now: Instant) -> bool:
        """Put parked workloads of marked trees back in line: those whose namespace is selected and whose back-off is
        over. Trees with a cycle stay as they are. True if any moved."""
        if not self.retry_queues and not self.retry_cohorts:
            return False
        starts = [queue.node for name in self.retry_queues if (queue := self.cluster_queues.get(name)) is not None]
        starts += [node for name in self.retry_cohorts if (node := self.ledger.cohorts.get(name)) is not None]
        self._keep(self.retry_queues)
        self._keep(self.retry_cohorts)
        self.retry_queues.clear()
        self.retry_cohorts.clear()
        roots = {id(root): root for node in starts if not self.ledger.cyclic(node) for root in (node.root,)}
        moved = False
        for root in roots.values():
            for node in root.walk_queues():
                moved = self.retry(self.cluster_queues[node.name], now) or moved
        return moved

    def retry(self, queue: ClusterQueue, now: Instant) -> bool:
        """Put what is parked in one queue back in line, as `flush_retries` does. True if any moved."""
        pending = queue.pending
        if not pending.inadmissible and not pending.bulk_moved:
            pending.retry_cycle = pending.pop_cycle
            return False
        self.touch(queue)
        pending.retry_cycle = pending.pop_cycle
        moved = pending.put_back_classes()
        selected: dict[str, bool] = {}
        moving = []
        for info in pending.inadmissible.values():
            namespace = info.workload.metadata.namespace
            good = selected.get(namespace)
            if good is None:
                good = selected[namespace] = self.selects(queue, namespace)
            if good and backoff_over(info.workload, now):
                moving.append(info)
        for info in moving:
            del pending.inadmissible[info.key]
            pending.push(info)
        return moved or bool(moving)

    def selects(self, queue: ClusterQueue, namespace: str) -> bool:
        """Whether the namespace exists and the queue's selector matches it."""
        labels = self.namespaces.get(namespace)
        return labels is not None and queue.selector is not None and queue.selector.matches(labels)

    # Whether a queue admits

    def _find_problems(self, queue: ClusterQueue) -> None:
        if self.journal is not None:
            self.journal.keep_slots(queue)
        queue.problems = list(self._problems(queue))
        queue.terminating = _terminating(queue.api)

    def _problems(self, queue: ClusterQueue) -> Iterator[tuple[str, str]]:
        """Reasons why it admits nothing, in the order they are reported, with their words."""
        if queue.api.spec.stop_policy != "None":
            yield "Stopped", "is stopped"
        missing = sorted(flavor for flavor in queue.flavors() if flavor not in self.flavors)
        if missing:
            yield "FlavorNotFound", f"references missing ResourceFlavor(s): {','.join(missing)}"
        checks = sorted({check.name for check in queue.checks})
        unknown = [name for name in checks if name not in self.checks]
        if unknown:
            yield "AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {','.join(unknown)}"
        found = {name: self.checks[name] for name in checks if name in self.checks}
        inactive = [name for name, check in found.items() if not check.active]
        if inactive:
            yield "AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {','.join(inactive)}"
        multi = [name for name, check in found.items() if check.controller == names.MULTIKUEUE_CONTROLLER]
        if len(multi) > 1:
            yield (
                "MultipleMultiKueueAdmissionChecks",
                f"Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: {','.join(multi)}",
            )
        per_flavor = sorted({check.name for check in queue.checks if check.on_flavors and check.name in multi})
        if per_flavor:
            yield (
                "MultiKueueAdmissionCheckAppliedPerFlavor",
                f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {','.join(per_flavor)}",
            )
        if multi:
            return
        for name in queue.flavors():
            flavor = self.flavors.get(name)
            topology = flavor.spec.topology_name if flavor is not None else None
            if topology and topology not in self.topologies:
                yield "TopologyNotFound", f'there is no Topology "{topology}" for TAS flavor "{name}"'

    # Admission fair sharing

    @property
    def usage_sharing(self) -> AdmissionFairSharing | None:
        """Its configuration, if it is on."""
        return self.options.admission_fair_sharing if self.options.gates.admission_fair_sharing else None

    def line_usage(self, queue: ClusterQueue, local_queue: str) -> float | None:
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
        self.touch(queue)
        by_usage = self.usage_sharing is not None and queue.usage_based
        queue.pending.arrange(
            (lambda line: self.line_usage(queue, line) or 0.0) if by_usage else None,
            in_classes=queue.best_effort and self.options.gates.scheduling_equivalence_hashing,
        )

    def _line(self, local_queue: str) -> LineUsage:
        line = self.lines.get(local_queue)
        if line is None:
            self._keep(self.lines)
            line = self.lines[local_queue] = LineUsage()
        if self.journal is not None:
            self.journal.keep_slots(line)
            self.journal.keep(line.penalties)
        return line

    def set_consumed(self, local_queue: str, resources: Mapping[str, Quantity], last_update: Instant) -> None:
        """What a LocalQueue consumed until then, as its status has it. Raises InvalidValue."""
        line = self._line(local_queue)
        line.consumed = from_quantities(resources)
        line.last_update = last_update
        line.seeded = True

    def consumed(self, local_queue: str) -> tuple[dict[str, str], Instant | None]:
        """What a LocalQueue consumed and when that was counted, for its status."""
        line = self.lines.get(local_queue)
        return (to_quantities(line.consumed), line.last_update) if line is not None else ({}, None)

    def sample_usage(self, local_queue: str, now: Instant) -> float | None:
        """Let time work on a LocalQueue's usage; seconds until it is due again, None if usage does not count there.
        To be called for every LocalQueue, and then its status written from `consumed`."""
        local = self.local_queues.get(local_queue)
        queue = self.cluster_queues.get(local.cluster_queue) if local is not None else None
        sharing = self.usage_sharing
        if queue is None or sharing is None or not queue.usage_based:
            return None
        self.epoch += 1
        return self._line(local_queue).sample(self._admitted_usage(queue, local_queue), now, sharing)

    def _admitted_usage(self, queue: ClusterQueue, local_queue: str) -> dict[str, int]:
        held = _sum(info for info in queue.workloads.values() if info.admitted and info.local_queue == local_queue)
        total: dict[str, int] = {}
        for pair, amount in held.items():
            total[pair.resource] = total.get(pair.resource, 0) + from_amount(pair.resource, amount)
        return total

    def _push_penalty(self, info: Info, queue: ClusterQueue, now: Instant) -> None:
        sharing = self.usage_sharing
        if sharing is None or not queue.usage_based:
            return
        ignore = self.options.gates.quota_check_strategy and self.options.quota_check_strategy == "IgnoreUndeclared"
        requests: dict[str, int] = {}
        for item in info.totals:
            for resource, amount in item.requests.items():
                if not ignore or resource in queue.group_of:
                    requests[resource] = requests.get(resource, 0) + from_amount(resource, amount)
        self._line(info.local_queue).push(info.key, entry_penalty(requests, sharing), now)

    def _settle_penalty(self, info: Info, now: Instant) -> None:
        sharing = self.usage_sharing
        line = self.lines.get(info.local_queue)
        queue = self.cluster_queues.get(info.cluster_queue)
        if sharing is None or line is None or queue is None or info.key not in line.penalties:
            return
        current = self._admitted_usage(queue, info.local_queue)
        self._line(info.local_queue).settle(info.key, current, now, sharing.usage_half_life)

    def _drop_penalty(self, info: Info) -> None:
        line = self.lines.get(info.local_queue)
        if line is not None and info.key in line.penalties:
            self._line(info.local_queue).penalties.pop(info.key)

    # For the cycle

    def assume(self, info: Info, waiting: Info, queue: ClusterQueue, now: Instant) -> None:
        """Count an admission that was decided; the workload no longer waits."""
        self._keep(self.assumed)
        self._push_penalty(waiting, queue, now)
        self._leave_line(info.key)
        self.assumed[info.key] = Assumed(info, waiting, queue.name)
        self._track_readiness(info)
        self.ledger.hold(queue, info)

    def expect_eviction(self, key: str, reason: str) -> None:
        """A victim was chosen; it holds its quota until it is seen without."""
        self._keep(self.evicting)
        self.evicting[key] = reason

    def remember(self, decision: "Decision") -> None:
        """The last decision about a workload that waits."""
        self._keep(self.last_decisions)
        if decision.outcome == "admit":
            self.last_decisions.pop(decision.key, None)
        else:
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
            event()

    @property
    def has_work(self) -> bool:
        """Whether another cycle could decide something new."""
        if self.quiet_at == self.epoch:
            return False
        if self.retry_queues or self.retry_cohorts:
            return True
        return any(
            queue.pending.active and queue.active and queue.pending.peek() is not None
            for queue in self.cluster_queues.values()
        )

    # Questions

    def queue_counts(self, cluster_queue: str) -> Counts:
        """Workloads of a ClusterQueue; zeros if there is none of that name."""
        queue = self.cluster_queues.get(cluster_queue)
        if queue is None:
            return Counts(0, 0, 0)
        return Counts(len(queue.pending), len(queue.workloads), sum(info.admitted for info in queue.workloads.values()))

    def local_queue_counts(self, key: str) -> Counts:
        """Workloads of a LocalQueue (`namespace/name`)."""
        local = self.local_queues.get(key)
        queue = self.cluster_queues.get(local.cluster_queue) if local is not None else None
        held = [info for info in queue.workloads.values() if info.local_queue == key] if queue is not None else []
        return Counts(len(local.items) if local is not None else 0, len(held), sum(info.admitted for info in held))

    def queue_usage(self, cluster_queue: str, *, admitted_only: bool = False) -> list[Usage]:
        """Usage of every flavor and resource of a ClusterQueue, in the order of its spec, with the borrowed part."""
        queue = self.cluster_queues.get(cluster_queue)
        if queue is None:
            return []
        held = _sum(info for info in queue.workloads.values() if info.admitted or not admitted_only)
        return self._usages(queue, held, borrowed=True)

    def local_queue_usage(self, key: str, *, admitted_only: bool = False) -> list[Usage]:
        """Usage of a LocalQueue by every flavor and resource of its ClusterQueue; `borrowed` is 0."""
        local = self.local_queues.get(key)
        queue = self.cluster_queues.get(local.cluster_queue) if local is not None else None
        if queue is None:
            return []
        held = _sum(
            info
            for info in queue.workloads.values()
            if info.local_queue == key and (info.admitted or not admitted_only)
        )
        return self._usages(queue, held, borrowed=False)

    def _usages(self, queue: ClusterQueue, held: Amounts, *, borrowed: bool) -> list[Usage]:
        pair_of = self.surroundings.catalog.pair
        found = []
        for group in queue.api.spec.resource_groups:
            for flavor in group.flavors:
                for resource in flavor.resources:
                    pair = pair_of(flavor.name, resource.name)
                    total = held.get(pair, 0)
                    over = max(0, total - queue.node.nominal.get(pair, 0)) if borrowed and queue.node.parent else 0
                    found.append(Usage(flavor.name, resource.name, bounded(total), bounded(over)))
        return found

    def active_reason(self, cluster_queue: str) -> tuple[bool, str, str]:
        """Status, reason and message of the Active condition of a ClusterQueue."""
        queue = self.cluster_queues.get(cluster_queue)
        if queue is None or queue.terminating:
            return False, "Terminating", "Can't admit new workloads; clusterQueue is terminating"
        if not queue.problems:
            return True, "Ready", "Can admit new workloads"
        return (
            False,
            queue.problems[0][0],
            f"Can't admit new workloads: {', '.join(text for _, text in queue.problems)}.",
        )

    def pending(self, cluster_queue: str) -> list[str]:
        """Keys of what waits in a ClusterQueue in the order it will be tried: in line first, then the parked ones."""
        queue = self.cluster_queues.get(cluster_queue)
        if queue is None:
            return []
        line = queue.pending.in_order()
        parked = sorted(queue.pending.inadmissible_infos(), key=lambda info: info.order)
        head = [queue.pending.inflight] if queue.pending.inflight is not None else []
        return [info.key for info in (*head, *line, *parked)]

    def waits(self, key: str) -> Why | None:
        """Why a workload that waits is not being looked at: what its queues say, or that an equal one failed. None
        if it stands in line, or does not wait."""
        info = self.waiting.get(key)
        if info is None:
            return None
        name = info.workload.spec.queue_name or ""
        local = self.local_queues[info.local_queue]
        if local.api is None:
            return Why(MISCONFIGURED, f"LocalQueue {name} doesn't exist")
        if not local.open:
            return Why(SUSPENDED, f"LocalQueue {name} is inactive")
        queue = self.cluster_queues.get(local.cluster_queue)
        if queue is None:
            return Why(MISCONFIGURED, f"ClusterQueue {local.cluster_queue} doesn't exist")
        if not queue.active or (self.ledger.broken and self.ledger.cyclic(queue.node)):
            return Why(SUSPENDED, f"ClusterQueue {queue.name} is inactive")
        reason = queue.pending.bulk_moved.get(info.hash) if queue.pending.bulk_moved else None
        if reason is not None and queue.pending.is_parked(info) and key not in self.last_decisions:
            return Why(reason, BYPASSED)
        return None

    def why(self, key: str) -> Why | None:
        """The last known reason why a workload waits: from its queues, else from the last cycle that looked at it,
        else that it was not looked at yet. None if it does not wait."""
        if key not in self.waiting:
            return None
        found = self.waits(key)
        if found is not None:
            return found
        decision = self.last_decisions.get(key)
        if decision is not None and decision.condition_reason:
            return Why(decision.condition_reason, decision.message, decision.explanation)
        return Why(PENDING_EVALUATION, "Workload is pending evaluation in the scheduling queue")

    def holders(self, flavor: str, resource: str, cluster_queue: str) -> list[tuple[str, int]]:
        """Who holds a resource of a flavor in the tree of a ClusterQueue: names and amounts, the largest first."""
        queue = self.cluster_queues.get(cluster_queue)
        if queue is None or self.ledger.cyclic(queue.node):
            return []
        pair = self.surroundings.catalog.pair(flavor, resource)
        held = [(node.name, node.usage.get(pair, 0)) for node in queue.node.root.walk_queues()]
        return sorted((item for item in held if item[1] > 0), key=lambda item: (-item[1], item[0]))

    # Undo

    def _keep(self, container: object) -> None:
        if self.journal is not None:
            self.journal.keep(container)  # type: ignore[arg-type]

    def touch_info(self, info: Info) -> None:
        """What is remembered of a workload is about to change."""
        if self.journal is not None:
            self.journal.keep_slots(info)

    def touch(self, queue: ClusterQueue) -> None:
        """A line is about to change."""
        if self.journal is not None:
            queue.pending.keep(self.journal)

    @contextmanager
    def fork(self) -> Iterator["State"]:
        """This very state, to try things on: put, drop, run cycles. On leaving, all is as it was. Costs microseconds
        and then only what is touched. Not while a cycle is under way; forks do not nest."""
        if self.cycling or self.journal is not None:
            raise RuntimeError("a fork needs a state at rest: finish the cycle or leave the other fork first")
        journal = self.journal = self.ledger.journal = Journal()
        simple = [(name, getattr(self, name)) for name in ("epoch", "quiet_at", "scheduling_cycle", "options")]
        broken = self.ledger.broken
        try:
            yield self
        finally:
            journal.roll_back()
            self.journal = self.ledger.journal = None
            self.ledger.broken = broken
            self.cycling = False
            self.deferred.clear()
            for name, value in simple:
                setattr(self, name, value)
            self.surroundings.shapes.forget_answers()


def _sum(infos: Iterable[Info]) -> Amounts:
    total: Amounts = {}
    for info in infos:
        for pair, amount in info.usage.items():
            total[pair] = total.get(pair, 0) + amount
    return total


def _version(workload: Workload) -> int | None:
    version = workload.metadata.resource_version
    return int(version) if version.isdecimal() else None


def _terminating(api: ApiClusterQueue) -> bool:
    return api.metadata.deletion_timestamp is not None


def _same_hash(old: Info, new: Info) -> bool:
    return not old.hash or not new.hash or old.hash == new.hash
