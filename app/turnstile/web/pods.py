"""The pods of a Workload that runs, and their nodes, read when a page shows them.

Pods are not watched for the page: there may be a hundred thousand. One request reads one page of the pods that may be
its own, and the answer is kept for a moment. Must never show a pod to a reader who may not list pods of its namespace.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import msgspec
import structlog

from turnstile.api import names
from turnstile.api.core import Pod
from turnstile.api.errors import TurnstileError
from turnstile.api.workload import Workload

READ: Final = 500
"""Pods that are read of a namespace for one Workload at most."""
SHOWN: Final = 20
"""Pods that are named at most."""
FRESH_SECONDS: Final = 5.0
"""For so long pods that were read are not read again."""
ASKED_SECONDS: Final = 1.0
"""Seconds for which a page waits for them."""
KEPT: Final = 256
"""Workloads whose pods are remembered."""
AT_ONCE: Final = 4
"""Requests under way at a time."""

_log = structlog.get_logger(__name__)


class Reads(Protocol):
    """Sends a request; `Transport.request` does."""

    def __call__(
        self, method: str, path: str, /, *, params: Mapping[str, str | int], timeout: float
    ) -> Awaitable[bytes]:
        """The body of the answer. Raises TurnstileError."""
        ...


class Placed(NamedTuple):
    """A pod that has not ended: its node, empty if it has none, and its phase."""

    name: str
    node: str
    phase: str


@dataclass(frozen=True, slots=True)
class Pods:
    """The first pods of a Workload by name, and how many there are; `part` if others may not have been read."""

    named: tuple[Placed, ...]
    count: int
    part: bool

    @property
    def nodes(self) -> int:
        """The nodes of those that are named."""
        return len({each.node for each in self.named if each.node})


class RunningPods:
    """Reads pods by `reads`, each Workload's at most once in `FRESH_SECONDS`."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._kept: OrderedDict[str, tuple[float, Pods | None]] = OrderedDict()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def of(self, workload: Workload) -> Pods | None:
        """The pods of a Workload; None if they cannot be read now."""
        uid, now = workload.metadata.uid, asyncio.get_running_loop().time()
        at, found = self._kept.get(uid, (float("-inf"), None))
        if now < at + FRESH_SECONDS:
            return found
        async with self._turns:
            found = await self._read(workload)
        self._kept[uid] = (now, found)
        self._kept.move_to_end(uid)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    async def _read(self, workload: Workload) -> Pods | None:
        meta = workload.metadata
        params: dict[str, str | int] = {"labelSelector": _selector(workload), "limit": READ}
        try:
            body = await self._reads("GET", Pod.collection_path(meta.namespace), params=params, timeout=ASKED_SECONDS)
            found = msgspec.json.decode(body, type=_List)
        except (TurnstileError, OSError, msgspec.MsgspecError) as error:
            _log.debug("pods.not_read", workload=meta.key, error=str(error))
            return None
        own = [
            Placed(each.metadata.name, each.spec.node_name, each.status.phase)
            for each in found.items
            if each.metadata.annotations.get(names.WORKLOAD) == meta.name and each.status.phase not in _OVER
        ]
        return Pods(tuple(sorted(own)[:SHOWN]), len(own), bool(found.metadata.rest))


def _selector(workload: Workload) -> str:
    """Labels that all of its pods have, and few others: the uid of its Job, the name of its group, else that of any pod
    that was admitted."""
    owners, owner = workload.metadata.owner_references, workload.metadata.controller
    if owner is not None and owner.kind == "Job":
        return f"batch.kubernetes.io/controller-uid={owner.uid}"
    if len(owners) > 1 and all(each.kind == "Pod" for each in owners):
        return f"{names.POD_GROUP_NAME}={workload.metadata.name}"
    return names.PODSET_LABEL


_OVER: Final = ("Succeeded", "Failed")


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _ListMeta(msgspec.Struct, frozen=True):
    rest: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    items: list[_Pod]
    metadata: _ListMeta = _ListMeta()
