"""Shows that the stores of several kinds are fresh, as a new leader has to, and says which kinds are slow.

Each kind is shown to be fresh by itself (`freshness`), so that a slow kind delays only who waits for it. A store is not
complete until then. Must never decide what has to wait for a kind.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import structlog

from turnstile.api.meta import Kind
from turnstile.kube.cache import Cache
from turnstile.kube.crds import Definitions

SLOW_SECONDS: Final = 3.0
"""Seconds after which a kind is slow, and is named in the log."""
REPORT_SECONDS: Final = 10.0
"""Seconds until kinds that are still missing are logged, and then twice as long each time."""
MOST_REPORT_SECONDS: Final = 600.0

log = structlog.get_logger(__name__)


class CatchUp:
    """All stores are taken for stale from its creation. `await run()` in a task of its own."""

    def __init__(self, caches: Iterable[Cache[Any]], definitions: Definitions | None) -> None:
        self._caches = {cache.kind: cache for cache in caches}
        self._definitions = definitions
        self._fresh = {kind: asyncio.Event() for kind in self._caches}
        self._seconds: dict[str, float] = {}
        self._began = asyncio.get_running_loop().time()
        for cache in self._caches.values():
            cache.doubt()

    async def run(self) -> None:
        """Catch up with all kinds, concurrently, for as long as that takes."""
        try:
            async with asyncio.TaskGroup() as group:
                reports = group.create_task(self._report(), name="kinds that are behind")
                await self._catch_up()
                reports.cancel()
        finally:
            for kind, cache in self._caches.items():  # nobody waits for them any more
                if not self._fresh[kind].is_set():
                    cache.reflector.freshness.release()
        slow = {name: round(seconds, 1) for name, seconds in self._seconds.items() if seconds >= SLOW_SECONDS}
        log.info("caches.caught_up", seconds=round(self._passed(), 1), kinds=len(self._caches), slow=slow)

    async def of(self, kinds: Iterable[type[Kind]]) -> None:
        """Return once the stores of these kinds are fresh."""
        for kind in kinds:
            await self._fresh[kind].wait()

    def behind(self) -> list[Cache[Any]]:
        """The kinds that are not shown to be fresh yet."""
        return [cache for kind, cache in self._caches.items() if not self._fresh[kind].is_set()]

    async def _catch_up(self) -> None:
        async with asyncio.TaskGroup() as group:
            known = group.create_task(self._know_definitions(), name="catch up with definitions")
            for cache in self._caches.values():
                group.create_task(self._one(cache, known), name=f"catch up with {cache.kind.PLURAL}")

    async def _know_definitions(self) -> None:
        """Which kinds are dormant follows from the watch of definitions, which may be stale too."""
        if self._definitions is not None and any(cache.scope.optional for cache in self._caches.values()):
            await self._definitions.catch_up()

    async def _one(self, cache: Cache[Any], known: asyncio.Task[None]) -> None:
        if cache.dormant:
            await asyncio.wait([known])
        await cache.catch_up()
        self._seconds[cache.name] = self._passed()
        self._fresh[cache.kind].set()

    async def _report(self) -> None:
        wait = REPORT_SECONDS
        while True:
            await asyncio.sleep(wait)
            for cache in self.behind():
                log.warning(
                    "cache.not_renewed",
                    kind=cache.name,
                    seconds=round(self._passed(), 1),
                    waits_for=cache.reflector.freshness.waits_for,
                    delays="decisions about this kind" if cache.scope.optional else "all admissions",
                    cure=CURE_CATCH_UP,
                )
            wait = min(2 * wait, MOST_REPORT_SECONDS)

    def _passed(self) -> float:
        return asyncio.get_running_loop().time() - self._began


CURE_CATCH_UP: Final = (
    "see whether the API server sheds load or is slow (turnstile_write_slowness, apiserver_flowcontrol_*), and whether "
    "Turnstile's service account may list and watch this kind"
)
