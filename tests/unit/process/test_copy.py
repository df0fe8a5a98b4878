"""The copy of the ledger: what it knows when it is asked, and what becomes of a question it cannot answer."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from app.api.errors import InvalidValue, Unanswered
from app.engine import State, cycle, cycle_steps
from app.process import copy as module
from app.process.copy import Copy
from tests.unit.engine import builders as b

pytestmark = pytest.mark.asyncio


@dataclass(frozen=True)
class Waiting:
    """Who waits?"""

    def answer(self, state: State) -> Iterator[str]:
        """Keys."""
        yield from sorted(state.waiting)


@dataclass(frozen=True)
class Dropping:
    """What would be left if all were gone?"""

    def answer(self, state: State) -> Iterator[int]:
        """Nothing."""
        for key in list(state.workloads):
            state.drop_workload(key)
        yield len(state.workloads)


@dataclass(frozen=True)
class Many:
    """A long answer."""

    count: int

    def answer(self, state: State) -> Iterator[int]:
        """So many numbers."""
        yield from range(self.count)


@dataclass(frozen=True)
class Failing:
    """A question that goes wrong."""

    how: str

    def answer(self, state: State) -> Iterator[Any]:
        """How it does."""
        match self.how:
            case "invalid":
                raise InvalidValue("put", "x", "ask otherwise")
            case "wrong":
                raise KeyError("gone")
            case "dies":
                os._exit(3)
            case "ever":
                while True:
                    yield "on"
                    time.sleep(0.001)
            case _:
                os.kill(os.getppid(), signal.SIGSTOP if self.how == "stops" else signal.SIGKILL)
                while True:
                    signal.pause()


@pytest.fixture
def state() -> State:
    """A queue of 2 cpus, in which one Workload waits."""
    made = b.world(b.queue("main", {"default": {"cpu": 2}}))
    made.put_workload(b.workload("one", cpu=2), b.NOW)
    return made


@pytest_asyncio.fixture
async def copy(state: State) -> AsyncIterator[Copy]:
    """Its copy."""
    made = Copy(state)
    yield made
    made.close()


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110  (a process is watched)
            await asyncio.sleep(0.01)


def gone(process: int) -> bool:
    """Whether a process ended and nothing of it is left."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


class TestTheCopy:
    """What it knows."""

    async def test_is_made_when_it_is_first_asked(self, state: State, copy: Copy) -> None:
        """Who never asks pays nothing."""
        state.put_workload(b.workload("two", cpu=2), b.NOW)
        assert not copy.alive
        assert await copy.ask(Waiting()) == ["team/one", "team/two"]
        assert copy.starts == 1

    async def test_knows_all_that_the_ledger_took_before_it_was_asked(self, state: State, copy: Copy) -> None:
        """Events and cycles, those with arguments by name too."""
        await copy.ask(Waiting())
        state.put_admission_check("check", active=False)
        state.put_workload(b.workload("two", cpu=1), b.NOW)
        state.put_workload(b.workload("three", cpu=2), b.NOW)
        cycle(state, b.NOW)
        state.drop_workload("team/two")
        assert sorted(state.waiting) == ["team/three"]
        assert await copy.ask(Waiting()) == ["team/three"]
        assert copy.starts == 1

    async def test_is_asked_after_the_cycle_that_is_under_way(self, state: State, copy: Copy) -> None:
        """It is made then, or follows then: a cycle cannot be copied in its middle."""
        for name in ("two", "three"):
            state.put_workload(b.workload(name, cpu=1), b.NOW)
            steps = cycle_steps(state, b.NOW)
            next(steps)
            asking = asyncio.create_task(copy.ask(Waiting()))
            await asyncio.sleep(0)
            state.put_workload(b.workload(f"{name}-late", cpu=2), b.NOW)
            assert not asking.done()
            for _ in steps:
                pass
            assert await asking == sorted(set(state.waiting) - {f"team/{name}-late"})
        assert "team/one" in state.assumed
        assert copy.starts == 1

    async def test_never_changes_the_ledger(self, state: State, copy: Copy) -> None:
        """Nor itself: what a question does ends with it, while events come."""
        asking = asyncio.create_task(copy.ask(Dropping()))
        await asyncio.sleep(0)
        state.put_workload(b.workload("two", cpu=2), b.NOW)
        assert await asking == [0]
        assert sorted(state.waiting) == ["team/one", "team/two"]
        assert await copy.ask(Waiting()) == ["team/one", "team/two"]

    async def test_gives_long_answers(self, copy: Copy) -> None:
        """In many pieces."""
        assert await copy.ask(Many(100_000)) == list(range(100_000))

    async def test_answers_several_at_once(self, copy: Copy) -> None:
        """Each gets its own answer."""
        answers = await asyncio.gather(*(copy.ask(Many(count)) for count in range(20)))
        assert [len(answer) for answer in answers] == list(range(20))

    async def test_ends_when_nobody_asks_any_more(self, state: State) -> None:
        """And nothing of it is left; the next question makes another."""
        copy = Copy(state, idle_seconds=0.05)
        await copy.ask(Waiting())
        process = copy.process
        await until(lambda: not copy.alive and gone(process))
        assert state.follower is None
        assert await copy.ask(Waiting()) == ["team/one"]
        assert copy.starts == 2
        copy.close()


class TestAQuestion:
    """What cannot be answered."""

    async def test_that_makes_no_sense_says_so(self, copy: Copy) -> None:
        """As the error that it is."""
        with pytest.raises(InvalidValue, match="put: 'x': ask otherwise"):
            await copy.ask(Failing("invalid"))

    @pytest.mark.parametrize(("how", "what"), [("wrong", "KeyError: 'gone'"), ("dies", "ended with 3")])
    async def test_that_goes_wrong_costs_only_itself(self, copy: Copy, how: str, what: str) -> None:
        """The copy goes on."""
        with pytest.raises(Unanswered, match=what):
            await copy.ask(Failing(how))
        assert await copy.ask(Waiting()) == ["team/one"]
        assert copy.starts == 1

    async def test_that_never_ends_is_ended(self, state: State, copy: Copy) -> None:
        """The copy goes on, and follows meanwhile."""
        asking = asyncio.create_task(copy.ask(Failing("ever"), seconds=0.3))
        await asyncio.sleep(0)
        state.put_workload(b.workload("two", cpu=2), b.NOW)
        assert await copy.ask(Waiting()) == ["team/one", "team/two"]
        with pytest.raises(Unanswered, match="took too long"):
            await asking
        assert copy.starts == 1

    async def test_with_an_answer_too_long_fails(self, copy: Copy) -> None:
        """Memory is bounded."""
        with pytest.raises(Unanswered, match="longer than 32 MiB"):
            await copy.ask(Many(20_000_000), seconds=60)

    async def test_too_many_are_refused(self, copy: Copy) -> None:
        """At once, with what to do."""
        asking = [asyncio.create_task(copy.ask(Waiting())) for _ in range(module.WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(Unanswered, match="ask again later"):
            await copy.ask(Waiting())
        assert await asyncio.gather(*asking) == [["team/one"]] * module.WAITING


class TestACopyThatFails:
    """Its questions fail, the ledger does not notice, and the next question makes another copy."""

    async def recovered(self, state: State, copy: Copy, process: int) -> None:
        """It is gone, and the ledger's next events are known to the next one."""
        assert not copy.alive
        assert state.follower is None
        state.put_workload(b.workload("two", cpu=2), b.NOW)
        assert await copy.ask(Waiting()) == ["team/one", "team/two"]
        assert copy.starts == 2
        await until(lambda: gone(process))

    async def test_by_dying(self, state: State, copy: Copy) -> None:
        """Whoever killed it."""
        await copy.ask(Waiting())
        process = copy.process
        with pytest.raises(Unanswered, match=r"its process died.*ask again"):
            await copy.ask(Failing("kills"))
        await self.recovered(state, copy, process)

    async def test_by_answering_no_more(self, state: State, copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
        """After the time of the question and a while."""
        monkeypatch.setattr(module, "GRACE_SECONDS", 0.2)
        await copy.ask(Waiting())
        process = copy.process
        with pytest.raises(Unanswered, match="did not answer"):
            await copy.ask(Failing("stops"), seconds=0.2)
        await self.recovered(state, copy, process)

    async def test_by_falling_behind(self, state: State) -> None:
        """What waits for it is bounded; nothing waits for it."""
        copy = Copy(state, unsent_bytes=10_000)
        await copy.ask(Waiting())
        process = copy.process
        asking = asyncio.create_task(copy.ask(Failing("ever")))
        await asyncio.sleep(0)
        most = 0
        while copy.alive:
            state.put_workload(b.workload("two", cpu=2), b.NOW)
            most = max(most, copy.unsent)
        assert 5_000 < most <= 10_000
        with pytest.raises(Unanswered, match="fell behind"):
            await asking
        await self.recovered(state, copy, process)
        copy.close()

    async def test_by_a_cycle_that_was_left_early(self, state: State, copy: Copy) -> None:
        """Where it stopped cannot be repeated."""
        await copy.ask(Waiting())
        process = copy.process
        steps = cycle_steps(state, b.NOW)
        next(steps)
        steps.close()
        await self.recovered(state, copy, process)

    async def test_by_a_fault_of_its_own(self, state: State, copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
        """An event that the ledger took, and it cannot take."""
        await copy.ask(Waiting())
        process = copy.process
        assert state.follower is not None
        state.follower.took("no_such_event", (), {})
        with pytest.raises(Unanswered, match="its process died"):
            await copy.ask(Waiting())
        await self.recovered(state, copy, process)

    async def test_by_lack_of_memory(self, state: State) -> None:
        """It is not made where it may not have room, and ends before memory does."""
        left: int | None = 10 * 2**20
        copy = Copy(state, look_seconds=0.01, spare=lambda: left)
        with pytest.raises(Unanswered, match="10 MiB are left: raise the memory limit"):
            await copy.ask(Waiting())
        assert copy.starts == 0
        left = None
        await copy.ask(Waiting())
        process = copy.process
        left = 10 * 2**20
        await until(lambda: not copy.alive)
        left = 2**40
        copy.starts = 1
        await self.recovered(state, copy, process)
        copy.close()

    async def test_by_not_being_made(self, copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where there are no more processes."""

        def fork() -> int:
            raise BlockingIOError("Resource temporarily unavailable")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fork", fork)
            with pytest.raises(Unanswered, match="no copy of the ledger could be made"):
                await copy.ask(Waiting())
        assert await copy.ask(Waiting()) == ["team/one"]
