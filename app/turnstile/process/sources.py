"""Where a page's objects come from: watches of a cluster with its reader's own rights, or a dump. Must never write."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from turnstile.api.core import Node, Pod
from turnstile.api.errors import ApiError, Forbidden
from turnstile.api.meta import Kind
from turnstile.api.multikueue import MultiKueueCluster
from turnstile.controllers.view.managed import keep_bound
from turnstile.engine.intake import FEEDING, PLACES, placing
from turnstile.insight.snapshot import Snapshot
from turnstile.kube.cache import State
from turnstile.kube.caches import Caches
from turnstile.kube.crds import may_be_defined
from turnstile.kube.lease import Lease
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport
from turnstile.web.health import Watch

_SHOWN: Final[tuple[type[Kind], ...]] = (MultiKueueCluster,)
"""Kinds that pages show and no decision depends on."""
_WORDS: Final = {
    State.READING: "being read",
    State.SYNCED: "synced",
    State.DORMANT: "no such kind",
    State.RESTING: "not needed",
    State.FAILING: "failing",
}


class Followed:
    """Watches of a cluster. A kind that may not be listed everywhere is watched in one namespace only."""

    def __init__(
        self,
        caches: Caches,
        scopes: Mapping[type[Kind], str],
        lease: tuple[str, str],
        *,
        also: Iterable[type[Kind]] = (),
        wait_for_room: bool = False,
    ) -> None:
        """`also` are kinds that questions are about, beside those that decisions depend on. `wait_for_room` is as
        configured."""
        self._placing = placing(wait_for_room=wait_for_room)
        self.caches = caches
        self.stores: dict[type[Kind], Store[Any]] = {}
        for kind in (*FEEDING, *_SHOWN, *also):
            self.stores[kind] = self.caches.of(kind, namespace=scopes.get(kind, ""), optional=True)
        self.stores[Pod] = self.caches.of(Pod, optional=True, keep=keep_bound, only_with=self._placing)
        self.stores[Node] = self.caches.of(Node, optional=True, only_with=self._placing, after=(Pod,))
        namespace, name = lease
        self.leases: Store[Lease] = self.caches.of(
            Lease, namespace=namespace, params={"fieldSelector": f"metadata.name={name}"}, optional=True
        )

    def missing(self) -> list[str]:
        """Kinds that are still being read for the first time."""
        return self.caches.missing()

    def unread(self) -> dict[type[Kind], str]:
        """Kinds that cannot be read, with the reason; those that are read in one namespace only."""
        found = {}
        for cache in self.caches.all:
            kind = cache.kind
            if kind not in FEEDING and not (kind in PLACES and self._nodes_matter):
                continue
            if isinstance(cache.reflector.error, Forbidden):
                found[kind] = "you may not list and watch them"
            elif cache.standing.state is State.FAILING:
                found[kind] = cache.standing.reason
            elif cache.standing.state is State.DORMANT and may_be_defined(kind):
                found[kind] = "this cluster has no such kind: install the CRDs of Turnstile"
            elif cache.scope.namespace:
                found[kind] = f"you may list them in namespace {cache.scope.namespace} only"
        return found

    @property
    def _nodes_matter(self) -> bool:
        return any(any(map(matters, self.stores[kind].values())) for kind, matters in self._placing.items())

    def watches(self) -> list[Watch]:
        """How each watch fares."""
        found = []
        for cache in self.caches.all:
            standing = cache.standing
            found.append(Watch(cache.name, _WORDS[standing.state], standing.reason, len(cache.store)))
        return sorted(found)


async def namespaced(transport: Transport, namespace: str) -> dict[type[Kind], str]:
    """Kinds that may not be listed in all namespaces, each with the one in which they are watched instead."""
    if not namespace:
        return {}

    async def scope(kind: type[Kind]) -> tuple[type[Kind], str]:
        try:
            await transport.request("GET", kind.collection_path(), params={"limit": 1})
        except Forbidden:
            return kind, namespace
        except ApiError:
            pass  # the watch says what is wrong
        return kind, ""

    found = await asyncio.gather(*(scope(kind) for kind in FEEDING if kind.NAMESPACED))
    return {kind: where for kind, where in found if where}


class Dumped:
    """A dump, as it was read."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.stores: dict[type[Kind], Store[Any]] = {kind: Store() for kind in (*FEEDING, *PLACES, *_SHOWN)}
        self.leases: Store[Lease] | None = None
        for kind, store in self.stores.items():
            store.replace(snapshot.of(kind))

    def missing(self) -> list[str]:
        """Nothing."""
        return []

    def unread(self) -> dict[type[Kind], str]:
        """Nothing."""
        return {}

    def watches(self) -> list[Watch]:
        """How many objects the dump has of each kind."""
        return sorted(Watch(kind.PLURAL, "read", "", len(store)) for kind, store in self.stores.items())
