"""The copy beside what the controller process has besides: uvloop, signal handlers, other threads, open connections."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import uvloop

from app.engine import State, cycle
from app.process.copy import Copy
from tests.unit.engine import builders as b


def numbers() -> dict[int, str]:
    """The files that this process has open, by number."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that listed them
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


@dataclass(frozen=True)
class Waiting:
    """Who waits?"""

    def answer(self, state: State) -> Iterator[str]:
        """Keys."""
        yield from state.waiting


@dataclass(frozen=True)
class Open:
    """Which files has the process that answers?"""

    def answer(self, state: State) -> Iterator[tuple[int, str]]:
        """By number."""
        yield from numbers().items()


def test_a_copy_of_the_controller_process() -> None:
    """It has none of its connections, and SIGTERM stops the controller, which ends it. In a process of its own, as the
    numbers of open files matter: libuv closes some in every process that is forked."""
    script = "from tests.unit.process.test_copy_in_uvloop import alone; alone()"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def alone() -> None:
    """As the main thread of a process."""
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
        mine = numbers()
        assert await copy.ask(Waiting()) == ["team/one"]
        files = dict(await copy.ask(Open()))
        assert not [each for each in files.values() if each.startswith("socket:")]
        own = {number for number, each in files.items() if number > 2 and each.startswith("pipe:")}
        kept = {number for number in own if mine.get(number, "").startswith(("socket:", "anon_inode:"))}
        assert own
        assert not kept, "numbers of the controller are used again"
        state.put_workload(b.workload("two", cpu=2), b.NOW)
        cycle(state, b.NOW)
        answers = await asyncio.gather(*(copy.ask(Waiting()) for _ in range(10)))
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        assert await copy.ask(Waiting()) == ["team/two"]
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
