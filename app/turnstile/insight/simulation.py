"""A ledger on which time passes: Workloads end when they are said to, others come, and the engine decides each time.

The world is otherwise as kind as in `whatif`: writes succeed, victims end at once and start anew later, and admission
checks answer at once. Used to forecast, with run times and arrivals that are drawn, and to replay a trace, with those
that it tells. Must never draw lots, and never decide anything itself.
"""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from heapq import heappop, heappush

from turnstile.api.errors import InvalidValue
from turnstile.api.workload import Workload
from turnstile.engine import State
from turnstile.engine.instants import Instant
from turnstile.insight.runtimes import ENDLESS, started
from turnstile.insight.whatif import decided, let_victims_go

Lasts = Callable[[Workload, float], float]
"""How long a Workload runs in all, given for how long it has run already; ENDLESS if nobody knows."""


class Simulation:
    """The events on a state, which it changes, from an instant on."""

    def __init__(
        self, state: State, now: Instant, lasts: Lasts, arrivals: Iterable[tuple[Instant, Workload]] = ()
    ) -> None:
        self.state = state
        self.now = now
        self.admitted: dict[str, Instant] = {}
        """When Workloads were admitted first, since the beginning."""
        self.runs: dict[str, Instant] = {}
        """Since when Workloads run that hold quota now."""
        self.ended: list[tuple[Instant, Workload, float]] = []
        """Runs that have ended: when, of which Workload, and how long each was."""
        self._lasts = lasts
        self._arrivals = iter(arrivals)
        self._next = next(self._arrivals, None)
        self._ends: list[tuple[Instant, str, int]] = []
        self._number: dict[str, int] = {}
        """How many runs each Workload has begun: the end of an earlier one is void."""
        let_victims_go(state, now)
        for queue in state.cluster_queues.values():
            for info in list(queue.workloads.values()):
                begin = started(info.workload)
                self._begin(info.workload, now if begin is None else min(begin, now))
        self._decide()

    def step(self) -> bool:
        """On to the next end, arrival or deadline; False if there is none any more."""
        ends = self._ends[0][0] if self._ends else ENDLESS
        comes = self._next[0] if self._next is not None else ENDLESS
        alone = self.state.deadlines.next
        at = min(ends, comes, ENDLESS if alone is None else alone)
        if at == ENDLESS:
            return False
        self.now = max(self.now, at)
        while self._ends and self._ends[0][0] <= self.now:
            _, key, number = heappop(self._ends)
            if key in self.runs and self._number[key] == number:
                self.ended.append((self.now, self.state.workloads[key].workload, self.now - self.runs.pop(key)))
                self.state.node_table.drop_pods_of(key)
                self.state.drop_workload(key)
        while self._next is not None and self._next[0] <= self.now:
            self._come(self._next[1])
            self._next = next(self._arrivals, None)
        self.state.pass_deadlines(self.now)
        self._decide()
        return True

    def until_admitted(self, keys: Collection[str], *, horizon: Instant = ENDLESS) -> None:
        """On until all of these Workloads have been admitted, no run that is known of ends any more, or it is so
        late."""
        missing = set(keys) - self.admitted.keys()
        while missing and self._goes_on and self.now <= horizon and self.step():
            missing = {key for key in missing if key not in self.admitted}

    @property
    def _goes_on(self) -> bool:
        """Whether a run that is known of ends, or time alone will change what is decided."""
        return bool(self._ends) or self.state.deadlines.next is not None

    def _come(self, workload: Workload) -> None:
        with suppress(InvalidValue):  # such a one cannot be admitted in a cluster either
            self.state.put_workload(workload, self.now)

    def _decide(self) -> None:
        for _, fates in decided(self.state, self.now):
            for fate in fates:
                if fate.outcome == "preempted":
                    self.runs.pop(fate.key, None)
                else:
                    self.admitted.setdefault(fate.key, self.now)
                    self._begin(self.state.workloads[fate.key].workload, self.now)

    def _begin(self, workload: Workload, begin: Instant) -> None:
        key = workload.metadata.key
        number = self._number[key] = self._number.get(key, 0) + 1
        self.runs[key] = begin
        end = begin + self._lasts(workload, self.now - begin)
        if end < ENDLESS:
            heappush(self._ends, (max(end, self.now), key, number))
