"""Preemptors of one tree of cohorts, and whether an admission leaves them what their victims make free.

Each preemptor was promised that it fits once its victims have gone. Before a Workload is admitted every promise is to
be asked whether it would be broken: by that Workload, and not without it. That is many Workloads times many promises,
so promises are kept in the order of what can still be taken before they break, and only those that the Workload could
break are asked. Must never decide more than the plain question to each promise would.
"""

from heapq import heappop, heappush
from typing import Final

from turnstile.engine.cycle.entries import Entry, usage_of
from turnstile.engine.pace import Pace, Sliced, discard
from turnstile.engine.quota.amounts import FlavorResource
from turnstile.engine.quota.margins import ENDLESS, Place, arrivals, lefts
from turnstile.engine.quota.tree import Node
from turnstile.engine.quota.trial import Trial, View
from turnstile.engine.quota.usage import Usage

_COST: Final = 12


class Promises:
    """The preemptors of one tree.

    At each Cohort above a preemptor, a heap has how much more may arrive there from elsewhere before the preemptor no
    longer fits. Rather than to lower all of these when a Workload is admitted, `_taken` is raised: by what leaves the
    ClusterQueue of that Workload, which is at least what the Workload takes from any preemptor of another ClusterQueue.
    So a heap may say too little, never too much, and a preemptor that comes up is measured again.
    """

    __slots__ = ("_all", "_broken", "_heaps", "_new", "_taken", "_versions")

    def __init__(self) -> None:
        self._all: dict[Node, Entry] = {}
        """By ClusterQueue: a cycle has one head of each."""
        self._new: list[Entry] = []
        """Those that are in no heap yet."""
        self._broken: set[Entry] = set()
        """Those that do not fit as it is: no admission makes that worse."""
        self._versions: dict[Entry, int] = {}
        """Entries of heaps with another version are stale."""
        self._heaps: dict[Place, list[tuple[int, int, str, Entry]]] = {}
        self._taken: dict[FlavorResource, int] = {}
        """Usage of admitted Workloads that flows out of their ClusterQueues, into their cohort."""

    def __len__(self) -> int:
        return len(self._all)

    def add(self, preemptor: Entry) -> None:
        """Promise a preemptor that it will fit once its victims have gone."""
        self._all[preemptor.queue.node] = preemptor
        self._put(preemptor)

    def _put(self, preemptor: Entry) -> None:
        self._versions[preemptor] = self._versions.get(preemptor, 0) + 1
        self._broken.discard(preemptor)
        self._new.append(preemptor)

    def admitted(self, node: Node, usage: Usage, view: View | None) -> None:
        """A Workload is admitted in a ClusterQueue. Called before the view has its usage."""
        if not self._all:
            return
        places = dict(arrivals(usage, node, view))
        if usage.negative or ENDLESS in places.values():
            self._heaps.clear()
            self._new.clear()
            for each in self._all.values():
                self._put(each)
            return
        for (cohort, pair), amount in places.items():
            if cohort is node.parent:
                self._taken[pair] = self._taken.get(pair, 0) + amount
        if (own := self._all.get(node)) is not None:
            self._put(own)  # what it has left in its own ClusterQueue is less too

    def leave_room(self, entry: Entry, view: View | None, pace: Pace) -> Sliced[bool]:
        """Whether every promise that holds without the admission of an entry holds with it."""
        while self._new:
            pace.left -= _COST
            if pace.left <= 0:
                yield
                pace.renew()
            yield from self._measure(self._new.pop(), view, pace)
        node, usage = entry.queue.node, usage_of(entry)
        asked: set[Entry] = set()
        if (own := self._all.get(node)) is not None:
            asked.add(own)
            if (yield from _breaks(own, node, usage, view, pace)):
                return False
        for place, amount in arrivals(usage, node, view):
            heap = self._heaps.get(place)
            if not heap:
                continue
            taken = self._taken.get(place[1], 0)
            unbroken: list[tuple[int, int, str, Entry]] = []
            good = True
            while good and heap and heap[0][0] - taken < amount:
                item = heappop(heap)
                _, version, key, preemptor = item
                if preemptor in self._broken or version != self._versions[preemptor]:
                    continue
                pace.left -= _COST
                if pace.left <= 0:
                    yield
                    pace.renew()
                left = yield from self._left_at(place, preemptor, view, pace)
                if left is None:
                    self._broken.add(preemptor)
                    continue
                item = left + taken, version, key, preemptor
                if left >= amount:
                    heappush(heap, item)
                    continue
                unbroken.append(item)
                if preemptor not in asked:
                    asked.add(preemptor)
                    good = not (yield from _breaks(preemptor, node, usage, view, pace))
            for item in unbroken:
                heappush(heap, item)
            if not good:
                return False
        return True

    def discard(self, pace: Pace) -> Sliced[None]:
        """Let go of all promises: the cycle asks them no more."""
        for heap in self._heaps.values():
            yield from discard(heap, pace)
        yield from discard(self._versions, pace)
        yield from discard(self._all, pace)

    def _measure(self, preemptor: Entry, view: View | None, pace: Pace) -> Sliced[None]:
        """Put a preemptor into the heaps of the Cohorts above it, if it fits once its victims have gone."""
        version, key = self._versions[preemptor], preemptor.info.key
        with Trial(view) as trial:
            if not (yield from _fits(preemptor, trial, pace)):
                self._broken.add(preemptor)
                return
            for place, left in lefts(usage_of(preemptor), preemptor.queue.node):
                item = left + self._taken.get(place[1], 0), version, key, preemptor
                heappush(self._heaps.setdefault(place, []), item)

    @staticmethod
    def _left_at(place: Place, preemptor: Entry, view: View | None, pace: Pace) -> Sliced[int | None]:
        with Trial(view) as trial:
            if not (yield from _fits(preemptor, trial, pace)):
                return None
            usage, node = usage_of(preemptor), preemptor.queue.node
            return next(left for each, left in lefts(usage, node) if each == place)


def _fits(preemptor: Entry, trial: Trial, pace: Pace) -> Sliced[bool]:
    """Whether a preemptor fits, its victims gone: these are taken off in the trial."""
    trial.show(preemptor.queue.node)
    yield from trial.remove_all(preemptor.targets.freed, pace)
    return usage_of(preemptor).fits(preemptor.queue.node)


def _breaks(preemptor: Entry, node: Node, usage: Usage, view: View | None, pace: Pace) -> Sliced[bool]:
    """Whether a preemptor, its victims gone, fits without that usage in a ClusterQueue, and not with it."""
    with Trial(view) as trial:
        if not (yield from _fits(preemptor, trial, pace)):
            return False
        trial.add(node, usage)
        return not usage_of(preemptor).fits(preemptor.queue.node)
