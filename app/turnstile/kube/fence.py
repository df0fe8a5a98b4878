"""The fence of a term of leadership: whether this process may write now, asked right before each write.

Asking needs no network and no event loop, so the answer is right in a process that was paused and resumed too. Must
never decide who leads: `turnstile.kube.lease` does.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable

from turnstile.api.errors import NotLeading

Clock = Callable[[], float]


def monotonic() -> float:
    """Seconds on a clock that never jumps and, where the system has one, goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Fence:
    """Whether this process may write now, for one term of leadership: open, suspended or closed.

    Open until `span` seconds after the start of the last renewal; then suspended until a renewal succeeds; closed for
    good by `close`. One thread renews and any thread asks, without a lock: each field has one meaning and is written in
    one step. `_closed` only ever becomes true. Each value of `_deadline` is a promise that holds by itself: until then
    no other process takes the Lease. So a reader of the older value is too careful, never too bold.
    """

    __slots__ = ("_clock", "_closed", "_deadline", "_grace", "_span", "_waiting", "epoch", "kept", "renewed_at")

    def __init__(self, *, clock: Clock, epoch: int, renewed_at: float, span: float, grace: float = 0.0) -> None:
        self._clock = clock
        self._span = span
        self._grace = grace
        self.epoch = epoch
        """leaseTransitions of this term: grows with every term of any process."""
        self.renewed_at = renewed_at
        """Clock reading at the start of the last renewal that succeeded."""
        self._deadline = renewed_at + span
        self._closed = False
        self.kept = False
        """Whether the Lease is left to expire at the end of the term, instead of being released."""
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    @property
    def remaining(self) -> float:
        """Seconds for which writing is still allowed; zero or less when it is not."""
        deadline = self._deadline  # before the clock: a thread that is paused in between sees the later time
        return float("-inf") if self._closed else deadline - self._clock()

    @property
    def closed(self) -> bool:
        """Whether the term is over."""
        return self._closed

    @property
    def suspended(self) -> bool:
        """Whether writing is not allowed now, and may be allowed again."""
        return not self._closed and self.remaining <= 0

    @property
    def since_renewal(self) -> float:
        """Seconds since the start of the last renewal that succeeded."""
        return self._clock() - self.renewed_at

    def check(self) -> None:
        """Call right before each write. Raises NotLeading if another process may hold the Lease by now."""
        left = self.remaining
        if left <= 0:
            since = "the Lease was given up" if left == float("-inf") else f"the Lease ran out {0.0 - left:.3f} s ago"
            raise NotLeading(f"epoch {self.epoch}: {since}; nothing was sent")

    def exclusive(self) -> float:
        """Seconds for which no other process can lead: `grace` longer than this process may write, for writes that the
        server carries out late."""
        return self.remaining + self._grace

    async def opened(self) -> None:
        """Return once writing is allowed. Raises NotLeading once the term is over."""
        while self.remaining <= 0:
            if self._closed:
                self.check()
            loop = asyncio.get_running_loop()
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.append((loop, waiter))
            # Look once more: a renewal before the line above did not see this waiter, one after it wakes it.
            if self.suspended:
                await waiter

    def extend(self, renewed_at: float) -> None:
        """A renewal that was started at `renewed_at` succeeded. A closed fence does not open again."""
        self.renewed_at = renewed_at
        self._deadline = renewed_at + self._span
        self._wake()

    def keep(self) -> None:
        """Have the Lease expire after the end of the term, because a write may still take effect."""
        self.kept = True

    def close(self) -> None:
        """End the term."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        """Let all that wait look again, each in its own event loop."""
        with contextlib.suppress(IndexError):
            while True:
                loop, waiter = self._waiting.popleft()
                with contextlib.suppress(RuntimeError):  # that loop has ended, and with it the waiter
                    loop.call_soon_threadsafe(_check_again, waiter)


def _check_again(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
