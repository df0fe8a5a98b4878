"""Spans reach a collector by OTLP, which decodes them by OpenTelemetry's own messages; nothing waits for it."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.collector import Collector, collector
from tests.unit.engine import builders as b
from tests.unit.recorder.lives import T0, life
from turnstile.api.workload import Workload
from turnstile.kube.store import Store
from turnstile.process.configured import TraceOptions
from turnstile.process.tracing import AGAIN_SECONDS, Tracing

pytestmark = pytest.mark.asyncio
UID = "5e3f3d4a-7c1c-4a51-9a39-0a7bb0f2f7d1"


class Leader:
    """The Workloads of a leader, and its traces."""

    def __init__(self, url: str, *, now: float = T0, **limits: Any) -> None:
        self.workloads: Store[Workload] = Store()
        self.version = 0
        options = TraceOptions(url, {"k8s.cluster.name": "test"})
        clock = lambda: datetime.fromtimestamp(now, UTC)  # noqa: E731 -- said in place
        self.tracing = Tracing(options, clock=clock, gather_seconds=0.01, **limits)

    def see(self, *versions: Workload | None) -> None:
        """The watch delivers versions of a Workload, None for its deletion."""
        for each in versions:
            self.version += 1
            if each is None:
                self.workloads.delete("team/w", resource_version=str(self.version))
            else:
                meta = {"resourceVersion": str(self.version), "uid": UID}
                self.workloads.observe(b.changed(each, metadata=meta))

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """A term."""
        task = asyncio.create_task(self.tracing.run(self.workloads))
        await asyncio.sleep(0)
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            self.tracing.close()


async def eventually(look: Callable[[], bool]) -> None:
    """Wait for the collector."""
    async with asyncio.timeout(60):
        while not look():  # noqa: ASYNC110 -- a thread has no event of ours
            await asyncio.sleep(0.01)


async def test_a_life_is_a_trace_in_the_collector() -> None:
    """As OpenTelemetry's own messages decode it."""
    with collector() as made:
        leader = Leader(made.url)
        async with leader.leading():
            leader.see(*life())
            await eventually(lambda: leader.tracing.stats.sent == 6)
        names = [each.name for each in made.spans]
        assert names == ["queued", "running", "evicted", "queued", "running", "workload"]
        assert {each.trace_id.hex() for each in made.spans} == {UID.replace("-", "")}
        root = made.spans[-1]
        assert root.parent_span_id == b""
        assert {each.parent_span_id for each in made.spans[:-1]} == {root.span_id}
        assert made.spans[1].start_time_unix_nano == round((T0 + 10) * 1e9)
        assert made.resource == {"service.name": "turnstile", "k8s.cluster.name": "test"} | {
            key: value for key, value in made.resource.items() if key == "service.version"
        }
        assert (leader.tracing.stats.sent, leader.tracing.stats.dropped) == (6, 0)


async def test_only_what_ended_minutes_ago_is_sent_again_by_the_next_leader() -> None:
    """All Workloads that are over would else be sent with each change of leader."""

    async def sent(late: float, made: Collector) -> list[str]:
        leader = Leader(made.url, now=T0 + late)
        leader.see(life()[-2])
        async with leader.leading():
            await eventually(lambda: not len(leader.tracing))
        return [each.name for each in made.spans]

    with collector() as made:
        assert await sent(61 + AGAIN_SECONDS, made) == []


async def test_a_collector_that_does_not_take_spans_costs_a_bounded_queue() -> None:
    """Spans that do not fit, and those that are refused, are counted."""
    with collector(status=400) as made:
        leader = Leader(made.url, waiting=4)
        async with leader.leading():
            leader.see(*life())
            await eventually(lambda: leader.tracing.stats.dropped == 6)
        assert leader.tracing.stats.failing


async def test_nothing_of_opentelemetry_is_imported_without_traces() -> None:
    """A process that is not asked for them does not pay for them."""
    code = "import sys, turnstile.main; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.DEVNULL)
    assert await ended.wait() == 0
