"""ClusterQueues and the workloads that wait in them: who is next, who is parked, who is being looked at.

A waiting workload is in exactly one place of its queue: active (in line), inadmissible (parked until something changes)
or inflight (the head that a cycle works on). Sources: Kueue's queue cache. Must never look at quota.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final, NamedTuple

from app.api.clusterqueue import ClusterQueue as ApiClusterQueue
from app.api.clusterqueue import FlavorFungibility, Preemption
from app.api.meta import Condition
from app.api.workload import EVICTED, REQUEUED
from app.engine.amounts import Amounts
from app.engine.info import PRIORITY_BOOST, preemption_gated, same_requests
from app.engine.pace import Pace, Sliced
from app.engine.reasons import PENDING_EVALUATION
from app.engine.tree import Node

if TYPE_CHECKING:
    from app.engine.info import Info
    from app.engine.journal import Journal

Order = tuple[int, float, str, str]

_DEFAULT_FUNGIBILITY: Final = FlavorFungibility()
_DEFAULT_PREEMPTION: Final = Preemption()

IMMEDIATE_FOR_BEST_EFFORT: Final = frozenset(
    ("FailedAfterNomination", "PendingPreemption", "PendingMigration", "PreemptionFailed")
)


class Group(NamedTuple):
    """Resources that get their flavor together."""

    covered: frozenset[str]
    flavors: tuple[str, ...]


class Pending:
    """The workloads that wait in one ClusterQueue.

    Those in line are kept in one heap for each class of equals (by scheduling hash; one class for all in a StrictFIFO
    queue), and a heap of the classes' heads on top, one a *line*. A line is the whole queue, or a LocalQueue where
    admission fair sharing orders them by usage. So a class is parked, or put back, at the cost of one step, however
    many are in it, and a change of usage costs nothing. Heaps are cleaned lazily: an entry is good if it is the very
    order key of the workload that is in line.
    """

    __slots__ = (
        "active",
        "bulk_moved",
        "chosen",
        "classes",
        "heads",
        "in_classes",
        "inadmissible",
        "inflight",
        "last_generation",
        "line_usage",
        "offered",
        "pop_cycle",
        "preemptor",
        "preemptor_generation",
        "retry_cycle",
        "sticky",
    )

    def __init__(self) -> None:
        self.active: dict[str, Info] = {}
        """In line, and parked with their class."""
        self.inadmissible: dict[str, Info] = {}
        """Parked one by one."""
        self.inflight: Info | None = None
        self.bulk_moved: dict[str, str] = {}
        """Parked classes: the reason of QuotaReserved by hash."""
        self.classes: dict[tuple[str, str], list[Order]] = {}
        self.heads: dict[str, list[tuple[Order, str]]] = {}
        self.offered: dict[tuple[str, str], Order] = {}
        """The one good entry of each class in `heads`."""
        self.in_classes = False
        self.pop_cycle = 0
        self.retry_cycle = -1
        self.preemptor: str | None = None
        self.preemptor_generation = 0
        self.chosen: Sequence[tuple[str, str]] = ()
        """Whom the preemptor had preempted: key and reason of each."""
        self.sticky = False
        self.last_generation: dict[str, int] = {}
        self.line_usage: Callable[[str], float] | None = None

    def __len__(self) -> int:
        return len(self.active) + len(self.inadmissible) + (self.inflight is not None)

    def keep(self, journal: "Journal") -> None:
        """Let a fork remember everything that may change here."""
        journal.keep_slots(self)
        for container in (
            self.active,
            self.inadmissible,
            self.classes,
            self.heads,
            self.offered,
            self.bulk_moved,
            self.last_generation,
            *self.classes.values(),
            *self.heads.values(),
        ):
            journal.keep(container)  # type: ignore[arg-type]

    # Where a workload is

    def is_parked(self, info: "Info") -> bool:
        """Whether it waits without being tried."""
        return info.key in self.inadmissible or (info.key in self.active and self._class_parked(info))

    def in_line(self, key: str) -> bool:
        """Whether it will be tried in its turn."""
        info = self.active.get(key)
        return info is not None and not self._class_parked(info)

    def _class_parked(self, info: "Info") -> bool:
        return bool(self.bulk_moved) and self.in_classes and info.hash in self.bulk_moved

    def active_infos(self) -> "list[Info]":
        """Who stands in line, in no order."""
        return [info for info in self.active.values() if not self._class_parked(info)]

    def inadmissible_infos(self) -> "list[Info]":
        """Who is parked, in no order."""
        return [*self.inadmissible.values(), *(info for info in self.active.values() if self._class_parked(info))]

    def find(self, key: str) -> "Info | None":
        """The waiting workload of that key, wherever it is."""
        found = self.active.get(key) or self.inadmissible.get(key)
        if found is None and self.inflight is not None and self.inflight.key == key:
            return self.inflight
        return found

    # The line

    def push(self, info: "Info") -> None:
        """Put in line (which parks it, if its class is parked), or replace in place."""
        old = self.active.get(info.key)
        self.active[info.key] = info
        if (
            old is not None
            and old.order == info.order
            and old.local_queue == info.local_queue
            and (not self.in_classes or old.hash == info.hash)
        ):
            info.order = old.order  # the entry in the heap stays good: it is found by identity
            return
        self._insert(info)

    def _insert(self, info: "Info") -> None:
        line = info.local_queue if self.line_usage is not None else ""
        name = info.hash if self.in_classes else ""
        heap = self.classes.get((line, name))
        if heap is None:
            heap = self.classes[line, name] = []
            self.heads.setdefault(line, [])
        heappush(heap, info.order)
        if len(heap) > 64 and len(heap) > 2 * len(self.active):
            alive = {id(order): order for order in heap if self._alive(order)}
            heap[:] = alive.values()
            heapify(heap)
        if heap[0] is info.order and name not in self.bulk_moved:
            self._offer(line, name, info.order)

    def _offer(self, line: str, name: str, order: Order) -> None:
        """A class has a new head. The entry of its old one is stale then, and dropped when it comes up."""
        if self.offered.get((line, name)) is order:
            return
        self.offered[line, name] = order
        heappush(self.heads[line], (order, name))

    def _alive(self, order: Order) -> bool:
        info = self.active.get(order[3])
        return info is not None and info.order is order

    def _first(self, line: str, name: str) -> Order | None:
        """The first of a class that is in line; a class without anyone is forgotten."""
        heap = self.classes.get((line, name))
        if heap is None:
            return None
        while heap:
            if self._alive(heap[0]):
                return heap[0]
            heappop(heap)
        del self.classes[line, name]
        return None

    def _first_of_line(self, line: str) -> Order | None:
        heads, offered = self.heads[line], self.offered
        while heads:
            order, name = heads[0]
            if offered.get((line, name)) is not order:
                heappop(heads)
                continue
            first = self._first(line, name) if name not in self.bulk_moved else None
            if first is order:
                return order
            if first is None:
                heappop(heads)
                del offered[line, name]
            else:
                heapreplace(heads, (first, name))
                offered[line, name] = first
        return None

    def peek(self) -> "Info | None":
        """Who is first: by LocalQueue usage if that counts, then the sticky one, then priority, time, UID."""
        sticky = self.active.get(self.preemptor) if self.sticky and self.preemptor is not None else None
        if sticky is not None and self._class_parked(sticky):
            sticky = None
        if self.line_usage is None:
            if sticky is not None:
                return sticky
            order = self._first_of_line("") if self.heads else None
            return None if order is None else self.active[order[3]]
        best: tuple[float, bool, Order] | None = None
        for line in self.heads:
            order = self._first_of_line(line)
            if order is None:
                continue
            is_sticky = sticky is not None and sticky.local_queue == line
            if is_sticky:
                assert sticky is not None
                order = sticky.order
            rank = (self.line_usage(line), not is_sticky, order)
            if best is None or rank < best:
                best = rank
        return None if best is None else self.active[best[2][3]]

    def pop(self) -> "Info | None":
        """The head, which is then inflight."""
        self.pop_cycle += 1
        head = self.peek()
        if head is None:
            return None
        del self.active[head.key]
        line = head.local_queue if self.line_usage is not None else ""
        name = head.hash if self.in_classes else ""
        heap = self.classes[line, name]
        if heap[0] is head.order:
            heappop(heap)
        self.inflight = head
        self.last_generation[head.key] = head.workload.metadata.generation
        return head

    def in_order(self, infos: "list[Info] | None" = None) -> "list[Info]":
        """The line from first to last, or the workloads given in the order of the line."""

        def rank(info: "Info") -> tuple[float, bool, Order]:
            usage = self.line_usage(info.local_queue) if self.line_usage is not None else 0.0
            return usage, not (self.sticky and info.key == self.preemptor), info.order

        return sorted(self.active_infos() if infos is None else infos, key=rank)

    def arrange(self, usage: Callable[[str], float] | None, *, in_classes: bool) -> None:
        """Order lines by usage, or not; tell equals apart, or not."""
        if (usage is None) == (self.line_usage is None) and in_classes == self.in_classes:
            self.line_usage = usage
            return
        if not in_classes:
            self.bulk_moved.clear()
        self.line_usage, self.in_classes = usage, in_classes
        self.classes.clear()
        self.heads.clear()
        self.offered.clear()
        for info in self.active.values():
            self._insert(info)

    # Parking

    def park_class(self, name: str, reason: str) -> None:
        """No workload of this hash is tried until something changes."""
        self.bulk_moved[name] = reason

    def put_back_classes(self, pace: Pace) -> Sliced[bool]:
        """Parked classes are in line again. True if there were any."""
        moved = False
        for name in list(self.bulk_moved):
            del self.bulk_moved[name]
            for line in self.heads:
                pace.left -= 1
                if pace.left <= 0:
                    yield
                    pace.renew()
                first = self._first(line, name)
                if first is not None:
                    self._offer(line, name, first)
                    moved = True
        return moved

    def put_back(self, info: "Info") -> None:
        """In line again, with its class, as it was before it was parked."""
        if self.inadmissible.pop(info.key, None) is not None:
            self.push(info)
        elif self._class_parked(info) and info.key in self.active:
            del self.bulk_moved[info.hash]
            for line in self.heads:
                first = self._first(line, info.hash)
                if first is not None:
                    self._offer(line, info.hash, first)

    def remove(self, key: str, *, forget: bool = True) -> "Info | None":
        """Take a workload out, wherever it is; `forget` clears its stickiness too."""
        found = self.active.pop(key, None)
        parked = self.inadmissible.pop(key, None)
        if self.inflight is not None and self.inflight.key == key:
            found = found or self.inflight
            self.inflight = None
        self.last_generation.pop(key, None)
        if forget:
            self.forget_preemptor(key)
        return found or parked

    def forget_preemptor(self, key: str) -> None:
        """The workload is through: it comes first no more for having had others preempted."""
        if self.preemptor == key:
            self.preemptor = None
            self.chosen = ()
            self.sticky = False


class Held:
    """The workloads of one LocalQueue that hold quota in a ClusterQueue, by key, and their sums, which cost nothing to
    ask for however many there are."""

    __slots__ = ("admitted", "admitted_usage", "infos", "usage")

    def __init__(self) -> None:
        self.infos: dict[str, Info] = {}
        self.usage: Amounts = {}
        self.admitted = 0
        self.admitted_usage: Amounts = {}
        """Of those that are admitted."""

    def put(self, info: "Info") -> None:
        """One more, or a newer version of it."""
        self.drop(info.key)
        self.infos[info.key] = info
        _add(self.usage, info.usage, 1)
        if info.admitted:
            self.admitted += 1
            _add(self.admitted_usage, info.usage, 1)

    def drop(self, key: str) -> None:
        """One less, if it was there."""
        info = self.infos.pop(key, None)
        if info is not None:
            _add(self.usage, info.usage, -1)
            if info.admitted:
                self.admitted -= 1
                _add(self.admitted_usage, info.usage, -1)

    def keep(self, journal: "Journal") -> None:
        """Let a fork remember everything that may change here."""
        journal.keep_slots(self)
        for container in (self.infos, self.usage, self.admitted_usage):
            journal.keep(container)


def _add(total: Amounts, amounts: Amounts, times: int) -> None:
    """Sums hold no zeros."""
    for pair, amount in amounts.items():
        new = total.get(pair, 0) + times * amount
        if new:
            total[pair] = new
        else:
            total.pop(pair, None)


class ClusterQueue:
    """A ClusterQueue as the engine holds it: its node in the tree, its policies, who waits and who holds quota."""

    __slots__ = (
        "_selects_all",
        "api",
        "best_effort",
        "checks",
        "covers_pods",
        "fungibility",
        "generation",
        "group_of",
        "groups",
        "holders",
        "name",
        "node",
        "pending",
        "preemption",
        "problems",
        "selector",
        "terminating",
        "usage_based",
        "workloads",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node = Node(name, is_queue=True)
        self.pending = Pending()
        self.workloads: dict[str, Info] = {}
        """Who holds quota, by key."""
        self.holders: dict[str, Held] = {}
        """The same by LocalQueue."""
        self.generation = 0
        self.problems: list[tuple[str, str]] = []
        self.terminating = False
        self.update(ApiClusterQueue())

    def update(self, api: ApiClusterQueue) -> None:
        """Take over the spec, but for quotas, which belong to the tree."""
        spec = api.spec
        self.api = api
        self.groups = [
            Group(frozenset(group.covered_resources), tuple(flavor.name for flavor in group.flavors))
            for group in spec.resource_groups
        ]
        self.group_of = {resource: group for group in reversed(self.groups) for resource in group.covered}
        self.covers_pods = "pods" in self.group_of
        self.best_effort = spec.queueing_strategy == "BestEffortFIFO"
        self.fungibility = spec.flavor_fungibility or _DEFAULT_FUNGIBILITY
        self.preemption = spec.preemption or _DEFAULT_PREEMPTION
        self.selector = spec.namespace_selector
        self._selects_all = self.selector is not None and not (
            self.selector.match_labels or self.selector.match_expressions
        )
        scope = spec.admission_scope
        self.usage_based = scope is not None and scope.admission_mode == "UsageBasedAdmissionFairSharing"
        self.checks = spec.admission_checks_strategy.admission_checks if spec.admission_checks_strategy else []

    def hold(self, info: "Info") -> None:
        """Note who holds quota, or a newer version of it."""
        old = self.workloads.get(info.key)
        if old is not None and old.local_queue != info.local_queue:
            self._drop(old)
        self.workloads[info.key] = info
        line = self.holders.get(info.local_queue)
        if line is None:
            line = self.holders[info.local_queue] = Held()
        line.put(info)

    def release(self, key: str) -> "Info":
        """Note that it holds none any more."""
        info = self.workloads.pop(key)
        self._drop(info)
        return info

    def _drop(self, info: "Info") -> None:
        line = self.holders[info.local_queue]
        line.drop(info.key)
        if not line.infos:
            del self.holders[info.local_queue]

    def held(self, *, admitted_only: bool = False) -> Amounts:
        """What all that hold quota use together."""
        total: Amounts = {}
        for line in self.holders.values():
            _add(total, line.admitted_usage if admitted_only else line.usage, 1)
        return total

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether its namespace selector matches; an absent one matches nothing."""
        return self._selects_all or (self.selector is not None and self.selector.matches(labels))

    @property
    def active(self) -> bool:
        """Whether it admits."""
        return not self.problems and not self.terminating

    def may_preempt_while_borrowing(self, fair_sharing: bool) -> bool:
        """Whether a workload past nominal quota may still preempt others."""
        policy = self.preemption
        if fair_sharing and policy.reclaim_within_cohort != "Never":
            return True
        within = policy.borrow_within_cohort
        return within is not None and within.policy != "Never"

    def flavors(self) -> Iterator[str]:
        """Names of its flavors, each once, in order."""
        yield from dict.fromkeys(flavor for group in self.groups for flavor in group.flavors)


def requeue(
    queue: ClusterQueue, info: "Info", reason: str, quota_reason: str, *, backoff_over: bool, unproven: bool = False
) -> bool:
    """Put a head back after a cycle (Kueue: RequeueIfNotPresent): in line again if the reason or a change since calls
    for it, or if it is `unproven` that no flavor has room, else parked, and in a BestEffortFIFO queue all that ask for
    the same with it. True if it is in line."""
    pending = queue.pending
    key = info.key
    if reason in {"PendingPreemption", "PendingMigration"}:
        pending.preemptor = key
        pending.preemptor_generation = pending.last_generation.get(key, 0)
        pending.sticky = queue.best_effort
    if pending.inflight is not None and pending.inflight.key == key:
        pending.inflight = None
    immediate = reason in IMMEDIATE_FOR_BEST_EFFORT if queue.best_effort else reason != "NamespaceMismatch"
    last = info.last_assignment
    again = immediate or unproven or pending.retry_cycle >= pending.pop_cycle or (last is not None and last.pending)
    if backoff_over and again:
        parked = pending.inadmissible.pop(key, None)
        if parked is not None:
            info = parked
        if key in pending.active:
            return False
        pending.push(info)
        return True
    if key in pending.inadmissible or key in pending.active:
        return False
    together = pending.in_classes and info.hash and reason in {"NoFit", "PreemptionNoCandidates"}
    if together:
        pending.park_class(info.hash, quota_reason or PENDING_EVALUATION)
    if together and backoff_over:
        pending.push(info)
    else:
        pending.inadmissible[key] = info
    return False


def is_preemptor(queue: ClusterQueue, key: str, generation: int) -> bool:
    """Whether a workload, in this generation, is the one that last had others preempted for it."""
    return queue.pending.preemptor == key and queue.pending.preemptor_generation == generation


def push_or_update(queue: ClusterQueue, info: "Info", *, backoff_over: bool) -> None:
    """Take in a workload that may wait (Kueue: PushOrUpdate): into line, but parked if it is parked and nothing about
    it changed that could help, if its back-off is not over, or if an equal one was just refused."""
    pending = queue.pending
    key = info.key
    if pending.inflight is not None and pending.inflight.key == key:
        return
    parked = pending.inadmissible.get(key)
    if parked is not None:
        seen = pending.last_generation.get(key)
        if (seen is None or seen == info.workload.metadata.generation) and not could_help(parked, info):
            pending.inadmissible[key] = info
            return
        del pending.inadmissible[key]
    if not backoff_over and not pending.in_line(key):
        pending.active.pop(key, None)
        pending.inadmissible[key] = info
        return
    pending.push(info)


def could_help(old: "Info", new: "Info") -> bool:
    """Whether anything changed that could make a parked workload admissible."""
    before, after = old.workload, new.workload
    boost = new.surroundings.options.gates.priority_boost
    return (
        before.spec != after.spec
        or (boost and before.metadata.annotations.get(PRIORITY_BOOST) != after.metadata.annotations.get(PRIORITY_BOOST))
        or before.status.reclaimable_pods != after.status.reclaimable_pods
        or _state_of(old.condition(EVICTED)) != _state_of(new.condition(EVICTED))
        or _state_of(old.condition(REQUEUED)) != _state_of(new.condition(REQUEUED))
        or preemption_gated(before) != preemption_gated(after)
        or not same_requests(old.totals, new.totals)
    )


def _state_of(condition: Condition | None) -> tuple[str, str, str, str] | None:
    if condition is None:
        return None
    return condition.status, condition.reason, condition.message, condition.last_transition_time
