"""Shows that a store has every change that the API server had made at a given moment, without reading it again.

A consistent read of the first objects of a kind names the newest version; the store is fresh once the watch has passed
it. A watch passes a version with any event of a later version. A kind without changes has no events: its watch is
resumed with a short end, because the API server sends a bookmark two seconds before the end that was asked for, if it
knows a later version than that of the last event; the consistent read has told it one. Nothing is read twice by that,
and a watch that had stalled unnoticed is replaced.

- A collection that fits the page of the consistent read is fresh at once: that page is all of it.
- A watch that still delivers events is not resumed; it gets there by itself.
- A version that is no number, or lower than one seen before (a restored backup), cannot be compared: all is read.

Must never declare a store fresh because time has passed.
"""

import asyncio
import math
import random
from typing import Final, Protocol

from turnstile.api.errors import ApiError, RequestTimeout, WireError
from turnstile.kube import answers
from turnstile.kube.answers import Page
from turnstile.kube.backoff import Backoff
from turnstile.kube.transport import LAST_PATIENCE, PATIENCE

GRACE_SECONDS: Final = 0.2
"""Seconds without an event after which a watch that has to pass a version is resumed with a short end."""
AGAIN: Final = Backoff(first=0.1, limit=5.0)
"""Pauses before the newest version is asked for again."""


class Watched(Protocol):
    """A reflector, as far as it matters here."""

    synced: asyncio.Event
    position: int
    relisted: int

    async def newest(self, *, patience: float) -> Page:
        """The first objects of the kind, by a consistent read, with so many seconds for the next byte."""
        ...

    async def take_all(self, page: Page) -> None:
        """Store a page that has all objects of the kind."""
        ...

    def hurry(self) -> None:
        """Resume the watch with a short end, unless that has happened."""
        ...

    def read_all(self) -> None:
        """Read all objects once more."""
        ...

    def settled(self) -> None:
        """Called when the store is shown to be fresh, or need not be any more."""
        ...


class Freshness:
    """Whether a store is as fresh as it has to be. Nothing has to be shown until `doubt`."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._wanted = 0.0
        self._moved = asyncio.Event()
        self.waits_for = ""
        """The reason why the store is behind, in words; empty if it is not."""

    @property
    def shown(self) -> bool:
        """Whether the store has all that it has to have."""
        return self._watched.position >= self._wanted

    def doubt(self) -> None:
        """Take the store for stale until `show` has shown that it is not."""
        self._wanted = math.inf
        self.waits_for = "its turn"

    def advanced(self) -> None:
        """Called when the store has all changes up to a later version."""
        if self._wanted:
            self._moved.set()
            if self.shown:
                self.release()

    def release(self) -> None:
        """End the doubt."""
        self._wanted, self.waits_for = 0.0, ""
        self._moved.set()
        self._watched.settled()

    async def show(self, *, raises: tuple[type[ApiError], ...] = ()) -> None:
        """Return once the store has every change that was made before this call. Ends the doubt also when cancelled.

        Errors are retried until then, but for those in `raises`.
        """
        self.doubt()
        try:
            await self._show(raises)
        finally:
            self.release()

    async def _show(self, raises: tuple[type[ApiError], ...]) -> None:
        attempt, patience = 0, PATIENCE
        while self._wanted:
            if not self._watched.synced.is_set():
                self.waits_for = "its first list"
                await self._moves()
                continue
            before = self._watched.position
            self.waits_for = "the answer that names its newest version"
            try:
                page = await self._watched.newest(patience=patience)
            except raises:
                raise
            except (WireError, ApiError) as error:
                self.waits_for = f"the answer that names its newest version: {error}"
                if isinstance(error, RequestTimeout):
                    patience = min(2 * patience, LAST_PATIENCE)
                await asyncio.sleep(AGAIN.delay(attempt, random.random))
                attempt += 1
                continue
            number = answers.number(page.metadata.resource_version)
            if not self._wanted:
                return
            if number < max(before, 1):
                await self._read_all()
                if not number:
                    return
            elif not page.metadata.continue_:
                await self._watched.take_all(page)
                return
            else:
                self._wanted = number
                await self._pass(number)

    async def _pass(self, number: int) -> None:
        """Wait until the watch has passed a version."""
        self.advanced()
        while self._wanted:
            self.waits_for = f"version {number} on its watch, which is at {self._watched.position}"
            if not await self._moves(GRACE_SECONDS):
                self._watched.hurry()

    async def _read_all(self) -> None:
        self.waits_for = "a full list: its versions cannot be compared"
        relisted = self._watched.relisted
        self._watched.read_all()
        while self._wanted and self._watched.relisted == relisted:
            await self._moves()

    async def _moves(self, seconds: float | None = None) -> bool:
        """Wait for a change of the position. Returns whether there was one within so many seconds."""
        self._moved.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        except TimeoutError:
            return False
        return True
