"""Workers go on whatever a handler does."""

import asyncio

import pytest

from turnstile.api.errors import PermanentError, TooManyRequests
from turnstile.kube.workqueue import WorkQueue, run_workers

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Errors(list[tuple[str, str]]):
    """What was reported: key and text of the error."""

    def __call__(self, key: str, error: Exception) -> None:
        """Take one report."""
        self.append((key, str(error)))


async def test_a_failing_key_is_reported_and_tried_again() -> None:
    """One object's error costs the others nothing; the object is tried again after its back-off until it works."""
    queue = WorkQueue(base_delay=1)
    errors = Errors()
    loop = asyncio.get_running_loop()
    started = loop.time()
    seen: list[tuple[str, float]] = []

    async def handle(key: str) -> None:
        seen.append((key, round(loop.time() - started, 1)))
        if key == "bad" and len([k for k, _ in seen if k == "bad"]) < 3:
            raise ValueError("not yet")

    for key in ("bad", "good"):
        queue.add(key)
    loop.call_later(20, queue.shut_down)
    await run_workers(queue, handle, workers=2, on_error=errors)
    assert seen == [("bad", 0), ("good", 0), ("bad", 1), ("bad", 3)]
    assert errors == [("bad", "not yet")] * 2
    assert queue.failures("bad") == 0


async def test_an_error_no_retry_mends_waits_for_the_next_event() -> None:
    """A PermanentError is reported once and the key dropped."""
    queue = WorkQueue()
    errors = Errors()
    loop = asyncio.get_running_loop()

    async def handle(key: str) -> None:
        raise PermanentError(f"{key} is beyond help")

    queue.add("a")
    loop.call_later(100, queue.add, "a")
    loop.call_later(200, queue.shut_down)
    await run_workers(queue, handle, workers=1, on_error=errors)
    assert errors == [("a", "a is beyond help")] * 2


async def test_the_wait_a_server_asks_for_is_kept() -> None:
    """After a 429 with Retry-After the key waits that long."""
    queue = WorkQueue(base_delay=0.01)
    loop = asyncio.get_running_loop()
    times: list[float] = []

    async def handle(_key: str) -> None:
        times.append(loop.time())
        if len(times) == 1:
            raise TooManyRequests(429, "TooManyRequests", "slow down", retry_after=7)

    queue.add("a")
    loop.call_later(20, queue.shut_down)
    await run_workers(queue, handle, workers=1, on_error=Errors())
    assert times[1] - times[0] == pytest.approx(7)


async def test_as_many_at_once_as_there_are_workers() -> None:
    """Three workers carry three slow keys together, and one key is never with two."""
    queue = WorkQueue()
    loop = asyncio.get_running_loop()
    busy: set[str] = set()
    most = 0

    async def handle(key: str) -> None:
        nonlocal most
        assert key not in busy
        busy.add(key)
        most = max(most, len(busy))
        await asyncio.sleep(10)
        busy.remove(key)

    for number in range(6):
        queue.add(f"k{number % 4}")
    loop.call_later(5, queue.add, "k0")
    loop.call_later(6, queue.shut_down)
    started = loop.time()
    await run_workers(queue, handle, workers=3, on_error=Errors())
    assert most == 3
    assert loop.time() - started == pytest.approx(20)


async def test_a_handler_that_never_waits_does_not_hold_the_loop() -> None:
    """Other tasks run between two keys."""
    queue = WorkQueue()
    for number in range(100):
        queue.add(f"k{number}")
    others = 0

    async def other() -> None:
        nonlocal others
        while len(queue):
            others += 1
            await asyncio.sleep(0)

    async def handle(_key: str) -> None:
        return

    async with asyncio.TaskGroup() as group:
        group.create_task(other())
        queue.shut_down()
        await run_workers(queue, handle, workers=1, on_error=Errors())
    assert others >= 99


async def test_cancelling_gives_the_key_back() -> None:
    """A cancelled worker leaves the queue in order: the key is not stuck in work."""
    queue = WorkQueue()

    async def handle(_key: str) -> None:
        await asyncio.sleep(1000)

    queue.add("a")
    workers = asyncio.ensure_future(run_workers(queue, handle, workers=2, on_error=Errors()))
    await asyncio.sleep(1)
    assert queue.processing == 1
    workers.cancel()
    with pytest.raises(asyncio.CancelledError):
        await workers
    assert queue.processing == 0
