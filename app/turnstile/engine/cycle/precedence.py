"""In which order the entries of a cycle come, where Workloads were preempted for some of them before.

No Workload comes before the one that it was preempted for. Nor, if it would borrow and has no higher priority, before
one of the same tree that waits for its victims. In Kueue a victim that borrows less than its preemptor, or whose share
is smaller, comes first; it is let in again, and preempted again. Or a third one takes the quota, and Workloads were
preempted for nothing. Must never change the order for any other reason.
"""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush

from turnstile.engine.cycle.entries import Entry, waits_for_victims
from turnstile.engine.pace import Pace
from turnstile.engine.quota.tree import Node


def after_their_preemptors(entries: list[Entry], order: Iterable[Entry | None], pace: Pace) -> Iterator[Entry | None]:
    """In the order given, but for those that must wait for a preemptor: these follow it. None where many preemptors
    call for a stop, or the order does."""
    waits = _Waits()
    for entry in entries:
        if waits_for_victims(entry):
            pace.left -= 3
            if pace.left <= 0:
                pace.renew()
                yield None
            waits.add(entry)
    if not waits:
        yield from order
        return
    for each in order:
        if each is None:
            yield None
        elif not waits.hold_up(each):
            yield each
            yield from waits.follow(each)
    while (first := waits.break_circle()) is not None:
        yield first
        yield from waits.follow(first)


class _Waits:
    """Preemptors that are still to come, and entries that wait for them: each event costs what it concerns."""

    def __init__(self) -> None:
        self._ahead: dict[str, Entry] = {}
        self._preemptors_of: dict[str, int] = {}
        """By key of a victim: how many of the preemptors that are still to come have it."""
        self._priorities: dict[Node, list[tuple[int, str]]] = {}
        """By root: the preemptors that are still to come, and some that were, the highest priority first."""
        self._held_up: dict[str, tuple[int, Entry]] = {}
        """By key, with the place among those that were held up."""
        self._places: list[str] = []
        self._borrowers: dict[Node, list[tuple[int, str]]] = {}
        """Those held up that would borrow, by root, the highest priority first."""
        self._first = self._first_ahead = 0

    def __bool__(self) -> bool:
        return bool(self._ahead)

    def add(self, preemptor: Entry) -> None:
        """One more preemptor that is still to come. All are added before the first entry has its turn."""
        key = preemptor.info.key
        self._ahead[key] = preemptor
        heappush(self._priorities.setdefault(preemptor.queue.node.root, []), (-preemptor.info.priority, key))
        for victim in _victims(preemptor):
            self._preemptors_of[victim] = self._preemptors_of.get(victim, 0) + 1

    def hold_up(self, entry: Entry) -> bool:
        """Whether an entry must wait. It is given out once it need not any more."""
        if not self._must_wait(entry):
            return False
        key = entry.info.key
        self._held_up[key] = len(self._places), entry
        self._places.append(key)
        if borrows_freely(entry):
            heappush(self._borrowers.setdefault(entry.queue.node.root, []), (-entry.info.priority, key))
        return True

    def _must_wait(self, entry: Entry) -> bool:
        if entry.info.key in self._preemptors_of:
            return True
        highest = self._highest(entry.queue.node.root) if borrows_freely(entry) else None
        return highest is not None and entry.info.priority <= highest

    def _highest(self, root: Node) -> int | None:
        """The highest priority of the preemptors of a tree that are still to come."""
        priorities = self._priorities.get(root)
        while priorities and priorities[0][1] not in self._ahead:
            heappop(priorities)
        return -priorities[0][0] if priorities else None

    def follow(self, entry: Entry) -> Iterator[Entry]:
        """An entry had its turn: those that waited for it, and need not wait any more, in the order they were held up,
        each followed by those that waited for that one."""
        free = self._passed(entry)
        heapify(free)
        while free:
            found = self._held_up.pop(heappop(free)[1], None)
            if found is not None:
                yield found[1]
                for each in self._passed(found[1]):
                    heappush(free, each)

    def _passed(self, entry: Entry) -> list[tuple[int, str]]:
        """A preemptor, if it is one, is not to come any more: who need not wait now."""
        if self._ahead.pop(entry.info.key, None) is None:
            return []
        concerned = []
        for key in _victims(entry):
            left = self._preemptors_of[key] - 1
            if left:
                self._preemptors_of[key] = left
            else:
                del self._preemptors_of[key]
                concerned.append(key)
        root = entry.queue.node.root
        borrowers, highest = self._borrowers.get(root), self._highest(root)
        while borrowers and (highest is None or -borrowers[0][0] > highest):
            concerned.append(heappop(borrowers)[1])
        found = [self._held_up[key] for key in concerned if key in self._held_up]
        return [(place, each.info.key) for place, each in found if not self._must_wait(each)]

    def break_circle(self) -> Entry | None:
        """One of those that are held up for ever: each made way for another of them. The first preemptor goes."""
        places, held_up = self._places, self._held_up
        while self._first_ahead < len(places):
            key = places[self._first_ahead]
            if key in held_up and key in self._ahead:
                return held_up.pop(key)[1]
            self._first_ahead += 1
        while self._first < len(places):
            found = held_up.pop(places[self._first], None)
            if found is not None:
                return found[1]
            self._first += 1
        return None


def _victims(preemptor: Entry) -> Iterator[str]:
    """Keys of the Workloads that were preempted for it; it does not wait for itself."""
    assert preemptor.nomination is not None
    return (key for key in preemptor.nomination.victims if key != preemptor.info.key)


def borrows_freely(entry: Entry) -> bool:
    """Whether it would borrow, and not what others were preempted for."""
    assert entry.assignment is not None
    return entry.assignment.borrowing > 0 and not waits_for_victims(entry)
