"""A full read ends, however slow the server is and however often it is cut: only what failed is read again."""

import asyncio

import pytest

from tests.faults.proxy import Exchange, Proxy, Request, answer, cut_in_line, drop, held, lose_answer, passed
from tests.faults.wire.world import ConfigMap, config, contents, mirror, running, starts, until
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]

NAMES = [f"c{number}" for number in range(6)]


def pages(request: Request) -> bool:
    """Applies a fault to the pages of a list."""
    return "limit" in request.query


def further(request: Request) -> bool:
    """Applies a fault to all pages but the first."""
    return "continue" in request.query


async def fill(direct: Transport, namespace: str) -> None:
    """Some ConfigMaps."""
    for name in NAMES:
        await direct.create(ConfigMap, namespace, config(name))


async def test_a_first_list_that_is_cut_goes_on_page_by_page(
    proxy: Proxy, through: Transport, direct: Transport, namespace: str
) -> None:
    """A stream of all objects can only begin anew, and would be cut again; a page that fails is read by itself."""
    await fill(direct, namespace)
    proxy.plan(cut_in_line(0), applies=starts)
    failures = [drop, lose_answer, answer("429 Too Many Requests", Retry_After="0"), answer("503 Service Unavailable")]
    proxy.plan(*failures, applies=further)
    store, reflector = mirror(through, namespace, page_size=2)
    async with running(reflector):
        await until(reflector.synced.is_set)
        assert list(contents(store)) == NAMES
        assert reflector.relisted == 1
    read = [request.query.get("continue", "") for request in proxy.requests if pages(request)]
    assert len(set(read)) == len(read) - len(failures) == 3
    assert read == sorted(read, key=read.index)


async def test_a_slow_page_is_waited_for(proxy: Proxy, through: Transport, direct: Transport, namespace: str) -> None:
    """Longer than any request may take in all: bytes that arrive now and then are progress."""

    async def trickled(exchange: Exchange) -> bool:
        upstream = await exchange.forward()
        try:
            body = upstream.head + await upstream.chunk()
        finally:
            await upstream.close()
        for at in range(0, len(body), 1 + len(body) // 8):
            await exchange.write(body[at : at + 1 + len(body) // 8])
            await asyncio.sleep(0.2)
        return True

    await fill(direct, namespace)
    proxy.plan(trickled, applies=pages)
    async with Transport(proxy.access, timeout=0.5) as impatient:
        store, reflector = mirror(impatient, namespace, streaming_list=False)
        async with running(reflector):
            await until(reflector.synced.is_set)
            assert list(contents(store)) == NAMES
    assert len([request for request in proxy.requests if pages(request)]) == 1


async def test_a_slow_stream_of_all_objects_is_waited_for(
    proxy: Proxy, through: Transport, direct: Transport, namespace: str
) -> None:
    """Its deadline counts from the last object."""

    async def slowed(exchange: Exchange) -> bool:
        upstream = await exchange.forward()
        try:
            await exchange.write(upstream.head)
            while True:
                chunk = await upstream.chunk()
                await asyncio.sleep(0.2)
                await exchange.write(chunk)
        finally:
            await upstream.close()

    await fill(direct, namespace)
    proxy.plan(slowed, applies=starts)
    store, reflector = mirror(through, namespace, sync_timeout=0.6)
    async with running(reflector):
        await until(reflector.synced.is_set)
        assert list(contents(store)) == NAMES
        assert reflector.failures == 0


async def test_a_busy_server_does_not_make_a_reflector_read_everything_again(
    proxy: Proxy, through: Transport, direct: Transport, namespace: str
) -> None:
    """It refuses a watch because of its load, not because of the version."""
    await fill(direct, namespace)
    gate = asyncio.Event()
    store, reflector = mirror(through, namespace, idle_timeout=0.3)
    busy = answer("429 Too Many Requests", Retry_After="0")
    async with running(reflector):
        await until(reflector.synced.is_set)
        proxy.plan(*[busy] * 8, held(gate, passed), applies=lambda request: request.watch)
        await direct.create(ConfigMap, namespace, config("news"))
        await until(lambda: reflector.failures >= 8)
        gate.set()
        await until(lambda: "news" in contents(store))
        assert reflector.relisted == 1
