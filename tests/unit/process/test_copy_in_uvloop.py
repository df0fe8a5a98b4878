"""The copy beside what the controller process has besides: uvloop, signal handlers, other threads, open connections."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import uvloop

from app.engine import State, cycle
from app.process.copy import Copy
from tests.unit.engine import builders as b


@dataclass(frozen=True)
class Open:
    """Which files does the copy hold open, and who waits?"""

    def answer(self, state: State) -> Iterator[str]:
        """Sockets, then keys."""
        for name in os.listdir("/proc/self/fd"):
            try:
                target = os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                continue
            if target.startswith("socket:"):
                yield target
        yield from state.waiting


def test_a_copy_of_the_controller_process() -> None:
    """It has none of its connections, and SIGTERM stops the controller, which ends it."""
    stopping = threading.Event()

    def work() -> None:
        while not stopping.wait(0.0001):
            str(object())

    async def run() -> tuple[list[str], int]:
        state = b.world(b.queue("main", {"default": {"cpu": 2}}))
        state.put_workload(b.workload("one", cpu=2), b.NOW)
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        copy = Copy(state)
        assert await copy.ask(Open()) == ["team/one"]
        state.put_workload(b.workload("two", cpu=2), b.NOW)
        cycle(state, b.NOW)
        answers = await asyncio.gather(*(copy.ask(Open()) for _ in range(10)))
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        assert await copy.ask(Open()) == ["team/two"]
        process = copy.process
        copy.close()
        for answer in answers:
            assert answer == ["team/two"]
        async with asyncio.timeout(20):
            while os.path.exists(f"/proc/{process}"):  # noqa: ASYNC110, ASYNC240  (a process is watched)
                await asyncio.sleep(0.01)
        return answers[0], process

    thread = threading.Thread(target=work)
    thread.start()
    mine, other = socket.socketpair()
    try:
        uvloop.run(run())
    finally:
        stopping.set()
        thread.join()
        mine.close()
        other.close()
