"""Where the CPU of Turnstile goes, part by part: `make bench ARGS="idle burst drain --parts"`.

`python -m tests.bench.parts serve ...` is `turnstile serve ...` with a sampler inside: each few milliseconds of CPU a
signal comes, and the innermost function of the package that runs then stands for the part that its module belongs to.
Libraries written in C count for the function that called them. Samples outside any function of the package are the
event loop's own: sockets and TLS, which uvloop does, and callbacks of libraries. Must never be used for a figure of how
much CPU there is: the sampler itself takes some.
"""

import atexit
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

FILE: Final = "BENCH_PARTS_FILE"
"""The environment variable that names the file for the counts."""
STEP: Final = 0.002
"""Seconds of CPU between two samples."""
LOOP: Final = "event loop, sockets, TLS"
START: Final = "start"
_PARTS: Final = {
    "kube": "requests: encoding, sending, answers",
    "kube.reflector": "watches: reading and decoding",
    "kube.answers": "watches: reading and decoding",
    "kube.decoding": "watches: reading and decoding",
    "kube.intake": "watches: reading and decoding",
    "kube.initial": "watches: reading and decoding",
    "kube.raws": "watches: reading and decoding",
    "kube.store": "stores and indexes",
    "kube.cache": "stores and indexes",
    "kube.caches": "stores and indexes",
    "kube.workqueue": "reconcilers: queue and runner",
    "kube.fairness": "requests: turns and window",
    "kube.lease": "lease and fence",
    "kube.fence": "lease and fence",
    "kube.candidacy": "lease and fence",
    "kube.events": "events",
    "controllers": "reconcilers: decisions",
    "jobs": "reconcilers: decisions",
    "controllers.runtime": "reconcilers: queue and runner",
    "controllers.runtime.executor": "requests: encoding, sending, answers",
    "controllers.wakes": "reconcilers: queue and runner",
    "kube.gate": "requests: turns and window",
    "kube.window": "requests: turns and window",
    "controllers.scheduling": "scheduler, without the engine",
    "engine": "engine",
    "controllers.status": "drafts of statuses and admissions",
    "controllers.workloads": "drafts of statuses and admissions",
    "controllers.queues": "statuses of queues",
    "controllers.metrics": "metrics",
    "process.metrics": "metrics",
    "webhooks": "webhook: reviews",
    "http": "webhook: reviews",
    "visibility": "webhook: reviews",
    "process": "process: memory, watchdog, logs",
    "main": LOOP,
    "__main__": LOOP,
}
"""The part of each module, by the longest prefix. A module that is not named counts for its caller: `api` encodes and
decodes for all."""
_ROOT: Final = "turnstile"


def part_of(frame: FrameType | None) -> str:
    """The part that the innermost function of the package stands for."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module == _ROOT or module.startswith(f"{_ROOT}."):
            if frame.f_code.co_name == "<module>":
                return START
            if found := _named(module.removeprefix(f"{_ROOT}.")):
                return found
        frame = frame.f_back
    return LOOP


def _named(module: str) -> str:
    while module:
        if module in _PARTS:
            return _PARTS[module]
        module = module.rpartition(".")[0]
    return ""


def sample(file: Path) -> None:
    """Count samples from now on; they are written when the process ends in order."""
    counts = Counter[str]()

    def take(_: int, frame: FrameType | None) -> None:
        counts[part_of(frame)] += 1

    def write() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        file.write_text(json.dumps(counts))

    signal.signal(signal.SIGPROF, take)
    signal.siginterrupt(signal.SIGPROF, False)
    signal.setitimer(signal.ITIMER_PROF, STEP, STEP)
    atexit.register(write)


def table(file: Path) -> Iterator[str]:
    """The parts and their share of the samples, the largest first. Those of the start are told apart."""
    counts = Counter[str](json.loads(file.read_text()))
    start = counts.pop(START, 0)
    total = counts.total()
    yield f"  where CPU goes, of {total} samples after the start ({start} in it)"
    yield from (f"    {100 * count / max(1, total):5.1f} %  {part}" for part, count in counts.most_common())


def main() -> None:
    """Run the command line of Turnstile with the sampler."""
    from turnstile.__main__ import main as run

    sample(Path(os.environ[FILE]))
    run()


if __name__ == "__main__":
    sys.exit(main())
