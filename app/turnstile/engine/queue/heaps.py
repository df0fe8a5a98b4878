"""The Workloads that wait in one ClusterQueue: active, inadmissible, or being looked at by a cycle; and which is next.

Order is by priority and queue timestamp; admission fair sharing puts the LocalQueue with the least usage first. While
the head waits for its victims, a cycle looks at the next Workload too (`turnstile.engine.cycle.passing`).
Sources: Kueue's queue cache. Must never look at quota.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from turnstile.engine.pace import Pace, Sliced
from turnstile.engine.queue.nomination import Nomination
from turnstile.engine.quota.ordering import OrderKey as Order

if TYPE_CHECKING:
    from turnstile.engine.quota.info import Info


class Pending:
    """The workloads that wait in one ClusterQueue.

    Active Workloads are kept in one heap for each class of equals (by scheduling hash; one class for all in a
    StrictFIFO queue), and a heap of the classes' heads on top, one for the whole queue, or one for each LocalQueue
    where admission fair sharing orders them by usage. So a class is made inadmissible, or put back, at the cost of one
    step, however many are in it, and a change of usage costs nothing. Heaps are cleaned lazily: an entry is good if it
    is the very order key of the Workload that is active.
    """

    __slots__ = (
        "active",
        "bulk_moved",
        "classes",
        "heads",
        "in_classes",
        "inadmissible",
        "inflight",
        "kept_for",
        "last_generation",
        "local_queue_usage",
        "members",
        "nomination",
        "offered",
        "passing",
        "pop_cycle",
        "retry_cycle",
    )

    def __init__(self) -> None:
        self.active: dict[str, Info] = {}
        """Active, and inadmissible with their class."""
        self.inadmissible: dict[str, Info] = {}
        """Inadmissible one by one."""
        self.inflight: Info | None = None
        """The head that a cycle works on."""
        self.passing: Info | None = None
        """The Workload that a cycle tries beside the claim of that head."""
        self.bulk_moved: dict[str, str] = {}
        """Inadmissible classes: the reason of QuotaReserved by hash."""
        self.classes: dict[tuple[str, str], list[Order]] = {}
        self.heads: dict[str, list[tuple[Order, str]]] = {}
        self.offered: dict[tuple[str, str], Order] = {}
        """The one good entry of each class in `heads`."""
        self.members: dict[tuple[str, str], int] = {}
        """How many of `active` are in each class, by hash and LocalQueue; empty unless equals are told apart."""
        self.in_classes = False
        self.pop_cycle = 0
        self.retry_cycle = -1
        self.nomination: Nomination | None = None
        """Nomination of the Workload for which others were preempted last."""
        self.kept_for = ""
        """The Workload for which the ClusterQueue keeps what comes free, as the last cycle left it."""
        self.last_generation: dict[str, int] = {}
        self.local_queue_usage: Callable[[str], float] | None = None

    def __len__(self) -> int:
        under_way = (self.inflight is not None) + (self.passing is not None)
        return len(self.active) + len(self.inadmissible) + under_way

    # How many

    def counts(self) -> tuple[int, int]:
        """How many are active (those that a cycle works on included), and how many are inadmissible."""
        inadmissible = len(self.inadmissible) + sum(self.inadmissible_members().values())
        return len(self) - inadmissible, inadmissible

    def inadmissible_members(self) -> dict[str, int]:
        """How many Workloads are inadmissible with their class, by LocalQueue."""
        counts: dict[str, int] = {}
        if self.in_classes and self.bulk_moved:
            for (name, local_queue), count in self.members.items():
                if name in self.bulk_moved:
                    counts[local_queue] = counts.get(local_queue, 0) + count
        return counts

    def _enter(self, info: "Info") -> None:
        if self.in_classes:
            member = info.hash, info.local_queue
            self.members[member] = self.members.get(member, 0) + 1

    def _quit(self, info: "Info") -> None:
        if self.in_classes:
            member = info.hash, info.local_queue
            rest = self.members[member] - 1
            self.members[member] = rest
            if not rest:
                del self.members[member]

    # Where a workload is

    def is_inadmissible(self, info: "Info") -> bool:
        """Whether it waits without being tried."""
        return info.key in self.inadmissible or (info.key in self.active and self._class_inadmissible(info))

    def is_active(self, key: str) -> bool:
        """Whether it will be tried in its turn."""
        info = self.active.get(key)
        return info is not None and not self._class_inadmissible(info)

    def _class_inadmissible(self, info: "Info") -> bool:
        return bool(self.bulk_moved) and self.in_classes and info.hash in self.bulk_moved

    def active_infos(self) -> "list[Info]":
        """The active Workloads, in no order."""
        return [info for info in self.active.values() if not self._class_inadmissible(info)]

    def inadmissible_infos(self) -> "list[Info]":
        """The inadmissible Workloads, in no order."""
        return [*self.inadmissible.values(), *(info for info in self.active.values() if self._class_inadmissible(info))]

    def find(self, key: str) -> "Info | None":
        """The waiting workload of that key, wherever it is."""
        found = self.active.get(key) or self.inadmissible.get(key)
        if found is None and self.inflight is not None:
            return next((info for info in self.under_way if info.key == key), None)
        return found

    @property
    def under_way(self) -> "list[Info]":
        """The Workloads that a cycle works on."""
        return [info for info in (self.inflight, self.passing) if info is not None]

    def put_down(self, key: str) -> "Info | None":
        """The cycle is done with a Workload, which is returned if the cycle worked on it."""
        for place in ("inflight", "passing"):
            info: Info | None = getattr(self, place)
            if info is not None and info.key == key:
                setattr(self, place, None)
                return info
        return None

    # The order

    def push(self, info: "Info") -> None:
        """Make active (or inadmissible, if its class is), or replace in place."""
        old = self.active.get(info.key)
        self.active[info.key] = info
        if old is not None:
            self._quit(old)
        self._enter(info)
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
        local_queue = info.local_queue if self.local_queue_usage is not None else ""
        name = info.hash if self.in_classes else ""
        heap = self.classes.get((local_queue, name))
        if heap is None:
            heap = self.classes[local_queue, name] = []
            self.heads.setdefault(local_queue, [])
        heappush(heap, info.order)
        if len(heap) > 64 and len(heap) > 2 * len(self.active):
            alive = {id(order): order for order in heap if self._alive(order)}
            heap[:] = alive.values()
            heapify(heap)
        if heap[0] is info.order and name not in self.bulk_moved:
            self._offer(local_queue, name, info.order)

    def _offer(self, local_queue: str, name: str, order: Order) -> None:
        """A class has a new head. The entry of its old one is stale then, and dropped when it comes up."""
        if self.offered.get((local_queue, name)) is order:
            return
        self.offered[local_queue, name] = order
        heappush(self.heads[local_queue], (order, name))

    def _alive(self, order: Order) -> bool:
        info = self.active.get(order[-1])
        return info is not None and info.order is order

    def _first(self, local_queue: str, name: str) -> Order | None:
        """The first active Workload of a class; a class without any is forgotten."""
        heap = self.classes.get((local_queue, name))
        if heap is None:
            return None
        active = self.active
        while heap:
            order = heap[0]
            info = active.get(order[-1])
            if info is not None and info.order is order:
                return order
            heappop(heap)
        del self.classes[local_queue, name]
        return None

    def _first_of(self, local_queue: str) -> Order | None:
        heads, offered = self.heads[local_queue], self.offered
        while heads:
            order, name = heads[0]
            if offered.get((local_queue, name)) is not order:
                heappop(heads)
                continue
            first = self._first(local_queue, name) if name not in self.bulk_moved else None
            if first is order:
                return order
            if first is None:
                heappop(heads)
                del offered[local_queue, name]
            else:
                heapreplace(heads, (first, name))
                offered[local_queue, name] = first
                if heads[0][0] is first:
                    return first
        return None

    def peek(self) -> "Info | None":
        """The next Workload: by LocalQueue usage if that counts, then the sticky one, then priority, time, UID."""
        first = self.first
        sticky = self.active.get(first) if first is not None else None
        if sticky is not None and self._class_inadmissible(sticky):
            sticky = None
        if self.local_queue_usage is None:
            if sticky is not None:
                return sticky
            order = self._first_of("") if self.heads else None
            return None if order is None else self.active[order[-1]]
        best: tuple[float, bool, Order] | None = None
        for local_queue in self.heads:
            order = self._first_of(local_queue)
            if order is None:
                continue
            is_sticky = sticky is not None and sticky.local_queue == local_queue
            if is_sticky:
                assert sticky is not None
                order = sticky.order
            rank = (self.local_queue_usage(local_queue), not is_sticky, order)
            if best is None or rank < best:
                best = rank
        return None if best is None else self.active[best[2][-1]]

    @property
    def waits(self) -> bool:
        """Whether any Workload is active."""
        return bool(self.active) and any(self.heads.values()) and self.peek() is not None

    def pop(self) -> "Info | None":
        """The head, which is then inflight."""
        self.pop_cycle += 1
        self.inflight = self._take_first()
        return self.inflight

    def set_head_aside(self) -> "Info | None":
        """Make the head that is inflight inadmissible; the next head, which is then inflight."""
        head = self.inflight
        if head is not None:
            self.inadmissible[head.key] = head
            self.inflight = self._take_first()
        return self.inflight

    def pop_beside(self) -> "Info | None":
        """The next after the head that is inflight. Equals of the head are passed over: where it does not fit, they do
        not fit beside it."""
        head = self.inflight
        name = head.hash if head is not None and self.in_classes else ""
        aside = bool(name) and name not in self.bulk_moved
        if aside:
            self.bulk_moved[name] = ""
        self.passing = self._take_first()
        if aside:
            self._put_back_class(name)
        return self.passing

    def _take_first(self) -> "Info | None":
        head = self.peek()
        if head is None:
            return None
        self.take_out(head.key)
        local_queue = head.local_queue if self.local_queue_usage is not None else ""
        name = head.hash if self.in_classes else ""
        heap = self.classes[local_queue, name]
        if heap[0] is head.order:
            heappop(heap)
        self.last_generation[head.key] = head.generation
        return head

    def in_order(self, infos: "list[Info] | None" = None) -> "list[Info]":
        """The Workloads that wait from first to last, or those given, in that order."""

        first = self.first

        def rank(info: "Info") -> tuple[float, bool, Order]:
            usage = self.local_queue_usage(info.local_queue) if self.local_queue_usage is not None else 0.0
            return usage, info.key != first, info.order

        return sorted(self.active_infos() if infos is None else infos, key=rank)

    def arrange(self, usage: Callable[[str], float] | None, *, in_classes: bool) -> None:
        """Order LocalQueues by usage, or not; tell equals apart, or not."""
        if (usage is None) == (self.local_queue_usage is None) and in_classes == self.in_classes:
            self.local_queue_usage = usage
            return
        if not in_classes:
            self.bulk_moved.clear()
        self.local_queue_usage, self.in_classes = usage, in_classes
        self.members.clear()
        self.classes.clear()
        self.heads.clear()
        self.offered.clear()
        for info in self.active.values():
            self._enter(info)
            self._insert(info)

    # Inadmissible classes

    def make_class_inadmissible(self, name: str, reason: str) -> None:
        """No workload of this hash is tried until something changes."""
        self.bulk_moved[name] = reason

    def put_back_classes(self, pace: Pace) -> Sliced[bool]:
        """Inadmissible classes are active again. True if there were any."""
        moved = False
        for name in list(self.bulk_moved):
            del self.bulk_moved[name]
            for local_queue in self.heads:
                pace.left -= 1
                if pace.left <= 0:
                    yield
                    pace.renew()
                first = self._first(local_queue, name)
                if first is not None:
                    self._offer(local_queue, name, first)
                    moved = True
        return moved

    def put_back(self, info: "Info") -> None:
        """Active again, with its class, as before it became inadmissible."""
        if self.inadmissible.pop(info.key, None) is not None:
            self.push(info)
        elif self._class_inadmissible(info) and info.key in self.active:
            self._put_back_class(info.hash)

    def _put_back_class(self, name: str) -> None:
        del self.bulk_moved[name]
        for local_queue in self.heads:
            first = self._first(local_queue, name)
            if first is not None:
                self._offer(local_queue, name, first)

    def take_out(self, key: str) -> "Info | None":
        """Take a workload out of `active`."""
        info = self.active.pop(key, None)
        if info is not None:
            self._quit(info)
        return info

    def remove(self, key: str, *, forget: bool = True) -> "Info | None":
        """Take a workload out, wherever it is; `forget` clears its stickiness too."""
        found = self.take_out(key)
        inadmissible = self.inadmissible.pop(key, None)
        found = self.put_down(key) or found
        self.last_generation.pop(key, None)
        if forget:
            self.end_nomination(key)
        return found or inadmissible

    # The preemptor

    @property
    def first(self) -> str | None:
        """The Workload that comes first for having had others preempted."""
        nomination = self.nomination
        return nomination.preemptor if nomination is not None and nomination.sticky else None

    def nominated(self, key: str, generation: int) -> "Nomination | None":
        """The nomination of a Workload in that generation."""
        nomination = self.nomination
        return nomination if nomination is not None and nomination.of(key, generation) else None

    def nominate(self, key: str, *, sticky: bool) -> None:
        """A Workload has others preempted, or migrated. It replaces the preemptor before it."""
        generation = self.last_generation.get(key, 0)
        if self.nominated(key, generation) is None:
            self.nomination = Nomination(key, generation, sticky)

    def end_nomination(self, key: str) -> None:
        """The Workload has quota, or waits no more."""
        if self.nomination is not None and self.nomination.preemptor == key:
            self.nomination = None
