"""Asks the page's application without a network."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec.structs import replace
from starlette.types import ASGIApp, Message

from tests.unit.engine import builders as b
from turnstile.api.meta import Kind
from turnstile.engine import Options
from turnstile.insight.snapshot import Snapshot
from turnstile.process.sources import Dumped
from turnstile.recorder.location import Location
from turnstile.web.application import create
from turnstile.web.explanations import Beside, Explanations
from turnstile.web.forecasts import Forecasts
from turnstile.web.health import Observer
from turnstile.web.history import History
from turnstile.web.nodes import Pictures
from turnstile.web.pages import Site
from turnstile.web.pods import Reads, RunningPods
from turnstile.web.sight import EVERYTHING, Sight
from turnstile.web.visit import HERE, KEY, Visit, anything
from turnstile.web.world import World

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

    def __init__(
        self,
        source: Dumped,
        recorder: Location | None,
        beside: Beside,
        pods: Reads | None = None,
        options: Options | None = None,
    ) -> None:
        self.source = source
        self._version = 1_000_000
        self.now = datetime.fromtimestamp(b.NOW, UTC)
        self.world = World(source, options or Options(), lambda: self.now)
        self.explanations = Explanations(self.world, beside)
        self.forecasts = Forecasts(self.world, beside)
        self.observer = Observer(self.world, source.watches)
        self.history = History(recorder, self.world.notify) if recorder is not None else None
        site = Site(
            world=self.world,
            explanations=self.explanations,
            forecasts=self.forecasts,
            observer=self.observer,
            pictures=Pictures(self.world),
            beside=beside,
            history=self.history,
            adding=beside,
            where="a test",
            pods=RunningPods(pods) if pods is not None else None,
        )
        self.app = create(site, asyncio.Event())

    async def get(
        self,
        path: str,
        *,
        sight: Sight = EVERYTHING,
        user: str = "",
        lists_pods: Callable[[str], Awaitable[bool]] = anything,
    ) -> Answer:
        """A page, as a reader gets it who sees this; a user of the cluster, if one is named."""

        async def seen(_: Collection[str]) -> Sight:
            return sight

        return await ask(self.app, path, visit=Visit(sight=seen, user=user, lists_pods=lists_pods))

    async def put(self, *objects: Kind) -> None:
        """Objects exist or changed, and the page knows."""
        before = self.world.revision
        for each in objects:
            self._version += 1
            meta = replace(each.metadata, resource_version=str(self._version))
            self.source.stores[type(each)].observe(replace(each, metadata=meta))
        async with asyncio.timeout(60):
            while self.world.revision == before:
                await self.world.changed(self.world.news)


@asynccontextmanager
async def page(
    *objects: Kind,
    recorder: Location | None = None,
    beside: Beside | None = None,
    pods: Reads | None = None,
    options: Options | None = None,
) -> AsyncIterator[Page]:
    """A page that shows these objects and what the recorder's file tells, and works while the block runs.

    Questions that change the ledger need a `beside` that answers on a copy.
    """
    snapshot = Snapshot()
    for each in objects:
        snapshot.put(each)
    found = Page(Dumped(snapshot), recorder, beside or AtOnce(), pods, options)
    async with asyncio.TaskGroup() as group:
        working = (found.world.follow(), found.explanations.run(), found.forecasts.run())
        tasks = [group.create_task(each) for each in working]
        await found.world.changed(0)
        yield found
        for task in tasks:
            task.cancel()
    if found.history is not None:
        found.history.close()
