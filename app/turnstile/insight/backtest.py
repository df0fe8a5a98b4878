"""A trace of jobs played on the engine: when each is admitted, and what a forecast would have said of those that wait.

A replay is the truth that forecasts are measured by. Pure.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Namespace
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.engine import Options
from turnstile.engine.instants import Instant
from turnstile.insight.forecast import COURSES, Arrivals, Forecast, Forecaster
from turnstile.insight.runtimes import Run, RunTimes, group_of
from turnstile.insight.simulation import Simulation
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.traces import TraceJob
from turnstile.insight.whatif import admitted, stamp

BEGIN: Final = 1_700_006_400.0
"""The instant at which traces begin: a Wednesday at 00:00."""
NAMESPACE: Final = "trace"
LABEL: Final = "app"
GROUP: Final = "kueue.x-k8s.io/v1beta2"


def cluster(queues: Sequence[str], capacity: int, *, strategy: str = "BestEffortFIFO") -> Snapshot:
    """A cluster of one flavor, whose quota the queues share in a cohort."""
    snapshot = Snapshot()
    objects: list[tuple[type[Kind], dict[str, Any]]] = [
        (Namespace, {"metadata": {"name": NAMESPACE}}),
        (ResourceFlavor, {"metadata": {"name": "nodes"}}),
    ]
    for index, name in enumerate(queues):
        share = capacity // len(queues) + (index < capacity % len(queues))
        quota = {"name": "nodes", "resources": [{"name": "cpu", "nominalQuota": str(share)}]}
        groups = [{"coveredResources": ["cpu"], "flavors": [quota]}]
        spec = {"namespaceSelector": {}, "resourceGroups": groups, "cohortName": "all", "queueingStrategy": strategy}
        objects.append((ClusterQueue, {"metadata": {"name": name}, "spec": spec}))
        line = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"clusterQueue": name}}
        objects.append((LocalQueue, line))
    for kind, plain in objects:
        snapshot.put(msgspec.convert(plain, kind))
    return snapshot


def workload_of(job: TraceJob) -> Workload:
    """The Workload of a job of a trace."""
    name = f"job-{job.number}"
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
    meta = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": name,
        "creationTimestamp": stamp(BEGIN + job.submitted),
        "labels": {LABEL: job.app},
        "ownerReferences": [owner],
    }
    spec = {"queueName": job.queue, "podSets": [{"name": "main", "count": job.size, "template": template}]}
    return Workload.decoder()(orjson.dumps({"apiVersion": GROUP, "kind": "Workload", "metadata": meta, "spec": spec}))


class Outcome(NamedTuple):
    """What a forecast said of a Workload that waited, and what happened: seconds from the forecast on."""

    at: Instant
    forecast: Forecast
    waited: float

    @property
    def covered(self) -> bool | None:
        """Whether the interval has it; None if there was no interval."""
        low, high = self.forecast.earliest, self.forecast.latest
        if low is None:
            return None
        return low <= self.waited and (high is None or self.waited <= high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Forecasts at moments of a replay, each about some Workloads that wait then, from what was known then."""

    jobs: Sequence[TraceJob]
    world: Snapshot
    options: Options = field(default_factory=Options)
    every: float = 3600.0
    """Seconds between two moments."""
    warm_up: float = 86_400.0
    """Seconds of the trace from which forecasts only learn."""
    asked: int = 2
    """Workloads that are asked about at each moment."""
    courses: int = COURSES
    seed: int = 0

    def outcomes(self) -> Iterator[Outcome]:
        """What was said, with what happened then, once it has happened."""
        lots = Random(self.seed)  # noqa: S311 (the same seed asks about the same Workloads)
        jobs = {f"{NAMESPACE}/job-{job.number}": job for job in self.jobs}
        arrivals = [(BEGIN + job.submitted, workload_of(job)) for job in self.jobs]
        state, _ = self.world.state(self.options, BEGIN)
        played = Simulation(state, BEGIN, lambda workload, _: jobs[workload.metadata.key].seconds, arrivals)
        said: list[tuple[Instant, Forecast]] = []
        at = BEGIN + self.warm_up
        last = arrivals[-1][0] if arrivals else BEGIN
        while played.step():
            if played.now >= at and played.now <= last:
                waiting = sorted(played.state.waiting)
                keys = lots.sample(waiting, min(self.asked, len(waiting)))
                said += [(played.now, each) for each in self._forecast(played, arrivals, keys)]
                at = played.now + self.every
            known = [each for each in said if each[1].workload in played.admitted]
            said = [each for each in said if each[1].workload not in played.admitted]
            yield from (Outcome(when, each, played.admitted[each.workload] - when) for when, each in known)

    def _forecast(self, played: Simulation, arrivals: Arrivals, keys: Sequence[str]) -> list[Forecast]:
        """What a forecast says at a moment of the replay."""
        if not keys:
            return []
        state, now = played.state, played.now
        held = [admitted(state.workloads[key].workload, state, begin) for key, begin in played.runs.items()]
        waiting = [info.workload for info in state.waiting.values()]
        runs = [Run(group_of(workload, LABEL), seconds) for _, workload, seconds in played.ended]
        runs += [Run(group_of(each, LABEL), now - played.runs[each.metadata.key], ended=False) for each in held]
        return Forecaster(
            snapshot=self.world.changed([*held, *waiting]),
            options=self.options,
            now=now,
            run_times=RunTimes(runs),
            label=LABEL,
            arrivals=arrivals[: bisect_right(arrivals, now, key=lambda each: each[0])],
            courses=self.courses,
            seed=self.seed,
        ).forecast(keys)
