"""Which of the writes that wait is next."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from turnstile.kube.gate import (
    BESIDE_OTHERS,
    LATER,
    OTHERS_SECONDS,
    PATIENCE_ANSWERS,
    PATIENCE_SECONDS,
    STILL_SECONDS,
    Gate,
    Rank,
)
from turnstile.kube.window import FIRST

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


@pytest.fixture
def gate() -> Gate:
    """A gate that has seen nothing yet."""
    return Gate(lambda: asyncio.get_running_loop().time())


@asynccontextmanager
async def full(gate: Gate, rank: Rank = Rank.START) -> AsyncIterator[None]:
    """Every place of the window is taken for the time of a block."""
    async with AsyncExitStack() as stack:
        for _ in range(gate.window.size):
            await stack.enter_async_context(gate.turn(rank))
        yield


async def in_order(gate: Gate, *writes: tuple[Rank, str]) -> list[tuple[Rank, str]]:
    """The order in which these get their turns, all asked for while the window is full."""
    order: list[tuple[Rank, str]] = []
    alone = asyncio.Lock()

    async def write(rank: Rank, flow: str) -> None:
        async with gate.turn(rank, flow):
            order.append((rank, flow))
            async with alone:
                await asyncio.sleep(0.001)

    async with asyncio.TaskGroup() as group, full(gate):
        for rank, flow in writes:
            group.create_task(write(rank, flow))
        await asyncio.sleep(0.001)
    return order


async def test_the_most_useful_rank_is_first(gate: Gate) -> None:
    """Whichever was asked for first."""
    asked = [(rank, "") for rank in reversed(Rank)]
    assert [rank for rank, _ in await in_order(gate, *asked)] == list(Rank)


async def test_of_a_rank_the_higher_priority_is_first(gate: Gate) -> None:
    """Within a namespace; those of equal priority keep their order, and a better rank goes before any priority."""
    order: list[str] = []

    async def write(name: str, rank: Rank, priority: int) -> None:
        async with gate.turn(rank, "ns", priority):
            order.append(name)

    asked = (("low", 0), ("negative", -5), ("high", 1_000_000), ("low too", 0))
    async with asyncio.TaskGroup() as group, full(gate):
        for name, priority in asked:
            group.create_task(write(name, Rank.ADMIT, priority))
        group.create_task(write("start", Rank.START, 0))
        await asyncio.sleep(0.001)
    assert order == ["start", "high", "low", "low too", "negative"]


async def test_namespaces_take_turns(gate: Gate) -> None:
    """Ten writes of one namespace do not delay the two of another."""
    order = await in_order(gate, *[(Rank.START, "flood")] * 10, *[(Rank.START, "other")] * 2)
    assert [flow for _, flow in order[:5]] == ["flood", "other", "flood", "other", "flood"]


async def test_namespaces_take_turns_whatever_their_urgent_writes_are(gate: Gate) -> None:
    """A hundred starts in one namespace do not hold up the eviction and the new job of another."""
    order = await in_order(gate, *[(Rank.START, "flood")] * 10, (Rank.CREATE, "other"), (Rank.STOP, "other"))
    assert [(rank, flow) for rank, flow in order[:5] if flow == "other"] == [
        (Rank.STOP, "other"),
        (Rank.CREATE, "other"),
    ]


async def test_no_more_are_in_flight_than_the_window_has_places(gate: Gate) -> None:
    """The others wait, and are counted with the time that they waited."""
    async with full(gate):
        late = asyncio.ensure_future(gate.turn(Rank.START).__aenter__())
        await asyncio.sleep(2)
        assert gate.waiting(Rank.START) == 1
        assert gate.in_flight(Rank.START) == FIRST
        assert not late.done()
    assert await late
    assert gate.waiting(Rank.START) == 0
    assert gate.stats.waited[Rank.START] == pytest.approx(2)
    assert gate.stats.turns[Rank.START] == FIRST + 1


class TestAdmissionsOnASlowServer:
    """Fewer of them are in flight than of other writes."""

    @staticmethod
    def _slow(gate: Gate) -> None:
        """The server takes a hundred times as long as it did first."""
        gate.window.answered("patch", 0.01, in_flight=1)
        for _ in range(200):
            gate.window.answered("patch", 1.0, in_flight=gate.window.size)

    @staticmethod
    def _admissions(gate: Gate, count: int, *, begun: list[int]) -> list[asyncio.Task[None]]:
        async def write(number: int) -> None:
            async with gate.turn(Rank.ADMIT, f"ns-{number}", number):
                begun.append(number)
                await asyncio.sleep(1)

        return [asyncio.create_task(write(number)) for number in range(count)]

    async def test_wait_in_this_process(self, gate: Gate) -> None:
        """Starts go out beside them, and every admission gets its turn in the end."""
        self._slow(gate)
        begun: list[int] = []
        admissions = self._admissions(gate, 30, begun=begun)
        await asyncio.sleep(0.5)
        assert gate.in_flight(Rank.ADMIT) == gate.window.few == len(begun) < gate.window.size / 2
        assert gate.waiting(Rank.ADMIT) == 30 - len(begun)
        async with gate.turn(Rank.START, "other") as waited:
            assert not waited
        await asyncio.gather(*admissions)
        assert sorted(begun) == list(range(30))

    async def test_whose_callers_gave_up_keep_no_place(self, gate: Gate) -> None:
        """Whether they waited for a place among the urgent writes, had one, or were in flight."""
        self._slow(gate)
        begun: list[int] = []
        async with full(gate):
            admissions = self._admissions(gate, 30, begun=begun)
            await asyncio.sleep(0.5)
            assert begun == []
            for each in admissions[::2]:
                each.cancel()
            await asyncio.sleep(0.5)
        await asyncio.sleep(0.5)
        for each in admissions:
            each.cancel()
        await asyncio.gather(*admissions, return_exceptions=True)
        begun.clear()
        await asyncio.gather(*self._admissions(gate, gate.window.few, begun=begun))
        assert len(begun) == gate.window.few
        assert gate.waiting(Rank.ADMIT) == gate.in_flight(Rank.ADMIT) == 0

    async def test_are_all_in_flight_on_a_fast_one(self, gate: Gate) -> None:
        """The server takes as long as ever: nothing waits in it, so nothing has to wait here."""
        assert gate.window.few == gate.window.size


class TestANamespaceWithManyWrites:
    """A flood of starts in one namespace."""

    @staticmethod
    def _writes(gate: Gate, flow: str, count: int, *, seconds: float) -> list[asyncio.Task[None]]:
        async def write() -> None:
            async with gate.turn(Rank.START, flow):
                await asyncio.sleep(seconds)

        return [asyncio.create_task(write()) for _ in range(count)]

    async def test_has_few_in_flight_while_another_namespace_writes(self, gate: Gate) -> None:
        """So that a write of the other waits behind few in the server; what is in flight already is not cut."""
        flood = self._writes(gate, "flood", 100, seconds=1)
        await asyncio.sleep(0.5)
        assert gate.in_flight(Rank.START) == FIRST
        other = self._writes(gate, "other", 1, seconds=1)
        await asyncio.sleep(0.6)
        assert gate.in_flight(Rank.START) == BESIDE_OTHERS + 1
        await asyncio.gather(*flood, *other)

    async def test_has_the_whole_window_when_the_other_has_written_nothing_for_a_while(self, gate: Gate) -> None:
        """It is served on meanwhile."""
        other = self._writes(gate, "other", 1, seconds=0.1)
        flood = self._writes(gate, "flood", 300, seconds=1)
        await asyncio.sleep(OTHERS_SECONDS - 0.5)
        assert gate.in_flight(Rank.START) == BESIDE_OTHERS
        await asyncio.sleep(1)
        assert gate.in_flight(Rank.START) == FIRST
        await asyncio.gather(*flood, *other)

    async def test_holds_up_no_write_that_belongs_to_no_namespace(self, gate: Gate) -> None:
        """Nor do such writes make it one of several."""
        flood = self._writes(gate, "flood", 20, seconds=1)
        free = self._writes(gate, "", 20, seconds=1)
        await asyncio.sleep(0.5)
        assert gate.in_flight(Rank.START) == FIRST
        await asyncio.gather(*flood, *free)

    async def test_shares_the_window_with_others_that_have_many_too(self, gate: Gate) -> None:
        """With eight of them the whole window is in use."""
        floods = [self._writes(gate, f"flood-{number}", 30, seconds=1) for number in range(8)]
        await asyncio.sleep(0.5)
        assert gate.in_flight(Rank.START) == FIRST
        await asyncio.gather(*(each for flood in floods for each in flood))


class TestWritesThatCanWait:
    """Statuses of queues, reasons, and events."""

    async def test_begin_when_nothing_else_was_written_for_a_moment(self, gate: Gate) -> None:
        """What follows a write is often the next write of the same job."""
        loop = asyncio.get_running_loop()
        async with gate.turn(Rank.STOP):
            late = asyncio.ensure_future(gate.turn(Rank.EVENT).__aenter__())
            await asyncio.sleep(0.5)
            assert not late.done()
        ended = loop.time()
        await late
        assert loop.time() - ended == pytest.approx(STILL_SECONDS, abs=0.01)

    async def test_get_a_turn_now_and_then_while_others_are_always_written(self, gate: Gate) -> None:
        """One of each rank."""
        loop = asyncio.get_running_loop()
        moments: dict[Rank, list[float]] = {rank: [] for rank in Rank}

        async def write(rank: Rank, seconds: float) -> None:
            while True:
                async with gate.turn(rank):
                    moments[rank].append(loop.time())
                    await asyncio.sleep(seconds)

        tasks = [asyncio.ensure_future(write(Rank.START, 0.01)) for _ in range(50)]
        tasks += [asyncio.ensure_future(write(rank, 0.01)) for rank in LATER for _ in range(5)]
        await asyncio.sleep(20)
        for rank in LATER:
            assert 15 <= len(moments[rank]) <= 20 / PATIENCE_SECONDS
        for task in tasks:
            task.cancel()

    async def test_take_a_small_part_of_a_slow_server(self, gate: Gate) -> None:
        """While a write takes two seconds, a turn a second would be half of them."""
        loop = asyncio.get_running_loop()
        turns = 0

        async def write(rank: Rank) -> None:
            nonlocal turns
            while True:
                async with gate.turn(rank):
                    turns += rank is Rank.EVENT
                    await asyncio.sleep(2)
                    gate.answered("patch", 2)

        tasks = [asyncio.ensure_future(write(Rank.START)) for _ in range(50)]
        tasks += [asyncio.ensure_future(write(Rank.EVENT)) for _ in range(5)]
        await asyncio.sleep(20)
        began, turns = loop.time(), 0
        await asyncio.sleep(160)
        assert turns <= (loop.time() - began) / (2 * PATIENCE_ANSWERS) + 1
        for task in tasks:
            task.cancel()

    async def test_wait_for_a_server_that_is_not_at_ease(self, gate: Gate) -> None:
        """Now and then one is tried."""
        loop = asyncio.get_running_loop()
        gate.window.refused()
        began = loop.time()
        async with gate.turn(Rank.STATUS):
            assert loop.time() - began == pytest.approx(PATIENCE_SECONDS, abs=0.01)

    async def test_are_tried_soon_after_a_write_that_got_no_answer(self, gate: Gate) -> None:
        """That it took long says nothing about a server to which nothing is written."""
        loop = asyncio.get_running_loop()
        gate.answered("patch", 60.0, done=False)
        began = loop.time()
        async with gate.turn(Rank.REASON):
            assert loop.time() - began == pytest.approx(PATIENCE_SECONDS, abs=0.01)


class TestAWriterThatIsCancelled:
    """At the end of a term, or of the process."""

    async def test_leaves_the_queue(self, gate: Gate) -> None:
        """The next one gets the turn."""
        async with full(gate):
            gone = asyncio.ensure_future(gate.turn(Rank.START).__aenter__())
            late = asyncio.ensure_future(gate.turn(Rank.START).__aenter__())
            await asyncio.sleep(0)
            gone.cancel()
            await asyncio.wait([gone])
            assert gate.waiting(Rank.START) == 1
        await late
        assert gate.in_flight(Rank.START) == 1

    async def test_gives_a_turn_back_that_came_at_the_same_moment(self, gate: Gate) -> None:
        """No place is lost."""
        async with full(gate):
            gone = asyncio.ensure_future(gate.turn(Rank.START).__aenter__())
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        assert gate.in_flight(Rank.START) == 0


async def test_quiet_waits_until_nothing_was_started_or_stopped_for_a_while(gate: Gate) -> None:
    """Or for as long as the caller can wait."""
    loop = asyncio.get_running_loop()
    async with gate.turn(Rank.START):
        began = loop.time()
        await gate.quiet(still=0.3, at_most=2)
        assert loop.time() - began == pytest.approx(2)
    began = loop.time()
    await gate.quiet(still=0.3, at_most=2)
    assert loop.time() - began == pytest.approx(0.3)
    async with gate.turn(Rank.EVENT):
        began = loop.time()
        await gate.quiet(still=0.3, at_most=2)
        assert loop.time() == began
