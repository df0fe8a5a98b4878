"""An asynchronous client for load: many creations in flight, a watch that stamps what it receives.

Independent of Turnstile's own transport, so that a fault there cannot flatter the figures. Bytes in, bytes out. An
overloaded server (429) is asked again; any other refusal ends the bench.
"""

import asyncio
import base64
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Self

import aiohttp
import msgspec
import yaml

_MERGE = "application/merge-patch+json"


class Refused(Exception):
    """The API server did not do what was asked."""


class Meta(msgspec.Struct, gc=False):
    """What benches read of an object's metadata."""

    name: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 -- the field's name on the wire


class Condition(msgspec.Struct, gc=False):
    """A condition, whole: it may have to be written back."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    lastTransitionTime: str = ""  # noqa: N815


class Spec(msgspec.Struct, gc=False):
    """What benches read of the spec of a Job, a JobSet or a Pod."""

    suspend: bool = False
    schedulingGates: list[msgspec.Raw] = []  # noqa: N815


class Status(msgspec.Struct, gc=False):
    """What benches read of a status."""

    conditions: list[Condition] = []


class Seen(msgspec.Struct, gc=False):
    """A Job, a JobSet, a Pod or a Workload."""

    metadata: Meta
    spec: Spec = msgspec.field(default_factory=Spec)
    status: Status = msgspec.field(default_factory=Status)

    def has(self, condition: str) -> bool:
        """Whether that condition is True."""
        return any(each.type == condition and each.status == "True" for each in self.status.conditions)


class _Event(msgspec.Struct, gc=False):
    type: str
    object: Seen


class _List(msgspec.Struct, gc=False):
    metadata: Meta
    items: list[Seen]


_decode = msgspec.json.Decoder(_Event).decode
_decode_list = msgspec.json.Decoder(_List).decode
_ERROR = b'{"type":"ERROR"'


class Client:
    """Calls as one user; `async with Client(kubeconfig)`."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._headers = {"Accept": "application/json"}
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        else:
            pem = kubeconfig.with_suffix(".pem")
            pem.touch(mode=0o600)
            parts = (user["client-certificate-data"], user["client-key-data"])
            pem.write_bytes(b"".join(base64.b64decode(part) for part in parts))
            self._tls.load_cert_chain(pem)
        self.server: str = cluster["server"].rstrip("/")

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls, keepalive_timeout=120)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=aiohttp.ClientTimeout(total=None)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def clear(self, collection: str) -> None:
        """Delete all objects of a collection; of thousands that takes longer than other clients wait."""
        await self.call("DELETE", f"{collection}?propagationPolicy=Background")

    async def call(
        self, method: str, path: str, body: bytes | None = None, *, content: str = "application/json"
    ) -> bytes:
        """One request; raises `Refused` with what the server says. Waits and asks again while the server is overloaded
        (429), as every Kubernetes client does."""
        headers = {"Content-Type": content} if body is not None else None
        while True:
            async with self._session.request(method, self.server + path, data=body, headers=headers) as answer:
                payload = await answer.read()
            if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
                break
            await asyncio.sleep(float(answer.headers.get("Retry-After", "1")))
        if answer.status >= 400:
            raise Refused(f"{method} {path}: {answer.status} {payload[:300].decode(errors='replace')}")
        return payload

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """The lines of an answer that goes on."""
        async with self._session.get(self.server + path, read_bufsize=2**20) as answer:
            if answer.status >= 400:
                raise Refused(f"GET {path}: {answer.status}")
            while line := await answer.content.readline():
                yield line

    async def create(self, collection: str, body: bytes) -> bytes:
        """POST."""
        return await self.call("POST", collection, body)

    async def patch(self, path: str, body: bytes) -> bytes:
        """Merge patch."""
        return await self.call("PATCH", path, body, content=_MERGE)

    @asynccontextmanager
    async def watching(
        self, collection: str, on_event: Callable[[str, Seen, float], None], *, since: str = ""
    ) -> AsyncIterator[None]:
        """Everything in the collection and what changes, with the moment each line was received (`perf_counter`); only
        changes with `since`, a resourceVersion.

        A watch that the server ends goes on where it ended: a full server ends the watches of all who are a second
        behind. Where the server has forgotten that version, everything is told again.
        """
        opened = asyncio.Event()

        async def follow() -> None:
            version = since
            while True:
                if not version:
                    found = _decode_list(await self.call("GET", collection))
                    version, at = found.metadata.resourceVersion, time.perf_counter()
                    for each in found.items:
                        on_event("ADDED", each, at)
                params = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
                async with self._session.get(self.server + collection, params=params, read_bufsize=2**20) as answer:
                    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:  # as after a change of the kind's definition
                        await asyncio.sleep(0.2)
                        continue
                    if answer.status == HTTPStatus.GONE:
                        version = ""
                        continue
                    if answer.status >= 400:
                        raise Refused(f"watch {collection}: {answer.status}")
                    opened.set()
                    while line := await answer.content.readline():
                        at = time.perf_counter()
                        if line.startswith(_ERROR):
                            version = ""
                            break
                        event = _decode(line)
                        version = event.object.metadata.resourceVersion
                        if event.type != "BOOKMARK":
                            on_event(event.type, event.object, at)

        async with asyncio.TaskGroup() as group:  # a watch that fails ends the bench
            following = group.create_task(follow())
            await opened.wait()
            yield
            following.cancel()


async def paced(count: int, *, rate: float, one: Callable[[int], object]) -> None:
    """Start `one(0)`, `one(1)`, ... `rate` a second and wait for all; a late one does not hold up the next."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            wait = began + number / rate - time.perf_counter()
            if wait > 0:
                await asyncio.sleep(wait)
            group.create_task(one(number))  # type: ignore[arg-type]
