"""A store is shown to have all that the server had, whatever its watch has delivered, and without a second read."""

import asyncio

import pytest

from tests.faults.proxy import Proxy, Request, answer, black_hole, deafened, held, passed, stream
from tests.faults.wire.world import (
    GONE,
    ConfigMap,
    config,
    contents,
    mirror,
    new_namespace,
    resumes,
    running,
    starts,
    until,
)
from turnstile.kube.reflector import FEW
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]

MANY = FEW + 5


def short(request: Request) -> bool:
    """Applies a fault to watches that are resumed with a short end."""
    return resumes(request) and int(request.query["timeoutSeconds"]) < 60


def asks(request: Request) -> bool:
    """Applies a fault to the question for the newest version."""
    return request.query.get("limit") in ("1", str(2 * FEW))


def full_reads(proxy: Proxy) -> int:
    """Watches with all objects, and pages, that were requested."""
    return sum("sendInitialEvents" in each.query or "limit" in each.query for each in proxy.requests)


async def many(direct: Transport, namespace: str, number: int = MANY) -> None:
    """So many ConfigMaps that they are not simply read once more."""
    for each in range(number):
        await direct.create(ConfigMap, namespace, config(f"m{each:03}"))


async def test_few_objects_are_read_in_one_request(
    proxy: Proxy, through: Transport, direct: Transport, namespace: str
) -> None:
    """What came, changed and went while a watch was silent is known, and the watch itself is left alone."""
    await direct.create(ConfigMap, namespace, config("goes"))
    await direct.create(ConfigMap, namespace, config("changes"))
    silence = asyncio.Event()
    proxy.plan(deafened(silence), applies=lambda request: request.watch)
    store, reflector = mirror(through, namespace, idle_timeout=60.0)
    async with running(reflector):
        await until(reflector.synced.is_set)
        silence.set()
        await direct.delete(ConfigMap, "goes", namespace)
        await direct.patch(ConfigMap, "changes", namespace, {"data": {"to": "this"}})
        await direct.create(ConfigMap, namespace, config("comes"))
        await reflector.freshness.show()
        assert contents(store) == {"changes": {"to": "this"}, "comes": {}}
        assert len(proxy.watches) == 1
        assert store.complete


async def test_a_calm_kind_is_shown_by_a_bookmark(
    proxy: Proxy, through: Transport, direct: Transport, namespace: str
) -> None:
    """Its watch is resumed with a short end, which costs two requests however many objects there are."""
    await many(direct, namespace)
    silence = asyncio.Event()
    proxy.plan(deafened(silence), applies=starts)  # or it may send a bookmark of its own accord
    store, reflector = mirror(through, namespace)
    async with running(reflector):
        await until(reflector.synced.is_set)
        silence.set()
        await new_namespace(direct)  # a later version, of another kind
        before = len(proxy.requests)
        await reflector.freshness.show()
        assert [each.query.get("limit") for each in proxy.requests[before:]] == ["1", None]
        assert short(proxy.requests[-1])
        await until(lambda: resumes(proxy.requests[-1]) and not short(proxy.requests[-1]))
        assert reflector.relisted == 1
        assert len(contents(store)) == MANY


async def test_a_kind_with_changes_is_shown_by_its_own_watch(
    proxy: Proxy, through: Transport, direct: Transport, namespace: str
) -> None:
    """The watch that there is passes the version, and is not resumed."""
    await many(direct, namespace)
    _store, reflector = mirror(through, namespace)
    gate = asyncio.Event()
    async with running(reflector):
        await until(reflector.synced.is_set)
        proxy.plan(held(gate, passed), applies=asks)
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(reflector.freshness.show())
            await until(lambda: asks(proxy.requests[-1]))
            gate.set()
            while not showing.done():
                await direct.patch(ConfigMap, "m000", namespace, {"data": {"at": str(len(proxy.requests))}})
                await asyncio.sleep(0.02)
        assert not any(map(short, proxy.requests))


async def test_a_watch_that_has_stalled_is_replaced(
    proxy: Proxy, through: Transport, direct: Transport, namespace: str
) -> None:
    """The store is not complete until what the stalled watch kept back has arrived."""
    await many(direct, namespace)
    silence, gate = asyncio.Event(), asyncio.Event()
    proxy.plan(deafened(silence), applies=lambda request: request.watch)
    store, reflector = mirror(through, namespace, idle_timeout=60.0)
    async with running(reflector):
        await until(reflector.synced.is_set)
        silence.set()
        proxy.plan(held(gate, passed), applies=resumes)
        await direct.create(ConfigMap, namespace, config("late"))
        async with asyncio.TaskGroup() as group:
            reflector.doubt_freshness()
            showing = group.create_task(reflector.freshness.show())
            await until(lambda: any(map(short, proxy.requests)))
            assert not store.complete
            assert not showing.done()
            assert "version" in reflector.freshness.waits_for
            gate.set()
        assert store.complete
        assert "late" in contents(store)
        assert reflector.relisted == 1


async def test_a_question_that_fails_is_asked_again(
    proxy: Proxy, through: Transport, direct: Transport, namespace: str
) -> None:
    """And the answer that comes then counts; nothing else is taken for one."""
    await many(direct, namespace, 2)
    store, reflector = mirror(through, namespace)
    refusal = answer("429 Too Many Requests", Retry_After="0")
    proxy.plan(refusal, answer("504 Gateway Timeout", b"<html>"), applies=asks)
    async with running(reflector):
        await until(reflector.synced.is_set)
        reflector.doubt_freshness()
        await reflector.freshness.show()
        assert store.complete
    assert len([each for each in proxy.requests if asks(each)]) == 3


async def test_a_version_that_is_too_old_costs_a_full_read(
    proxy: Proxy, through: Transport, direct: Transport, namespace: str
) -> None:
    """Which shows the store to be fresh as well."""
    await many(direct, namespace)
    store, reflector = mirror(through, namespace)
    proxy.plan(answer("410 Gone", GONE), applies=short)
    silence = asyncio.Event()
    proxy.plan(deafened(silence), applies=starts)
    async with running(reflector):
        await until(reflector.synced.is_set)
        silence.set()
        await new_namespace(direct)  # a later version, of another kind
        reflector.doubt_freshness()
        await reflector.freshness.show()
        assert store.complete
        assert reflector.relisted == 2


async def test_a_server_that_sends_no_bookmarks_is_listed(
    proxy: Proxy, through: Transport, direct: Transport, namespace: str
) -> None:
    """After several watches that ended without any."""
    await many(direct, namespace)
    store, reflector = mirror(through, namespace)
    proxy.plan(stream(), applies=short, times=float("inf"))
    silence = asyncio.Event()
    proxy.plan(deafened(silence), applies=starts)
    async with running(reflector):
        await until(reflector.synced.is_set)
        silence.set()
        await new_namespace(direct)  # a later version, of another kind
        reflector.doubt_freshness()
        await reflector.freshness.show()
        assert store.complete
        assert reflector.relisted == 2


async def test_a_doubt_ends_with_the_one_who_had_it(proxy: Proxy, through: Transport, namespace: str) -> None:
    """A leader that loses its Lease leaves a store that is complete, as before its term."""
    store, reflector = mirror(through, namespace)
    proxy.plan(black_hole, applies=asks)
    async with running(reflector):
        await until(reflector.synced.is_set)
        reflector.doubt_freshness()
        showing = asyncio.create_task(reflector.freshness.show())
        await until(lambda: asks(proxy.requests[-1]))
        assert not store.complete
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)
        assert store.complete
