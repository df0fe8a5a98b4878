"""How often the intervals of `turnstile when` hold: traces of jobs are played on the engine, with forecasts on the way.

`.venv/bin/python -m tests.bench.backtest --help` lists the options. A trace that is played says when each job was
admitted; forecasts of the jobs that wait are compared with that.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import orjson
import typer

from tests.bench.traces import DAY, Shape, TraceJob, made_up, read_swf
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Namespace
from turnstile.api.errors import InvalidValue
from turnstile.api.localqueue import LocalQueue
from turnstile.api.meta import Kind
from turnstile.api.resourceflavor import ResourceFlavor
from turnstile.api.workload import Workload
from turnstile.cli.answers import Output, say_document
from turnstile.cli.cluster import explained
from turnstile.cli.say import say
from turnstile.engine import Options
from turnstile.engine.instants import Instant, stamp
from turnstile.insight.forecast import COURSES, Arrivals, Forecast, Forecaster
from turnstile.insight.runtimes import Run, RunTimes, group_of
from turnstile.insight.simulation import Simulation
from turnstile.insight.snapshot import Snapshot
from turnstile.insight.whatif import admitted
from turnstile.process.configuration import text_of

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
        lots = Random(self.seed)
        jobs = {f"{NAMESPACE}/job-{job.number}": job for job in self.jobs}
        arrivals = [(BEGIN + job.submitted, workload_of(job)) for job in self.jobs]
        state, _ = self.world.state(self.options, BEGIN)
        played = Simulation(state, BEGIN, lambda workload, _: jobs[workload.metadata.key].seconds, arrivals)
        said: list[tuple[Instant, Forecast]] = []
        at = BEGIN + self.warm_up
        last = arrivals[-1][0] if arrivals else BEGIN
        while played.step():
            if played.now >= at and played.now <= last:
                waiting = sorted(played.state.queues.waiting)
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
        waiting = [info.workload for info in state.queues.waiting.values()]
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


BARS: Final = 40
"""Characters of the longest bar."""
_TITLE: Final = "Each forecast: its 80% interval, and when the Workload was admitted"
OUTSIDE: Final = 1
"""Exit code: the intervals hold more or less often than they should."""


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def measure(
    *,
    trace: Annotated[
        Path | None,
        typer.Option(help="A trace in the Standard Workload Format; - for standard input. Made up without."),
    ] = None,
    traces: Annotated[int, typer.Option(min=1, help="Made-up traces.")] = 10,
    days: Annotated[float, typer.Option(min=1, help="Days of a made-up trace, or of the trace to replay.")] = 6,
    capacity: Annotated[
        int,
        typer.Option(min=0, help="Processors of the cluster; 0: 16, or of a file as many as --load says."),
    ] = 0,
    load: Annotated[float, typer.Option(min=0.1, max=2, help="How busy the cluster is on average.")] = 0.75,
    queues: Annotated[int, typer.Option(min=1, help="Queues of a made-up trace, which share the cluster.")] = 1,
    every: Annotated[float, typer.Option(min=1, help="Minutes between forecasts.")] = 240,
    courses: Annotated[int, typer.Option(min=20, max=1000, help="Courses of events of each forecast.")] = COURSES,
    seed: Annotated[int, typer.Option(help="The same seed gives the same answer.")] = 0,
    least: Annotated[int, typer.Option(help="The least coverage, in percent.")] = 75,
    most: Annotated[int, typer.Option(help="The greatest coverage, in percent.")] = 85,
    plot: Annotated[Path | None, typer.Option(help="Write each forecast and what happened into an SVG.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="text for people, json for programs.")] = Output.TEXT,
) -> None:
    """Replay traces of jobs, forecast on the way, and tell how often what happened is within the 80% interval.

    Made-up traces have heavy tails, days and nights, weekends and bursts, as public ones do. Exit code 0: the
    coverage is between --least and --most; 1: it is not; 2: unable.
    """
    with explained():
        found: list[Outcome] = []
        for number in range(1 if trace is not None else traces):
            if trace is not None:
                jobs = [*read_swf(text_of(trace, "--trace").splitlines(), str(trace))]
                jobs = [job for job in jobs if job.submitted <= days * DAY]
            else:
                names = tuple(f"queue-{each}" for each in range(queues))
                shape = Shape(days=days, capacity=capacity or 16, load=load, queues=names)
                jobs = made_up(shape, seed + number)
            if not jobs:
                raise InvalidValue("--trace", str(trace), f"no job of it ran in its first {days:g} days")
            size = capacity or (16 if trace is None else _capacity(jobs, load))
            found += Backtest(
                jobs=[job for job in jobs if job.size <= size],
                world=cluster(sorted({job.queue for job in jobs}), size),
                every=every * 60,
                warm_up=days * DAY * 0.6,
                courses=courses,
                seed=seed + number,
            ).outcomes()
        told = [each for each in found if each.covered is not None]
        if not told:
            raise InvalidValue("backtest", "no forecast", "nothing waited when it was asked: give a greater --load")
        if plot is not None:
            plot.write_text(as_svg(told), encoding="utf-8")
    covered = 100 * sum(bool(each.covered) for each in told) / len(told)
    if output is Output.TEXT:
        say("\n".join(shown(found, told)))
    else:
        say_document(plain(found), output)
    if not least <= covered <= most:
        say(f"the coverage of {covered:.1f} % is not between {least} and {most} %", err=True)
        raise typer.Exit(OUTSIDE)


def _capacity(jobs: Sequence[TraceJob], load: float) -> int:
    """Processors with which a trace makes a cluster that busy, but as many as its largest job needs."""
    span = max(job.submitted for job in jobs) - jobs[0].submitted
    work = sum(job.seconds * job.size for job in jobs)
    return max(int(work / max(span, 1.0) / load), max(job.size for job in jobs))


def _parts(told: Sequence[Outcome]) -> tuple[int, int, int]:
    """How many happened before the interval, in it, and after it."""
    inside = sum(bool(each.covered) for each in told)
    before = sum(each.forecast.earliest is not None and each.waited < each.forecast.earliest for each in told)
    return before, inside, len(told) - inside - before


def plain(found: Sequence[Outcome]) -> dict[str, Any]:
    """All forecasts and what happened, for programs."""
    told = [each for each in found if each.covered is not None]
    before, inside, later = _parts(told)
    return {
        "forecasts": len(told),
        "without": len(found) - len(told),
        "coverage": inside / len(told),
        "before": before,
        "after": later,
        "outcomes": [
            {
                "workload": each.forecast.workload,
                "earliest": each.forecast.earliest,
                "median": each.forecast.median,
                "latest": each.forecast.latest,
                "waited": each.waited,
            }
            for each in told
        ],
    }


def shown(found: Sequence[Outcome], told: Sequence[Outcome]) -> Iterator[str]:
    """The figures and a plot, as lines for people."""
    before, inside, later = _parts(told)
    yield f"{len(told)} forecasts of Workloads that waited; {len(found) - len(told)} times there was none."
    yield f"In the 80% interval: {100 * inside / len(told):.1f} %"
    yield f"Sooner: {100 * before / len(told):.1f} %, later: {100 * later / len(told):.1f} % (10 % each are due)"
    open_ = sum(each.forecast.latest is None for each in told)
    if open_:
        yield f"Intervals without an end: {100 * open_ / len(told):.1f} %"
    yield ""
    yield "How long they waited, from the forecast on, and how often the interval holds:"
    edges = (0.0, 300.0, 900.0, 3600.0, 3 * 3600.0, 8 * 3600.0, DAY, float("inf"))
    names = ("< 5 min", "5-15 min", "15-60 min", "1-3 h", "3-8 h", "8-24 h", "> 1 day")
    bins = [[each for each in told if low <= each.waited < high] for low, high in pairwise(edges)]
    longest = max(len(each) for each in bins)
    for name, each in zip(names, bins, strict=True):
        if each:
            bar = "█" * max(1, round(BARS * len(each) / longest))
            holds = 100 * sum(bool(one.covered) for one in each) / len(each)
            yield f"  {name:>9}  {holds:4.0f} %  {bar} {len(each)}"


def as_svg(told: Sequence[Outcome]) -> str:
    """Each interval as a line, what happened as a dot, in the order of the medians; both axes in plain SVG."""
    ordered = sorted(told, key=lambda each: (each.forecast.median or 0.0, each.waited))
    most = max([60.0, *(each.waited for each in ordered), *(each.forecast.latest or 0.0 for each in ordered)])
    width, height, left = 900.0, 480.0, 60.0

    def y(seconds: float) -> float:
        """On a scale of square roots, so that short waits are seen beside long ones."""
        return round(height - 30 - (height - 50) * math.sqrt(seconds / most), 1)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="sans-serif">',
        f'<rect width="{width:g}" height="{height:g}" fill="white"/>',
        f'<text x="{left:g}" y="14" font-size="12">{_TITLE}</text>',
    ]
    for part in (0.0, 0.1, 0.25, 0.5, 1.0):
        at = y(most * part)
        lines.append(f'<line x1="{left:g}" x2="{width:g}" y1="{at}" y2="{at}" stroke="#ddd"/>')
        lines.append(f'<text x="4" y="{at + 4}" font-size="11">{most * part / 3600:.1f} h</text>')
    for number, each in enumerate(ordered):
        x = round(left + (width - left - 10) * (number + 0.5) / len(ordered), 1)
        low, high = each.forecast.earliest or 0.0, each.forecast.latest if each.forecast.latest is not None else most
        lines.append(f'<line x1="{x}" x2="{x}" y1="{y(low)}" y2="{y(high)}" stroke="#8ab" stroke-width="2"/>')
        color = "#171" if each.covered else "#c22"
        lines.append(f'<circle cx="{x}" cy="{y(each.waited)}" r="2.5" fill="{color}"/>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    app()
