"""What the copy of the ledger costs, and how fast it answers: `python -m tests.bench.copy`.

Queues in twenty cohorts, each full, with pending Workloads. A hold is CPU time of the event loop's thread in one of its
callbacks. Lag is measured by a question that asks nothing, after a cycle of all heads.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

from app.api.clusterqueue import ClusterQueue
from app.engine import State, cycle
from app.insight.question import Question
from app.insight.whatif import Outlook, WhatIf
from app.process.copy import Copy
from app.process.memory import Collector, resident
from tests.bench.engine import NOW, _queue, _state, _workload
from tests.bench.figures import HEADER, Figure, percentile
from tests.bench.turns import timed

QUEUES, EACH, HELD = 1000, 50, 10


class Nothing:
    """Asks nothing."""

    def answer(self, state: State) -> Iterator[str]:
        """Nothing."""
        yield ""


def _full(queues: int, each: int) -> State:
    """Queues whose quota is used up, of whose pending Workloads no two are equal."""
    names = [f"q{index}" for index in range(queues)]
    state = _state([_queue(name, HELD, f"cohort-{index % 20}") for index, name in enumerate(names)])
    for name in names:
        for number in range(HELD):
            state.put_workload(_workload(f"{name}-holds-{number}", name, 1, held_by=name), NOW)
        for number in range(each):
            state.put_workload(_workload(f"{name}-{number}", name, 1 + number), NOW)
    return state


def _private(process: int | str) -> float:
    """MiB that a process shares with no other."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


async def _asked(
    copy: Copy, name: str, question: Question[object], *, target: float | None = 1000.0, times: int = 5
) -> Figure:
    """How long an answer takes, and what it costs the loop."""
    seconds: list[float] = []
    with timed() as turns:
        for _ in range(times):
            began = time.perf_counter()
            parts = await asyncio.create_task(copy.ask(question), name="ask")
            seconds.append((time.perf_counter() - began) * 1e3)
    last = parts[-1]
    about = (
        f"; {last.admitted} admitted, {last.pending} pending after {last.cycles} cycles"
        if isinstance(last, Outlook)
        else ""
    )
    note = f"loop held: longest {turns.longest:.2f} ms, in all {sum(turns.all) / times:.2f} ms a question{about}"
    return Figure(name=f"{name}: p50", unit="ms", value=percentile(seconds, 50), target=target, note=note)


async def _measure(queues: int, each: int) -> list[Figure]:
    state = _full(queues, each)
    collector = Collector()
    collector.begin()
    collector.settle()
    untried = WhatIf(now=NOW)
    copy = Copy(state)
    what = f"{queues * each:,} pending in {queues:,} queues"
    rows = [Figure(name=f"memory of the process, {what}", unit="MiB", value=resident() / 2**20)]
    await copy.ask(Nothing())
    rows.append(Figure(name="the first question: the loop is held once", unit="ms", value=copy.start_seconds * 1e3))
    rows.append(Figure(name="memory of the copy's own, at first", unit="MiB", value=_private(copy.process)))
    rows.append(await _asked(copy, "none tried yet, until nothing new is decided", untried, target=None, times=1))
    while state.has_work:
        cycle(state, NOW)
    rows.append(Figure(name="memory of the copy's own, all tried", unit="MiB", value=_private(copy.process)))

    more = _workload("more", "q0", 1, priority=5)
    quota = _queue("q1", HELD + 20 * each, "cohort-1")
    shrunk = WhatIf(now=NOW, put=[quota], drop=[(ClusterQueue, "q21")])
    questions: dict[str, Question[object]] = {
        "nothing": Nothing(),
        "one more Workload, next cycle": WhatIf(now=NOW, put=[more], cycles=1),
        "one more Workload, until nothing new is decided": WhatIf(now=NOW, put=[more]),
        "another quota, until nothing new is decided": WhatIf(now=NOW, put=[quota]),
        "another quota and a queue less, until then": shrunk,
    }
    for name, question in questions.items():
        rows.append(await _asked(copy, name, question))

    lags: list[float] = []
    for number in range(20):
        for index in range(200):
            state.put_workload(_workload(f"x{number}-{index}", f"q{index % queues}", 1), NOW)
        cycle(state, NOW)
        began = time.perf_counter()
        await copy.ask(Nothing())
        lags.append((time.perf_counter() - began) * 1e3)
    name = "lag behind 200 events and a cycle of all heads: p50"
    rows.append(Figure(name=name, unit="ms", value=percentile(lags, 50)))
    rows.append(Figure(name="longest", unit="ms", value=max(lags)))
    rows.append(Figure(name="memory of the copy's own, after 20 cycles", unit="MiB", value=_private(copy.process)))
    events = [_workload(f"y{index}", f"q{index % queues}", 1) for index in range(2000)]
    plain = time.thread_time()
    for event in events:
        state.put_workload(event, NOW)
    with_copy = time.thread_time() - plain
    copy.close()
    plain = time.thread_time()
    for event in events:
        state.put_workload(event, NOW)
    note = f"without a copy {(time.thread_time() - plain) / 2e-3:.0f} µs"
    rows.append(Figure(name="CPU of an event with a copy", unit="µs", value=with_copy / 2e-3, note=note))
    return rows


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.copy", description=__doc__)
    parser.add_argument("--queues", type=int, default=QUEUES, help="ClusterQueues")
    parser.add_argument("--each", type=int, default=EACH, help="pending Workloads of each")
    chosen = parser.parse_args()
    rows = asyncio.run(_measure(chosen.queues, chosen.each))
    print(HEADER)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
