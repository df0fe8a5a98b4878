"""What the flight recorder costs the event loop: `python -m tests.bench.recorder`.

The writer runs and writes to a file meanwhile, as in a controller. CPU is that of the loop's thread. The lives are
those of the recorder's tests: a Workload waits, is admitted, is preempted, is admitted again, ends and is deleted.
"""

import argparse
import asyncio
import contextlib
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.figures import HEADER, Figure
from tests.bench.turns import timed
from tests.unit.engine import builders as b
from tests.unit.recorder.lives import life, version
from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.cohort import Cohort
from turnstile.api.workload import Workload
from turnstile.engine import cycle
from turnstile.kube.store import Store
from turnstile.process.memory import Collector
from turnstile.recorder.location import Location
from turnstile.recorder.recording import Pods, Recording
from turnstile.recorder.writer import Retention, Writer

WORKLOADS = 50_000
TARGET_US = 10.0
TARGET_MS = 1.0


def _recording(path: Path, workloads: Store[Workload]) -> tuple[Writer, Recording]:
    writer = Writer(Location.of(str(path)), retention=Retention(days=None, mib=None), clock=time.time)
    queues: Store[ClusterQueue] = Store()
    cohorts: Store[Cohort] = Store()
    return writer, Recording(
        writer,
        workloads=workloads,
        cluster_queues=queues,
        cohorts=cohorts,
        pods=Pods(Store(), runs=lambda _: False, workloads_of=lambda _: (), in_use=lambda _: False),
        clock=lambda: datetime.now(UTC),
    )


async def _measure(folder: Path, amount: int) -> list[Figure]:
    collector = Collector()
    collector.begin()
    store: Store[Workload] = Store()
    for number in range(amount):
        store.observe(b.changed(version(f"w-{number}"), metadata={"resourceVersion": str(number + 1)}))
    collector.settle()
    writer, recording = _recording(folder / "recorder.db", store)
    writer.start()
    rows = []
    with timed() as turns:
        began = time.perf_counter()
        task = asyncio.create_task(recording.run(), name="recording")
        while writer.stats.written < 2 * amount:  # noqa: ASYNC110 -- a thread has no event of ours
            await asyncio.sleep(0.01)
        seconds = time.perf_counter() - began
    rows.append(Figure(name=f"{amount:,} Workloads recorded when a term begins", unit="s", value=seconds))
    rows.append(Figure(name="longest hold of the loop meanwhile", unit="ms", value=turns.longest, target=TARGET_MS))

    lives = [life(f"x-{number}") for number in range(amount // 50)]
    changes = [(old, new) for each in lives for old, new in zip([None, *each[:-1]], each, strict=True)]
    plain = time.thread_time()
    for old, new in changes:
        recording.changed("", old, new)
    spent = (time.thread_time() - plain) / len(changes)
    name = "a change that is a fact or several: CPU of the loop"
    rows.append(Figure(name=name, unit="µs", value=spent * 1e6, target=TARGET_US))

    last = [(each[1], b.changed(each[1], metadata={"labels": {"a": "b"}})) for each in lives if each[1] is not None]
    plain = time.thread_time()
    for old, new in last:
        recording.changed("", old, new)
    spent = (time.thread_time() - plain) / len(last)
    rows.append(Figure(name="a change that is none", unit="µs", value=spent * 1e6, target=TARGET_US))

    state = b.world(*(b.queue(f"q{n}", {"default": {"cpu": 1}}) for n in range(200)))
    for n in range(200):
        state.put_workload(b.workload(f"p{n}", f"q{n}", cpu=2), b.NOW)
    decisions = list(cycle(state, b.NOW))
    plain = time.thread_time()
    for decision in decisions:
        recording.tried(decision)
    first = (time.thread_time() - plain) / len(decisions)
    plain = time.thread_time()
    for _ in range(20):
        for decision in decisions:
            recording.tried(decision)
    again = (time.thread_time() - plain) / len(decisions) / 20
    rows.append(Figure(name="a decision that is new", unit="µs", value=first * 1e6, target=TARGET_US))
    rows.append(Figure(name="a decision as the one before", unit="µs", value=again * 1e6, target=TARGET_US))

    began, before = time.perf_counter(), writer.stats.written
    while writer.stats.written < writer.stats.put:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    rate = (writer.stats.written - before) / max(time.perf_counter() - began, 1e-9)
    rows.append(Figure(name="records written, one thread", unit="/s", value=rate))
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    writer.close()
    size = (folder / "recorder.db").stat().st_size / 1024
    rows.append(Figure(name="the file, of each Workload", unit="KiB", value=size / (amount + len(lives))))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recorder", description=__doc__)
    parser.add_argument("--workloads", type=int, default=WORKLOADS, help="Workloads when the term begins")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(_measure(Path(folder), chosen.workloads))
    print(HEADER)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
