"""Garbage that refers to itself goes away without long holds of the event loop."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Iterator

import pytest

from turnstile.process import memory
from turnstile.process.memory import DOUBLED, SHARE, SLACK, WAIT, YOUNG, Collector, resident


class Cycle:
    """An object that refers to itself, so that only the collector frees it."""

    def __init__(self) -> None:
        self.itself: Cycle | None = self


@pytest.fixture(autouse=True)
def _collector_of_the_tests() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.enable()
    gc.unfreeze()


class Process:
    """What the collector sees of a process: its memory and its CPU time."""

    def __init__(self, *, work: float = 0.0) -> None:
        self.memory = 400 * 2**20
        self.seconds = 0.0
        self.work = work

    @property
    def enough(self) -> int:
        """Growth after which a quiet moment is used."""
        return int(SHARE * self.memory + SLACK)

    def cpu(self) -> float:
        """CPU time; between two looks the process works for so many seconds."""
        self.seconds += self.work
        return self.seconds


async def looked(process: Process, *, growth: int, everything: bool = False) -> int:
    """How often old objects, or all, were looked at in a minute after a settled process grew."""
    collector = Collector(resident=lambda: process.memory, cpu=process.cpu)
    collector.settle()
    process.memory += growth
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            await collector.run()
    return collector.whole_passes if everything else collector.passes


@pytest.mark.asyncio
@pytest.mark.looptime
class TestWhen:
    """All objects are looked at only when memory says that there may be garbage, and nobody waits."""

    async def test_a_process_that_does_not_grow_is_never_held(self) -> None:
        """However long it runs."""
        process = Process()
        assert await looked(process, growth=process.enough - 1) == 0

    async def test_growth_is_looked_into_once_in_a_quiet_moment(self) -> None:
        """What is there then is the measure for the next time."""
        process = Process()
        assert await looked(process, growth=process.enough + 1) == 1

    async def test_growth_to_more_than_twice_is_looked_into_wholly(self) -> None:
        """What is garbage by now may have been alive at every look before."""
        process = Process()
        assert await looked(process, growth=process.memory + SLACK + 1, everything=True) == 1
        assert await looked(process, growth=process.enough + 1, everything=True) == 0

    async def test_a_busy_process_is_let_be(self) -> None:
        """Nobody who waits for an answer waits for the collector too."""
        process = Process(work=1.0)
        assert await looked(process, growth=process.enough + 1) == 0

    async def test_great_growth_does_not_wait_for_quiet(self) -> None:
        """Or a process that is always busy would grow for ever."""
        process = Process(work=1.0)
        assert await looked(process, growth=WAIT * process.enough + 1) == 1


class TestWhat:
    """Young garbage is freed as it comes, old garbage by a look at everything; what is alive stays."""

    def test_young_garbage_does_not_wait(self) -> None:
        """It is gone after so many objects more."""
        collector = Collector()
        collector.begin()
        collector.settle()
        young = weakref.ref(Cycle())
        more = [[number] for number in range(3 * YOUNG)]
        assert young() is None
        assert len(more) == 3 * YOUNG
        assert collector.passes == 0

    def test_a_look_at_what_came_since_leaves_the_rest_alone(self) -> None:
        """So it takes no longer than there is new."""
        collector = Collector()
        before = Cycle()
        collector.settle()
        since = Cycle()
        gc.collect(1)
        seen = weakref.ref(before), weakref.ref(since)
        del before, since
        collector.collect(everything=False)
        assert [each() is None for each in seen] == [False, True]

    def test_what_became_garbage_when_it_was_old_is_freed(self) -> None:
        """Also what was there when the process settled, or was spared by an earlier look."""
        collector = Collector()
        first = Cycle()
        collector.begin()
        settled, alive = Cycle(), Cycle()
        collector.settle()
        old = weakref.ref(first), weakref.ref(settled)
        del first, settled
        assert [each() is None for each in old] == [False, False]
        assert collector.collect(everything=True) >= 2
        assert [each() is None for each in old] == [True, True]
        spared = weakref.ref(alive)
        del alive
        collector.collect(everything=True)
        assert spared() is None

    def test_memory_does_not_grow_for_ever_by_garbage_that_grows_old(self) -> None:
        """Round after round of cycles that outlive every look at the young, and half of them a look at the old."""
        process = Process()
        alive: list[weakref.ref[Cycle]] = []

        def measured() -> int:
            return process.memory + 2**20 * sum(each() is not None for each in alive)

        collector = Collector(resident=measured, cpu=process.cpu, check_seconds=0.0)

        async def run() -> int:
            collector.begin()
            collector.settle()
            most = 0
            task = asyncio.create_task(collector.run())
            long: list[Cycle] = []
            for number in range(100):
                short = [Cycle() for _ in range(20)]
                long.extend(Cycle() for _ in range(20))
                alive.extend(weakref.ref(each) for each in (*short, *long[-20:]))
                gc.collect(1)
                short.clear()
                if number % 5 == 4:
                    gc.freeze()  # as a look at old objects does with what is alive then
                    long.clear()
                for _ in range(5):
                    await asyncio.sleep(0)
                most = max(most, measured())
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return most

        most = asyncio.run(run())
        assert collector.passes > collector.whole_passes >= 2
        assert most < 2 * DOUBLED * process.memory < len(alive) * 2**20


def test_the_first_lists_are_not_looked_at() -> None:
    """Neither while they are read nor later."""
    looks: list[str] = []
    collector = Collector()
    collector.begin()
    gc.callbacks.append(lambda phase, info: looks.append(phase))
    try:
        listed = [[number] for number in range(20 * YOUNG)]
        assert looks == []
        collector.settle()
    finally:
        gc.callbacks.pop()
    assert gc.get_freeze_count() >= len(listed)
    assert gc.get_threshold()[2] == memory.NEVER


def test_resident_memory_is_told_in_bytes() -> None:
    """Of this very process: more than ten megabytes, less than all there is."""
    assert 10 * 2**20 < resident() < 2**40
