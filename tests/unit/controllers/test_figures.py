"""When figures are worked out: within a second while the API server is at ease, every three seconds in a burst."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from turnstile.controllers.queues.figures import BUSY_SECONDS, ChangedFigures
from turnstile.kube.workqueue import WorkQueue

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def at_ease(*, at_most: float, still: float) -> None:
    """An API server that has time, and was written to just now."""
    await asyncio.sleep(min(at_most, still))


async def busy(*, at_most: float, still: float) -> None:
    """An API server that never has time."""
    await asyncio.sleep(at_most)


@asynccontextmanager
async def running(figures: ChangedFigures) -> AsyncIterator[None]:
    """Hand keys on for the time of a block."""
    run = asyncio.ensure_future(figures.run())
    try:
        yield
    finally:
        run.cancel()


async def changes(figures: ChangedFigures, queue: WorkQueue, *, times: int, every: float) -> list[float]:
    """Have the same figures change again and again; the moments at which they are worked out."""
    moments = []

    async def work() -> None:
        while True:
            key = await queue.get()
            moments.append(asyncio.get_running_loop().time())
            queue.done(key)

    worker = asyncio.ensure_future(work())
    async with running(figures):
        for _ in range(times):
            figures.changed(queue, "a")
            await asyncio.sleep(every)
    worker.cancel()
    return moments


async def test_one_change_is_told_within_a_second() -> None:
    """Also if another one was told just before."""
    queue = WorkQueue()
    figures = ChangedFigures(at_ease)
    loop = asyncio.get_running_loop()
    async with running(figures):
        for _ in range(5):
            changed = loop.time()
            figures.changed(queue, "a")
            queue.done(await queue.get())
            assert loop.time() - changed < 1.0


async def test_changes_at_ease_cost_one_look_a_second() -> None:
    """However many they are."""
    moments = await changes(ChangedFigures(at_ease), WorkQueue(), times=100, every=0.1)
    assert 10 <= len(moments) <= 12


async def test_a_burst_costs_one_look_in_three_seconds() -> None:
    """Figures are told while it lasts all the same."""
    moments = await changes(ChangedFigures(busy), WorkQueue(), times=300, every=0.1)
    assert 9 <= len(moments) <= 30 / BUSY_SECONDS


async def test_keys_that_are_many_are_listed_when_they_are_due() -> None:
    """Once, whoever asked for them how often."""
    queue, seen = WorkQueue(), ["a"]

    def everything() -> Iterator[tuple[WorkQueue, str]]:
        return iter([(queue, key) for key in seen])

    figures = ChangedFigures(at_ease)
    async with running(figures):
        figures.many_changed(everything)
        figures.many_changed(everything)
        seen.append("b")
        assert [await queue.get(), await queue.get()] == ["a", "b"]
        assert len(queue) == 0
