"""The process that is a copy of the ledger: it repeats what the leader's ledger does, and answers questions.

It is a fork of the controller process, so it begins with the very state that the ledger had at that moment, and then
reads from a socket what happened since. Each question is answered by a fork of this process, which may change its state
as it likes and ends with its answer; meanwhile this process follows on. Must never touch what belongs to the event loop
of the process it was forked from, nor log: another thread may have held the lock of the log at that moment.
"""

import gc
import os
import pickle
import selectors
import signal
import socket
import struct
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from app.api.errors import InvalidValue
from app.engine import State, cycle
from app.insight.question import Question

FRAME: Final = struct.Struct("!I")
"""Before each pickle that this process reads: its length."""
REPLY: Final = struct.Struct("!IBI")
"""Before each piece that it writes: the number of the question, what the piece is, its length."""
PIECE, END, FAILURE = range(3)
BROKEN: Final = 0
"""In place of the number of a question: the copy itself failed."""
CHUNK: Final = 64 * 1024
"""Bytes that are read and written at once."""
PARTS: Final = 64
"""Parts of an answer that are read in one step by the process that asked."""
ANSWER_BYTES: Final = 32 * 2**20
"""Longest answer."""
COLLECT_AFTER: Final = 20_000
"""Changes after which garbage is collected among the objects that came since."""


def reply(number: int, kind: int, data: bytes) -> bytes:
    """A piece with its head."""
    return REPLY.pack(number, kind, len(data)) + data


@dataclass(slots=True)
class _Answer:
    """A question that a process is answering."""

    number: int
    process: int
    reader: int
    until: float
    size: int = field(default=0)


def serve(state: State, connection: socket.socket) -> NoReturn:
    """What a process does right after it was forked from the controller: follow and answer until the connection ends,
    then exit. Never returns, so that nothing of the forked process runs twice."""
    code = 1
    try:
        part_from_parent(connection.fileno())
        state.follower = None
        Copied(state, connection).run()
        code = 0
    except BaseException:
        with suppress(OSError):
            connection.sendall(reply(BROKEN, FAILURE, traceback.format_exc().encode()))
    finally:
        os._exit(code)


def part_from_parent(kept: int) -> None:
    """What a fork does first: it keeps one file of its parent, and its standard ones, and leaves the others alone."""
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
    with suppress(OSError):  # where memory ends, the copy goes before the controller
        Path("/proc/self/oom_score_adj").write_text("1000")


class Copied:
    """The copy, in its process."""

    def __init__(self, state: State, connection: socket.socket) -> None:
        self._state = state
        self._connection = connection
        self._heard = bytearray()
        self._changes = 0
        self._answers: dict[int, _Answer] = {}
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Follow and answer until the connection ends."""
        self._selector.register(self._connection, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(self._patience()):
                answer = self._answers.get(key.fd)
                if answer is not None:
                    self._relay(answer)
                elif not self._hear():
                    return
            now = time.monotonic()
            for answer in [each for each in self._answers.values() if each.until <= now]:
                self._end(answer, "it took too long")

    def _patience(self) -> float | None:
        ends = [answer.until for answer in self._answers.values()]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    # What happened

    def _hear(self) -> bool:
        data = self._connection.recv(CHUNK)
        self._heard += data
        read = 0
        while len(self._heard) - read >= FRAME.size:
            (length,) = FRAME.unpack_from(self._heard, read)
            start, end = read + FRAME.size, read + FRAME.size + length
            if len(self._heard) < end:
                break
            self._take(*pickle.loads(memoryview(self._heard)[start:end]))  # noqa: S301  (by our own process)
            read = end
        del self._heard[:read]
        return bool(data)

    def _take(self, what: str, *given: Any) -> None:
        match what:
            case "took":
                event, args, named = given
                getattr(self._state, event)(*args, **named)
            case "cycled":
                cycle(self._state, *given)
            case _:
                self._ask(*given)
                return
        self._changes += 1
        if self._changes >= COLLECT_AFTER:
            self._changes = 0
            gc.collect()
            gc.freeze()

    # Answers

    def _ask(self, number: int, seconds: float, question: Question[Any]) -> None:
        reader, writer = os.pipe()
        try:
            process = os.fork()
        except OSError as error:
            os.close(reader)
            os.close(writer)
            self._reply(number, FAILURE, f"no process for it: {error}".encode())
            return
        if not process:
            code = 1
            try:
                self._connection.close()
                with open(writer, "wb", buffering=CHUNK) as out:
                    _answer(self._state, question, out)
                code = 0
            finally:
                os._exit(code)
        os.close(writer)
        self._answers[reader] = _Answer(number, process, reader, time.monotonic() + seconds)
        self._selector.register(reader, selectors.EVENT_READ)

    def _relay(self, answer: _Answer) -> None:
        data = os.read(answer.reader, CHUNK)
        answer.size += len(data)
        if not data:
            self._end(answer)
        elif answer.size > ANSWER_BYTES:
            self._end(answer, f"it is longer than {ANSWER_BYTES >> 20} MiB")
        else:
            self._reply(answer.number, PIECE, data)

    def _end(self, answer: _Answer, failure: str = "") -> None:
        self._selector.unregister(answer.reader)
        del self._answers[answer.reader]
        os.close(answer.reader)
        if failure:
            os.kill(answer.process, signal.SIGKILL)
        _, status = os.waitpid(answer.process, 0)
        if status and not failure:
            failure = f"its process ended with {os.waitstatus_to_exitcode(status)}"
        self._reply(answer.number, FAILURE if failure else END, failure.encode())

    def _reply(self, number: int, kind: int, data: bytes) -> None:
        self._connection.sendall(reply(number, kind, data))


def _answer(state: State, question: Question[Any], out: Any) -> None:
    """Write the parts of an answer, some at once; then None if it is complete, or the error that ended it."""
    gc.disable()

    def write(value: object) -> None:
        out.write(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))

    parts: list[Any] = []
    try:
        for part in question.answer(state):
            parts.append(part)
            if len(parts) >= PARTS:
                write(parts)
                parts = []
        write(parts)
        write(None)
    except InvalidValue as error:
        write((error.field, error.value, error.cure))
    except BaseException:
        write(traceback.format_exc())
