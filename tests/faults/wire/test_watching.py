"""A reflector keeps its store right, whatever the network or the server does to its watch."""

import asyncio
import itertools
import json

import pytest

from testbed import ControlPlane
from tests.faults.proxy import (
    Fault,
    Proxy,
    answer,
    black_hole,
    cut_in_line,
    half_close,
    held,
    hushed,
    silence_after,
    stream,
    trickle,
)
from tests.faults.wire.world import (
    GONE,
    ConfigMap,
    config,
    contents,
    event,
    mirror,
    new_namespace,
    resumes,
    running,
    starts,
    until,
)
from turnstile.kube.backoff import Backoff
from turnstile.kube.pages import FIRST_PAGE
from turnstile.kube.reflector import FAILURES_BEFORE_RELIST
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]


class TestFollowing:
    """Nothing goes wrong."""

    async def test_the_store_holds_what_the_server_holds(self, direct: Transport, namespace: str) -> None:
        """What was there before, and every change after."""
        await direct.create(ConfigMap, namespace, config("before", x="1"))
        store, reflector = mirror(direct, namespace)
        async with running(reflector):
            await until(reflector.synced.is_set)
            assert contents(store) == {"before": {"x": "1"}}
            await direct.create(ConfigMap, namespace, config("after"))
            await direct.patch(ConfigMap, "before", namespace, {"data": {"x": "2"}})
            await until(lambda: contents(store) == {"after": {}, "before": {"x": "2"}})
            await direct.delete(ConfigMap, "before", namespace)
            await until(lambda: contents(store) == {"after": {}})
            assert reflector.relisted == 1

    async def test_a_selector_narrows_and_what_leaves_it_leaves_the_store(
        self, direct: Transport, namespace: str
    ) -> None:
        """And may come back later under the same uid."""
        store, reflector = mirror(direct, namespace, params={"labelSelector": "mine=yes"})
        async with running(reflector):
            await until(reflector.synced.is_set)
            await direct.create(ConfigMap, namespace, config("a"))
            for label, there in (("yes", ["a"]), ("no", []), ("yes", ["a"])):
                await direct.patch(ConfigMap, "a", namespace, {"metadata": {"labels": {"mine": label}}})
                await until(lambda there=there: contents(store) == {name: {} for name in there})  # type: ignore[misc]

    async def test_the_answer_of_a_write_is_seen_before_the_watch_tells(
        self, direct: Transport, namespace: str
    ) -> None:
        """And the watch's event of the same version makes no second change."""
        store, reflector = mirror(direct, namespace)
        changes: list[str] = []
        async with running(reflector):
            await until(reflector.synced.is_set)
            store.subscribe(lambda key, old, new: changes.append(key))
            seen = reflector.events
            store.observe(await direct.create(ConfigMap, namespace, config("a")))
            store.observe(await direct.create(ConfigMap, namespace, config("b")))
            await until(lambda: reflector.events >= seen + 2)
            assert changes == [f"{namespace}/a", f"{namespace}/b"]

    async def test_a_late_answer_does_not_bring_back_what_was_deleted(self, direct: Transport, namespace: str) -> None:
        """The deletion is newer than any write before it."""
        store, reflector = mirror(direct, namespace)
        async with running(reflector):
            await until(reflector.synced.is_set)
            late = await direct.create(ConfigMap, namespace, config("a"))
            await until(lambda: "a" in contents(store))
            await direct.delete(ConfigMap, "a", namespace)
            await until(lambda: "a" not in contents(store))
            assert not store.observe(late)
            again = await direct.create(ConfigMap, namespace, config("a"))
            store.observe(again)
            assert "a" in contents(store)

    async def test_a_paged_list_serves_where_the_watch_cannot(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """Older servers refuse to send initial events; then pages do, and the watch goes on from their version."""
        refusal = b'{"kind":"Status","reason":"Invalid","code":422,"message":"sendInitialEvents is forbidden"}'
        proxy.plan(answer("422 Unprocessable Entity", refusal), applies=starts)
        for number in range(5):
            await direct.create(ConfigMap, namespace, config(f"c{number}"))
        store, reflector = mirror(through, namespace, page_size=2)
        async with running(reflector):
            await until(reflector.synced.is_set)
            assert len(contents(store)) == 5
            await direct.create(ConfigMap, namespace, config("after"))
            await until(lambda: "after" in contents(store))
        assert len([request for request in proxy.requests if "continue" in request.query]) == 2

    async def test_a_server_that_ignores_the_wish_for_initial_events_is_listed(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """It would never say that it is at the end."""
        proxy.plan(silence_after(0), applies=starts)
        _store, reflector = mirror(through, namespace, sync_timeout=0.3)
        async with running(reflector):
            await until(reflector.synced.is_set)
            await until(lambda: len(proxy.requests) >= 3)
        assert [request.query.get("limit") for request in proxy.requests[:3]] == [None, str(FIRST_PAGE), None]


class TestResuming:
    """The stream ends before its time; nothing is missed and nothing is read twice."""

    @pytest.mark.parametrize("fault", [cut_in_line(1), half_close(1), silence_after(1)], ids=["cut", "half", "silence"])
    async def test_a_broken_stream_goes_on_from_the_last_version(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str, fault: Fault
    ) -> None:
        """Cut in mid-line, half closed, or silent with the connection open (found out by the idle deadline)."""
        proxy.plan(stream(), applies=resumes)  # the first one after the start ends at once
        proxy.plan(fault, applies=resumes)
        store, reflector = mirror(through, namespace, idle_timeout=0.5)
        async with running(reflector):
            await until(reflector.synced.is_set)
            # The start's own watch is idle: its deadline ends it, and the planned ones follow.
            for name in ("a", "b", "c"):
                await direct.create(ConfigMap, namespace, config(name))
            await until(lambda: len(proxy.watches) >= 4)
            await until(lambda: list(contents(store)) == ["a", "b", "c"])
            await direct.create(ConfigMap, namespace, config("d"))
            await until(lambda: list(contents(store)) == ["a", "b", "c", "d"])
        assert reflector.relisted == 1
        assert all("resourceVersion" in request.query for request in proxy.watches[1:])

    async def test_a_kind_without_news_is_calm(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """The server sends no bookmarks for it: its watch is begun anew, which is no failure, and misses nothing."""
        store, reflector = mirror(through, namespace, idle_timeout=0.2)
        async with running(reflector):
            await until(lambda: len(proxy.watches) >= 4)
            assert reflector.failures == 0
            await direct.create(ConfigMap, namespace, config("news"))
            await until(lambda: "news" in contents(store))
        assert reflector.relisted == 1

    async def test_a_calm_kind_is_heard_of_all_the_same(self, proxy: Proxy, through: Transport, namespace: str) -> None:
        """The server is asked to end its watch before the deadline, and does."""
        _store, reflector = mirror(through, namespace, idle_timeout=5.0)
        async with running(reflector):
            await until(reflector.synced.is_set)
            read_at = reflector.last_contact
            await until(lambda: len(proxy.watches) >= 2, within=15)
            await until(lambda: reflector.last_contact > read_at, within=15)
            await until(lambda: len(proxy.watches) >= 3, within=15)
        assert [request.query["timeoutSeconds"] for request in proxy.watches[1:3]] == ["4", "4"]
        assert (reflector.failures, reflector.relisted) == (0, 1)

    async def test_silence_after_a_bookmark_is_a_failure(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """Where bookmarks have come, more were to come."""
        _store, reflector = mirror(through, namespace, idle_timeout=0.2)
        async with running(reflector):
            await until(reflector.synced.is_set)
            version = int(proxy.watches[0].query.get("resourceVersion", "0"))
            proxy.plan(hushed(event("BOOKMARK", version + 10**6)), applies=resumes)
            await until(lambda: reflector.failures == 1)

    async def test_a_watch_that_is_not_answered_is_a_failure(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """Nobody says that there is nothing to tell."""
        _store, reflector = mirror(through, namespace, idle_timeout=0.2)
        async with running(reflector):
            await until(reflector.synced.is_set)
            proxy.plan(black_hole, applies=resumes)
            await until(lambda: reflector.failures == 1)

    async def test_a_bookmark_moves_the_version_on(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """So that a quiet kind does not fall out of the server's memory."""
        _store, reflector = mirror(through, namespace, idle_timeout=0.3)
        async with running(reflector):
            await until(reflector.synced.is_set)
            elsewhere = await direct.create(ConfigMap, await new_namespace(direct), config("moves"))
            version = elsewhere.metadata.resource_version
            proxy.plan(stream(event("BOOKMARK", int(version))), applies=resumes)
            proxy.plan(black_hole, applies=resumes)
            await until(lambda: any(r.query.get("resourceVersion") == version for r in proxy.watches))

    async def test_a_server_that_always_closes_is_not_hammered(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """Each clean close waits longer than the one before, up to the limit."""
        proxy.plan(stream(), applies=resumes, times=1000)
        proxy.plan(stream(event("BOOKMARK", 1, **{"k8s.io/initial-events-end": "true"})), applies=starts)
        _store, reflector = mirror(through, namespace, backoff=Backoff(first=0.05, limit=0.4), jitter=lambda: 1.0)
        async with running(reflector):
            await until(lambda: len(proxy.watches) >= 7)
        times = [request.at for request in proxy.watches[:7]]
        gaps = [later - sooner for sooner, later in itertools.pairwise(times)]
        for gap, expected in zip(gaps, [0.05, 0.1, 0.2, 0.4, 0.4, 0.4], strict=True):
            assert expected <= gap < expected + 1.0
        assert reflector.failures == 0

    @pytest.mark.parametrize("type_", ["text/html", "application/json"])
    async def test_a_page_in_the_place_of_events_is_a_failure(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str, type_: str
    ) -> None:
        """No line of it becomes an event, whatever it calls itself; the watch goes on when the page is gone."""
        store, reflector = mirror(through, namespace, idle_timeout=0.3)
        async with running(reflector):
            await until(reflector.synced.is_set)
            before = store.changes
            page = stream(b"<html>\n", b"<body>\n", b"</html>\n", content_type=type_)
            proxy.plan(page, answer("502 Bad Gateway", b"<html>x</html>", content_type="text/html"), applies=resumes)
            await until(lambda: reflector.failures >= 2)
            assert store.changes == before
            await direct.create(ConfigMap, namespace, config("a"))
            await until(lambda: "a" in contents(store))
            assert reflector.relisted == 1

    async def test_a_line_without_end_is_a_failure(self, proxy: Proxy, through: Transport, namespace: str) -> None:
        """However long it trickles, the watch is left when its own time is over."""
        proxy.plan(trickle(), applies=starts)
        _store, reflector = mirror(through, namespace, sync_timeout=0.5)
        async with running(reflector):
            await until(reflector.synced.is_set)
        assert reflector.failures == 1

    async def test_an_object_of_the_greatest_size_comes_through(self, direct: Transport, namespace: str) -> None:
        """One line may be larger than any buffer's default."""
        store, reflector = mirror(direct, namespace)
        async with running(reflector):
            await until(reflector.synced.is_set)
            await direct.create(ConfigMap, namespace, config("big", x="y" * 1_000_000))
            await until(lambda: "big" in contents(store))

    async def test_a_server_that_sheds_load_is_left_alone_for_as_long_as_it_says(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """Retry-After counts for watches too."""
        proxy.plan(answer("429 Too Many Requests", Retry_After="1"), applies=starts)
        _store, reflector = mirror(through, namespace)
        async with running(reflector):
            await until(reflector.synced.is_set)
        first, second = proxy.watches[:2]
        assert second.at - first.at >= 1.0


class TestStartingAnew:
    """The version is too old: everything is read again, and the store is told the difference."""

    @pytest.mark.parametrize(
        "fault",
        [answer("410 Gone", GONE), stream(b'{"type":"ERROR","object":' + GONE + b"}\n")],
        ids=["status", "event"],
    )
    async def test_what_was_deleted_meanwhile_is_found_out(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str, fault: Fault
    ) -> None:
        """410 comes as an answer or inside the stream. The dead version is never asked for again."""
        for name in ("stays", "goes", "changes"):
            await direct.create(ConfigMap, namespace, config(name))
        store, reflector = mirror(through, namespace, idle_timeout=0.3)
        heard: list[tuple[str, bool, bool]] = []
        # Blind from the end of the first stream until the gate opens, then 410.
        gate = asyncio.Event()
        proxy.plan(held(gate, fault), applies=resumes, times=1000)
        async with running(reflector):
            await until(reflector.synced.is_set)
            await until(lambda: len(proxy.watches) >= 2)
            store.subscribe(lambda key, old, new: heard.append((key.split("/")[1], old is None, new is None)))
            await direct.delete(ConfigMap, "goes", namespace)
            await direct.patch(ConfigMap, "changes", namespace, {"data": {"x": "1"}})
            await direct.create(ConfigMap, namespace, config("comes"))
            gate.set()
            await until(lambda: reflector.relisted >= 2)
            proxy.clear()
            assert contents(store) == {"changes": {"x": "1"}, "comes": {}, "stays": {}}
        assert sorted(heard) == [("changes", False, False), ("comes", True, False), ("goes", False, True)]
        asked = [request.query.get("resourceVersion") for request in proxy.watches]
        again = asked.index(None, 1)
        assert again > 1
        assert asked[1] not in asked[again:]

    async def test_a_server_restored_from_a_backup_is_believed(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """Its versions started over, so what the store knows is not newer, however large its numbers are."""
        await direct.create(ConfigMap, namespace, config("stays", x="restored"))
        far = 10**9
        before = [
            {**config(name, version=str(far + number), x="before")} for number, name in enumerate(("stays", "lost"))
        ]
        for each in before:
            each["metadata"]["namespace"] = namespace
        lines = [json.dumps({"type": "ADDED", "object": each}).encode() + b"\n" for each in before]
        lines.append(event("BOOKMARK", far + 9, **{"k8s.io/initial-events-end": "true"}))
        proxy.plan(stream(*lines), applies=starts)
        proxy.plan(answer("410 Gone", GONE), applies=resumes)
        store, reflector = mirror(through, namespace)
        async with running(reflector):
            await until(lambda: reflector.relisted >= 2)
            assert contents(store) == {"stays": {"x": "restored"}}
            await direct.patch(ConfigMap, "stays", namespace, {"data": {"x": "after"}})
            await until(lambda: contents(store) == {"stays": {"x": "after"}})

    async def test_a_restored_server_that_refuses_no_watch_is_believed(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """From a version that it has not reached it sends nothing and no error, so its newest version is asked for
        before a watch is resumed that was cut."""
        await direct.create(ConfigMap, namespace, config("stays", x="restored"))
        before = {**config("lost", version=str(10**9), x="before")}
        before["metadata"]["namespace"] = namespace
        line = json.dumps({"type": "ADDED", "object": before}).encode() + b"\n"
        end = event("BOOKMARK", 10**9 + 1, **{"k8s.io/initial-events-end": "true"})
        proxy.plan(stream(line, end), applies=starts)
        store, reflector = mirror(through, namespace)
        async with running(reflector):
            await until(lambda: contents(store) == {"stays": {"x": "restored"}})

    async def test_a_backup_is_believed_about_versions_that_were_seen_before_as_well(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """The same number is another object's state in another history."""
        made = await direct.create(ConfigMap, namespace, config("same", x="restored"))
        version = made.metadata.resource_version
        before = {**config("same", version=version, x="before")}
        before["metadata"] |= {"namespace": namespace, "uid": made.metadata.uid}
        line = json.dumps({"type": "ADDED", "object": before}).encode() + b"\n"
        end = event("BOOKMARK", 10**9, **{"k8s.io/initial-events-end": "true"})
        proxy.plan(stream(line, end), applies=starts)
        proxy.plan(answer("410 Gone", GONE), applies=resumes)
        store, reflector = mirror(through, namespace)
        async with running(reflector):
            await until(lambda: reflector.relisted >= 2)
            assert contents(store) == {"same": {"x": "restored"}}

    async def test_a_list_that_is_cut_half_way_leaves_what_was(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """Neither what it told is taken in nor what it had not told yet forgotten, until one comes to its end."""
        for name in ("stays", "goes", "changes"):
            await direct.create(ConfigMap, namespace, config(name))
        store, reflector = mirror(through, namespace, idle_timeout=0.3)
        gate = asyncio.Event()
        proxy.plan(held(gate, answer("410 Gone", GONE)), applies=resumes, times=1000)
        async with running(reflector):
            await until(lambda: len(proxy.watches) >= 2)
            before, changes = contents(store), store.changes
            told = {**config("changes", version=str(10**6), x="1")}
            told["metadata"] |= {"namespace": namespace}
            line = json.dumps({"type": "ADDED", "object": told}).encode() + b"\n"
            proxy.plan(stream(line), answer("500 Internal Server Error"), applies=starts, times=1)
            failures = reflector.failures
            gate.set()
            await until(lambda: reflector.failures > failures)
            assert (contents(store), store.changes) == (before, changes)
            await direct.delete(ConfigMap, "goes", namespace)
            await until(lambda: contents(store) == {"changes": {}, "stays": {}})

    async def test_a_version_that_always_fails_is_given_up(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """Several errors in a row without one event: it may be the version that the server stumbles over."""
        error = b'{"type":"ERROR","object":{"kind":"Status","reason":"InternalError","code":500,"message":"no"}}\n'
        proxy.plan(stream(), applies=resumes)
        proxy.plan(stream(error), applies=resumes, times=FAILURES_BEFORE_RELIST)
        _store, reflector = mirror(through, namespace, idle_timeout=0.3)
        async with running(reflector):
            await until(lambda: reflector.relisted >= 2)

    async def test_a_restart_of_the_server_is_survived(self, api_server: ControlPlane, direct: Transport) -> None:
        """Killed and started while a reflector runs; objects are deleted and made before it looks again."""
        namespace = await new_namespace(direct)
        await direct.create(ConfigMap, namespace, config("goes"))
        await direct.create(ConfigMap, namespace, config("stays"))
        store, reflector = mirror(direct, namespace)
        async with running(reflector):
            await until(reflector.synced.is_set)
            for round_ in ("first", "second"):
                api_server.kill("kube-apiserver")
                await until(lambda: reflector.failures > 0)
                await asyncio.to_thread(api_server.start, "kube-apiserver")
                await direct.create(ConfigMap, namespace, config(round_))
                await until(lambda name=round_: name in contents(store))  # type: ignore[misc]
            await direct.delete(ConfigMap, "goes", namespace)
            await until(lambda: list(contents(store)) == ["first", "second", "stays"])
