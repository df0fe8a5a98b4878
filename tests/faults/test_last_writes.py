"""The end of a term: what was being written lands before another may lead, and nothing is begun any more."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from testbed import ControlPlane
from tests.cluster.desk import Desk
from tests.cluster.test_executor import job, label
from tests.faults.proxy import Proxy, Request, black_hole, held, passed
from turnstile.api.core import Job
from turnstile.kube import auth
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]


def writes(request: Request) -> bool:
    """Patches."""
    return request.method == "PATCH"


@pytest_asyncio.fixture
async def proxy(schema_server: ControlPlane) -> AsyncIterator[Proxy]:
    """Between the leader and the API server."""
    async with Proxy(await auth.connect(str(schema_server.kubeconfig()))) as made:
        yield made


@pytest_asyncio.fixture
async def at(schema_server: ControlPlane, proxy: Proxy) -> AsyncIterator[Desk]:
    """A desk with one suspended Job, `train`."""
    async with Transport(proxy.access) as transport:
        made = Desk(transport, schema_server.namespace("last"))
        await made.create(Job, job("train"))
        yield made


async def begun(proxy: Proxy) -> None:
    """Wait until a write has reached the proxy."""
    async with asyncio.timeout(5):
        while not any(map(writes, proxy.requests)):  # noqa: ASYNC110  the proxy has no event for it
            await asyncio.sleep(0.005)


async def test_a_write_that_was_begun_lands_before_the_end(at: Desk, proxy: Proxy) -> None:
    """The server takes its time; whoever ends the term waits for its answer."""
    gate = asyncio.Event()
    proxy.plan(held(gate, passed), applies=writes)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(at.carry_out(label(at, "last")))
        await begun(proxy)
        ending = group.create_task(at.executor.drain(at_most=10.0))
        await asyncio.sleep(0)
        assert not ending.done()
        gate.set()
        await ending
        assert not at.fence.kept
        writing.cancel()
    assert (await at.see(Job, "train")).metadata.labels["l"] == "last"


async def test_no_write_is_begun_after_the_end(at: Desk, proxy: Proxy) -> None:
    """It waits until its task is cancelled; it fails nobody, and nothing of it is sent."""
    await at.executor.drain(at_most=10.0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await at.carry_out(label(at, "late"))
    assert not any(map(writes, proxy.requests))


async def test_a_server_that_does_not_answer_holds_the_end_up_for_so_long_only(at: Desk, proxy: Proxy) -> None:
    """The next leader is not kept waiting for ever."""
    proxy.plan(black_hole, applies=writes)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(at.carry_out(label(at, "lost")))
        await begun(proxy)
        started = time.monotonic()
        await at.executor.drain(at_most=0.2)
        assert 0.2 <= time.monotonic() - started < 2.0
        assert at.fence.kept  # the write may land yet: the next leader waits until the Lease has expired
        writing.cancel()


async def test_a_lease_that_is_lost_already_is_not_waited_for(at: Desk, proxy: Proxy) -> None:
    """Another leads; there is nothing to give back in order."""
    proxy.plan(black_hole, applies=writes)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(at.carry_out(label(at, "lost")))
        await begun(proxy)
        at.fence.close()
        async with asyncio.timeout(2.0):
            await at.executor.drain(at_most=60.0)
        writing.cancel()
