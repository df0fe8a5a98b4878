"""How long the event loop is held when everything is read: a first list, a lost watch, a read that was cut and goes on.

The peer is a server of canned answers. Run it: `python -m tests.bench.relist`. A hold is CPU time of the loop's thread
between two of its callbacks, with the garbage collector as `turnstile serve` sets it.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.bench.canned import STREAM, Answer, added, canned, complete, whole
from tests.bench.figures import HEADER, Figure
from tests.bench.turns import Turns, timed
from tests.bench.wire import workload
from turnstile.api.workload import Workload
from turnstile.controllers.jobs.jobreconciler import index_jobs
from turnstile.controllers.view.clusterview import index_stores
from turnstile.jobs.registry import Registry
from turnstile.kube import auth
from turnstile.kube.reflector import Reflector
from turnstile.kube.slices import in_slices
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport
from turnstile.process.memory import Collector

HELD = 100_000
TARGET_MS = 1.0


def _items(count: int, changed: int) -> Iterator[bytes]:
    """So many Workloads, of which every `changed`-th has a newer version (none if 0)."""
    pattern = workload(0)
    assert b'"resourceVersion":"1000"' in pattern
    for number in range(count):
        newer = count if changed and number % changed == 0 else 0
        yield (
            pattern.replace(b"job-train-0", b"job-train-%d" % number)
            .replace(b"8000-000000000000", b"8000-%012d" % number)
            .replace(b'"resourceVersion":"1000"', b'"resourceVersion":"%d"' % (1000 + number + newer))
        )


def _answering(count: int) -> Answer:
    """Answers watches with everything as it is by `labelSelector=changed=N`, and lists page by page."""
    last = 1000 + 2 * count
    listed: dict[int, list[bytes]] = {}

    async def watch(writer: asyncio.StreamWriter, changed: int) -> None:
        writer.write(STREAM)
        for item in _items(count, changed):
            writer.write(added(item))
            await writer.drain()
        writer.write(complete(last))

    def page(query: dict[str, list[str]], changed: int) -> bytes:
        if changed not in listed:
            listed[changed] = list(_items(count, changed))
        start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        rest = start + limit if start + limit < count else ""
        meta = b'{"resourceVersion":"%d","continue":"%s"}' % (last, str(rest).encode())
        items = b",".join(listed[changed][start : start + limit])
        return whole(b'{"kind":"WorkloadList","metadata":%s,"items":[%s]}' % (meta, items))

    async def answer(request: bytes, writer: asyncio.StreamWriter) -> None:
        query = parse_qs(urlsplit(request.split(b" ")[1].decode()).query)
        changed = int(query["labelSelector"][0].partition("=")[2])
        if "watch" in query:
            await watch(writer, changed)
        else:
            writer.write(page(query, changed))

    return answer


@dataclass(frozen=True, slots=True)
class _Measured:
    turns: Turns
    seconds: float
    changes: int


async def _started(transport: Transport, store: Store[Workload], *, changed: int, streaming: bool = True) -> _Measured:
    """A reflector's new start on a store, whatever that holds."""
    params = {"labelSelector": f"changed={changed}"}
    reflector = Reflector(transport, store, Workload, params=params, streaming_list=streaming)
    return await _timed(store, reflector, lambda: _until_synced(reflector))


async def _until_synced(reflector: Reflector[Workload]) -> None:
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _idly(seconds: float) -> Generator[None, None, None]:
    """Steps that do next to nothing, for so many seconds of CPU."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        yield


async def _timed(
    store: Store[Workload], reflector: Reflector[Workload], run: Callable[[], Coroutine[Any, Any, None]]
) -> _Measured:
    changes, began = store.changes, time.process_time()
    with timed() as turns:
        await asyncio.create_task(run())
    return _Measured(turns, time.process_time() - began, store.changes - changes)


async def _measure(server: str, count: int) -> list[Figure]:
    with timed() as bare:
        await asyncio.create_task(in_slices(_idly(2.0)))
    rows = _figures("a bare loop in slices", _Measured(bare, 2.0, 0))
    store = Store[Workload]()
    index_stores(store, Store(), Store(), Store())
    index_jobs(store, Registry(), {})
    heard: list[str] = []
    store.subscribe(lambda key, old, new: heard.append(key))
    access = auth.Access(server, None, auth.Fixed("Bearer t"))
    collector = Collector()
    collector.begin()
    async with Transport(access, timeout=60) as transport:
        for words, changed in (
            ("first list", 0),
            ("after a lost watch, nothing changed", 0),
            ("one in ten changed", 10),
        ):
            rows += _figures(words, await _started(transport, store, changed=changed))
            if not collector.settled:
                collector.settle()
        paged = await _started(transport, store, changed=3, streaming=False)
        rows += _figures("read page by page, one in three changed", paged)
        late = Store[Workload]()
        rows += _figures("another list, the collector at work", await _started(transport, late, changed=0))
    began = time.process_time()
    collector.collect(everything=True)
    rows.append(
        Figure(
            name=f"the collector's look at everything, {len(store) + len(late)} held",
            value=(time.process_time() - began) * 1e3,
            unit="ms",
            note="once after memory has grown by a quarter, in a quiet moment",
        )
    )
    return rows


def _figures(words: str, measured: _Measured) -> list[Figure]:
    turns = measured.turns
    name, longest, above = turns.worst(1)[0]
    note = f"p99 {turns.at(99):.2f}, p99.9 {turns.at(99.9):.2f} ms; {name} {longest:.2f} ms, {above} times above 1"
    if measured.changes:
        note += f"; {measured.changes} changes"
    return [
        Figure(
            name=f"{words}: longest hold",
            value=turns.longest,
            unit="ms",
            target=TARGET_MS,
            note=f"{note}; {measured.seconds:.1f} s of CPU",
        )
    ]


def main() -> None:
    """Measure, and print a row for each way to read everything."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.relist", description=__doc__)
    parser.add_argument("--amount", type=int, default=HELD, help="Workloads held")
    count = parser.parse_args().amount
    with canned(_answering, count) as server:
        rows = asyncio.run(_measure(server, count))
    print(HEADER)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
