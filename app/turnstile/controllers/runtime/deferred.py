"""Patches that wait until nothing more useful is to be written: the newest of each object, and when it may be sent.

A patch that fails is sent again after a back-off, until it succeeds or a newer one takes its place. Sends nothing
itself.
"""

import asyncio
import random
from dataclasses import dataclass

from turnstile.api.meta import Kind
from turnstile.controllers.runtime.actions import Patch
from turnstile.kube.backoff import Backoff

Target = tuple[type[Kind], str]
"""Kind and `namespace/name` of the object to write."""


@dataclass(slots=True, eq=False)
class Entry:
    """A deferred patch and its failed attempts."""

    patch: Patch
    attempts: int = 0


class Deferred:
    """Deferred patches of one term, in the order in which they became due."""

    def __init__(self) -> None:
        self._entries: dict[Target, Entry] = {}
        self._due: dict[Target, None] = {}
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, target: Target) -> Entry | None:
        """The patch that waits for an object."""
        return self._entries.get(target)

    def put(self, target: Target, patch: Patch) -> None:
        """Add a patch, in the place of an older one for the same object."""
        entry = self._entries[target] = Entry(patch)
        self._make_due(target, entry)

    async def some(self) -> None:
        """Wait until a patch is due."""
        await self._some.wait()

    def next(self) -> tuple[Target, Entry] | None:
        """The first patch that is due."""
        target = next(iter(self._due), None)
        if target is None:
            self._some.clear()
            return None
        return target, self._entries[target]

    def drop(self, target: Target, entry: Entry | None = None) -> None:
        """Remove the patch for an object; a given entry only if no newer one has replaced it."""
        if entry is None or self._entries.get(target) is entry:
            self._entries.pop(target, None)
            self._due.pop(target, None)

    def put_off(self, target: Target, entry: Entry, backoff: Backoff) -> None:
        """Have a patch that failed sent again after its back-off, unless a newer one has replaced it."""
        if self._entries.get(target) is not entry:
            return
        self._due.pop(target, None)
        delay = backoff.delay(entry.attempts, random.random)
        entry.attempts += 1
        asyncio.get_running_loop().call_later(delay, self._make_due, target, entry)

    def _make_due(self, target: Target, entry: Entry) -> None:
        if self._entries.get(target) is entry:
            self._due[target] = None
            self._some.set()
