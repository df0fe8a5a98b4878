"""Runs the elector of a Lease in a thread of its own, so that its renewal never waits for a busy event loop.

The thread has its own event loop and its own connection to the API server, with credentials that it reads and renews
itself; nothing of another thread's client is shared. The term itself (`lead`) runs in the event loop of the caller of
`Candidacy.run`. The two loops exchange only calls that asyncio makes safe between threads (`call_soon_threadsafe`), and
the fence, which needs no lock.

A thread of its own would also renew the Lease for an event loop that hangs for ever, and no process would lead. So the
thread calls the main event loop every second. If that has not answered for `STALL_SECONDS`, the Lease is not renewed
any more, and the log shows what the main thread is doing.
"""

import asyncio
import contextlib
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from turnstile.kube.fence import Fence, monotonic
from turnstile.kube.lease import Elector, Lead, LeaseStats
from turnstile.kube.transport import Transport

TICK_SECONDS: Final = 1.0
"""Seconds between two calls of the main event loop."""
STALL_SECONDS: Final = 30.0
"""Seconds without an answer of the main event loop after which the Lease is not renewed."""
FRAMES: Final = 8
"""Innermost frames of the main thread that the log shows."""

log = structlog.get_logger(__name__)

Connect = Callable[[], Awaitable[Transport]]


class Candidacy:
    """One candidate for a Lease in a thread of its own; `options` as for `Elector`.

    `connect` is called in the thread. `run` must be called at most once.
    """

    def __init__(
        self,
        connect: Connect,
        *,
        tick_seconds: float = TICK_SECONDS,
        stall_seconds: float = STALL_SECONDS,
        **options: Any,
    ) -> None:
        self._connect = connect
        self._tick_seconds = tick_seconds
        self._stall_seconds = stall_seconds
        self._options = options
        self.stats = LeaseStats()
        self._terms: asyncio.Queue[_Term | None] = asyncio.Queue()
        self._term: _Term | None = None
        self._error: BaseException | None = None
        self._stopping = False
        self._electing: asyncio.Task[None] | None = None
        # One thread writes each of these numbers. A call was answered if they are equal.
        self._called = self._answered = 0
        self._unanswered = 0.0
        self._ticked_at: float | None = None

    @property
    def silent_seconds(self) -> float:
        """Seconds since the thread last ran, at most about `TICK_SECONDS` unless it hangs; 0 while there is none."""
        ticked_at = self._ticked_at
        return 0.0 if ticked_at is None else monotonic() - ticked_at

    async def run(self, lead: Lead) -> None:
        """As `Elector.run`, with `lead` in this event loop. Returns, raises or is cancelled once the thread has ended.

        If the thread fails, the term is over and the error is raised here.
        """
        self._main = asyncio.get_running_loop()
        self._main_thread = threading.get_ident()
        over = asyncio.Event()
        thread = threading.Thread(target=self._elect, args=(over,), name="lease", daemon=True)
        thread.start()
        try:
            while (term := await self._terms.get()) is not None:
                self._term = term
                await term.serve(lead)
                self._term = None
        finally:
            self._stop()
            while not self._terms.empty():
                if (term := self._terms.get_nowait()) is not None:
                    term.decline()
            await _until_done(asyncio.create_task(over.wait(), name="end of the lease thread"))
            thread.join()
        if self._error is not None and not isinstance(self._error, asyncio.CancelledError):
            raise self._error

    # --- in the main thread -------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """End the thread: its elector releases the Lease."""
        # The thread sets its task and then reads `_stopping`; here it is the other way round: one sees the other.
        self._stopping = True
        task = self._electing
        if task is not None:
            with contextlib.suppress(RuntimeError):  # its loop has ended
                task.get_loop().call_soon_threadsafe(task.cancel)

    def _offer(self, term: "_Term") -> None:
        """Have the term led, or declined once `run` takes no more: the thread waits for the end of each term."""
        if self._stopping:
            term.decline()
        else:
            self._terms.put_nowait(term)

    def _ended(self, over: asyncio.Event) -> None:
        """The thread has ended: so has the term, whatever the thread could still do about it."""
        if self._term is not None:
            self._term.fence.close()
            self._term.give_up()
        self._terms.put_nowait(None)
        over.set()

    def _answer(self, call: int) -> None:
        self._answered = call

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _elect(self, over: asyncio.Event) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._campaign())
        except BaseException as error:
            self._error = error
        finally:
            with contextlib.suppress(RuntimeError):  # the process is ending
                self._main.call_soon_threadsafe(self._ended, over)

    async def _campaign(self) -> None:
        self._electing = asyncio.current_task()
        if self._stopping:
            return
        async with await self._connect() as transport, asyncio.TaskGroup() as group:
            ticking = group.create_task(self._tick(), name="tick")
            elector = Elector(transport, holds_back=self._holds_back, stats=self.stats, **self._options)
            try:
                await elector.run(self._lead)
            finally:
                ticking.cancel()
                self._ticked_at = None

    async def _lead(self, fence: Fence) -> None:
        """Have the term led in the main event loop; return or raise as it did, and not before it has ended."""
        ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        term = _Term(fence, ended)
        self._main.call_soon_threadsafe(self._offer, term)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            self._main.call_soon_threadsafe(term.give_up)
            await _until_done(ended)
            raise
        error = ended.result()
        if isinstance(error, asyncio.CancelledError):  # the main event loop is stopping, and is about to stop this one
            await asyncio.get_running_loop().create_future()
        if error is not None:
            raise error

    async def _tick(self) -> None:
        logged = False
        while True:
            self._ticked_at = monotonic()
            if self._called == self._answered:
                self._called += 1
                self._unanswered, logged = 0.0, False
                self._main.call_soon_threadsafe(self._answer, self._called)
            else:
                self._unanswered += self._tick_seconds  # counted, not measured: a stopped process is not a busy one
            if not logged and (why := self._holds_back()):
                logged = True
                log.error("loop.stalled", why=why, stack=self._main_stack())
            await asyncio.sleep(self._tick_seconds)

    def _holds_back(self) -> str:
        if self._unanswered < self._stall_seconds:
            return ""
        return f"the main event loop has not turned for {self._unanswered:.0f} s"

    def _main_stack(self) -> list[str]:
        stack = traceback.extract_stack(sys._current_frames().get(self._main_thread))
        return [f"{each.filename}:{each.lineno} {each.name}" for each in stack[-FRAMES:]]


class _Term:
    """A term that the thread asks the main event loop to lead."""

    def __init__(self, fence: Fence, ended: asyncio.Future[BaseException | None]) -> None:
        self.fence = fence
        self._ended = ended
        self._given_up = asyncio.Event()

    def decline(self) -> None:
        """Report the term as ended without having led it; to be called in the main event loop."""
        self._report(asyncio.CancelledError())

    def give_up(self) -> None:
        """End `serve`; to be called in the main event loop."""
        self._given_up.set()

    async def serve(self, lead: Lead) -> None:
        """Lead until `lead` ends or the term is given up, and report that to the thread. Raises nothing of `lead`."""
        leading = asyncio.ensure_future(lead(self.fence))
        given_up = asyncio.create_task(self._given_up.wait(), name="end of the term")
        error: BaseException | None = None
        try:
            await asyncio.wait({leading, given_up}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (leading, given_up):
                task.cancel()
            try:
                await _until_done(leading, given_up)
            finally:
                error = asyncio.CancelledError() if leading.cancelled() else leading.exception()
                self._report(error)

    def _report(self, error: BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the thread has failed
            self._ended.get_loop().call_soon_threadsafe(_report, self._ended, error)


def _report(ended: asyncio.Future[BaseException | None], error: BaseException | None) -> None:
    if not ended.done():
        ended.set_result(error)


async def _until_done(*futures: asyncio.Future[Any]) -> None:
    """Wait for the end of all, also if this wait is cancelled meanwhile; the cancellation is raised then."""
    cancelled: asyncio.CancelledError | None = None
    while pending := [each for each in futures if not each.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
