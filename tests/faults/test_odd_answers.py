"""Answers that are not the API server's word about an object: pages of proxies, versions that are not served, bodies
that cannot be read. None of them is believed, and none of them ends anything."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from testbed import ControlPlane
from tests.cluster.desk import Desk
from tests.cluster.test_executor import job, label, seen
from tests.cluster.test_lease import Candidate, campaigning
from tests.faults.proxy import Exchange, Fault, Proxy, Request, answer
from tests.faults.racing import Desk as Races
from tests.faults.racing import racing
from tests.waiting import until
from turnstile.api.core import Job
from turnstile.api.errors import Conflict, NotFound, NotServed, Unproven, Unreadable
from turnstile.controllers.runtime.actions import Create, Delete
from turnstile.kube import auth
from turnstile.kube.cache import Cache, Scope, State
from turnstile.kube.gate import Rank
from turnstile.kube.transport import Transport
from turnstile.release.reading import Reading

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]

HTML = b"<html><body><h1>404 Not Found</h1></body></html>"
NOT_SERVED = (
    b'{"kind":"Status","code":404,"reason":"NotFound","details":{},'
    b'"message":"the server could not find the requested resource"}'
)
ANOTHER = (
    b'{"kind":"Status","code":404,"reason":"NotFound","message":"x not found",'
    b'"details":{"name":"another","kind":"pods"}}'
)
PAGES = {
    "plain": answer("404 Not Found", b"404 page not found\n", content_type="text/plain"),
    "html": answer("404 Not Found", HTML, content_type="text/html"),
    "not served": answer("404 Not Found", NOT_SERVED),
    "another object": answer("404 Not Found", ANOTHER),
}
GARBLED = {
    "cut": b'{"metadata":{"name":"fir',
    "wrong types": b'{"metadata":{"name":5}}',
    "html": HTML,
    "empty": b"",
    "another object": b'{"metadata":{"name":"another","uid":"x","resourceVersion":"1"}}',
    "no object": b'{"status":{}}',
    "no text": b'{"metadata":{"name":"\xff"}}',
}
each_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
each_body = pytest.mark.parametrize("body", GARBLED.values(), ids=GARBLED)


def garbled(body: bytes) -> Fault:
    """Let the server carry the request out, and answer something else with 200."""

    async def fault(exchange: Exchange) -> bool:
        upstream = await exchange.forward()
        try:
            await upstream.chunk()
        finally:
            await upstream.close()
        return await answer("200 OK", body)(exchange)

    return fault


def writes(request: Request) -> bool:
    """Requests that change something."""
    return request.method in ("PATCH", "POST", "DELETE", "PUT")


@pytest_asyncio.fixture
async def proxy(schema_server: ControlPlane) -> AsyncIterator[Proxy]:
    """Between Turnstile and the API server."""
    async with Proxy(await auth.connect(str(schema_server.kubeconfig()))) as made:
        yield made


@pytest_asyncio.fixture
async def direct(schema_server: ControlPlane) -> AsyncIterator[Transport]:
    """Straight to the API server."""
    async with await Transport.connect(str(schema_server.kubeconfig())) as transport:
        yield transport


@pytest_asyncio.fixture
async def at(schema_server: ControlPlane, proxy: Proxy) -> AsyncIterator[Desk]:
    """A desk with one suspended Job, `train`."""
    namespace = schema_server.namespace("odd")
    async with Transport(proxy.access) as transport:
        made = Desk(transport, namespace)
        await made.create(Job, job("train"))
        yield made
    schema_server.api.delete(f"/api/v1/namespaces/{namespace}")


@pytest_asyncio.fixture
async def races(schema_server: ControlPlane) -> AsyncIterator[Races]:
    """A scheduler that runs, and quota for three cpus."""
    async with racing(schema_server) as made:
        yield made


class TestAPageOf404:
    """`NotFound` is about the object that was named; every other 404 is in doubt."""

    @each_page
    async def test_does_not_count_as_success_of_a_write(self, at: Desk, proxy: Proxy, page: Fault) -> None:
        """The decision fails and is made again after a back-off; its object stays in the store."""
        actions: tuple[Any, ...] = (
            label(at, "a"),
            Create(Job, at.namespace, "new", b'{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"new"}}'),
            Delete(Job, at.namespace, "train"),
        )
        for action in actions:
            proxy.plan(page, applies=writes)
            with pytest.raises(NotServed):
                await at.carry_out(action)
        assert seen(at).metadata.name == "train"

    @each_page
    async def test_does_not_drop_a_deferred_patch(self, at: Desk, proxy: Proxy, page: Fault) -> None:
        """It is sent again."""
        proxy.plan(page, applies=writes, times=2)
        housekeeping = asyncio.create_task(at.executor.run())
        try:
            await at.carry_out(label(at, "later", deferrable=True))
            async with asyncio.timeout(10):
                while seen(at).metadata.labels.get("l") != "later":  # noqa: ASYNC110  the store has no event for it
                    await asyncio.sleep(0.01)
        finally:
            housekeeping.cancel()
            await asyncio.gather(housekeeping, return_exceptions=True)

    @each_page
    async def test_does_not_end_a_read_before_a_write(self, at: Desk, proxy: Proxy, page: Fault) -> None:
        """That an object is gone is learned from an answer that names it."""
        proxy.plan(page, applies=lambda request: request.method == "GET")
        with pytest.raises(NotServed):
            await at.executor.update(Job, f"{at.namespace}/none", lambda found: None, rank=Rank.START)
        with pytest.raises(NotFound):
            await at.executor.update(Job, f"{at.namespace}/none", lambda found: None, rank=Rank.START)

    @each_page
    async def test_does_not_lose_an_admission(self, races: Races, page: Fault) -> None:
        """Its quota stays assumed, it is sent again at a measured pace, and takes effect in the end."""
        races.proxy.plan(page, times=4, applies=races.patches("first"))
        await races.workload("first", pods=3)
        await races.asked("first", times=2)
        await races.workload("other", pods=3)
        await races.eventually("first", lambda w: w.quota_reserved)
        assert races.sent("first") == 5
        assert not (await races.see("other")).quota_reserved

    @each_page
    async def test_does_not_make_a_preemptor_wait_for_ever(self, races: Races, page: Fault) -> None:
        """The eviction is written again until the victim is seen evicted."""
        await races.workload("first", pods=3)
        await races.eventually("first", lambda w: w.quota_reserved)
        races.proxy.plan(page, times=3, applies=races.patches("first"))
        await races.workload("urgent", pods=3, priority=10)
        await races.eventually("first", lambda w: w.evicted)

    async def test_does_not_lose_the_reason_why_a_workload_waits(self, races: Races) -> None:
        """It is written when the server answers again."""
        races.proxy.plan(PAGES["plain"], times=3, applies=races.patches("waits"))
        await races.workload("waits", pods=5)
        await races.eventually("waits", lambda w: bool(w.status.conditions))

    @pytest.mark.parametrize("page", [PAGES["plain"], PAGES["not served"]], ids=["plain", "not served"])
    async def test_does_not_end_a_term(self, proxy: Proxy, schema_server: ControlPlane, page: Fault) -> None:
        """A Lease is deleted when an answer names it; else it is renewed at the next attempt."""
        namespace = schema_server.namespace("odd")
        async with Transport(proxy.access) as transport:
            one = Candidate(transport, namespace, "one")
            async with campaigning(one):
                await until(lambda: one.leading, seconds=10, what="nobody leads")
                proxy.plan(page, applies=writes)
                await until(lambda: one.elector.stats.failed, seconds=5, what="no renewal has failed")
                renewed = one.elector.stats.renewed
                await until(lambda: one.elector.stats.renewed > renewed, seconds=5, what="not renewed again")
                assert len(one.fences) == 1
                assert not one.fences[0].closed
        schema_server.api.delete(f"/api/v1/namespaces/{namespace}")


class TestAKindThatSeemsToBeAbsent:
    """That a kind is absent is learned from what names all kinds: its definition, or discovery."""

    @each_page
    async def test_keeps_its_objects(
        self, proxy: Proxy, schema_server: ControlPlane, direct: Transport, page: Fault
    ) -> None:
        """A page in the place of its watch is a failure, until the server answers again."""
        namespace = schema_server.namespace("odd")
        await direct.create(Job, namespace, {"apiVersion": "batch/v1", "kind": "Job", **job("held")})
        async with Transport(proxy.access) as transport:
            cache = Cache(transport, Job, Scope(namespace=namespace, optional=True))
            running = asyncio.create_task(cache.run(None))
            await until(cache.reflector.synced.is_set, seconds=10, what="not read")
            proxy.plan(page, applies=lambda request: "jobs" in request.path, times=3)
            proxy.cut_watches()
            await until(lambda: cache.standing.state is State.FAILING, seconds=10, what="nothing fails")
            await until(lambda: cache.standing.state is State.SYNCED, seconds=20, what="not read again")
            assert not cache.dormant
            assert cache.store.keys() == [f"{namespace}/held"]
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        schema_server.api.delete(f"/api/v1/namespaces/{namespace}")

    async def test_is_no_reason_to_leave_its_objects_as_they_are(self, proxy: Proxy) -> None:
        """Whoever undoes what was done to objects is told that they could not be read, unless there are none."""
        async with Transport(proxy.access) as transport:
            reading = Reading(transport)
            proxy.plan(PAGES["plain"], times=2)
            with pytest.raises(NotServed):
                await reading.items("/api/v1/pods")
            with pytest.raises(NotServed):
                await reading.get("/api/v1/namespaces/default")
            assert await reading.items("/apis/none.example.com/v1/things") == []
            assert await reading.get("/apis/apps/v1/nothings/x") is None
            assert await reading.get("/api/v1/namespaces/none") is None


class TestOtherRefusalsWithoutAnObject:
    """The same holds of 400, 403, 409, 410 and 422."""

    @pytest.mark.parametrize("status", ["400 Bad Request", "403 Forbidden", "409 Conflict", "410 Gone", "422 Invalid"])
    async def test_prove_nothing(self, at: Desk, proxy: Proxy, status: str) -> None:
        """A page with such a code is in doubt: the same write is sent again."""
        for action in (label(at, "a"), Delete(Job, at.namespace, "train")):
            proxy.plan(answer(status, HTML, content_type="text/html"), applies=writes)
            with pytest.raises(Unproven):
                await at.carry_out(action)
        await at.carry_out(label(at, "a"))
        assert seen(at).metadata.labels["l"] == "a"

    async def test_of_a_deletion_is_looked_into(self, at: Desk, proxy: Proxy) -> None:
        """A conflict counts as a deletion only if the object has another uid by now."""
        told = (
            '{"kind":"Status","code":409,"reason":"Conflict","message":"busy",'
            '"details":{"name":"train","group":"batch","kind":"jobs"}}'
        )
        proxy.plan(answer("409 Conflict", told.encode()), applies=writes)
        with pytest.raises(Conflict, match="busy"):
            await at.carry_out(Delete(Job, at.namespace, "train", uid=seen(at).metadata.uid))


class TestAnAnswerThatCannotBeRead:
    """It is in doubt like a lost one."""

    @each_body
    async def test_is_an_error_of_the_wire(self, at: Desk, proxy: Proxy, body: bytes) -> None:
        """Of reads and writes alike; nothing of it reaches the store."""
        before = seen(at)
        proxy.plan(answer("200 OK", body), times=4)
        with pytest.raises(Unreadable):
            await at.transport.get(Job, "train", at.namespace)
        actions: tuple[Any, ...] = (label(at, "a"), Delete(Job, at.namespace, "train"))
        for action in actions:
            with pytest.raises(Unreadable):
                await at.carry_out(action)
        assert at.stores[Job].values() == [before]
        proxy.clear()

    @each_body
    async def test_holds_the_quota_of_an_admission_until_it_is_known(self, races: Races, body: bytes) -> None:
        """The write is sent again, which shows that it took effect; afterwards its quota is free again."""
        races.proxy.plan(garbled(body), times=2, applies=races.patches("first"))
        await races.workload("first", pods=3)
        await races.eventually("first", lambda w: w.quota_reserved)
        await races.workload("second", pods=3)
        assert not (await races.eventually("second", lambda w: bool(w.status.conditions))).quota_reserved
        await races.direct.delete(type(await races.see("first")), "first", races.namespace)
        await races.eventually("second", lambda w: w.quota_reserved)

    @each_body
    async def test_does_not_leak_the_quota_of_what_was_not_written(self, races: Races, body: bytes) -> None:
        """The write is sent again until the server takes it."""
        races.proxy.plan(answer("200 OK", body), times=2, applies=races.patches("first"))
        await races.workload("first", pods=3)
        await races.eventually("first", lambda w: w.quota_reserved)

    @pytest.mark.parametrize("body", [GARBLED["no object"], GARBLED["another object"], GARBLED["no text"]])
    async def test_does_not_end_a_term(self, proxy: Proxy, schema_server: ControlPlane, body: bytes) -> None:
        """Whoever holds the Lease is read from an answer that names the Lease."""
        namespace = schema_server.namespace("odd")
        async with Transport(proxy.access) as transport:
            one = Candidate(transport, namespace, "one")
            async with campaigning(one):
                await until(lambda: one.leading, seconds=10, what="nobody leads")
                proxy.plan(answer("200 OK", body), times=2)
                await until(lambda: one.elector.stats.failed, seconds=5, what="no renewal has failed")
                renewed = one.elector.stats.renewed
                await until(lambda: one.elector.stats.renewed > renewed, seconds=5, what="not renewed again")
                assert one.holders == [one.elector.identity]
                assert len(one.fences) == 1
                assert not one.fences[0].closed
        schema_server.api.delete(f"/api/v1/namespaces/{namespace}")
