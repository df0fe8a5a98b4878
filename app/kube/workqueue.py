"""A queue of keys for reconcilers: a key has one worker at a time, and after changes meanwhile it is due once more.

An event only says "reconcile this key"; a hundred events while a worker is busy cost one more reconciliation. The
rules are those of client-go's workqueue, where two sets carry them:

- *dirty*: keys to be reconciled. Adding one that is in it already changes nothing.
- *processing*: keys in a worker's hands. A key added meanwhile stays dirty and is queued again by `done`, so no key is
  ever with two workers.

The queue knows nothing of objects and must never keep a key by itself: of a key that nobody adds again there remains
only the failure count, which `forget` clears.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable

from app.api.errors import ApiError, PermanentError

_MAX_DOUBLINGS = 60


class QueueShutDown(Exception):
    """Raised by `get` when the queue is shut down and nothing is left in it."""


class WorkQueue:
    """Keys (`namespace/name`) that wait for a worker. Belongs to one event loop; no method blocks but `get`.

    A key that keeps failing waits `base_delay` seconds, then twice that, up to `max_delay`.
    """

    def __init__(self, *, base_delay: float = 0.005, max_delay: float = 60.0) -> None:
        self._base_delay = base_delay
        self._max_delay = max_delay
        self._urgent: OrderedDict[str, None] = OrderedDict()
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._dirty: set[str] = set()
        self._processing: set[str] = set()
        self._failures: dict[str, int] = {}
        self._delayed: dict[str, asyncio.TimerHandle] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._shut_down = False
        self.adds = 0
        """How often a key was added that did not wait already."""

    def __len__(self) -> int:
        """Number of keys that wait for a worker now; neither delayed ones nor those being worked on."""
        return len(self._urgent) + len(self._ready)

    @property
    def processing(self) -> int:
        """Number of keys in the hands of workers."""
        return len(self._processing)

    @property
    def delayed(self) -> int:
        """Number of keys that will be added later."""
        return len(self._delayed)

    def add(self, key: str, *, urgent: bool = False) -> None:
        """Have the key reconciled. An urgent key goes before all that are not, even if it waits already."""
        if self._shut_down:
            return
        if key not in self._dirty:
            self._dirty.add(key)
            self.adds += 1
        elif not urgent or key in self._urgent or key in self._processing:
            return
        if key in self._processing:
            return
        if urgent:
            self._ready.pop(key, None)
            self._urgent[key] = None
        else:
            self._ready[key] = None
        self._wake_one()

    def add_after(self, key: str, seconds: float) -> None:
        """Add the key in so many seconds. Of several delays of one key the one that ends first counts."""
        if self._shut_down:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
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
        """Clear the failure count of a key: it succeeded, or is given up."""
        self._failures.pop(key, None)

    def failures(self, key: str) -> int:
        """How often the key failed since it was last forgotten."""
        return self._failures.get(key, 0)

    async def get(self) -> str:
        """The next key, in the order of adding, urgent ones first. The caller owns it until it calls `done`.

        Raises QueueShutDown when the queue is shut down and drained.
        """
        while not self._urgent and not self._ready:
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
                    self._wake_one()  # we were woken for a key that we will not take: pass the word on
                raise
        key, _ = (self._urgent or self._ready).popitem(last=False)
        self._dirty.discard(key)
        self._processing.add(key)
        return key

    def done(self, key: str) -> None:
        """Give the key back. If it was added meanwhile it is queued again, even while shutting down."""
        self._processing.discard(key)
        if key in self._dirty:
            self._ready[key] = None
            self._wake_one()

    def shut_down(self) -> None:
        """Take no more keys and drop delayed ones; what is queued is still handed out. Idempotent."""
        self._shut_down = True
        for handle in self._delayed.values():
            handle.cancel()
        self._delayed.clear()
        while self._getters:
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


async def run_workers(
    queue: WorkQueue,
    handle: Callable[[str], Awaitable[None]],
    *,
    workers: int,
    on_error: Callable[[str, Exception], None],
) -> None:
    """Let `workers` tasks work on the queue until it is shut down and drained, or this call is cancelled.

    A key whose `handle` returns is forgotten; one whose `handle` raises is reported to `on_error` and added again after
    its back-off, or after the time the server asked for. A PermanentError is reported and not tried again before the
    next event. No error of one object ends the workers.
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
        await asyncio.sleep(0)  # a handler that never waits must not keep the loop from everyone else
