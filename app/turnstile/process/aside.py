"""Answers that take long, worked out beside the event loop: by a fork of this process that ends with its answer.

The fork sees everything as it was at that moment, and nothing that it does reaches this process. Who stops waiting
ends it. Must never be given work that needs the event loop, or a connection of this process; it may open its own.
"""

import asyncio
import gc
import multiprocessing
import os
import pickle
import signal
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, TypeVar

from turnstile.api.errors import InvalidValue, Unanswered

T = TypeVar("T")

AT_ONCE: Final = 2
"""Forks that work at a time; other questions wait for them."""
SECONDS: Final = 120.0
"""An answer that takes longer is given up."""

_FORK: Final = multiprocessing.get_context("fork")


class Aside:
    """Works out answers, few at a time."""

    def __init__(self, *, at_once: int = AT_ONCE, seconds: float = SECONDS) -> None:
        self._turns = asyncio.Semaphore(at_once)
        self._seconds = seconds

    async def answers(self, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        """Values that `work` yields in the fork, one after the other. The generator is to be closed: that ends the
        fork.

        Raises InvalidValue as `work` does, and Unanswered if it fails otherwise or takes too long.
        """
        async with self._turns:
            reader, writer = _FORK.Pipe(duplex=False)
            process = _FORK.Process(target=_answer, args=(work, writer), daemon=True)
            with warnings.catch_warnings():
                # Other threads exist (Python 3.12 warns): the fork takes no lock that they may hold.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            writer.close()
            try:
                async with asyncio.timeout(self._seconds):
                    while True:
                        await _readable(reader)
                        what, found = pickle.loads(reader.recv_bytes())  # noqa: S301 our own fork wrote it
                        if what is InvalidValue:
                            raise InvalidValue(*found)
                        if what is Unanswered:
                            raise Unanswered(found)
                        yield found
            except EOFError:
                return
            except TimeoutError:
                raise Unanswered(f"it took longer than {self._seconds:g} s") from None
            finally:
                process.kill()
                await asyncio.to_thread(process.join)
                process.close()
                reader.close()


async def _readable(reader: Connection) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(reader.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(reader.fileno())


def _answer(work: Callable[[], Iterator[T]], writer: Connection) -> None:
    """The work of the fork."""
    _part_from_parent(writer.fileno())

    def send(what: type[Exception] | None, found: object) -> None:
        with suppress(BrokenPipeError):  # the answer is wanted no more
            writer.send_bytes(pickle.dumps((what, found)))

    try:
        for found in work():
            send(None, found)
    except InvalidValue as error:
        send(InvalidValue, (error.field, error.value, error.cure))
    except Exception as error:
        send(Unanswered, f"{type(error).__name__}: {error}")


def _part_from_parent(kept: int) -> None:
    """The first step of a fork: it keeps one file of its parent, and its standard ones, and leaves the others alone."""
    gc.freeze()  # never look at what was made before: memory that is only read stays shared
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) not in {kept, nothing}:
            # Closed, and the number kept: libuv closes its own numbers in every process that is forked, whatever they
            # are by then.
            os.dup2(nothing, int(name), inheritable=False)
    with suppress(OSError):  # where memory ends, the fork goes before the process
        Path("/proc/self/oom_score_adj").write_text("1000")
