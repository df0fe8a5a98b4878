"""A copy of the ledger for questions, in a process of its own: a question holds the event loop for at most 1 ms.

The copy is a fork of this process, made when the first question comes, which holds the event loop for some
milliseconds once; a process that is asked nothing has no copy. From then on this process sends the copy what happens
to the ledger (events, and when cycles ended), and the copy does the same (`app.process.copied`). A question is sent
in the same stream, so its answer knows all that the ledger had taken when it was asked.

What the copy has not read yet is bounded. A copy that falls behind, dies or does not answer is ended, and its questions
fail with `Unanswered`; a copy without a question for five minutes is ended too. The next question makes another copy.
Admission never waits for the copy, and nothing that the copy does reaches the ledger.
"""

import asyncio
import os
import pickle
import signal
import socket
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any, Final, TypeVar

import structlog

from app.api.errors import InvalidValue, Unanswered
from app.engine import State
from app.engine.instants import Instant
from app.insight.question import Question
from app.kube.slices import Slice
from app.process.copied import BROKEN, CHUNK, END, FRAME, PIECE, REPLY, serve
from app.process.memory import resident, spare

T = TypeVar("T")

UNSENT_BYTES: Final = 16 * 2**20
"""Bytes of changes that may wait for the copy to read them."""
AT_ONCE: Final = 2
"""Questions that are answered at once; others wait."""
WAITING: Final = 64
"""Questions that may wait or be answered."""
SECONDS: Final = 10.0
"""A question that takes longer fails, unless it says otherwise."""
GRACE_SECONDS: Final = 5.0
"""Seconds after which a copy that does not say that a question took too long is ended."""
IDLE_SECONDS: Final = 300.0
"""Seconds without a question after which the copy ends."""
LOOK_SECONDS: Final = 5.0
"""Seconds between two looks at the memory that is left."""
RESERVE_BYTES: Final = 64 * 2**20
"""The copy ends when the container has less memory left."""
REAP_SECONDS: Final = 0.05

log = structlog.get_logger(__name__)


class _Reply:
    """A question on its way."""

    __slots__ = ("data", "done", "frame")

    def __init__(self, frame: bytes, done: "asyncio.Future[bytes]") -> None:
        self.frame = frame
        self.done = done
        self.data = bytearray()


class Copy:
    """The copy of one state, of one term of leadership. Belongs to the event loop in which it is asked; `close` it."""

    def __init__(
        self,
        state: State,
        *,
        idle_seconds: float = IDLE_SECONDS,
        unsent_bytes: int = UNSENT_BYTES,
        look_seconds: float = LOOK_SECONDS,
        spare: Callable[[], int | None] = spare,
    ) -> None:
        self._state = state
        self._look_seconds = look_seconds
        self._spare = spare
        self._idle_seconds = idle_seconds
        self._unsent_bytes = unsent_bytes
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._asked = 0
        self._waiting = 0
        self._replies: dict[int, _Reply] = {}
        self._process = 0
        self._loop: asyncio.AbstractEventLoop
        self._connection: socket.socket | None = None
        self._unsent = bytearray()
        self._flushing = False
        self._heard = bytearray()
        self._idle: asyncio.TimerHandle | None = None
        self._looks: asyncio.TimerHandle | None = None
        self.starts = 0
        """Copies that were made."""
        self.start_seconds = 0.0
        """Seconds for which the making of the last one held the event loop."""

    @property
    def alive(self) -> bool:
        """Whether there is a copy now."""
        return self._connection is not None

    @property
    def process(self) -> int:
        """Its process; 0 if there is none."""
        return self._process if self.alive else 0

    @property
    def unsent(self) -> int:
        """Bytes of changes that it has not read yet."""
        return len(self._unsent)

    def close(self) -> None:
        """End the copy; another question would make a new one."""
        if self.alive:
            self._end("the ledger is no longer led here")

    # Asking

    async def ask(self, question: Question[T], *, seconds: float = SECONDS) -> list[T]:
        """The parts of the answer, as things stand now, or right after the cycle that is under way. Raises InvalidValue
        for a question that makes no sense, and Unanswered."""
        if self._waiting >= WAITING:
            raise Unanswered(f"{WAITING} questions are waiting already: ask again later")
        self._waiting += 1
        try:
            async with self._turns:
                answer = await self._answer(question, seconds)
        finally:
            self._waiting -= 1
            self._put_off_end()
        return await self._parts(answer)

    async def _answer(self, question: Question[Any], seconds: float) -> bytes:
        self._loop = asyncio.get_running_loop()
        self._asked += 1
        number = self._asked
        frame = pickle.dumps(("ask", number, seconds, question), pickle.HIGHEST_PROTOCOL)
        reply = self._replies[number] = _Reply(frame, self._loop.create_future())
        if self._state.cycling:
            self._state.deferred.append(lambda: self._put(number))
        else:
            self._put(number)
        try:
            async with asyncio.timeout(seconds + GRACE_SECONDS):
                return await reply.done
        except TimeoutError:
            self._end("it did not answer")
            raise Unanswered("the copy of the ledger did not answer: ask again") from None
        finally:
            self._replies.pop(number, None)

    def _put(self, number: int) -> None:
        """Between two events: send the question, to a new copy if there is none."""
        reply = self._replies.get(number)
        if reply is None or reply.done.done():
            return
        try:
            if not self.alive:
                self._start()
        except OSError as error:
            reply.done.set_exception(Unanswered(f"no copy of the ledger could be made: {error}"))
        except Unanswered as error:
            reply.done.set_exception(error)
        else:
            self._send(reply.frame)

    async def _parts(self, answer: bytes) -> list[Any]:
        turn, found = Slice(), []
        stream = BytesIO(answer)
        with suppress(EOFError):
            while (loaded := pickle.load(stream)) is not None:  # noqa: S301  (by our own process)
                match loaded:
                    case list():
                        found += loaded
                    case (field, value, cure):
                        raise InvalidValue(field, value, cure)
                    case _:
                        log.error("question.failed", error=loaded)
                        raise Unanswered(f"the question failed: {loaded.strip().splitlines()[-1]}")
                if turn.over:
                    await turn.rest()
            return found
        raise Unanswered("the process that was to answer ended")

    # The process

    def _start(self) -> None:
        left, needed = self._spare(), resident()
        if left is not None and left < needed + RESERVE_BYTES:
            raise Unanswered(
                f"a copy of the ledger may take {needed >> 20} MiB of memory, and {left >> 20} MiB are left:"
                " raise the memory limit of the controller"
            )
        began = time.perf_counter()
        loop = self._loop
        ours, theirs = socket.socketpair()
        try:
            with warnings.catch_warnings():  # other threads hold no lock that the copy would need
                warnings.simplefilter("ignore", DeprecationWarning)
                process = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if not process:
            serve(self._state, theirs)
        self.start_seconds = time.perf_counter() - began
        self.starts += 1
        theirs.close()
        ours.setblocking(False)
        self._process, self._connection = process, ours
        loop.add_reader(ours, self._hear, ours)
        self._state.follower = self
        self._look()
        log.info("copy.started", process=process, seconds=round(self.start_seconds, 4))

    def _end(self, why: str) -> None:
        connection, process = self._connection, self._process
        if connection is None:
            return
        self._state.follower = None
        self._connection = None
        loop = self._loop
        loop.remove_reader(connection)
        loop.remove_writer(connection)
        connection.close()
        self._unsent.clear()
        self._heard.clear()
        self._flushing = False
        for timer in (self._idle, self._looks):
            if timer is not None:
                timer.cancel()
        self._idle = self._looks = None
        _kill(process)
        _reap(process, loop)
        for reply in self._replies.values():
            if not reply.done.done():
                reply.done.set_exception(Unanswered(f"the copy of the ledger ended: {why}; ask again"))
        log.info("copy.ended", process=process, why=why)

    def _look(self) -> None:
        """End the copy before memory ends: the kernel may end the whole container then."""
        left = self._spare()
        if left is not None and left < RESERVE_BYTES:
            self._end("memory is short")
        else:
            self._looks = self._loop.call_later(self._look_seconds, self._look)

    def _put_off_end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self.alive and not self._waiting:
            self._idle = self._loop.call_later(self._idle_seconds, self._end, "no question came")

    # What happens to the ledger

    def took(self, event: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """Send an event."""
        self._send(pickle.dumps(("took", event, args, named), pickle.HIGHEST_PROTOCOL))

    def cycled(self, now: Instant) -> None:
        """Send that a cycle ended."""
        self._send(pickle.dumps(("cycled", now), pickle.HIGHEST_PROTOCOL))

    def abandoned(self) -> None:
        """End the copy: it cannot know where the cycle stopped."""
        self._end("a cycle was abandoned")

    def _send(self, frame: bytes) -> None:
        connection = self._connection
        if connection is None:
            return
        if len(self._unsent) + len(frame) > self._unsent_bytes:
            self._end("it fell behind")
            return
        self._unsent += FRAME.pack(len(frame))
        self._unsent += frame
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush, connection)

    def _flush(self, connection: socket.socket) -> None:
        if connection is not self._connection:
            return
        try:
            sent = connection.send(self._unsent[:CHUNK])
        except BlockingIOError:
            sent = 0
        except OSError:
            self._end("its process died")
            return
        del self._unsent[:sent]
        if self._unsent:
            self._loop.add_writer(connection, self._flush, connection)
        else:
            self._flushing = False
            self._loop.remove_writer(connection)

    # Answers

    def _hear(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end("its process died")
            return
        self._heard += data
        while len(self._heard) >= REPLY.size:
            number, kind, length = REPLY.unpack_from(self._heard)
            if len(self._heard) < REPLY.size + length:
                return
            piece = bytes(self._heard[REPLY.size : REPLY.size + length])
            del self._heard[: REPLY.size + length]
            if number == BROKEN:
                log.error("copy.broken", error=piece.decode())
            reply = self._replies.get(number)
            if reply is None or reply.done.done():
                continue
            if kind == PIECE:
                reply.data += piece
            elif kind == END:
                reply.done.set_result(bytes(reply.data))
            else:
                reply.done.set_exception(Unanswered(f"the question failed: {piece.decode()}"))


def _kill(process: int) -> None:
    """End a copy, and those that answer its questions."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def _reap(process: int, loop: asyncio.AbstractEventLoop) -> None:
    """Let go of a copy that ended, without waiting for it; and, as process 1 of a container, of its own processes."""
    for which in (process, -process):
        with suppress(ChildProcessError):
            while os.waitpid(which, os.WNOHANG)[0]:
                pass
            loop.call_later(REAP_SECONDS, _reap, process, loop)
            return
