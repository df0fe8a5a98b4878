"""The one gate through which every write of a process passes: how many at a time, and which of those that wait is next.

Writes that the API server cannot take at once wait here and not in the server. `Window` decides how many may be in
flight. Which write is next:

- *Urgent* writes, of the ranks up to CREATE, go first. Namespaces take turns, so that a flood in one of them does not
  delay the others; within a namespace the better rank goes first, so that a job that has come far is finished before
  the next one is begun.
- Admissions and the evictions for them have fewer places than the window (`Window.few`). Quota is taken by an admission
  from the moment of its decision, and a server that is full has more use for the writes that start and end jobs.
- While several namespaces write, each has at most `BESIDE_OTHERS` urgent writes in flight: a write of a namespace with
  few waits in the server behind all that are in flight there, and so do the watch events that it follows.
- The other ranks begin only while no urgent write waits, is in flight, or was in flight within `STILL_SECONDS`, and
  while the server is at ease. The next step after a write (the start of a job, after its admission) begins within that
  time.
- One of these ranks gets a turn all the same when it had none for `PATIENCE_SECONDS`, or, beside urgent writes, for
  `PATIENCE_ANSWERS` times what the server takes for a write if that is longer: they are slowed down, never stopped.

A caller must compute what it writes after it got its turn, or make sure then that what it has computed is still right.
Only the Lease has a way of its own.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from turnstile.kube.fairness import FairQueue
from turnstile.kube.window import Window
from turnstile.kube.workqueue import TIMER_SECONDS

BESIDE_OTHERS: Final = 8
"""Urgent writes that one namespace may have in flight while another one writes too."""
OTHERS_SECONDS: Final = 5.0
"""Seconds after an urgent write for which its namespace counts as one that writes."""
STILL_SECONDS: Final = 0.05
"""Seconds without an urgent write before writes that are not urgent begin."""
PATIENCE_SECONDS: Final = 1.0
"""Seconds without a turn after which a rank that is not urgent gets one."""
PATIENCE_ANSWERS: Final = 2.0
"""The same beside urgent writes, as a multiple of what the server takes for a write."""


class Rank(IntEnum):
    """Writes by their use to people, most useful first."""

    START = 0
    """Starts of jobs."""
    ADMIT = 1
    """Admissions, and the evictions of victims for them."""
    STOP = 2
    """Other evictions, stops and ends of jobs, and all changes that belong to no other rank."""
    CREATE = 3
    """Creation of Workloads."""
    STATUS = 4
    """Statuses of queues, and finalizers of what has ended."""
    REASON = 5
    """Reasons why Workloads wait."""
    EVENT = 6

    @property
    def word(self) -> str:
        """As a label of metrics."""
        return self.name.lower()

    @property
    def urgent(self) -> bool:
        """Whether such writes wait for nothing but a place in the window."""
        return self <= Rank.CREATE


LATER: Final = tuple(rank for rank in Rank if not rank.urgent)


@dataclass(slots=True)
class Stats:
    """Counts since the start, by rank."""

    turns: Counter[Rank] = field(default_factory=Counter)
    """Turns given."""
    waited: dict[Rank, float] = field(default_factory=lambda: dict.fromkeys(Rank, 0.0))
    """Seconds that writes have waited for their turns."""


@dataclass(slots=True, eq=False)
class _Turn:
    rank: Rank
    flow: str
    come: asyncio.Future[None]
    queue: FairQueue["_Turn"]
    """Where the turn waits."""
    order: tuple[int, int]


class _Kept:
    """A turn for the time of a block. A class, because every write has a turn, and an async generator costs more."""

    __slots__ = ("_flow", "_gate", "_priority", "_rank")

    def __init__(self, gate: "Gate", rank: Rank, flow: str, priority: int) -> None:
        self._gate, self._rank, self._flow, self._priority = gate, rank, flow, priority

    async def __aenter__(self) -> bool:
        return await self._gate.enter(self._rank, self._flow, self._priority)

    async def __aexit__(self, *_: object) -> None:
        self._gate.leave(self._rank, self._flow)


class Gate:
    """Gives turns to write. Belongs to one event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.window = Window(clock)
        self.stats = Stats()
        self._urgent: FairQueue[_Turn] = FairQueue()
        self._decided: FairQueue[_Turn] = FairQueue()
        """Admissions that wait because as many as may be in flight are, or wait among the urgent writes."""
        self._admitting = 0  # admissions in flight and among the urgent writes
        self._later: dict[Rank, FairQueue[_Turn]] = {rank: FairQueue() for rank in LATER}
        self._waiting: Counter[Rank] = Counter(dict.fromkeys(Rank, 0))
        self._in_flight: Counter[Rank] = Counter()
        self._flying = self._urgent_flying = 0  # sums of `_in_flight`: of all ranks, and of the urgent ones
        self._of_flow: Counter[str] = Counter()  # urgent writes in flight
        # The namespace of the latest urgent write, when it had one last, and when another namespace had one last.
        self._latest, self._latest_at, self._others_at = "", -math.inf, -math.inf
        self._served_at = dict.fromkeys(LATER, -math.inf)
        self._last_urgent = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    # --- what callers see ---------------------------------------------------------------------------------------------

    def turn(self, rank: Rank, flow: str = "", priority: int = 0) -> "_Kept":
        """Wait for a turn, and keep it while the block lasts; `as` whether it had to wait. `flow` is a namespace, of
        whose writes of one rank those of a higher `priority` go first."""
        return _Kept(self, rank, flow, priority)

    async def quiet(self, *, still: float, at_most: float) -> None:
        """Return after `still` seconds without urgent writes and with a server at ease, or after `at_most`."""
        deadline = self._clock() + at_most
        while (now := self._clock()) < deadline:
            left = still if self._busy else self._last_urgent + still - now
            if left <= 0 and self.window.at_ease:
                return
            # A sleep that is shorter than the clock is fine would not bring the deadline nearer.
            await asyncio.sleep(max(0.001, min(max(left, 0.01), deadline - now)))

    def waiting(self, rank: Rank) -> int:
        """Number of writes of a rank that wait for a turn."""
        return self._waiting[rank]

    @property
    def backlog_seconds(self) -> float:
        """Seconds in which the server will have answered all urgent writes that wait now, by its present latency."""
        waiting = len(self._urgent) / self.window.size + len(self._decided) / self.window.few
        return self.window.latency * (1.0 + waiting)

    def in_flight(self, rank: Rank) -> int:
        """Number of writes of a rank that have a turn."""
        return self._in_flight[rank]

    def answered(self, what: str, seconds: float, *, done: bool = True) -> None:
        """Record what the server took for a kind of write, as `Window.answered`. Turns are given when this write leaves
        its own."""
        self.window.answered(what, seconds, in_flight=self._flying, done=done)

    # --- turns --------------------------------------------------------------------------------------------------------

    async def enter(self, rank: Rank, flow: str, priority: int = 0) -> bool:
        """Wait for a turn, for `turn`; returns whether it had to wait."""
        queue = self._decided if rank is Rank.ADMIT else self._urgent if rank.urgent else self._later[rank]
        turn = _Turn(rank, flow, asyncio.get_running_loop().create_future(), queue, (rank, -priority))
        since = self._clock()
        if rank.urgent and flow:
            self._note_writer(flow, since)
        if not rank.urgent and not queue:
            self._served_at[rank] = max(self._served_at[rank], since)  # patience counts from the first that waits
        queue.add(turn, flow, turn.order)
        self._waiting[rank] += 1
        self._serve()
        if turn.come.done():
            return False
        try:
            await turn.come
        except asyncio.CancelledError:
            if turn.come.cancelled():
                turn.queue.remove(turn, flow, turn.order)
                self._waiting[rank] -= 1
                if turn.queue is self._urgent and rank is Rank.ADMIT:
                    self._admitting -= 1
            else:
                self.leave(rank, flow)  # the turn came at the same moment
            raise
        self.stats.waited[rank] += self._clock() - since
        return True

    def leave(self, rank: Rank, flow: str) -> None:
        """End a turn, for `turn`."""
        self._count(rank, flow, -1)
        if rank is Rank.ADMIT:
            self._admitting -= 1
        if rank.urgent:
            self._last_urgent = self._clock()
        self._serve()

    def _serve(self) -> None:
        """Give turns while the window has room."""
        if not any(self._waiting.values()):
            return
        while self._flying < self.window.size:
            self._call_admissions()
            now = self._clock()
            queue = self._next(now)
            if queue is None:
                break
            try:
                turn = queue.pop(barred=self._has_enough) if queue is self._urgent else queue.pop()
            except KeyError:
                break  # each namespace that waits has enough in flight: the next answer to one of them comes back here
            if turn.come.done():
                continue  # its caller was cancelled, and takes it off the count
            rank = turn.rank
            self._waiting[rank] -= 1
            self._count(rank, turn.flow, 1)
            self.stats.turns[rank] += 1
            if not rank.urgent:
                self._served_at[rank] = now
            turn.come.set_result(None)
        self._check_again()

    def _call_admissions(self) -> None:
        """Let as many admissions as may be in flight wait among the urgent writes."""
        while self._decided and self._admitting < self.window.few:
            turn = self._decided.pop()
            turn.queue = self._urgent
            self._urgent.add(turn, turn.flow, turn.order)
            self._admitting += 1

    def _next(self, now: float) -> FairQueue[_Turn] | None:
        """The queue whose turn it is; None if no write may begin now."""
        waiting = [(rank, queue) for rank, queue in self._later.items() if self._waiting[rank] and queue]
        if waiting:
            patience = self._patience
            for rank, queue in waiting:
                if now >= self._served_at[rank] + patience:
                    return queue
        if self._urgent:
            return self._urgent
        if not waiting or self._busy or now < self._last_urgent + STILL_SECONDS or not self.window.at_ease:
            return None
        return waiting[0][1]

    @property
    def _patience(self) -> float:
        # Without urgent writes the latency may be that of one write that got no answer long ago.
        return max(PATIENCE_SECONDS, PATIENCE_ANSWERS * self.window.latency if self._busy else 0.0)

    @property
    def _busy(self) -> bool:
        """Whether urgent writes wait or are in flight."""
        return bool(self._urgent) or self._urgent_flying > 0

    def _count(self, rank: Rank, flow: str, change: int) -> None:
        self._in_flight[rank] += change
        self._flying += change
        if rank.urgent:
            self._urgent_flying += change
            self._of_flow[flow] += change
            if not self._of_flow[flow]:
                del self._of_flow[flow]

    def _note_writer(self, flow: str, now: float) -> None:
        """Remember that a namespace has something urgent to write."""
        if flow != self._latest:
            self._others_at = self._latest_at
            self._latest = flow
        self._latest_at = now

    def _has_enough(self, flow: str) -> bool:
        """Whether a namespace has as many urgent writes in flight as it may while another namespace writes."""
        if not flow or self._of_flow[flow] < BESIDE_OTHERS:
            return False
        others_at = self._others_at if flow == self._latest else self._latest_at
        return self._clock() < others_at + OTHERS_SECONDS

    def _check_again(self) -> None:
        """Have `_serve` called when the next of the ranks that wait may begin, if no answer comes before."""
        ranks = [rank for rank in LATER if self._waiting[rank]]
        if not ranks or self._flying >= self.window.size:
            return
        now = self._clock()
        due = min(self._served_at[rank] for rank in ranks) + self._patience
        if not self._busy and self.window.at_ease:
            due = min(due, self._last_urgent + STILL_SECONDS)
        loop = asyncio.get_running_loop()
        when = loop.time() + max(TIMER_SECONDS, due - now)
        if self._timer is not None:
            if self._timer.when() <= when:
                return  # looks early, and then again
            self._timer.cancel()
        self._timer = loop.call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._serve()
