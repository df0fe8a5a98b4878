"""The window of writes in flight follows what the server can take."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.unit.kube_work.servers import Server
from turnstile.kube.gate import Gate, Rank
from turnstile.kube.window import FORGET_SECONDS, LARGEST, LONGEST, QUEUED, SMALLEST, Window


@asynccontextmanager
async def load(server: Server, *, clients: int) -> AsyncIterator[None]:
    """Clients that send one request after the other for the time of a block."""

    async def send() -> None:
        while True:
            await server.work()

    tasks = [asyncio.ensure_future(send()) for _ in range(clients)]
    yield
    for task in tasks:
        task.cancel()


@asynccontextmanager
async def writes(gate: Gate, server: Server, *, writers: int = 200) -> AsyncIterator[list[float]]:
    """Writers with more to write than any server can take, for the time of a block; what each write took."""
    taken: list[float] = []

    async def write() -> None:
        while True:
            async with gate.turn(Rank.START):
                seconds = await server.work()
                gate.answered("patch", seconds)
                taken.append(seconds)

    tasks = [asyncio.ensure_future(write()) for _ in range(writers)]
    yield taken
    for task in tasks:
        task.cancel()


async def average(server: Server) -> float:
    """How many requests are in the server, on average over two seconds."""
    seen = []
    for _ in range(100):
        await asyncio.sleep(0.0217)  # no multiple of what a request takes
        seen.append(server.present)
    return sum(seen) / len(seen)


@pytest.mark.asyncio
@pytest.mark.looptime
class TestAlone:
    """No other client loads the server."""

    @pytest.mark.parametrize("capacity", [1, 2, 4, 8, 16, 32])
    async def test_it_finds_what_the_server_works_on_at_once(self, capacity: int) -> None:
        """A few more wait in the server, so that no part of the server is ever idle; 200 writers wait here."""
        gate = Gate(asyncio.get_running_loop().time)
        server = Server(capacity=capacity, seconds=0.01)
        async with writes(gate, server):
            await asyncio.sleep(2)
            began = server.done
            assert capacity <= await average(server) <= capacity + 2 * QUEUED
            assert server.done - began >= 0.98 * 2.17 * capacity / server.seconds

    async def test_it_does_not_grow_while_it_is_not_used(self) -> None:
        """One write at a time says nothing about many."""
        gate = Gate(asyncio.get_running_loop().time)
        first = gate.window.size
        async with writes(gate, Server(capacity=64, seconds=0.01), writers=1):
            await asyncio.sleep(10)
        assert gate.window.size == first

    async def test_it_never_grows_beyond_its_limit(self) -> None:
        """However much a server can take."""
        gate = Gate(asyncio.get_running_loop().time)
        async with writes(gate, Server(capacity=1000, seconds=0.1)):
            await asyncio.sleep(20)
        assert gate.window.size == LARGEST


@pytest.mark.asyncio
@pytest.mark.looptime
class TestAmongOthers:
    """Other clients load the server."""

    async def test_it_gives_way_while_others_fill_the_server_and_recovers_after(self) -> None:
        """A hundred clients come and go."""
        gate = Gate(asyncio.get_running_loop().time)
        server = Server(capacity=16, seconds=0.01)
        async with writes(gate, server):
            await asyncio.sleep(5)
            assert gate.window.size >= QUEUED + 12
            async with load(server, clients=100):
                await asyncio.sleep(2)
                assert gate.window.size <= QUEUED + 5
            await asyncio.sleep(2)
            assert gate.window.size >= QUEUED + 12

    async def test_it_goes_on_writing_however_long_others_fill_the_server(self) -> None:
        """It gets a small part of the server, also after minutes."""
        gate = Gate(asyncio.get_running_loop().time)
        server = Server(capacity=4, seconds=0.02)
        async with writes(gate, server) as taken, load(server, clients=200):
            for _ in range(2):
                before = len(taken)
                await asyncio.sleep(30)
                assert len(taken) - before >= 0.9 * 30 * SMALLEST / (200 * server.seconds / 4)
                assert gate.window.size <= 2 * QUEUED

    async def test_a_few_slow_answers_do_not_close_it(self) -> None:
        """One answer in fifty takes a hundred times as long."""
        gate = Gate(asyncio.get_running_loop().time)
        server = Server(capacity=64, seconds=0.05)
        count = 0

        async def write() -> None:
            nonlocal count
            while True:
                async with gate.turn(Rank.START):
                    seconds = await server.work()
                    count += 1
                    if count % 50 == 0:
                        await asyncio.sleep(1)
                        seconds += 1
                    gate.answered("patch", seconds)

        tasks = [asyncio.ensure_future(write()) for _ in range(200)]
        await asyncio.sleep(20)
        assert gate.window.size >= 16
        for task in tasks:
            task.cancel()


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def answers(window: Window, clock: Hand, seconds: float, *, times: int, what: str = "patch") -> None:
    """So many answers while the window is full."""
    for _ in range(times):
        clock.now += seconds / window.size
        window.answered(what, seconds, in_flight=window.size)


def test_kinds_of_writes_are_measured_apart() -> None:
    """A kind that always takes long is no load."""
    clock = Hand()
    window = Window(clock)
    for _ in range(100):
        answers(window, clock, 0.004, times=1)
        answers(window, clock, 0.2, times=1, what="create")
    assert window.slowness == pytest.approx(1.0, abs=0.05)
    assert window.size > 20


def test_a_refusal_halves_it_once_a_second() -> None:
    """All that were in flight are refused at about the same time."""
    clock = Hand()
    window = Window(clock)
    first = window.size
    for _ in range(10):
        window.refused()
    assert window.size == first // 2
    assert not window.at_ease
    clock.now += 1.0
    window.refused()
    window.refused(30.0)
    assert window.size == first // 4
    clock.now += 29.0
    assert not window.at_ease
    clock.now += 1.1
    assert window.at_ease
    for _ in range(10):
        clock.now += 1.0
        window.refused()
    assert window.size == SMALLEST


def test_what_failed_is_never_the_fastest() -> None:
    """A server that fails at once is not a fast one."""
    clock = Hand()
    window = Window(clock)
    answers(window, clock, 0.1, times=10)
    window.answered("patch", 0.001, in_flight=8, done=False)
    answers(window, clock, 0.1, times=10)
    assert window.slowness == pytest.approx(1.0, abs=0.05)


def test_the_lowest_latency_is_forgotten_slowly() -> None:
    """A server that became four times as slow for good is taken as it is after twenty minutes."""
    clock = Hand()
    window = Window(clock)
    answers(window, clock, 0.01, times=10)
    for _ in range(60):
        clock.now += 1.0
        answers(window, clock, 0.04, times=10)
    assert window.slowness > 3.5
    for _ in range(int(2 * FORGET_SECONDS)):
        clock.now += 1.0
        answers(window, clock, 0.04, times=1)
    assert window.slowness == pytest.approx(1.0, abs=0.1)


def test_the_deadline_follows_the_latency() -> None:
    """It is never below what the caller wants, and never above what the server itself allows."""
    clock = Hand()
    window = Window(clock)
    assert window.deadline(10.0) == 10.0
    answers(window, clock, 0.1, times=100)
    assert window.deadline(10.0) == 10.0
    answers(window, clock, 2.0, times=100)
    assert window.deadline(10.0) == pytest.approx(40.0, rel=0.05)
    answers(window, clock, 20.0, times=100)
    assert window.deadline(10.0) == LONGEST
    answers(window, clock, 0.01, times=1000)
    assert window.deadline(10.0) == 10.0
