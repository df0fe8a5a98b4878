"""`python -m tests.bench [NAME...]` (`make bench ARGS=...`): measure, and print each figure beside its target.

Benches on the test bed come first, each on a fresh control plane; then those that need no cluster, or several. With
`--quick` the numbers are small: that shows that the benches run, not how fast Turnstile is.
"""

import argparse
import asyncio
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop

from testbed import build
from testbed.installation import ROOT
from testbed.peers import KUEUE
from testbed.peers.kueue import VERSION
from tests.bench import (
    burst,
    drain,
    harness,
    kinds,
    large,
    latency,
    neighbours,
    nodes,
    page,
    parts,
    peer,
    recorded,
    restart,
)
from tests.bench.bed import Bed, bed
from tests.bench.figures import HEADER, Figure, wait_quiet


@dataclass(frozen=True, slots=True)
class Bench:
    """One bench on the test bed: what to run, how much of it, and whether the API server keeps an audit log."""

    what: str
    run: Callable[[Bed, int], Awaitable[list[Figure]]]
    amount: int
    quick: int
    audit: bool = False
    one_version: bool = False
    """The API server converts what it watches for each older version it serves, by our webhook: then a run without us
    is no floor."""
    page: bool = False
    """Whether the page in the cluster is registered."""


ON_THE_BED: dict[str, Bench] = {
    "idle": Bench("Jobs on an idle cluster", lambda b, n: latency.idle(b, jobs=n), 120, 8),
    "create": Bench("create calls on an idle cluster", lambda b, n: latency.create(b, jobs=n), 200, 8),
    "burst": Bench("a burst of Jobs", lambda b, n: burst.burst(b, jobs=n), 1000, 20),
    "neighbours": Bench(
        "a Job a second beside a flood of another namespace",
        lambda b, n: neighbours.neighbours(b, flood=n),
        10_000,
        100,
    ),
    "large": Bench("Jobs of a megabyte that wait", lambda b, n: large.large(b, jobs=n), 500, 4),
    "writes": Bench("writes for one Job", lambda b, n: burst.writes(b, jobs=n), 100, 8, audit=True),
    "groups": Bench("groups of Pods, released at once", lambda b, n: kinds.groups(b, count=n), 200, 5, audit=True),
    "jobsets": Bench("JobSets under their controller", lambda b, n: kinds.jobsets(b, count=n), 500, 5),
    "drain": Bench(
        "Workloads through six queues", lambda b, n: drain.drain(b, workloads=n), 3000, 60, one_version=True
    ),
    "restart": Bench(
        "a start over a backlog", lambda b, n: restart.restart(b, workloads=n), 50_000, 500, one_version=True
    ),
    "nodes": Bench("a start over 5,000 nodes full of pods", lambda b, n: nodes.start(b, pods=n), 50_000, 500),
    "page": Bench(
        "the page in the cluster over many Workloads",
        lambda b, n: page.page(b, workloads=n),
        50_000,
        500,
        one_version=True,
        page=True,
    ),
}
ALONE = {
    "webhook": "the webhook server alone",
    "flood": "the webhook server with 1,000 slow connections",
    "engine": "the engine alone",
    "churn": "evictions and the runs lost by them in the baseline shape of Kueue's harness, in a simulation",
    "starvation": "how long a gang waits beside an endless stream of small Jobs, in a simulation",
    "crowd": "the engine with thousands in one tree of cohorts, and events that concern few of many",
    "clusters": "Jobs for two other clusters, at a steady rate; and a flood for one, with another tenant beside it",
    "topology": "gangs among 5,000 nodes with 50,000 pods",
    "wire": "the wire alone",
    "relist": "everything read again, 100,000 Workloads",
    "audit": "one audit of 10,000 running pods",
    "explain": "why a Workload of 50,000 waits, and what would admit it",
    "visibility": "pages of 50,000 pending Workloads",
    "recorder": "what the flight recorder costs the event loop, 50,000 Workloads",
}
"""Modules of this package that print figures of their own when they are run."""
BESIDE_KUEUE = ("idle", "create", "burst", "webhook")
"""What can be measured of Kueue too."""
RECORDED = ("idle", "burst")
"""What is measured with and without the flight recorder."""


def _on_the_bed(
    name: str, *, quick: bool, quiet: float, amount: int | None, one_version: bool, sampled: bool
) -> list[Figure]:
    bench = ON_THE_BED[name]
    count = amount or (bench.quick if quick else bench.amount)
    arguments = ("--no-serve-v1beta1",) if one_version or bench.one_version else ()
    module = parts.__name__ if sampled else "turnstile"
    with tempfile.TemporaryDirectory() as directory, ExitStack() as ends:
        os.environ[parts.FILE] = str(samples := Path(directory) / "samples.json")
        made = ends.enter_context(bed(audit=bench.audit, page=bench.page, arguments=arguments, module=module))
        if quiet and not wait_quiet(made.pids(), at_most=quiet):
            print(f"  other processes kept the machine busy for {quiet:g} s; measured all the same")
        gauge = made.gauge()
        figures = uvloop.run(_gather(bench, made, count))
        print(f"\n{name}: {bench.what} ({count}; {gauge.sentence()} over {gauge.wall():.0f} s)")
        print(HEADER)
        for figure in figures:
            print(figure, flush=True)
        made.manager.require_running()
        if sampled:
            made.stop()  # in order, so that the samples are written
            print(*parts.table(samples), sep="\n", flush=True)
    return figures


async def _gather(bench: Bench, made: Bed, count: int) -> list[Figure]:
    return await asyncio.wait_for(bench.run(made, count), 1800)


def _alone(name: str) -> None:
    print(f"\n{name}: {ALONE[name]}", flush=True)
    subprocess.run([sys.executable, "-m", f"tests.bench.{name}"], cwd=ROOT, check=True)


def _in_turns(name: str, beds: peer.Beds, against: str, *, quick: bool, amount: int | None, rounds: int) -> None:
    """Measure two beds turn about, each time on a fresh control plane, and print the ratios."""
    found: dict[str, list[list[Figure]]] = {program: [] for program in beds}
    what = ALONE[name] if name in ALONE else ON_THE_BED[name].what
    for program in peer.turns(beds, rounds):
        with beds[program]() as made:
            gauge = made.gauge()
            if name in ALONE:
                figures = peer.reviews(made)
            else:
                bench = ON_THE_BED[name]
                figures = uvloop.run(_gather(bench, made, amount or (bench.quick if quick else bench.amount)))
            found[program].append(figures)
            print(f"  {name}, {program}: {gauge.sentence()} over {gauge.wall():.0f} s", flush=True)
    print(f"\n{name}: {what}, medians of {rounds} rounds each, {against}")
    print(*peer.table(found), sep="\n", flush=True)


def _harness(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> int:
    for name in chosen.names:
        if name not in harness.SHAPES:
            parser.error(f"NAME: {name!r} is no shape of the harness: {', '.join(harness.SHAPES)}")
    _print_machine()
    size: harness.Size = "quick" if chosen.quick else "full" if chosen.full else "small"
    for name in chosen.names or harness.SHAPES:
        for line in harness.run(name, size, rounds=chosen.rounds):
            print(line, flush=True)
    return 0


def _print_machine() -> None:
    print(
        f"{time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC, {os.cpu_count()} cores, Python {sys.version.split()[0]}"
    )


def main() -> int:
    """Run what the command line names; 1 if a target was missed and `--strict` was given."""
    names = [*ON_THE_BED, *(name for name in ALONE if importlib.util.find_spec(f"tests.bench.{name}"))]
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benches to run, all by default: {', '.join(names)}")
    parser.add_argument(
        "--harness",
        action="store_true",
        help="run Kueue's scheduler harness with Turnstile and with Kueue, turn about, and print ratios; the NAMEs are"
        f" its shapes: {', '.join(harness.SHAPES)}",
    )
    parser.add_argument("--full", action="store_true", help="with --harness: as many Workloads as Kueue measures with")
    parser.add_argument("--quick", action="store_true", help="small numbers: only to see that the benches run")
    parser.add_argument("--amount", type=int, help="so many Jobs or Workloads instead of the usual number")
    parser.add_argument("--quiet", type=float, default=0, metavar="S", help="wait up to S seconds for an idle machine")
    parser.add_argument("--one-version", action="store_true", help="serve no API version older than the stored one")
    parser.add_argument(
        "--peer",
        action="store_true",
        help=f"measure Kueue too, turn about on fresh control planes, and print ratios; of {', '.join(BESIDE_KUEUE)}",
    )
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="measure Turnstile with its flight recorder and an open page of `turnstile web` turn about with Turnstile"
        f" alone, and print ratios; of {', '.join(RECORDED)}",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=2,
        help="with --peer, --recorded or --harness: how often each is measured (default: 2)",
    )
    parser.add_argument(
        "--parts", action="store_true", help="print where the CPU of Turnstile goes, of the benches on the test bed"
    )
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a target was missed")
    chosen = parser.parse_args()
    if chosen.harness:
        return _harness(parser, chosen)
    for name in chosen.names:
        if name not in names:
            parser.error(f"NAME: {name!r} is none of {', '.join(names)}")
        if chosen.peer and name not in BESIDE_KUEUE:
            parser.error(f"NAME: {name!r} cannot be measured with --peer, only {', '.join(BESIDE_KUEUE)}")
        if chosen.recorded and name not in RECORDED:
            parser.error(f"NAME: {name!r} cannot be measured with --recorded, only {', '.join(RECORDED)}")
    if chosen.peer and chosen.recorded:
        parser.error("--recorded: is not measured beside Kueue: leave out --peer")
    if chosen.rounds < 1:
        parser.error(f"--rounds: {chosen.rounds} is less than 1")
    build.ensure()
    if chosen.peer:
        KUEUE.ensure()
    _print_machine()
    if chosen.peer or chosen.recorded:
        beds, against = (
            (peer.BEDS, f"Kueue {VERSION}") if chosen.peer else (recorded.BEDS, "recorder and page on and off")
        )
        for name in chosen.names or (BESIDE_KUEUE if chosen.peer else RECORDED):
            _in_turns(name, beds, against, quick=chosen.quick, amount=chosen.amount, rounds=chosen.rounds)
        return 0
    missed = False
    for name in chosen.names or names:
        if name in ON_THE_BED:
            figures = _on_the_bed(
                name,
                quick=chosen.quick,
                quiet=chosen.quiet,
                amount=chosen.amount,
                one_version=chosen.one_version,
                sampled=chosen.parts,
            )
            missed |= any(figure.met is False for figure in figures)
        elif not chosen.quick:
            _alone(name)
    return int(missed and chosen.strict)


if __name__ == "__main__":
    sys.exit(main())
