"""Kinds for tests of what becomes of a kind that is not there: made-up ones, with definitions that come and go."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, cast

import msgspec

from testbed import Api, ApiError
from tests.cluster.schema_server import DEFINITIONS, Json
from turnstile.api.meta import Kind, Object
from turnstile.kube.caches import Caches
from turnstile.kube.transport import Transport

_numbers = itertools.count(1)


class RigSpec(Object):
    """What a rig is made of; `template` is heavy."""

    size: int = 0
    template: msgspec.Raw = msgspec.Raw(b"{}")


class Rig(Kind):
    """A made-up kind; each test takes one of its own from `new_kind`."""

    VERSION: ClassVar = "v1"
    KIND: ClassVar = "Rig"
    PLURAL: ClassVar = "rigs"
    NAMESPACED: ClassVar = True

    spec: RigSpec = msgspec.field(default_factory=RigSpec)


def new_kind(*versions: str, group: str = "") -> type[Rig]:
    """A kind of a group that no other test uses; `versions` are those that its struct reads."""
    group = group or f"g{next(_numbers)}.example.com"
    fields = {"GROUP": group, "VERSION": (*versions, "v1")[0], "VERSIONS": versions, "__module__": __name__}
    return cast("type[Rig]", type("Rig", (Rig,), fields))


def definition(kind: type[Kind], *, served: tuple[str, ...] = ("v1",)) -> Json:
    """The CustomResourceDefinition of a kind; the last version is the stored one."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.PLURAL}.{kind.GROUP}"},
        "spec": {
            "group": kind.GROUP,
            "scope": "Namespaced",
            "names": {"kind": kind.KIND, "plural": kind.PLURAL, "singular": kind.KIND.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == served[-1],
                    "schema": {"openAPIV3Schema": schema},
                }
                for version in served
            ],
        },
    }


def install(api: Api, kind: type[Kind], **options: Any) -> None:
    """Create the definition of a kind; it is established a moment later."""
    api.request("POST", DEFINITIONS, definition(kind, **options))


def uninstall(api: Api, kind: type[Kind]) -> None:
    """Delete the definition of a kind; the server deletes all objects first."""
    api.delete(f"{DEFINITIONS}/{kind.PLURAL}.{kind.GROUP}")


def served(api: Api, kind: type[Kind], version: str = "v1") -> bool:
    """Whether the server answers for the kind; it does not for a moment after its definition has changed."""
    try:
        return api.find(kind.collection_path(version=version)) is not None
    except ApiError:
        return False


def rig(kind: type[Kind], name: str, *, version: str = "v1", **spec: Any) -> Json:
    """An object of a made-up kind."""
    return {"apiVersion": f"{kind.GROUP}/{version}", "kind": kind.KIND, "metadata": {"name": name}, "spec": spec}


async def until(condition: Callable[[], object], *, within: float = 15.0) -> None:
    """Return as soon as the condition holds; fail when it does not within so many seconds."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110  what is waited for has no event of its own
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(caches: Caches) -> AsyncIterator[None]:
    """Watch for as long as this lasts."""
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_started(caches))
        yield
        watching.cancel()


async def _started(caches: Caches) -> None:
    async with asyncio.TaskGroup() as group:
        caches.start(group)


def requests(transport: Transport) -> int:
    """How many requests were answered so far, watches included."""
    return sum(transport.stats.requests.values())
