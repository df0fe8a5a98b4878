"""A queue of keys for reconcilers: a key has one worker at a time, and a key added meanwhile is reconciled again.

An event only says "reconcile this key"; a hundred events while a worker is busy cost one more reconciliation. The
rules are those of client-go's workqueue, implemented with two sets:

- *dirty*: keys to be reconciled. Adding a dirty key again changes nothing.
- *processing*: keys being reconciled by a worker. A key added meanwhile stays dirty and is queued again by `done`, so
  two workers never have the same key.

Namespaces take turns, one key each, so that ten thousand new keys of one namespace do not delay the few of another.

The queue knows nothing of objects and must never requeue a key by itself: of a key that is not added again only the
failure count remains, which `forget` clears.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from turnstile.api.errors import ApiError, PermanentError
from turnstile.kube.fairness import FairQueue

_MAX_DOUBLINGS = 60
TIMER_SECONDS: Final = 0.001
"""The shortest delay for which every event loop makes a timer. uvloop rounds a shorter one to 0 ms, and its handle has
no `when()`."""


class QueueShutDown(Exception):
    """Raised by `get` when the queue is shut down and nothing is left in it."""


class WorkQueue:
    """Keys (`namespace/name` or `name`, perhaps after `kind:`) that wait for a worker. Belongs to one event loop; no
    method blocks but `get`.

    A key that keeps failing waits `base_delay` seconds, then twice that, up to `max_delay`.
    """

    def __init__(self, *, base_delay: float = 0.005, max_delay: float = 60.0) -> None:
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._ready: FairQueue[str] = FairQueue()
        self._dirty: set[str] = set()
        self._processing: set[str] = set()
        self._failures: dict[str, int] = {}
        self._delayed: dict[str, asyncio.TimerHandle] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._shut_down = False
        self.adds = 0
        """Additions of keys that were not dirty already."""

    def __len__(self) -> int:
        """Number of keys that wait for a worker now, without delayed keys and keys being processed."""
        return len(self._ready)

    @property
    def processing(self) -> int:
        """Number of keys being processed by workers."""
        return len(self._processing)

    @property
    def delayed(self) -> int:
        """Number of keys that will be added later."""
        return len(self._delayed)

    def add(self, key: str) -> None:
        """Queue the key, unless it is queued already."""
        if self._shut_down or key in self._dirty:
            return
        self._dirty.add(key)
        self.adds += 1
        if key not in self._processing:
            self._queue(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Add the key after that many seconds. The earliest of several delays of a key applies."""
        if self._shut_down:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + max(TIMER_SECONDS, seconds)
        waiting = self._delayed.get(key)
        if waiting is not None:
            if waiting.when() <= when:
                return
            waiting.cancel()
        self._delayed[key] = loop.call_at(when, self._due, key)

    def add_rate_limited(self, key: str, *, at_least: float = 0.0) -> None:
        """Count a failure of the key and add it after its back-off, or after `at_least` seconds if that is longer."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        backoff = self._base_delay * 2.0 ** min(failures, _MAX_DOUBLINGS)
        self.add_after(key, max(min(backoff, self._max_delay), at_least))

    def forget(self, key: str) -> None:
        """Clear the failure count of a key that succeeded or will not be retried."""
        self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        """How often the key failed since `forget`."""
        return self._failures.get(key, 0)

    async def get(self) -> str:
        """The next key, in the order of adding within its namespace. The caller owns it until it calls `done`.

        Raises QueueShutDown when the queue is shut down and drained.
        """
        while not self._ready:
            if self._shut_down:
                raise QueueShutDown
            getter = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                getter.cancel()
                if getter in self._getters:
                    self._getters.remove(getter)
                elif len(self):
                    self._wake_one()  # this waiter was woken for a key that it will not take: wake another
                raise
        key = self._ready.pop()
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def done(self, key: str) -> None:
        """End the processing of a key. A key added meanwhile is queued again, even while shutting down."""
        self._processing.discard(key)
        if key in self._dirty:
            self._queue(key)

    def shut_down(self) -> None:
        """Ignore further keys and drop delayed keys; `get` still returns queued keys. Idempotent."""
        self._shut_down = True
        for handle in self._delayed.values():
            handle.cancel()
        self._delayed.clear()
        while self._getters:
            self._wake_one()

    def _queue(self, key: str) -> None:
        self._ready.add(key, _namespace(key))
        self._wake_one()

    def _due(self, key: str) -> None:
        del self._delayed[key]
        self.add(key)

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return


def _namespace(key: str) -> str:
    """The namespace in a key; empty if it has none."""
    namespace, slash, _ = key.rpartition(":")[2].partition("/")
    return namespace if slash else ""


async def run_workers(
    queue: WorkQueue,
    handle: Callable[[str], Awaitable[None]],
    *,
    workers: int,
    on_error: Callable[[str, Exception], None],
) -> None:
    """Let `workers` tasks work on the queue until it is shut down and drained, or this call is cancelled.

    When `handle` returns, the key is forgotten. When `handle` raises, the error is reported to `on_error` and the key
    is added again after its back-off or the server's Retry-After, whichever is longer. After a PermanentError the key
    is not retried before the next event. No error of one object ends the workers.
    """
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(_work(queue, handle, on_error), name=f"worker-{number}")


async def _work(
    queue: WorkQueue, handle: Callable[[str], Awaitable[None]], on_error: Callable[[str, Exception], None]
) -> None:
    while True:
        try:
            key = await queue.get()
        except QueueShutDown:
            return
        try:
            await handle(key)
        except PermanentError as error:
            queue.forget(key)
            on_error(key, error)
        except Exception as error:
            asked = error.retry_after if isinstance(error, ApiError) else None
            queue.add_rate_limited(key, at_least=asked or 0.0)
            on_error(key, error)
        else:
            queue.forget(key)
        finally:
            queue.done(key)
        await asyncio.sleep(0)  # a handler that never waits must not block other tasks
