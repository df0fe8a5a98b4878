"""Asks the page's application without a network."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec.structs import replace
from starlette.types import ASGIApp, Message

from app.api.meta import Kind
from app.engine import Options
from app.insight.snapshot import Snapshot
from app.process.sources import Dumped
from app.web.application import create
from app.web.explanations import Explanations
from app.web.health import Observer
from app.web.pages import Site
from app.web.sight import EVERYTHING, Sight
from app.web.visit import HERE, KEY, Visit
from app.web.world import World
from tests.unit.engine import builders as b

T = TypeVar("T")


class AtOnce:
    """Works out answers here and now."""

    async def answers(self, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        """What `work` yields."""
        for found in work():
            yield found


@dataclass
class Answer:
    """What the application answered."""

    status: int
    headers: dict[str, str]
    text: str


async def ask(
    app: ASGIApp, path: str, *, method: str = "GET", body: bytes = b"", visit: Visit = HERE, **headers: str
) -> Answer:
    """The answer to one request; headers are given with `_` for `-`."""
    given = {"host": "localhost:8765", **{name.replace("_", "-"): value for name, value in headers.items()}}
    path, _, query = path.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "scheme": "http",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        KEY: visit,
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *rest = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(each.get("body", b"") for each in rest).decode())


class Page:
    """A page over a world that a test changes."""

    def __init__(self, source: Dumped) -> None:
        self.source = source
        self._version = 1_000_000
        self.world = World(source, Options(), lambda: datetime.fromtimestamp(b.NOW, UTC))
        beside = AtOnce()
        self.explanations = Explanations(self.world, beside)
        self.observer = Observer(self.world, source.watches)
        site = Site(
            world=self.world, explanations=self.explanations, observer=self.observer, beside=beside, where="a test"
        )
        self.app = create(site, asyncio.Event())

    async def get(self, path: str, *, sight: Sight = EVERYTHING) -> Answer:
        """A page, as a reader gets it who sees this."""

        async def seen(_: Collection[str]) -> Sight:
            return sight

        return await ask(self.app, path, visit=Visit(sight=seen))

    async def put(self, *objects: Kind) -> None:
        """Objects exist or changed, and the page knows."""
        before = self.world.revision
        for each in objects:
            self._version += 1
            meta = replace(each.metadata, resource_version=str(self._version))
            self.source.stores[type(each)].observe(replace(each, metadata=meta))
        async with asyncio.timeout(30):
            while self.world.revision == before:
                await self.world.changed(self.world.news)


@asynccontextmanager
async def page(*objects: Kind) -> AsyncIterator[Page]:
    """A page that shows these objects, and works while the block runs."""
    snapshot = Snapshot()
    for each in objects:
        snapshot.put(each)
    found = Page(Dumped(snapshot))
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in (found.world.follow(), found.explanations.run())]
        await found.world.changed(0)
        yield found
        for task in tasks:
            task.cancel()
