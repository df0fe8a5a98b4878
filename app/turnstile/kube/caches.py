"""Holds the caches of one process: one store per kind, with its reflector.

Knows no kind by name: the wiring of a process requests the kinds that the process reads, before the watches start. Must
never write to the API server.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from turnstile.api.meta import Kind
from turnstile.kube import crds
from turnstile.kube.cache import PROBE_SECONDS, Cache, Scope, Standing, State
from turnstile.kube.catchup import CatchUp
from turnstile.kube.crds import Definitions
from turnstile.kube.raws import Keep
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport
from turnstile.kube.wire import Params

T = TypeVar("T", bound=Kind)


class Caches:
    """A store for each kind that this process reads, and the state of each kind."""

    def __init__(self, transport: Transport, *, probe_seconds: float = PROBE_SECONDS) -> None:
        self._transport = transport
        self._probe_seconds = probe_seconds
        self._caches: dict[type[Kind], Cache[Any]] = {}
        self._stores: dict[type[Kind], Store[Any]] = {}
        self._definitions: Definitions | None = None

    def of(
        self,
        kind: type[T],
        *,
        namespace: str = "",
        params: Params | None = None,
        optional: bool = False,
        metadata_only: bool = False,
        keep: Callable[[T], Keep] | None = None,
        reduce: Callable[[T], None] | None = None,
        after: tuple[type[Kind], ...] = (),
        only_with: Mapping[type[Kind], Callable[[Any], bool]] | None = None,
    ) -> Store[T]:
        """The store of a kind, watched after `start`; the parameters are those of `Scope`.

        A process holds a kind with one scope: another scope raises ValueError. `held` returns the store of any scope.
        """
        scope = Scope(
            namespace=namespace,
            params=dict(params or {}),
            optional=optional,
            metadata_only=metadata_only,
            keep=keep,
            reduce=reduce,
            after=after,
            only_with=only_with,
        )
        cache = self._caches.get(kind)
        if cache is None:
            cache = self._caches[kind] = Cache(self._transport, kind, scope, probe_seconds=self._probe_seconds)
            self._stores[kind] = cache.store
            for other, matters in (only_with or {}).items():
                self._stores[other].subscribe(_waking(cache, matters), replay=True)
        elif cache.scope != scope:
            raise ValueError(f"{kind.KIND} is held as {cache.scope} already, and asked for as {scope}")
        return cast(Store[T], cache.store)

    def held(self, kind: type[T]) -> Store[T] | None:
        """The store of a kind, whatever its scope; None if the process does not read the kind."""
        return self._stores.get(kind)

    @property
    def stores(self) -> Mapping[type[Kind], Store[Any]]:
        """All stores by kind."""
        return self._stores

    @property
    def all(self) -> Iterable[Cache[Any]]:
        """All caches."""
        return self._caches.values()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin to watch."""
        if any(cache.scope.optional and crds.may_be_defined(kind) for kind, cache in self._caches.items()):
            self._definitions = Definitions(self._transport)
            group.create_task(self._definitions.run(), name="watch definitions")
        for kind, cache in self._caches.items():
            group.create_task(self._run(cache), name=f"cache of {kind.PLURAL}")

    async def _run(self, cache: Cache[Any]) -> None:
        await cache.wanted()
        for kind in cache.scope.after:
            await self._caches[kind].read()
        await cache.run(self._definitions if crds.may_be_defined(cache.kind) else None)

    # --- state --------------------------------------------------------------------------------------------------------

    async def synced(self) -> None:
        """Return once every kind was read, except optional kinds that are absent or cannot be read."""
        for cache in self._caches.values():
            await cache.settled.wait()

    def missing(self) -> list[str]:
        """Kinds that `synced` waits for, with the server's error if there is one."""
        return [_words(cache) for cache in self._caches.values() if not cache.settled.is_set()]

    def failing(self) -> list[str]:
        """Kinds that cannot be watched at the moment, with the server's error."""
        return [_words(cache) for cache in self._caches.values() if cache.standing.state is State.FAILING]

    def standing(self, kind: type[Kind]) -> Standing:
        """The present state of a kind."""
        return self._caches[kind].standing

    def scope(self, kind: type[Kind]) -> Scope:
        """Which objects of a kind are held, and how much of each."""
        return self._caches[kind].scope

    # --- reading once more --------------------------------------------------------------------------------------------

    def read_again(self, kind: type[Kind], namespace: str) -> None:
        """Read the objects of a namespace once more, soon, because `keep` now returns another result for them."""
        self._caches[kind].read_again(namespace)

    def catch_up(self, kinds: Iterable[type[Kind]]) -> CatchUp:
        """Take the stores of these kinds for stale, until they are shown to have all changes made before this call."""
        return CatchUp([self._caches[kind] for kind in kinds], self._definitions)


def _waking(cache: Cache[Any], matters: Callable[[Any], bool]) -> Callable[[str, Kind | None, Kind | None], None]:
    def changed(_: str, old: Kind | None, new: Kind | None) -> None:
        if new is not None and not cache.awake and matters(new):
            cache.wake()

    return changed


def _words(cache: Cache[Any]) -> str:
    reason = cache.standing.reason
    return f"{cache.name} ({reason})" if reason else cache.name
