"""Turnstile and Kueue in one run: each bench on fresh control planes, turn about, and the ratio of each figure.

A figure of another day or machine says little beside one of today. So both programs are measured in turns within one
run, and the program that is second in a round is first in the next. Kueue has the configuration of its release, but
that it manages the namespaces that Turnstile manages.
"""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed import ControlPlane
from testbed.installation import MANAGED
from testbed.operators import RunningOperator
from testbed.peers import configured
from testbed.processes import Process
from tests.bench import webhook
from tests.bench.bed import KUBE_API_QPS, Bed, Turnstile, add_nodes, bed
from tests.bench.figures import Figure, cpu_seconds, median

Rounds = Mapping[str, Sequence[Sequence[Figure]]]
"""The figures of each round, by program."""


@dataclass(frozen=True, slots=True)
class Kueue:
    """Kueue's manager."""

    operator: RunningOperator
    name: str = "kueue"

    def launch(self) -> Process:
        """Install it, start it and wait until it is ready."""
        self.operator.start(timeout=120)
        return self.operator.process

    def wait_ready(self, process: Process) -> None:
        """It is ready when `launch` returns."""
        process.require_running()


@contextmanager
def kueue_bed() -> Iterator[Bed]:
    """A control plane with Kueue and simulated nodes, gone at the end."""
    with ControlPlane(kube_api_qps=KUBE_API_QPS) as control_plane:
        add_nodes(control_plane)
        kueue = configured(managedJobsNamespaceSelector={"matchLabels": MANAGED})
        made = Bed(control_plane, Kueue(RunningOperator(control_plane, kueue)))
        made.start()
        yield made


Beds = Mapping[str, Callable[[], AbstractContextManager[Bed]]]
"""Two beds that are measured turn about, by what is on them."""
BEDS: Final[Beds] = {"Turnstile": bed, "Kueue": kueue_bed}


def turns(programs: Iterable[str], rounds: int) -> Iterator[str]:
    """Two programs in the order in which they are measured."""
    order = list(programs)
    for number in range(rounds):
        yield from order if number % 2 == 0 else reversed(order)


def reviews(made: Bed) -> list[Figure]:
    """How the running manager answers reviews of new Jobs of 5 KB, the server and the client on a core each."""
    cores = sorted(os.sched_getaffinity(0))
    manager = made.manager
    for thread in Path(f"/proc/{manager.pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {cores[0]})
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as directory:
        files = webhook.client_files(Path(directory))
        for connections in webhook.CONNECTIONS:
            samples = []
            for turn in range(webhook.ROUNDS + 1):  # the first warms up
                used = cpu_seconds(manager.pid)
                seen, _ = webhook.drive(_webhook_port(made), connections, cores[-1], files)
                if seen["failed"]:
                    raise AssertionError(f"{made.program.name}: {seen['failed']:g} of {seen['n']:g} reviews failed")
                cost = (cpu_seconds(manager.pid) - used) / seen["n"] * 1000
                if turn:
                    samples.append((seen["n"] / seen["us"] * 1e6, seen["p50"], seen["p99"], cost))
            rate, middle, slow, cost = (median(each) for each in zip(*samples, strict=True))
            over = f"over {connections} connections"
            figures += [
                Figure(name=f"reviews a second {over}", value=rate, unit="/s", more_is_better=True),
                Figure(name=f"a review {over}, p50", value=middle, unit="ms"),
                Figure(name=f"a review {over}, p99", value=slow, unit="ms"),
                Figure(name=f"CPU of a review {over}", value=cost, unit="ms"),
            ]
    return figures


def _webhook_port(made: Bed) -> int:
    program = made.program
    if isinstance(program, Turnstile):
        return program.installation.port
    assert isinstance(program, Kueue)
    return program.operator.places.webhook_port


def table(found: Rounds) -> Iterator[str]:
    """A line for each figure that both programs have: the medians of the rounds, and the first program's over the
    second's."""
    first, second = found
    yield f"  {'':<66}{first:>11}{second:>11}{'ratio':>8}"
    ours, theirs = _medians(found[first]), _medians(found[second])
    for figure, value in ours.items():
        other = theirs.get(figure)
        if other is not None:
            ratio = f"{value / other:.2f}" if other else "-"
            yield f"  {figure:<66}{_shown(value):>11}{_shown(other):>11}{ratio:>8}"


def _medians(rounds: Sequence[Sequence[Figure]]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for figures in rounds:
        for figure in figures:
            values.setdefault(f"{figure.name} ({figure.unit})", []).append(figure.value)
    return {name: statistics.median(each) for name, each in values.items()}


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
