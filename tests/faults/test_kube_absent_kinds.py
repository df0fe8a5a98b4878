"""Kinds that may be absent: their definitions are installed, deleted and installed again while they are watched."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from testbed import Api, ControlPlane
from testbed.client import wait_until
from tests.cluster.absent_kinds import Rig, install, new_kind, requests, rig, running, served, uninstall, until
from tests.cluster.schema_server import Json
from turnstile.api.apiextensions import CustomResourceDefinition
from turnstile.api.meta import Kind
from turnstile.kube.cache import State
from turnstile.kube.caches import Caches
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]


@pytest.fixture
def api(schema_server: ControlPlane) -> Api:
    """A client with all rights, of an API server that nothing else runs on."""
    return schema_server.api


@pytest_asyncio.fixture
async def transport(schema_server: ControlPlane) -> AsyncIterator[Transport]:
    """A transport as administrator."""
    async with await Transport.connect(str(schema_server.kubeconfig())) as transport:
        yield transport


async def as_user(schema_server: ControlPlane, name: str, *rules: Json) -> Transport:
    """A transport of a user who may do just that."""
    await asyncio.to_thread(grant, schema_server.api, name, *rules)
    return await Transport.connect(str(schema_server.kubeconfig(name)))


def grant(api: Api, user: str, *rules: Json) -> None:
    """Give a user these rights, and no others."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user}}
    api.apply({**role, "rules": list(rules)})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    api.apply({**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]})


def until_refused(schema_server: ControlPlane, kind: type[Kind]) -> None:
    """Wait until the user `revoked` may not list a kind: a change of RBAC rules takes a moment."""
    asked = {"verb": "list", "group": kind.GROUP, "resource": kind.PLURAL}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "revoked", "resourceAttributes": asked},
    }

    def refused() -> bool:
        answer = schema_server.api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return not answer["status"]["allowed"]

    wait_until(refused, timeout=10, describe=lambda: f"may list {kind.PLURAL}")


def reading(kind: type[Kind]) -> Json:
    """A rule: list and watch a kind."""
    return {"apiGroups": [kind.GROUP], "resources": [kind.PLURAL], "verbs": ["list", "watch"]}


def make(api: Api, kind: type[Kind], name: str, **options: object) -> None:
    """Create an object in the namespace `default`."""
    version = str(options.pop("version", "v1"))
    path = kind.collection_path("default", version=version)
    api.request("POST", path, rig(kind, name, version=version, **options))


class TestDefinitions:
    """What a definition that comes or goes means for a kind."""

    async def test_a_kind_without_a_definition_holds_nobody_up_and_costs_nothing(
        self, api: Api, transport: Transport
    ) -> None:
        """Ten of them: one request each at the start, one watch of definitions for all, and then silence."""
        kinds = [new_kind() for _ in range(10)]
        caches = Caches(transport)
        stores = [caches.of(kind, optional=True) for kind in kinds]
        async with running(caches), asyncio.timeout(15):
            await caches.synced()
            assert caches.missing() == []
            assert {caches.standing(kind).state for kind in kinds} == {State.DORMANT}
            await until(lambda: all(store.complete for store in stores))
            before = requests(transport)
            assert before <= len(kinds) + 1
            await asyncio.sleep(2.0)  # nothing happens, for a while
            assert requests(transport) == before

    async def test_a_kind_that_the_api_server_is_too_old_for_delays_a_term_by_seconds(
        self, transport: Transport
    ) -> None:
        """No definition says that it is absent; its second 404 does, long before the usual pause is over."""
        kind = new_kind(group="resource.k8s.io")
        caches = Caches(transport)
        store = caches.of(kind, optional=True)
        async with running(caches):
            await until(lambda: store.complete, within=10)
            assert caches.standing(kind).state is State.DORMANT

    async def test_a_kind_wakes_sleeps_and_wakes_again(self, api: Api, transport: Transport) -> None:
        """With its definition; its objects come and go with it, and each change is told."""
        kind = new_kind()
        caches = Caches(transport)
        store = caches.of(kind, optional=True)
        told: list[tuple[str, bool]] = []
        store.subscribe(lambda key, old, new: told.append((key, new is not None)))
        async with running(caches):
            await until(lambda: caches.standing(kind).state is State.DORMANT)
            for name in ("first", "second"):
                await asyncio.to_thread(install, api, kind)
                await until(lambda: caches.standing(kind).state is State.SYNCED, within=10)
                await asyncio.to_thread(make, api, kind, name, size=3)
                await until(lambda name=name: f"default/{name}" in store)  # type: ignore[misc]
                await asyncio.to_thread(uninstall, api, kind)
                await until(lambda: caches.standing(kind).state is State.DORMANT)
                await until(lambda: store.complete)
                assert len(store) == 0
        assert told == [(f"default/{name}", there) for name in ("first", "second") for there in (True, False)]

    async def test_a_kind_without_objects_wakes_and_sleeps_too(self, api: Api, transport: Transport) -> None:
        """There is no event of the kind itself to go by."""
        kind = new_kind()
        await asyncio.to_thread(install, api, kind)
        await until(lambda: served(api, kind))
        caches = Caches(transport)
        caches.of(kind, optional=True)
        async with running(caches):
            await until(lambda: caches.standing(kind).state is State.SYNCED)
            await asyncio.to_thread(uninstall, api, kind)
            await until(lambda: caches.standing(kind).state is State.DORMANT, within=10)
            await asyncio.to_thread(install, api, kind)
            await until(lambda: caches.standing(kind).state is State.SYNCED, within=10)

    async def test_a_definition_that_is_replaced_at_once_leaves_no_old_object(
        self, api: Api, transport: Transport
    ) -> None:
        """Deleted and created again before anybody looks: what was is gone, what is new is there."""
        kind = new_kind()
        await asyncio.to_thread(install, api, kind)
        await until(lambda: served(api, kind))
        await asyncio.to_thread(make, api, kind, "old")
        caches = Caches(transport)
        store = caches.of(kind, optional=True)
        async with running(caches):
            await until(lambda: "default/old" in store)

            def replace() -> None:
                uninstall(api, kind)
                api.wait_gone(f"{CustomResourceDefinition.collection_path()}/{kind.PLURAL}.{kind.GROUP}")
                install(api, kind)

            await asyncio.to_thread(replace)
            await until(lambda: "default/old" not in store)
            await until(lambda: served(api, kind))
            await asyncio.to_thread(make, api, kind, "new")
            await until(lambda: store.keys() == ["default/new"])
            await until(lambda: store.complete)

    async def test_an_api_server_that_restarts_makes_nothing_vanish(
        self, schema_server: ControlPlane, transport: Transport
    ) -> None:
        """Whatever it answers while it starts."""
        kind = new_kind()
        await asyncio.to_thread(install, schema_server.api, kind)
        await until(lambda: served(schema_server.api, kind))
        await asyncio.to_thread(make, schema_server.api, kind, "stays")
        caches = Caches(transport)
        store = caches.of(kind, optional=True)
        async with running(caches):
            await until(lambda: "default/stays" in store)
            gone: list[str] = []
            store.subscribe(lambda key, old, new: gone.append(key) if new is None else None)
            await asyncio.to_thread(schema_server.restart, "kube-apiserver")
            await asyncio.to_thread(make, schema_server.api, kind, "new")
            await until(lambda: "default/new" in store, within=30)
            assert gone == []


class TestVersions:
    """A kind of several versions is read and written in the first one that the server has."""

    async def test_the_preferred_version_is_used_where_it_is_served(self, api: Api, transport: Transport) -> None:
        """An older server has the older one only, for reads and writes; the newer one is used from the next start on.

        A kind that is defined while it is watched may be found in the older version: versions are asked for one after
        the other, and the definition is established at any moment between two of these requests.
        """
        kind = new_kind("v2", "v1")
        await asyncio.to_thread(install, api, kind)
        await until(lambda: served(api, kind))
        await asyncio.to_thread(make, api, kind, "a", size=1)
        caches = Caches(transport)
        store = caches.of(kind, optional=True)
        async with running(caches):
            await until(lambda: "default/a" in store)
            assert transport.path(kind, "a", "default") == f"/apis/{kind.GROUP}/v1/namespaces/default/rigs/a"
            written = await transport.patch(kind, "a", "default", {"spec": {"size": 2}})
            assert (written.api_version, written.spec.size) == (f"{kind.GROUP}/v1", 2)
            store.observe(written)
            await asyncio.to_thread(uninstall, api, kind)
            await until(lambda: caches.standing(kind).state is State.DORMANT)
        await asyncio.to_thread(install, api, kind, served=("v1", "v2"))
        await until(lambda: served(api, kind, "v2"))
        caches = Caches(transport)
        store = caches.of(kind, optional=True)
        async with running(caches):
            await until(lambda: caches.standing(kind).state is State.SYNCED)
            assert transport.collection_path(kind) == f"/apis/{kind.GROUP}/v2/rigs"
            await asyncio.to_thread(make, api, kind, "b", version="v2")
            await until(lambda: "default/b" in store)
            found = store.get("default/b")
            assert found is not None
            assert found.api_version == f"{kind.GROUP}/v2"

    async def test_a_definition_without_a_version_that_is_read_is_reported(
        self, api: Api, transport: Transport
    ) -> None:
        """The kind is failing, with the version that is missing; nothing waits for it, until that version is served."""
        kind = new_kind("v1")
        await asyncio.to_thread(install, api, kind, served=("v9",))
        await until(lambda: served(api, kind, "v9"))
        caches = Caches(transport)
        store = caches.of(kind, optional=True)
        wanted = f"rigs.{kind.GROUP} is defined, but not served in version v1"
        async with running(caches), asyncio.timeout(30):
            await caches.synced()
            await until(lambda: wanted in caches.standing(kind).reason)
            assert not store.complete
            await asyncio.to_thread(uninstall, api, kind)
            await until(lambda: caches.standing(kind).state is State.DORMANT)
            await asyncio.to_thread(install, api, kind, served=("v9", "v1"))
            await until(lambda: caches.standing(kind).state is State.SYNCED)

    async def test_a_version_that_goes_is_followed_in_another_one(
        self, schema_server: ControlPlane, api: Api, transport: Transport
    ) -> None:
        """What is held is read anew in it, and nothing vanishes meanwhile."""
        kind = new_kind("v1", "v2")
        await asyncio.to_thread(install, api, kind, served=("v1", "v2"))
        await until(lambda: served(api, kind, "v2"))
        await asyncio.to_thread(make, api, kind, "a", version="v2")
        caches = Caches(transport)
        store = caches.of(kind, optional=True)
        async with running(caches):
            await until(lambda: [each.api_version for each in store.values()] == [f"{kind.GROUP}/v1"])
            gone: list[str] = []
            store.subscribe(lambda key, old, new: gone.append(key) if new is None else None)
            path = f"{CustomResourceDefinition.collection_path()}/{kind.PLURAL}.{kind.GROUP}"
            drop = [{"op": "replace", "path": "/spec/versions/0/served", "value": False}]
            await asyncio.to_thread(lambda: api.patch(path, drop, kind="json"))
            await until(lambda: [each.api_version for each in store.values()] == [f"{kind.GROUP}/v2"], within=30)
            assert transport.collection_path(kind) == f"/apis/{kind.GROUP}/v2/rigs"
            assert gone == []


class TestRights:
    """What may not be read is said, and holds nobody up."""

    async def test_a_kind_that_may_not_be_read_is_named_with_the_reason(
        self, schema_server: ControlPlane, api: Api
    ) -> None:
        """It is not complete; the others are. Once the right is given, it is read without a restart."""
        refused, allowed = new_kind(), new_kind()
        for kind in (refused, allowed):
            await asyncio.to_thread(install, api, kind)
            await until(lambda kind=kind: served(api, kind))  # type: ignore[misc]
        await asyncio.to_thread(make, api, refused, "a")
        rules = (reading(CustomResourceDefinition), reading(allowed))
        async with await as_user(schema_server, "partial", *rules) as transport:
            caches = Caches(transport)
            store = caches.of(refused, optional=True)
            completed: list[int] = []
            store.on_complete(lambda: completed.append(len(store)))
            caches.of(allowed, optional=True)
            async with running(caches):
                async with asyncio.timeout(10):
                    await caches.synced()
                    async with asyncio.TaskGroup() as group:
                        catching_up = caches.catch_up([refused, allowed])
                        running_ = group.create_task(catching_up.run())
                        await catching_up.of([allowed])
                        assert [cache.kind for cache in catching_up.behind()] == [refused]
                        running_.cancel()
                assert caches.standing(allowed).state is State.SYNCED
                assert caches.standing(refused).state is State.FAILING
                (failing,) = caches.failing()
                assert f"rigs.{refused.GROUP} (403 Forbidden" in failing
                assert 'User "partial" cannot' in failing
                assert not store.complete
                await asyncio.to_thread(grant, api, "partial", *rules, reading(refused))
                await until(lambda: store.complete, within=30)
                assert completed == [1]
                assert caches.failing() == []

    async def test_a_kind_that_cannot_be_caught_up_with_is_doubted_until_it_was(
        self, schema_server: ControlPlane, api: Api
    ) -> None:
        """A new leader does not wait for it, and decides nothing about it."""
        kind = new_kind()
        await asyncio.to_thread(install, api, kind)
        await until(lambda: served(api, kind))
        rule = reading(CustomResourceDefinition)
        async with await as_user(schema_server, "revoked", rule, reading(kind)) as transport:
            caches = Caches(transport)
            store = caches.of(kind, optional=True)
            async with running(caches):
                await until(lambda: store.complete)
                await asyncio.to_thread(grant, api, "revoked", rule)
                await asyncio.to_thread(until_refused, schema_server, kind)
                async with asyncio.TaskGroup() as group:
                    catching_up = caches.catch_up([kind])
                    assert not store.complete
                    group.create_task(catching_up.run())
                    (cache,) = catching_up.behind()
                    await until(lambda: "403 Forbidden" in cache.reflector.freshness.waits_for)
                    assert not store.complete
                    await asyncio.to_thread(grant, api, "revoked", rule, reading(kind))
                    await until(lambda: store.complete, within=30)

    async def test_without_the_right_to_definitions_an_absent_kind_is_asked_for_again(
        self, schema_server: ControlPlane, api: Api
    ) -> None:
        """At a slow pace, and it is believed to be absent only when it was asked for twice."""
        kind = new_kind()
        async with await as_user(schema_server, "blind", reading(kind)) as transport:
            caches = Caches(transport, probe_seconds=0.5)
            store = caches.of(kind, optional=True)
            async with running(caches):
                await asyncio.wait_for(caches.synced(), 10)
                assert caches.standing(kind).state is State.DORMANT
                assert not store.complete
                await until(lambda: store.complete)
                await asyncio.to_thread(install, api, kind)
                await until(lambda: caches.standing(kind).state is State.SYNCED)
                await asyncio.to_thread(make, api, kind, "a")
                await until(lambda: "default/a" in store)
                await asyncio.to_thread(uninstall, api, kind)
                await until(lambda: caches.standing(kind).state is State.DORMANT, within=30)
                await until(lambda: store.complete)
                assert len(store) == 0


class TestScopes:
    """How much of a kind is held."""

    async def test_metadata_only(self, api: Api, transport: Transport) -> None:
        """By a watch that starts anew, by its events, and by a list: no field but metadata is sent."""
        kind = new_kind()
        await asyncio.to_thread(install, api, kind)
        await until(lambda: served(api, kind))
        await asyncio.to_thread(make, api, kind, "a", size=3, template={"x": "y"})
        caches = Caches(transport)
        store = caches.of(kind, optional=True, metadata_only=True)
        async with running(caches):
            await until(lambda: "default/a" in store)
            await asyncio.to_thread(make, api, kind, "b", size=3)
            await until(lambda: "default/b" in store)
            path = f"{kind.collection_path('default')}/b"
            await asyncio.to_thread(api.patch, path, {"metadata": {"labels": {"l": "1"}}, "spec": {"size": 4}})
            await until(lambda: any(each.metadata.labels == {"l": "1"} for each in store.values()))
            await caches.catch_up([kind]).run()
            for held in store.values(ordered=True):
                assert (held.kind, held.api_version) == ("Rig", f"{kind.GROUP}/v1")
                assert held.metadata.uid
                assert held.spec == Rig().spec
        found = await transport.pages(kind.collection_path(), metadata_only=True).next()
        assert found is not None
        assert all(b'"spec"' not in bytes(item) for item in found[1].items or ())
