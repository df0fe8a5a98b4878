"""Notices reach a webhook as CloudEvents: at least once, in a bounded queue, without leading anybody elsewhere."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from tests.unit.engine import builders as b
from tests.unit.recorder.lives import T0, life
from turnstile.api.workload import Workload
from turnstile.kube.store import Store
from turnstile.process.cloudevents import CloudEvents
from turnstile.process.configured import NotificationOptions
from turnstile.recorder.notable import About
from turnstile.recorder.notifying import AGAIN_SECONDS, Notifying

pytestmark = pytest.mark.asyncio
ALL: frozenset[About] = frozenset(("started", "preempted", "cannotstart"))


@dataclass
class Webhook:
    """A server that keeps what it is sent, and answers with the statuses that it is given, then with 204."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    attempts: int = 0
    elsewhere: int = 0

    async def take(self, request: web.Request) -> web.Response:
        """One event."""
        self.attempts += 1
        status = self.statuses.pop(0) if self.statuses else 204
        body = await request.read()
        if status < 300:
            self.events.append(orjson.loads(body))
            self.headers.append(dict(request.headers))
        return web.Response(status=status, headers={"Location": "/elsewhere"} if status == 302 else {})

    async def go_elsewhere(self, _: web.Request) -> web.Response:
        """Where a redirect leads."""
        self.elsewhere += 1
        return web.Response()


@asynccontextmanager
async def webhook(*statuses: int) -> AsyncIterator[Webhook]:
    """A webhook at a port of its own."""
    made = Webhook(statuses=list(statuses))
    app = web.Application()
    app.router.add_post("/hook", made.take)
    app.router.add_route("*", "/elsewhere", made.go_elsewhere)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield made
    finally:
        await runner.cleanup()


class Leader:
    """The Workloads of a leader, and its events."""

    def __init__(self, url: str, *, now: float = T0, token_file: Path | None = None, **limits: Any) -> None:
        self.workloads: Store[Workload] = Store()
        self.version = 0
        options = NotificationOptions(url, ALL, "/turnstile", str(token_file) if token_file else None)
        self.events = CloudEvents(options, **{"again_seconds": (0.01, 0.02), **limits})
        clock = lambda: datetime.fromtimestamp(now, UTC)  # noqa: E731 -- said in place
        self.notifying = Notifying(self.workloads, about=options.about, clock=clock, put=self.events.put)

    def see(self, *versions: Workload | None) -> None:
        """The watch delivers versions of a Workload, None for its deletion."""
        for each in versions:
            self.version += 1
            if each is None:
                self.workloads.delete("team/w", resource_version=str(self.version))
            else:
                self.workloads.observe(b.changed(each, metadata={"resourceVersion": str(self.version)}))

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """A term."""
        task = asyncio.create_task(self.events.run(self.notifying))
        await asyncio.sleep(0)
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def eventually(look: Callable[[], bool]) -> None:
    """Wait for the server."""
    async with asyncio.timeout(60):
        while not look():  # noqa: ASYNC110 -- a server has no event of ours
            await asyncio.sleep(0.01)


async def test_a_life_is_told_as_cloudevents() -> None:
    """All attributes that the specification wants; nothing about the preemptor."""
    async with webhook() as hook:
        leader = Leader(hook.url)
        async with leader.leading():
            leader.see(*life())
            await eventually(lambda: len(hook.events) == 3)
    types = [each["type"] for each in hook.events]
    assert types == [f"dev.turnstile.workload.{about}" for about in ("started", "preempted", "started")]
    first, second, _ = hook.events
    assert first["specversion"] == "1.0"
    assert (first["source"], first["subject"]) == ("/turnstile", "namespaces/team/workloads/w")
    assert first["time"] == b.stamp(10)
    assert first["data"]["job"] == {"kind": "Job", "name": "job-w"}
    assert second["data"]["reason"] == "InCohortReclamation"
    assert "uid-high" not in orjson.dumps(second).decode()
    assert hook.headers[0]["Content-Type"] == "application/cloudevents+json; charset=utf-8"
    assert len({each["id"] for each in hook.events}) == 3


async def test_the_next_leader_sends_again_what_is_minutes_old_and_no_more() -> None:
    """With the same id: its predecessor may have ended before it sent it."""
    admitted = life()[2]
    sent = []
    for late in (10.0, 10.0 + AGAIN_SECONDS / 2, 11.0 + AGAIN_SECONDS):
        async with webhook() as hook:
            leader = Leader(hook.url, now=T0 + late)
            leader.see(admitted)
            async with leader.leading():
                leader.see(life()[-2])
                await eventually(lambda leader=leader: len(leader.events) == 0)
            sent.append([each["id"] for each in hook.events])
    assert sent[0] == sent[1]
    assert len(sent[0]) == 1
    assert sent[2] == []


async def test_an_event_is_sent_until_it_is_taken() -> None:
    """A webhook that answers 503 or 429 may take it later; the order stays."""
    async with webhook(503, 429, 500) as hook:
        leader = Leader(hook.url)
        async with leader.leading():
            leader.see(*life())
            await eventually(lambda: leader.events.stats.sent == 3)
        assert (len(hook.events), hook.attempts) == (3, 6)
        stats = leader.events.stats
        assert (stats.failures, stats.failing) == (3, "")


async def test_a_refused_event_is_not_sent_again() -> None:
    """400 will be 400 the next time too."""
    async with webhook(400) as hook:
        leader = Leader(hook.url)
        async with leader.leading():
            leader.see(*life())
            await eventually(lambda: len(hook.events) == 2)
        assert leader.events.stats.dropped["refused"] == 1


async def test_a_redirect_is_not_followed() -> None:
    """Where requests go is said by the administrator's file alone."""
    async with webhook(302) as hook:
        leader = Leader(hook.url)
        async with leader.leading():
            leader.see(*life())
            await eventually(lambda: len(hook.events) == 2)
        assert (hook.elsewhere, leader.events.stats.dropped["refused"]) == (0, 1)


async def test_a_webhook_that_is_away_costs_a_bounded_queue() -> None:
    """What does not fit is dropped and counted, and what waits for too long is given up."""
    async with webhook() as hook:
        gone = hook.url
    leader = Leader(gone, waiting=2, give_up_seconds=0.05)
    async with leader.leading():
        leader.see(*life())
        assert (len(leader.events), leader.events.stats.dropped["full"]) == (2, 1)
        await eventually(lambda: leader.events.stats.dropped["failed"] == 2)
    assert "Cannot connect" in leader.events.stats.failing


async def test_the_token_is_read_from_its_file_every_time(tmp_path: Path) -> None:
    """A mounted Secret is renewed while the process runs."""
    file = tmp_path / "token"
    file.write_text("one\n")
    async with webhook() as hook:
        leader = Leader(hook.url, token_file=file)
        async with leader.leading():
            leader.see(*life()[:3])
            await eventually(lambda: len(hook.events) == 1)
            file.write_text("two\n")
            leader.see(*life()[3:])
            await eventually(lambda: len(hook.events) == 3)
    assert [each["Authorization"] for each in hook.headers] == ["Bearer one", "Bearer two", "Bearer two"]
