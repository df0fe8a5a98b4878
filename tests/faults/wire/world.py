"""Words for tests of the wire: a kind that is always there, and waiting for what must come true."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import msgspec

from tests.faults.proxy import Request
from turnstile.api.meta import Kind
from turnstile.kube.backoff import Backoff
from turnstile.kube.reflector import Reflector
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport

QUICK = Backoff(first=0.02, limit=0.1)
GONE = b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old","reason":"Expired","code":410}'
_numbers = itertools.count(1)


class ConfigMap(Kind):
    """v1 ConfigMap, a kind that every server has."""

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "ConfigMap"
    PLURAL: ClassVar = "configmaps"
    NAMESPACED: ClassVar = True

    data: dict[str, str] = msgspec.field(default_factory=dict)


class Namespace(Kind):
    """v1 Namespace."""

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Namespace"
    PLURAL: ClassVar = "namespaces"
    NAMESPACED: ClassVar = False


async def new_namespace(transport: Transport) -> str:
    """A namespace of the test's own."""
    made = await transport.create(Namespace, "", {"metadata": {"generateName": f"faults-{next(_numbers)}-"}})
    return made.metadata.name


def config(name: str, *, version: str = "", **data: str) -> dict[str, Any]:
    """A ConfigMap as a user would write it."""
    metadata = {"name": name, **({"resourceVersion": version} if version else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def until(condition: Callable[[], bool], *, within: float = 10.0) -> None:
    """Return as soon as the condition holds; fail when it does not within so many seconds."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110  what is waited for has no event of its own
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(reflector: Reflector[Any]) -> AsyncIterator[None]:
    """Run a reflector; fail if it ever stops by itself."""
    task = asyncio.create_task(reflector.run())
    try:
        yield
        if task.done():
            task.result()
            raise AssertionError("the reflector returned")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def contents(store: Store[ConfigMap]) -> dict[str, dict[str, str]]:
    """Name to data of what a store holds, without what the server puts into every namespace."""
    return {
        value.metadata.name: value.data
        for value in store.values(ordered=True)
        if value.metadata.name != "kube-root-ca.crt"
    }


def mirror(transport: Transport, namespace: str, **options: Any) -> tuple[Store[ConfigMap], Reflector[ConfigMap]]:
    """A store and what keeps it, impatient so that tests are quick."""
    store = Store[ConfigMap]()
    options = {"backoff": QUICK, "idle_timeout": 5.0, **options}
    return store, Reflector(transport, store, ConfigMap, namespace=namespace, **options)


def event(type: str, version: int, **annotations: str) -> bytes:  # noqa: A002
    """A watch line about nothing but a version."""
    metadata = {"resourceVersion": str(version), "annotations": annotations}
    return json.dumps({"type": type, "object": {"kind": "ConfigMap", "metadata": metadata}}).encode() + b"\n"


def resumes(request: Request) -> bool:
    """Applies a fault to watches that go on from a version."""
    return request.watch and "resourceVersion" in request.query


def starts(request: Request) -> bool:
    """Applies a fault to watches that learn everything."""
    return request.watch and "sendInitialEvents" in request.query
