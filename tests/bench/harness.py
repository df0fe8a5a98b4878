"""Kueue's own scheduler harness, with Kueue and with Turnstile in its place, turn about on the same machine.

Its runner starts a control plane and the program, creates Workloads of three classes, ends each a moment after its
admission, and completes evictions, all on the same API server. So it shows what a full server makes of both programs.
Kueue is `minimalkueue` at the 300 requests a second of a release; Turnstile is `turnstile serve --role controller`,
started by a script that takes `--kubeconfig` and ignores the other flags. Must never report a run in which Workloads
are left.
"""

import csv
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from testbed import build
from testbed.build import Toolbox
from testbed.installation import ROOT
from testbed.peers.harness import CRDS, HARNESS, HEAD_START, MINIMAL, RUNNER, VERSION
from tests.bench.figures import Figure
from tests.bench.peer import table, turns

TURNSTILE: Final = "Turnstile"
KUEUE: Final = "Kueue"
PROGRAMS: Final = (TURNSTILE, KUEUE)
TIMEOUT_MINUTES: Final = 30
HEAD_START_SECONDS: Final = 20
"""Time for a program to start before the first object is created."""
Size = Literal["quick", "small", "full"]
_ARGUMENTS: Final = "serve --role controller --namespace default --no-manage-certificates --no-serve-v1beta1"
_NO_PORTS: Final = "--health-bind= --metrics-bind= --visibility-bind="


@dataclass(frozen=True, slots=True)
class Class:
    """Workloads of one size: what each asks for, its priority, how long it runs, and the pause between two of them."""

    name: str
    cpu: int
    priority: int
    runs_ms: int
    interval_ms: int
    pods: int
    """Pods among which the CPUs are shared out, where there is a Topology."""

    def named(self, state: Mapping[str, str]) -> bool:
        """Whether a Workload is of this class, or of a part of it (`small-required`)."""
        return state["class name"].partition("-")[0] == self.name


CLASSES: Final = (
    Class("large", 20, 200, 1000, 1200, 8),
    Class("medium", 5, 100, 500, 500, 4),
    Class("small", 1, 50, 200, 100, 2),
)
BLOCK, RACK, HOST = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack", "kubernetes.io/hostname"
MARK: Final = "PROJECT_DIR"
"""The environment variable by which what a run started is found."""
REQUESTS: Final = ("required", "preferred", "balanced")
"""Requests for a rack that a third of each class makes; the last one, in Kueue's words, asks for slices of half of the
pods."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Cohorts of queues with a quota of 20 that may borrow 100. Each queue gets so many large, medium and small
    Workloads."""

    what: str
    cohorts: int
    queues: int
    counts: Mapping[Size, tuple[int, int, int]]
    racked: bool = False
    """Whether the Workloads are gangs, and get places on 640 nodes in 10 racks."""

    def workloads(self, size: Size) -> int:
        """How many Workloads there are in all queues."""
        return self.cohorts * self.queues * sum(self.counts[size])

    def config(self, size: Size) -> dict[str, Any]:
        """The file that the runner's generator reads."""
        sets = [each for one, count in zip(CLASSES, self.counts[size], strict=True) for each in self._sets(one, count)]
        queues = {
            "className": "cq",
            "count": self.queues,
            "nominalQuota": "20",
            "borrowingLimit": "100",
            "reclaimWithinCohort": "Any",
            "withinClusterQueue": "LowerPriority",
            "workloadsSets": sets,
        }
        cohorts = {"cohorts": [{"className": "cohort", "count": self.cohorts, "queuesSets": [queues]}]}
        return {**_racks(), **cohorts} if self.racked else cohorts

    def _sets(self, one: Class, count: int) -> Iterator[dict[str, Any]]:
        kind = {"className": one.name, "runtimeMs": one.runs_ms, "priority": one.priority, "request": str(one.cpu)}
        if not self.racked:
            yield {"count": count, "creationIntervalMs": one.interval_ms, "workloads": [kind]}
            return
        for number, request in enumerate(REQUESTS):
            asked = {"request": f"{one.cpu * 1000 // one.pods}m", "podCount": one.pods}
            asked |= {"tasConstraint": request, "tasLevel": RACK, "className": f"{one.name}-{request}"}
            asked |= {"sliceSize": one.pods // 2} if request == "balanced" else {}
            part = (count + len(REQUESTS) - 1 - number) // len(REQUESTS)
            yield {"count": part, "creationIntervalMs": one.interval_ms, "workloads": [kind | asked]}


def _racks() -> dict[str, Any]:
    """A block of 10 racks of 64 nodes."""
    levels = [
        {"name": "block", "count": 1, "nodeLabel": BLOCK},
        {"name": "rack", "count": 10, "nodeLabel": RACK},
        {"name": "node", "count": 64, "nodeLabel": HOST, "capacity": {"cpu": "96", "memory": "256Gi"}},
    ]
    flavor = {"name": "tas-flavor", "nodeLabel": "tas-node-group", "topologyName": "default-topology"}
    return {"topology": {"name": "default-topology", "levels": levels}, "resourceFlavor": flavor}


SHAPES: Final = {
    "baseline": Shape(
        "30 queues of 5 cohorts", 5, 6, {"quick": (2, 4, 14), "small": (20, 40, 140), "full": (50, 100, 350)}
    ),
    "tas": Shape(
        "30 queues of 5 cohorts, on 640 nodes in 10 racks",
        5,
        6,
        {"quick": (2, 4, 14), "small": (20, 40, 140), "full": (50, 100, 350)},
        racked=True,
    ),
    "large-scale": Shape(
        "1,000 queues of 10 cohorts", 10, 100, {"quick": (0, 0, 1), "small": (1, 3, 11), "full": (4, 11, 35)}
    ),
}


def run(name: str, size: Size, *, rounds: int) -> Iterator[str]:
    """Measure one shape so many times with each program; the lines of its table."""
    shape = SHAPES[name]
    tools, assets = HARNESS.ensure(), build.ensure()
    found: dict[str, list[list[Figure]]] = {program: [] for program in PROGRAMS}
    for program in turns(found, rounds):
        figures = _once(shape, size, program, tools, assets)
        found[program].append(figures)
        each = ", ".join(f"{figure.name} {figure.value:.4g} {figure.unit}".rstrip() for figure in figures)
        yield f"  {name}, {program}: {each}"
    yield f"\n{name}: {shape.workloads(size):,} Workloads in {shape.what}, medians of {rounds} rounds; Kueue {VERSION}"
    yield from table(found)


def _once(shape: Shape, size: Size, program: str, tools: Toolbox, assets: Toolbox) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="harness-") as temporary:
        directory = Path(temporary)
        generator = directory / "generator.yaml"
        generator.write_text(yaml.safe_dump(shape.config(size)))
        executable = tools[MINIMAL] if program == KUEUE else _launcher(directory)
        _link_assets(assets, directory / "assets")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with (directory / "runner.log").open("wb") as log:
            command = [
                tools[RUNNER],
                f"--o={directory}",
                f"--crds={tools.folder(CRDS)}",
                f"--generatorConfig={generator}",
                f"--minimalKueue={executable}",
                f"--timeout={TIMEOUT_MINUTES}m",
                "--qps=1000",
                "--burst=2000",
                *(["--enableTAS"] if shape.racked else []),
            ]
            environment = {
                **os.environ,
                HEAD_START: f"{HEAD_START_SECONDS}s",
                "KUBEBUILDER_ASSETS": str(directory / "assets"),
                "KUBEBUILDER_CONTROLPLANE_START_TIMEOUT": "180s",
                "KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT": "60s",
                MARK: f"{directory}/",
            }
            try:
                ended = subprocess.run(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
                )
            finally:
                end_programs_of(directory)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if ended.returncode:
            raise RuntimeError(f"the runner of Kueue's harness failed with {program}: {_tails(directory)}")
        everything = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        used = yaml.safe_load((directory / f"{executable.name}.stats.yaml").read_text())
        summary = yaml.safe_load((directory / "summary.yaml").read_text())
        with (directory / "wlStates.csv").open(newline="") as file:
            states = list(csv.DictReader(file))
        finished = sum(bool(int(each["ms to finish"])) for each in states)
        if finished + summary["droppedWorkloadEvents"] < shape.workloads(size):
            raise RuntimeError(f"only {finished} Workloads are finished with {program}: {_tails(directory)}")
    return _figures(states, used, summary, everything=everything)


def end_programs_of(directory: Path, *, seconds: float = 10.0) -> None:
    """End what still runs from a directory: a runner that is interrupted leaves its etcd and kube-apiserver, each in a
    process group of its own."""
    deadline = time.monotonic() + seconds
    while left := _running_from(directory):
        late = time.monotonic() > deadline
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        time.sleep(0.2)


def _running_from(directory: Path) -> list[int]:
    """The ids of the runner and all that it started: they have the directory in their environment."""
    found, mark = [], f"{MARK}={directory}/".encode()
    for each in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark in each.read_bytes().split(b"\0"):
                found.append(int(each.parent.name))
    return found


def _tails(directory: Path) -> str:
    """The last lines of all logs."""
    logs = sorted(directory.glob("*.log"))
    return "\n".join(f"{log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:]) for log in logs)


def _launcher(directory: Path) -> Path:
    """A program that takes the flags of `minimalkueue` and runs Turnstile."""
    script = directory / "turnstile"
    script.write_text(
        f'#!/bin/sh\ncd {ROOT}\n[ "$1" = --kubeconfig ] || exit 2\n'
        f'KUBECONFIG="$2" exec {sys.executable} -m turnstile {_ARGUMENTS} {_NO_PORTS} 2> {script}.log\n'
    )
    script.chmod(0o755)
    return script


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def _link_assets(assets: Toolbox, directory: Path) -> None:
    directory.mkdir()
    for name in ("kube-apiserver", "etcd", "kubectl"):
        (directory / name).symlink_to(assets[name])


def _figures(
    states: Sequence[Mapping[str, str]],
    used: Mapping[str, int],
    summary: Mapping[str, Any],
    *,
    everything: float,
) -> list[Figure]:
    finished = [each for each in states if int(each["ms to finish"])]
    cpu = (used["userMs"] + used["sysMs"]) / 1000
    figures = [
        Figure(name="wall", value=used["wallMs"] / 1000 - HEAD_START_SECONDS, unit="s"),
        Figure(name="CPU of the program", value=cpu, unit="s"),
        Figure(name="CPU of server, runner and program", value=everything, unit="s"),
        Figure(name="peak memory of the program", value=used["maxrss"] / 1024, unit="MiB"),
    ]
    evictions: Counter[str] = Counter()
    for each in CLASSES:
        ours = [state for state in finished if each.named(state)]
        admitted = [int(state["ms to admitted"]) / 1000 for state in ours]
        to_finish = [(int(state["ms to finish"]) - int(state["ms to admitted"])) / 1000 for state in ours]
        figures += [
            Figure(name=f"mean wait of {each.name} ones", value=_mean(admitted), unit="s"),
            Figure(name=f"mean from admission to finish of {each.name} ones", value=_mean(to_finish), unit="s"),
        ]
    for state in states:
        evictions[state["class name"].partition("-")[0]] += int(state["num evictions"])
    figures += [Figure(name=f"evictions of {each.name} ones", value=evictions[each.name], unit="") for each in CLASSES]
    return [
        *figures,
        Figure(name="evictions", value=evictions.total(), unit=""),
        Figure(name="evictions for a finished Workload", value=evictions.total() / len(finished), unit=""),
        Figure(
            name="most evictions of one Workload",
            value=max((int(state["num evictions"]) for state in states), default=0),
            unit="",
        ),
        Figure(name="events that the runner missed", value=summary["droppedWorkloadEvents"], unit=""),
    ]
