"""Reads what a row shows beside the Workload: its ClusterQueue, its position, and the name of its job's type."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from turnstile.api.errors import Forbidden, NotFound, NotServed, ServerError
from turnstile.cli.queues import rows
from turnstile.cli.queues.paths import VERSION, VISIBILITY, path_of
from turnstile.cli.queues.session import Session
from turnstile.cli.say import say

Plain = dict[str, Any]

PAGE: Final = 1000
"""Pending Workloads of one answer of the visibility API."""
FRESH_SECONDS: Final = 1.0
"""Positions are asked for again after this time at the earliest, however fast Workloads change."""


class Surroundings:
    """Facts beside the Workloads in `known`; `read` asks for what is missing."""

    def __init__(self, at: Session, *, every_namespace: bool) -> None:
        self._at = at
        self._namespace = "" if every_namespace else at.namespace
        self.known = rows.Around()
        self._wanted: set[str] = set()
        self._asked: dict[str, float] = {}
        self._warned = False

    async def read(self, workloads: list[Plain]) -> None:
        """Read what the rows of these Workloads need."""
        await self._read_queues({rows.queue_key(each) for each in workloads if not rows.admitted_by(each)})
        pending = [each for each in workloads if rows.state(each) == "pending"]
        await asyncio.gather(
            self._read_types({(o["apiVersion"], o["kind"]) for each in workloads for o in rows.owners(each)}),
            *(self._read_positions(path) for path in self._paths(pending)),
        )

    async def _read_queues(self, keys: set[str]) -> None:
        """The ClusterQueues of all LocalQueues, if one of these was not looked for yet."""
        if keys <= self._wanted:
            return
        self._wanted |= keys
        try:
            found, _ = await self._at.list_all(path_of(VERSION, "localqueues", namespace=self._namespace), {})
        except Forbidden:
            return
        self.known.cluster_queues |= {rows.key(each): each["spec"].get("clusterQueue", "") for each in found}

    async def _read_types(self, kinds: Iterable[tuple[str, str]]) -> None:
        for version, kind in kinds:
            if (version, kind) not in self.known.job_types:
                resource = await self._at.resource(version, kind) or {}
                named = [resource.get("singularName"), resource.get("group")]
                self.known.job_types[version, kind] = ".".join(each for each in named if each)

    def _paths(self, pending: list[Plain]) -> set[str]:
        """Where the positions of Workloads are: a list for each LocalQueue, which a user of the namespace may read, or
        one for each ClusterQueue if all namespaces are listed."""
        if not self._namespace:
            queues = {rows.cluster_queue_of(each, self.known) for each in pending} - {""}
            return {path_of(VISIBILITY, "clusterqueues", name) for name in queues}
        queues = {each["spec"].get("queueName", "") for each in pending} - {""}
        return {path_of(VISIBILITY, "localqueues", name, self._namespace) for name in queues}

    async def _read_positions(self, path: str) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._asked.get(path, -FRESH_SECONDS) < FRESH_SECONDS:
            return
        self._asked[path] = now
        offset = 0
        try:
            while True:
                page = await self._at.get(f"{path}/pendingworkloads", limit=PAGE, offset=offset)
                items = page.get("items") or ()
                self.known.positions |= {rows.key(each): each["positionInLocalQueue"] for each in items}
                if len(items) < PAGE:
                    return
                offset += PAGE
        except NotFound:  # there is no such queue
            return
        except NotServed:
            self._report("the cluster serves no visibility API (visibility.enabled of the chart)")
        except (Forbidden, ServerError) as error:
            self._report(str(error))

    def _report(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            say(f"warning: positions in queues are not shown: {why}", err=True)
