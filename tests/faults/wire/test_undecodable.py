"""A reflector whose kind has objects that make no sense."""

import asyncio
from typing import ClassVar, Literal

import msgspec
import pytest

from tests.faults.proxy import Proxy, answer, held, hushed, stream
from tests.faults.wire.world import GONE, QUICK, ConfigMap, config, event, mirror, resumes, running, starts, until
from turnstile.api.meta import Kind, Object
from turnstile.kube.reflector import INITIAL_EVENTS_END, Reflector
from turnstile.kube.store import Store
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]


class Coloured(Object):
    """Data that knows only two colours."""

    colour: Literal["red", "green"] = "red"


class Picky(Kind):
    """A ConfigMap that not everybody's data fit."""

    GROUP: ClassVar = ""
    VERSION: ClassVar = "v1"
    KIND: ClassVar = "ConfigMap"
    PLURAL: ClassVar = "configmaps"
    NAMESPACED: ClassVar = True

    data: Coloured = msgspec.field(default_factory=Coloured)


class TestUndecodable:
    """An object that makes no sense is told and skipped."""

    async def test_the_last_good_version_stays_and_the_others_go_on(self, direct: Transport, namespace: str) -> None:
        """Until it makes sense again, or is deleted."""
        await direct.create(ConfigMap, namespace, config("bad", colour="blue"))
        await direct.create(ConfigMap, namespace, config("turns", colour="green"))
        store, told = Store[Picky](), list[str]()
        reflector = Reflector(
            direct, store, Picky, namespace=namespace, backoff=QUICK, on_undecodable=lambda key, error: told.append(key)
        )
        async with running(reflector):
            await until(reflector.synced.is_set)
            bad, turns, good = (f"{namespace}/{name}" for name in ("bad", "turns", "good"))
            assert store.keys(ordered=True)[-1:] == [turns]
            assert told == [bad]
            assert "blue" in reflector.bad[bad]
            await direct.patch(ConfigMap, "turns", namespace, {"data": {"colour": "pink"}})
            await direct.create(ConfigMap, namespace, config("good", colour="green"))
            await until(lambda: good in store)
            kept = store.get(turns)
            assert kept is not None
            assert kept.data.colour == "green"
            assert sorted(reflector.bad) == [bad, turns]
            await direct.patch(ConfigMap, "bad", namespace, {"data": {"colour": "red"}})
            await direct.delete(ConfigMap, "turns", namespace)
            await until(lambda: bad in store and turns not in store)
            assert reflector.bad == {}
            assert reflector.undecodable == 2

    async def test_an_object_as_deep_as_the_server_takes_ends_nothing(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """A tenant's JSON may be nested 10,000 deep, in an event as in a list: it is reported and skipped."""
        deep = b'{"a":' * 9_000 + b"1" + b"}" * 9_000
        header = b'"metadata":{"name":"deep","namespace":"%s","resourceVersion":"%d"}'
        body = b'{"kind":"ConfigMap",' + header % (namespace.encode(), 10**9) + b',"binaryData":' + deep + b"}"
        end = event("BOOKMARK", 10**9, **{INITIAL_EVENTS_END: "true"})
        proxy.plan(hushed(b'{"type":"ADDED","object":' + body + b"}\n", end), applies=starts)
        _store, reflector = mirror(through, namespace)
        async with running(reflector):
            await until(lambda: f"{namespace}/deep" in reflector.bad)
        proxy.clear()
        proxy.plan(answer("200 OK", b'{"metadata":{"resourceVersion":"5"},"items":[' + body + b"]}"))
        _store, reflector = mirror(through, namespace, streaming_list=False)
        async with running(reflector):
            await until(reflector.synced.is_set)
            assert f"{namespace}/deep" in reflector.bad

    async def test_a_new_start_does_not_take_it_for_deleted(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """It is in the list, if not in our words."""
        await direct.create(ConfigMap, namespace, config("turns", colour="green"))
        store = Store[Picky]()
        reflector = Reflector(through, store, Picky, namespace=namespace, backoff=QUICK, idle_timeout=0.3)
        gate = asyncio.Event()
        proxy.plan(held(gate, answer("410 Gone", GONE)), applies=resumes, times=1000)
        async with running(reflector):
            await until(lambda: len(proxy.watches) >= 2)
            await direct.patch(ConfigMap, "turns", namespace, {"data": {"colour": "pink"}})
            gate.set()
            await until(lambda: reflector.relisted >= 2)
            assert f"{namespace}/turns" in store
            assert f"{namespace}/turns" in reflector.bad

    async def test_it_is_read_again_with_the_next_stream(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """A watch that began before a definition got its conversion delivers an object as it is stored. The object is
        well, does not change any more, and its version is behind the point where the watch is resumed."""
        reflector = Reflector(through, store := Store[Picky](), Picky, namespace=namespace, backoff=QUICK)
        proxy.plan(stream(event("BOOKMARK", 1, **{INITIAL_EVENTS_END: "true"})), applies=starts)
        gate = asyncio.Event()
        made = await direct.create(ConfigMap, namespace, config("well", colour="green"))
        header = b'{"name":"well","namespace":"%s","resourceVersion":"%s"}'
        meta = header % (namespace.encode(), made.metadata.resource_version.encode())
        raw = b'{"type":"ADDED","object":{"kind":"ConfigMap","metadata":' + meta + b',"data":{"colour":"blue"}}}\n'
        proxy.plan(held(gate, stream(raw)), applies=resumes)
        async with running(reflector):
            await until(reflector.synced.is_set)
            gate.set()
            await until(lambda: f"{namespace}/well" in store)
            assert reflector.bad == {}
            assert reflector.relisted == 2
