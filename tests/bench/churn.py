"""How often Workloads are evicted in the baseline shape of Kueue's harness, and the runs lost by that: `python -m
tests.bench.churn`.

A simulation on the engine, without a cluster and without a clock. A write takes a time until it is seen, and so does a
victim until its quota is free. It compares rules of when inadmissible Workloads are tried again: at once when quota
comes free, as here, or at most once a second, as in Kueue.
"""

import argparse
from collections import Counter
from collections.abc import Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

import msgspec

from tests.bench.figures import HEADER, Figure
from tests.bench.harness import CLASSES, SHAPES, Class, Size
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Condition
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import SchedulingStats, Workload, WorkloadSchedulingStatsEviction
from turnstile.engine import Decision, State, cycle
from turnstile.engine.decisions import admission_of
from turnstile.engine.instants import stamp

BEGIN = 1_790_000_000.0
CYCLE = 0.05
"""Seconds between the beginnings of two cycles."""
BATCH = 1.0
"""Seconds between two batches of inadmissible Workloads in Kueue."""


SHAPE: Final = SHAPES["baseline"]
QUEUES: Final = SHAPE.cohorts * SHAPE.queues


def _state() -> State:
    state = State()
    state.put_namespace("team", {})
    state.put_flavor(msgspec.convert({"metadata": {"name": "default"}}, ResourceFlavor))
    quota = {"name": "cpu", "nominalQuota": "20", "borrowingLimit": "100"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
    for number in range(QUEUES):
        spec = {
            "namespaceSelector": {},
            "cohortName": f"cohort-{number // SHAPE.queues}",
            "resourceGroups": [group],
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
        }
        name = f"q{number}"
        state.put_cluster_queue(msgspec.convert({"metadata": {"name": name}, "spec": spec}, ClusterQueue), BEGIN)
        line = {"metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": name}}
        state.put_local_queue(msgspec.convert(line, LocalQueue), BEGIN)
    return state


def _workload(of: Class, queue: int, number: int, at: float) -> Workload:
    containers = [{"name": "main", "resources": {"requests": {"cpu": str(of.cpu)}}}]
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": containers}}}
    name = f"{of.name}-{queue}-{number}"
    meta = {"name": name, "namespace": "team", "uid": name, "creationTimestamp": stamp(at)}
    spec = {"queueName": f"q{queue}", "priority": of.priority, "podSets": [pod_set]}
    return msgspec.convert({"metadata": meta, "spec": spec}, Workload)


class _Run:
    """One run of a size of the shape, with so many seconds between two batches of inadmissible Workloads."""

    def __init__(self, size: Size, *, write: float, batch: float) -> None:
        self.state, self.now, self.write, self.batch = _state(), BEGIN, write, batch
        self.events: list[tuple[float, int, str, str, int]] = []
        self.number = count()
        self.workloads: dict[str, Workload] = {}
        self.runs: dict[str, float] = {}
        self.turn: Counter[str] = Counter()
        """Admissions of each Workload: the end of an earlier run is void."""
        self.began: dict[str, float] = {}
        self.evictions: Counter[str] = Counter()
        self.waits: dict[str, list[float]] = {each.name: [] for each in CLASSES}
        self.created: dict[str, float] = {}
        self.lost = 0.0
        self.finished = 0
        self.held_back: tuple[dict[str, None], dict[str, None]] = {}, {}
        self.batched_at = BEGIN
        for of, number in zip(CLASSES, SHAPE.counts[size], strict=True):
            for queue in range(QUEUES):
                for index in range(number):
                    at = BEGIN + index * of.interval_ms / 1000
                    made = _workload(of, queue, index, at)
                    self.workloads[made.metadata.key] = made
                    self.runs[made.metadata.key] = of.runs_ms / 1000
                    self.created[made.metadata.key] = at
                    self._later(at, "come", made.metadata.key)

    def _later(self, at: float, what: str, key: str) -> None:
        heappush(self.events, (at, next(self.number), what, key, self.turn[key]))

    def play(self) -> None:
        """Until all have finished."""
        while self.finished < len(self.workloads):
            while self.events and self.events[0][0] <= self.now:
                _, _, what, key, turn = heappop(self.events)
                if what == "come" or turn == self.turn[key]:
                    getattr(self, f"_{what}")(key)
            self._hold_back()
            if self.state.has_work:
                for decision in cycle(self.state, self.now):
                    self._write(decision)
                self.now += CYCLE
            elif self.events:
                self.now = max(self.now, self.events[0][0])
            else:
                self.now = max(self.now, self.batched_at + self.batch)

    def _hold_back(self) -> None:
        """Have inadmissible Workloads tried again in batches only."""
        if not self.batch:
            return
        retries, (queues, cohorts) = self.state.retries, self.held_back
        queues.update(retries.cluster_queues)
        cohorts.update(retries.cohorts)
        retries.cluster_queues.clear()
        retries.cohorts.clear()
        if self.now - self.batched_at >= self.batch and (queues or cohorts):
            retries.cluster_queues.update(queues)
            retries.cohorts.update(cohorts)
            queues.clear()
            cohorts.clear()
            self.batched_at = self.now

    def _write(self, decision: Decision) -> None:
        if decision.outcome == "admit":
            self.turn[decision.key] += 1
            self._later(self.now + self.write, "admitted", decision.key)
        for victim in decision.victims:
            if victim.new:
                self.evictions[victim.key] += 1
                if victim.key in self.began:
                    self.lost += self.now + self.write - self.began[victim.key]
                self.turn[victim.key] += 1
                self._later(self.now + self.write, "evicted", victim.key)

    # What the API shows

    def _put(self, key: str, changes: Mapping[str, Any] | None = None, /, **conditions: str) -> None:
        """A Workload with other conditions, and other parts of its status, is seen."""
        status = self.workloads[key].status
        kept = [each for each in status.conditions if each.type not in conditions]
        made = [
            Condition(type=kind, status=value, reason="Preempted", message="", last_transition_time=stamp(self.now))
            for kind, value in conditions.items()
        ]
        status = msgspec.structs.replace(status, conditions=[*kept, *made], **(changes or {}))
        self.workloads[key] = msgspec.structs.replace(self.workloads[key], status=status)
        self.state.put_workload(self.workloads[key], self.now)

    def _come(self, key: str) -> None:
        self.state.put_workload(self.workloads[key], self.now)

    def _admitted(self, key: str) -> None:
        info = self.state.reservations.assumed[key].info
        self.began[key] = self.now
        admission = admission_of(info, info.cluster_queue)
        self._put(key, {"admission": admission}, QuotaReserved="True", Admitted="True", Evicted="False")
        self._later(self.now + self.runs[key], "ended", key)

    def _ended(self, key: str) -> None:
        self.waits[key.partition("/")[2].partition("-")[0]].append(self.began[key] - self.created[key])
        self.finished += 1
        self._put(key, Finished="True")

    def _evicted(self, key: str) -> None:
        times = WorkloadSchedulingStatsEviction(reason="Preempted", underlying_cause="", count=self.evictions[key])
        changes: dict[str, Any] = {"scheduling_stats": SchedulingStats(evictions=[times])}
        if (assumed := self.state.reservations.assumed.get(key)) is not None:  # its admission was on the way
            changes["admission"] = admission_of(assumed.info, assumed.info.cluster_queue)
        self._put(key, changes, QuotaReserved="True", Admitted="True", Evicted="True")
        self._later(self.now + self.write, "released", key)

    def _released(self, key: str) -> None:
        self.began.pop(key, None)
        self._put(key, {"admission": None}, QuotaReserved="False", Admitted="False", Requeued="True")


def main() -> None:
    """Print the figures of both rules."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=("quick", "small", "full"), default="small", help="as in the harness")
    parser.add_argument("--write", type=float, default=0.05, help="seconds until a write is seen")
    asked = parser.parse_args()
    print(HEADER)
    for way, batch in (("at once", 0.0), ("in batches", BATCH)):
        run = _Run(asked.size, write=asked.write, batch=batch)
        run.play()
        evictions = run.evictions.total() / len(run.workloads)
        print(Figure(name=f"evictions for a finished Workload, tried again {way}", value=evictions, unit=""))
        print(Figure(name="the most of one Workload", value=max(run.evictions.values(), default=0), unit=""))
        print(Figure(name="run time lost by that", value=run.lost, unit="s"))
        print(Figure(name="time until all have finished", value=run.now - BEGIN, unit="s"))
        for name, waits in run.waits.items():
            print(Figure(name=f"mean wait of {name} ones", value=sum(waits) / len(waits), unit="s"))


if __name__ == "__main__":
    main()
