"""Locks of objects, so that this process never has two writes of one object in flight.

A lock exists only while a write of its object waits for it or holds it. Never waits for anything but the lock.
"""

import asyncio

from turnstile.controllers.runtime.deferred import Target

Locks = dict[Target, tuple[asyncio.Lock, int]]
"""The lock of each object, with the number of its users."""


class Locked:
    """The lock of one object, held for the time of a block, and kept in `locks` for as long as it has users. A class,
    because every write has one, and an async generator costs more."""

    __slots__ = ("_locks", "_target")

    def __init__(self, locks: Locks, target: Target) -> None:
        self._locks, self._target = locks, target

    async def __aenter__(self) -> None:
        lock, users = self._locks.get(self._target) or (asyncio.Lock(), 0)
        self._locks[self._target] = (lock, users + 1)
        try:
            await lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._leave().release()

    def _leave(self) -> asyncio.Lock:
        lock, users = self._locks.pop(self._target)
        if users > 1:
            self._locks[self._target] = (lock, users - 1)
        return lock
