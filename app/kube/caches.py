"""The stores of one process, one a kind, each with the reflector that keeps it.

Knows no kind by name: whoever wires a process asks for those it reads, before it starts to watch. Must never write.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

import structlog

from app.api.errors import ApiError, WireError
from app.api.meta import Kind
from app.kube.backoff import Backoff
from app.kube.reflector import Reflector
from app.kube.store import Store
from app.kube.transport import Transport

T = TypeVar("T", bound=Kind)

RENEWAL: Final = Backoff(first=0.1, limit=1.0)
"""Pauses between attempts to read everything once more."""

log = structlog.get_logger(__name__)


class Caches:
    """A store and a reflector for each kind that this process reads."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._stores: dict[type[Kind], Store[Any]] = {}
        self._reflectors: dict[type[Kind], Reflector[Any]] = {}

    def of(self, kind: type[T], *, namespace: str = "", params: Mapping[str, str] | None = None) -> Store[T]:
        """The store of a kind, watched from now on."""
        if kind not in self._stores:
            store: Store[T] = Store()
            self._stores[kind] = store
            self._reflectors[kind] = Reflector(
                self._transport, store, kind, namespace=namespace, params=params, on_undecodable=_undecodable(kind)
            )
        return cast(Store[T], self._stores[kind])

    @property
    def stores(self) -> Mapping[type[Kind], Store[Any]]:
        """All stores by kind."""
        return self._stores

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin to watch."""
        for kind, reflector in self._reflectors.items():
            group.create_task(reflector.run(), name=f"watch {kind.PLURAL}")

    async def synced(self) -> None:
        """Return once every store is full."""
        for reflector in self._reflectors.values():
            await reflector.synced.wait()

    async def renewed(self, kinds: Iterable[type[Kind]]) -> None:
        """Read these kinds once more, side by side; trouble of the server is waited out."""
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(self._renewed(self._reflectors[kind]), name=f"read {kind.PLURAL}")

    async def _renewed(self, reflector: Reflector[Any]) -> None:
        attempt = 0
        while True:
            try:
                await reflector.renew()
            except (WireError, ApiError) as error:
                log.warning("cache.not_renewed", kind=reflector.kind.KIND, error=str(error))
                await asyncio.sleep(RENEWAL.delay(attempt, random.random))
                attempt += 1
            else:
                return

    def missing(self) -> list[str]:
        """Kinds whose store is not full yet."""
        return [kind.PLURAL for kind, reflector in self._reflectors.items() if not reflector.synced.is_set()]


def _undecodable(kind: type[Kind]) -> Callable[[str, Exception], None]:
    def report(key: str, error: Exception) -> None:
        log.error("object.unreadable", kind=kind.KIND, key=key, error=str(error))

    return report
