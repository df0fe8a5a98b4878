"""Reads a snapshot of what decisions depend on from a cluster, with the asker's own rights. Must never write."""

import asyncio
from collections.abc import Iterable

from turnstile.api.clusterqueue import ClusterQueue
from turnstile.api.core import Node, Pod
from turnstile.api.errors import ApiError, Forbidden, NotServed, WireError
from turnstile.api.meta import Kind
from turnstile.controllers.view.managed import keep_bound
from turnstile.engine.intake import FEEDING, PLACES
from turnstile.insight.snapshot import Snapshot
from turnstile.kube.crds import may_be_defined
from turnstile.kube.raws import Keep
from turnstile.kube.transport import Transport


async def read(
    transport: Transport, namespace: str = "", *, also: Iterable[type[Kind]] = (), wait_for_room: bool = False
) -> Snapshot:
    """The objects of a cluster that the caller may list, and those of kinds that no ledger holds and that the question
    is about `also`; nodes and the pods that are bound to them, if a flavor has a Topology or a ClusterQueue waits for
    room, as all do by the configuration if `wait_for_room`. A kind that may be listed only in `namespace` is read
    there; what cannot be listed at all is in `Snapshot.unread`.

    Raises NotServed if the cluster has none of Turnstile's kinds, and WireError without an API server.
    """
    snapshot = Snapshot()

    async def take(kind: type[Kind]) -> None:
        try:
            objects = await transport.list_all(kind)
        except Forbidden:
            snapshot.hidden[kind] = ""
            if not (kind.NAMESPACED and namespace):
                return
            try:
                objects = await transport.list_all(kind, namespace)
            except Forbidden:
                return
            snapshot.hidden[kind] = namespace
        except NotServed as error:
            if kind is ClusterQueue:
                raise
            if may_be_defined(kind):
                snapshot.unread[kind] = str(error)
            return
        if kind in PLACES:
            snapshot.objects.setdefault(kind, {})
        for obj in objects:
            if not isinstance(obj, Pod) or keep_bound(obj) is not Keep.NOTHING:
                snapshot.put(obj)

    try:
        async with asyncio.TaskGroup() as group:
            for kind in (*FEEDING, *also):
                group.create_task(take(kind))
        if snapshot.needs_nodes(wait_for_room=wait_for_room):
            await take(Node)
            await take(Pod)
    except* (ApiError, WireError) as errors:
        raise errors.exceptions[0] from None
    return snapshot
