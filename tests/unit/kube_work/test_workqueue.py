"""A key is worked on by one worker at a time, once for any number of adds, and once more if added meanwhile."""

import asyncio

import pytest

from turnstile.kube.workqueue import QueueShutDown, WorkQueue

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def test_many_adds_are_one_look() -> None:
    """Adding a waiting key again changes nothing."""
    queue = WorkQueue()
    for _ in range(100):
        queue.add("ns/a")
    assert len(queue) == 1
    assert await queue.get() == "ns/a"
    assert len(queue) == 0


async def test_keys_come_in_the_order_of_adding() -> None:
    """Those of one namespace, and those without any."""
    queue = WorkQueue()
    for key in ("c", "a", "b", "a"):
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == ["c", "a", "b"]


@pytest.mark.parametrize("kind", ["", "batch/job:"])
async def test_namespaces_take_turns(kind: str) -> None:
    """The keys of a namespace with many do not delay those of another; each namespace keeps its own order."""
    queue = WorkQueue()
    for number in range(1000):
        queue.add(f"{kind}flood/{number}")
    for name in ("b", "a"):
        queue.add(f"{kind}other/{name}")
    taken = [(await queue.get()).removeprefix(kind) for _ in range(5)]
    assert taken == ["flood/0", "other/b", "flood/1", "other/a", "flood/2"]


async def test_a_key_in_work_is_not_given_to_another() -> None:
    """A key added while it is worked on waits for `done`, then comes once more."""
    queue = WorkQueue()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_get_waits_for_a_key() -> None:
    """A worker that finds nothing sleeps until something is added."""
    queue = WorkQueue()
    loop = asyncio.get_running_loop()
    loop.call_later(5, queue.add, "a")
    started = loop.time()
    assert await queue.get() == "a"
    assert loop.time() - started == pytest.approx(5)


async def test_a_cancelled_waiter_loses_no_key() -> None:
    """A key handed to a worker that is cancelled at the same moment goes to the next worker."""
    queue = WorkQueue()
    first = asyncio.ensure_future(queue.get())
    second = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    queue.add("a")  # wakes the first
    first.cancel()
    assert await second == "a"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_waiter_cancelled_early_takes_no_key() -> None:
    """A worker cancelled while it waits leaves no trace in the queue."""
    queue = WorkQueue()
    gone = asyncio.ensure_future(queue.get())
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    queue.add("a")
    assert await queue.get() == "a"


class TestDelays:
    """Keys can be added later."""

    async def test_a_key_arrives_when_due(self) -> None:
        """`add_after` adds at the moment asked for, not before."""
        queue = WorkQueue()
        loop = asyncio.get_running_loop()
        started = loop.time()
        queue.add_after("a", 30)
        assert len(queue) == 0
        assert queue.delayed == 1
        assert await queue.get() == "a"
        assert loop.time() - started == pytest.approx(30)
        assert queue.delayed == 0

    async def test_the_earlier_delay_counts(self) -> None:
        """A later delay of the same key does not postpone it, an earlier one brings it forward; it comes once."""
        queue = WorkQueue()
        loop = asyncio.get_running_loop()
        started = loop.time()
        queue.add_after("a", 30)
        queue.add_after("a", 90)
        queue.add_after("a", 10)
        await queue.get()
        queue.done("a")
        assert loop.time() - started == pytest.approx(10)
        await asyncio.sleep(100)
        assert len(queue) == 0

    async def test_no_delay_is_now(self) -> None:
        """A delay of zero or less adds at once."""
        queue = WorkQueue()
        queue.add_after("a", 0)
        queue.add_after("b", -1)
        assert len(queue) == 2


class TestBackOff:
    """A key that keeps failing is tried ever more rarely."""

    async def test_doubles_up_to_the_cap(self) -> None:
        """The delays are base, twice base, and so on to the cap."""
        queue = WorkQueue(base_delay=1, max_delay=10)
        loop = asyncio.get_running_loop()
        delays = []
        for _ in range(6):
            started = loop.time()
            queue.add_rate_limited("a")
            await queue.get()
            queue.done("a")
            delays.append(round(loop.time() - started, 3))
        assert delays == [1, 2, 4, 8, 10, 10]

    async def test_forget_starts_over(self) -> None:
        """After `forget` the next failure waits the base delay; other keys are not touched."""
        queue = WorkQueue(base_delay=1, max_delay=10)
        for _ in range(3):
            queue.add_rate_limited("a")
            queue.add_rate_limited("b")
        queue.forget("a")
        assert queue.failures("a") == 0
        assert queue.failures("b") == 3

    async def test_thousands_of_failures_do_not_overflow(self) -> None:
        """The back-off stays at the cap for ever."""
        queue = WorkQueue(base_delay=1, max_delay=10)
        for _ in range(5000):
            queue.add_rate_limited("a")
        assert queue.failures("a") == 5000

    async def test_the_server_may_ask_for_more(self) -> None:
        """`at_least` lengthens the delay, even past the cap."""
        queue = WorkQueue(base_delay=1, max_delay=10)
        loop = asyncio.get_running_loop()
        started = loop.time()
        queue.add_rate_limited("a", at_least=25)
        await queue.get()
        assert loop.time() - started == pytest.approx(25)


class TestShutDown:
    """A queue that is shut down drains."""

    async def test_hands_out_what_it_holds(self) -> None:
        """Queued keys are still given, new and delayed ones dropped, then `get` raises."""
        queue = WorkQueue()
        queue.add("a")
        queue.add_after("late", 5)
        queue.shut_down()
        queue.add("b")
        queue.add_after("c", 1)
        queue.add_rate_limited("d")
        assert await queue.get() == "a"
        with pytest.raises(QueueShutDown):
            await queue.get()
        await asyncio.sleep(10)
        assert len(queue) == 0

    async def test_wakes_everyone_who_waits(self) -> None:
        """All idle workers learn of it."""
        queue = WorkQueue()
        waiters = [asyncio.ensure_future(queue.get()) for _ in range(3)]
        await asyncio.sleep(0)
        queue.shut_down()
        queue.shut_down()
        results = await asyncio.gather(*waiters, return_exceptions=True)
        assert [type(result) for result in results] == [QueueShutDown] * 3

    async def test_a_key_made_dirty_before_comes_once_more(self) -> None:
        """A change that arrived while its key was worked on is not lost by shutting down."""
        queue = WorkQueue()
        queue.add("a")
        await queue.get()
        queue.add("a")
        queue.shut_down()
        queue.done("a")
        assert await queue.get() == "a"
