"""What falls silent in a process is seen: in the probes, in the metrics, and in one line of the log now and then."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import structlog

from tests.unit.engine import builders as b
from tests.unit.test_metrics_page import Process
from tests.waiting import until
from turnstile.api.core import Job, Namespace
from turnstile.api.errors import ConnectionLost, Invalid
from turnstile.kube import auth
from turnstile.kube.candidacy import Candidacy
from turnstile.kube.fence import Fence
from turnstile.kube.transport import Transport
from turnstile.process.watchdog import Watchdog

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class Watched:
    """A process that leads, with a watchdog whose patience is a moment."""

    def __init__(self, transport: Transport, **patience: float) -> None:
        async def connect() -> Transport:
            return transport

        self.process = Process(transport)
        self.candidacy = Candidacy(connect, namespace="n", name="l", identity="i")
        loop = asyncio.get_running_loop()
        self.candidacy.stats.fence = Fence(clock=loop.time, epoch=1, renewed_at=loop.time(), span=600.0)
        self.watchdog = Watchdog(
            self.process.caches,
            candidacy=self.candidacy,
            term=lambda: self.process.term,
            **{"unable_seconds": 0.05, "unwatched_seconds": 0.05, "stalled_seconds": 0.05, **patience},
        )

    def suspend(self) -> None:
        """The Lease was not renewed in time."""
        loop = asyncio.get_running_loop()
        self.candidacy.stats.fence = Fence(clock=loop.time, epoch=1, renewed_at=loop.time() - 20.0, span=10.0)
        self.candidacy.stats.failure = "no answer within 5.0 s"

    async def check(self, *, lines: int) -> list[Any]:
        """Let the watchdog look until it has logged so many lines."""
        with structlog.testing.capture_logs() as logs:
            async with asyncio.timeout(60):
                while len(logs) < lines:
                    await self.pause(0.005)
        return logs

    async def pause(self, seconds: float) -> None:
        """Let the watchdog look, and again after so many seconds."""
        self.watchdog.check()
        await asyncio.sleep(seconds)
        self.watchdog.check()


@pytest_asyncio.fixture
async def transport() -> AsyncIterator[Transport]:
    """To nowhere."""
    async with Transport(auth.Access("http://127.0.0.1:1", None, auth.Fixed("Bearer t"))) as made:
        yield made


@pytest_asyncio.fixture
async def watched(transport: Transport) -> Watched:
    """One that has nothing to complain of."""
    return Watched(transport)


async def test_a_process_that_works_is_quiet(watched: Watched) -> None:
    """Nothing is logged, nothing is noted, and the probes succeed."""
    watchdog = watched.watchdog
    with structlog.testing.capture_logs() as logs:
        await watched.pause(0.1)
    assert logs == []
    assert (watchdog.dead(), watchdog.notes(), watchdog.unable(), watchdog.unwatched()) == ({}, [], "", "")
    assert watchdog.unable_for == 0.0


class TestALeaderThatCannotWrite:
    """Because its term is suspended, or because its writes fail."""

    async def test_a_suspended_term_is_noted_at_once_and_a_fault_later(self, watched: Watched) -> None:
        """With the cause; nothing of it is left when a renewal succeeds."""
        watched.suspend()
        watched.watchdog.check()
        (note,) = watched.watchdog.notes()
        assert "the Lease was not renewed for 20 s: no answer within 5.0 s" in note
        assert watched.watchdog.unable() == ""
        logs = await watched.check(lines=2)
        assert {entry["event"] for entry in logs} == {"leader.cannot_write"}
        assert logs[0]["cause"] == "the Lease was not renewed for 20 s: no answer within 5.0 s"
        assert "API server" in logs[0]["cure"]
        assert "not renewed" in watched.watchdog.unable()
        assert watched.watchdog.unable_for > 0.05
        assert watched.watchdog.dead() == {}
        fence = watched.candidacy.stats.fence
        assert fence is not None
        fence.extend(asyncio.get_running_loop().time())
        logs = await watched.check(lines=1)
        assert [entry["event"] for entry in logs] == ["leader.writes_again"]
        assert (watched.watchdog.notes(), watched.watchdog.unable()) == ([], "")

    async def test_one_line_in_a_while(self, transport: Transport) -> None:
        """However often it looks."""
        watched = Watched(transport, unable_seconds=0.2)
        watched.suspend()
        began = asyncio.get_running_loop().time()
        await watched.check(lines=3)
        assert asyncio.get_running_loop().time() - began >= 0.6

    async def test_writes_that_fail_are_a_cause(self, transport: Transport) -> None:
        """Until one succeeds."""
        watched = Watched(transport, unable_seconds=0.3)
        executor = watched.process.executor
        watched.watchdog.check()
        executor.report(Job, "ns/a", ConnectionLost("PATCH: refused"))
        watched.watchdog.check()
        assert "Job ns/a: PATCH: refused" in watched.watchdog.cause
        executor.stats.writes["Job", "patch"] += 1
        watched.watchdog.check()
        assert watched.watchdog.cause == ""

    async def test_a_failure_that_is_not_repeated_is_forgotten(self, watched: Watched) -> None:
        """There may be nothing left to write."""
        watched.watchdog.check()
        watched.process.executor.report(Job, "ns/a", ConnectionLost("PATCH: refused"))
        await watched.pause(0.1)
        assert watched.watchdog.cause == ""

    async def test_a_refusal_of_one_object_is_no_cause(self, watched: Watched) -> None:
        """Others are written."""
        watched.watchdog.check()
        watched.process.executor.report(Job, "ns/a", Invalid(422, "Invalid", "no"))
        watched.watchdog.check()
        assert watched.watchdog.cause == ""


@pytest.mark.looptime(False)
async def test_a_scheduler_with_work_that_does_not_turn_is_dead(watched: Watched) -> None:
    """One that waits for work, for however long, is not."""
    scheduler = watched.process.leader.scheduler
    looked = asyncio.Event()
    dead: list[dict[str, str]] = []

    def hold_up(_decisions: object, _seconds: float) -> None:
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            pass
        dead.append(watched.watchdog.dead())
        looked.set()

    running = asyncio.ensure_future(scheduler.run())
    try:
        await scheduler.caught_up()
        await until(lambda: not watched.watchdog.dead(), what="it does not rest")
        await asyncio.sleep(0.1)
        assert watched.watchdog.dead() == {}
        scheduler.decided = hold_up
        state = scheduler.state
        state.put_namespace("team", {})
        state.put_flavor(b.flavor())
        state.put_cluster_queue(b.queue("main"), b.NOW)
        state.put_local_queue(b.local("main", "main"), b.NOW)
        state.put_workload(b.workload("large", cpu=20), b.NOW)
        scheduler.wake()
        await looked.wait()
        assert "no progress for" in dead[0]["scheduler"]
        scheduler.decided = lambda *_: None
        await until(lambda: not watched.watchdog.dead(), what="it does not rest again")
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_a_kind_that_cannot_be_watched_for_long_is_a_fault(watched: Watched) -> None:
    """At first it is a note."""
    cache = next(each for each in watched.process.caches.all if each.kind is Namespace)
    cache.reflector.failed(ConnectionLost("WATCH: refused"))
    watched.watchdog.check()
    assert watched.watchdog.unwatched() == ""
    assert watched.watchdog.notes() == ["namespaces (WATCH: refused)"]
    await watched.pause(0.1)
    assert watched.watchdog.unwatched() == "cannot be watched: namespaces"
    cache.reflector.error = None
    watched.watchdog.check()
    assert watched.watchdog.unwatched() == ""


async def test_a_watch_that_fell_silent_is_a_fault(transport: Transport) -> None:
    """The server says something, or ends the watch, at least every 80 seconds, also of a kind that does not change."""
    watched = Watched(transport, silent_seconds=240.0)
    cache = next(each for each in watched.process.caches.all if each.kind is Namespace)
    now = asyncio.get_running_loop().time()
    cache.reflector.last_contact = now - 200.0
    assert watched.watchdog.unwatched() == ""
    cache.reflector.last_contact = now - 241.0
    assert watched.watchdog.unwatched() == "nothing heard for 240 s: namespaces"
