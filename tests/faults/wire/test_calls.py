"""Single calls against a server, or a network, that misbehaves."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from testbed import ControlPlane
from testbed.client import resource_path, wait_until
from testbed.ports import ReservedPort
from tests.faults.proxy import Exchange, Fault, Proxy, Request, answer, black_hole, drop, lose_answer, passed
from tests.faults.wire.world import ConfigMap, config
from turnstile.api import errors
from turnstile.kube import auth
from turnstile.kube.pages import FIRST_PAGE, PAGE_BYTES
from turnstile.kube.transport import Transport

pytestmark = [pytest.mark.cluster, pytest.mark.asyncio]

HTML = (
    b"<html><head><title>502</title></head><body><h1>Bad Gateway</h1>" + b"<p>nginx</p>" * 100_000 + b"</body></html>"
)


def slow(seconds: float) -> Fault:
    """Take the request, and pass it on after so many seconds."""

    async def fault(exchange: Exchange) -> bool:
        await asyncio.sleep(seconds)
        return await passed(exchange)

    return fault


@asynccontextmanager
async def silent_webhook(api_server: ControlPlane, namespace: str) -> AsyncIterator[None]:
    """Before it changes a ConfigMap of a namespace, which has one called `late`, the API server asks a webhook that
    never answers, for three seconds."""
    connections: list[asyncio.StreamWriter] = []

    async def keep(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)

    server = await asyncio.start_server(keep, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["configmaps"]}
    webhook = {
        "name": "silent.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "failurePolicy": "Ignore",
        "timeoutSeconds": 3,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    made = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"silent-{namespace}"},
        "webhooks": [webhook],
    }
    api = api_server.api
    path = resource_path("v1", "configmaps", "late", namespace=namespace)

    def asked() -> bool:
        """Whether the API server knows the configuration by now."""
        api.patch(path, {"metadata": {"labels": {"tried": str(time.monotonic())}}})
        return bool(connections)

    try:
        await asyncio.to_thread(api.create, made)
        await asyncio.to_thread(wait_until, asked, timeout=30, describe=lambda: "the webhook is not asked")
        yield
    finally:
        await asyncio.to_thread(api.delete, api.path_of(made))
        for writer in connections:
            writer.close()
        server.close()
        await server.wait_closed()


class TestLateWrites:
    """A write that the server carries out late could take effect after another process has begun to lead."""

    async def test_the_server_gives_up_a_write_that_is_late(
        self, api_server: ControlPlane, direct: Transport, namespace: str
    ) -> None:
        """Here it waits for a webhook that never answers, for three seconds; without a limit the write is made then."""
        for name in ("late", "patient"):
            await direct.create(ConfigMap, namespace, config(name))
        async with silent_webhook(api_server, namespace):
            patches = [
                direct.patch(
                    ConfigMap, name, namespace, {"data": {"key": "new"}}, timeout=20, retry="never", within=limit
                )
                for name, limit in (("late", lambda: 1.0), ("patient", None))
            ]
            late, patient = await asyncio.gather(*patches, return_exceptions=True)
        assert isinstance(late, errors.ServerError | errors.ConnectionLost)  # a 504, if the answer is sent in time
        assert isinstance(patient, ConfigMap)
        assert (await direct.get(ConfigMap, "late", namespace)).data.get("key") != "new"

    async def test_a_repeated_write_has_what_is_left_of_the_time(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """The limit is asked for before each attempt."""
        left = iter((8.0, 2.5))
        proxy.plan(answer("429 Too Many Requests"))
        await through.create(ConfigMap, namespace, config("a"), within=lambda: next(left))
        assert [each.query["timeout"] for each in proxy.requests] == ["8000ms", "2500ms"]


class TestOverload:
    """The server sheds load."""

    async def test_a_429_is_repeated_after_the_time_the_server_named(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """Even a creation, for a 429 was never executed."""
        proxy.plan(answer("429 Too Many Requests", Retry_After="1"))
        await through.create(ConfigMap, namespace, config("a"))
        first, second = proxy.requests
        assert 1.0 <= second.at - first.at < 3.0
        assert through.stats.retries["POST", "429"] == 1

    async def test_load_shedding_halves_the_window(self, proxy: Proxy, through: Transport, namespace: str) -> None:
        """Whatever was asked."""
        window = through.gate.window
        await through.list_all(ConfigMap, namespace)
        before = window.size
        assert window.at_ease
        proxy.plan(answer("429 Too Many Requests"))
        await through.list_all(ConfigMap, namespace)
        assert window.size == before // 2
        assert not window.at_ease

    async def test_a_wait_beyond_the_deadline_is_left_to_the_caller(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """The error comes at once, with the seconds to wait."""
        proxy.plan(answer("429 Too Many Requests", Retry_After="3600"))
        started = time.monotonic()
        with pytest.raises(errors.TooManyRequests) as caught:
            await through.list_all(ConfigMap, namespace)
        assert caught.value.retry_after == 60  # what was asked for, cut to a minute
        assert time.monotonic() - started < 3.0

    async def test_a_503_with_a_time_to_come_back_is_repeated_for_any_verb(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """The server names a time only for what it did not execute."""
        proxy.plan(answer("503 Service Unavailable", Retry_After="0"))
        await through.create(ConfigMap, namespace, config("a"))
        assert len(proxy.requests) == 2


class TestServerErrors:
    """The server, or a proxy before it, answers with an error."""

    @pytest.mark.parametrize("status", ["500 Internal Server Error", "502 Bad Gateway", "503 X", "504 Gateway Timeout"])
    async def test_a_read_is_repeated(self, proxy: Proxy, through: Transport, namespace: str, status: str) -> None:
        """Reading twice does no harm."""
        proxy.plan(answer(status), answer(status))
        assert isinstance(await through.list_all(ConfigMap, namespace), list)
        assert len(proxy.requests) == 3

    async def test_a_creation_is_not_repeated(self, proxy: Proxy, through: Transport, namespace: str) -> None:
        """It may have been executed: the caller reads and decides."""
        proxy.plan(answer("502 Bad Gateway", HTML, content_type="text/html"))
        with pytest.raises(errors.ServerError):
            await through.create(ConfigMap, namespace, config("a"))
        assert len(proxy.requests) == 1

    async def test_an_error_page_is_quoted_in_one_short_line(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """A megabyte of HTML neither breaks the parser nor floods the log."""
        proxy.plan(answer("502 Bad Gateway", HTML, content_type="text/html"))
        with pytest.raises(errors.ServerError, match="502 BadGateway: 502 Bad Gateway nginx") as caught:
            await through.create(ConfigMap, namespace, config("a"))
        assert len(str(caught.value)) < 600
        assert "<" not in str(caught.value)

    async def test_a_conflict_goes_to_the_caller(self, direct: Transport, namespace: str) -> None:
        """No retry can know what to write instead."""
        made = await direct.create(ConfigMap, namespace, config("a"))
        await direct.patch(ConfigMap, "a", namespace, {"data": {"x": "1"}})
        stale = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"x": "2"}}
        with pytest.raises(errors.Conflict):
            await direct.patch(ConfigMap, "a", namespace, stale)
        assert direct.stats.requests["PATCH", "409"] == 1

    async def test_a_redirect_is_an_error(self, proxy: Proxy, through: Transport, namespace: str) -> None:
        """Credentials never follow a redirect to another host."""
        proxy.plan(answer("302 Found", Location="http://127.0.0.1:1/elsewhere"))
        with pytest.raises(errors.ApiError) as caught:
            await through.list_all(ConfigMap, namespace)
        assert caught.value.code == 302

    async def test_garbage_with_a_200_to_a_list_is_unreadable(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """A login page of some middle box is no list of objects."""
        proxy.plan(answer("200 OK", b"<html>please log in</html>", content_type="text/html"))
        with pytest.raises(errors.Unreadable, match="no list"):
            await through.list_all(ConfigMap, namespace)


class TestLostConnections:
    """The connection ends before the answer came."""

    async def test_a_versioned_patch_is_repeated(self, proxy: Proxy, through: Transport, namespace: str) -> None:
        """Its version makes a second execution impossible; aiohttp itself never repeats a PATCH."""
        made = await through.create(ConfigMap, namespace, config("a"))
        proxy.plan(drop, drop)
        version = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"x": "1"}}
        patched = await through.patch(ConfigMap, "a", namespace, version)
        assert patched.data == {"x": "1"}
        assert through.stats.retries["PATCH", "lost"] == 2

    async def test_a_versioned_patch_that_was_executed_ends_in_a_conflict(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """The lost answer is noticed, and nothing was written twice."""
        made = await through.create(ConfigMap, namespace, config("a"))
        proxy.plan(lose_answer)
        version = {"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"x": "1"}}
        with pytest.raises(errors.Conflict):
            await through.patch(ConfigMap, "a", namespace, version)
        assert (await through.get(ConfigMap, "a", namespace)).data == {"x": "1"}

    async def test_an_apply_is_repeated(self, proxy: Proxy, through: Transport, namespace: str) -> None:
        """Applied twice is applied once."""
        proxy.plan(lose_answer)
        applied = await through.patch(ConfigMap, "a", namespace, config("a", x="1"), type="apply")
        assert applied.data == {"x": "1"}

    async def test_a_json_patch_that_tests_the_version_is_repeated(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """As a merge patch with a version is."""
        made = await through.create(ConfigMap, namespace, config("a", x="0"))
        proxy.plan(drop)
        operations = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": made.metadata.resource_version},
            {"op": "replace", "path": "/data/x", "value": "1"},
        ]
        assert (await through.patch(ConfigMap, "a", namespace, operations, type="json")).data == {"x": "1"}

    async def test_a_patch_without_a_version_is_not_repeated(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """It could undo what somebody else wrote in between."""
        await through.create(ConfigMap, namespace, config("a"))
        proxy.plan(lose_answer)
        with pytest.raises(errors.ConnectionLost):
            await through.patch(ConfigMap, "a", namespace, {"data": {"x": "1"}})
        assert [request.method for request in proxy.requests].count("PATCH") == 1

    async def test_a_patch_that_the_caller_calls_idempotent_is_repeated(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """Who owns the field knows best."""
        await through.create(ConfigMap, namespace, config("a"))
        proxy.plan(lose_answer)
        patched = await through.patch(ConfigMap, "a", namespace, {"data": {"x": "1"}}, retry="always")
        assert patched.data == {"x": "1"}

    async def test_a_creation_whose_answer_is_lost_is_left_to_the_caller(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """ConnectionLost means: read whether it is there."""
        proxy.plan(lose_answer)
        with pytest.raises(errors.ConnectionLost):
            await through.create(ConfigMap, namespace, config("a"))
        assert (await through.get(ConfigMap, "a", namespace)).metadata.name == "a"

    async def test_a_call_with_no_retries_is_made_once(self, proxy: Proxy, through: Transport, namespace: str) -> None:
        """Leader election counts its own attempts."""
        proxy.plan(answer("500 Internal Server Error"), times=3)
        with pytest.raises(errors.ServerError):
            await through.request("GET", ConfigMap.collection_path(namespace), retry="never")
        assert len(proxy.requests) == 1

    async def test_a_refused_connection_is_tried_again_until_the_server_is_there(
        self, api_server: ControlPlane, namespace: str
    ) -> None:
        """Nothing was sent, so even a creation may be repeated."""
        with_port = ReservedPort()
        access = auth.Access(f"http://127.0.0.1:{with_port.number}", None, auth.Fixed())
        async with Transport(access, timeout=1.0) as transport:
            with pytest.raises(errors.ConnectionLost):
                await transport.create(ConfigMap, namespace, config("a"))
            assert transport.stats.retries["POST", "lost"] >= 2
        with_port.release()


class TestDeadline:
    """Nothing waits for ever."""

    async def test_a_black_hole_ends_at_the_deadline(self, proxy: Proxy, through: Transport, namespace: str) -> None:
        """Every call has one, whether the caller names it or not."""
        proxy.plan(black_hole)
        started = time.monotonic()
        with pytest.raises(errors.RequestTimeout, match=r"GET /api/v1/.*: no answer within 0.3 s"):
            await through.list_all(ConfigMap, namespace, timeout=0.3)
        assert time.monotonic() - started < 3.0
        assert through.stats.requests["GET", "timeout"] == 1

    async def test_a_write_is_not_cut_while_the_server_is_slow(self, proxy: Proxy, namespace: str) -> None:
        """A server that took a second for the writes before is given more than a second for the next."""
        async with Transport(proxy.access, timeout=1.0) as transport:
            proxy.plan(slow(0.9), slow(0.9), slow(2.0))
            for name in "abc":
                await transport.create(ConfigMap, namespace, config(name))
            assert len(proxy.requests) == 3
            assert transport.stats.requests["POST", "timeout"] == 0


class TestCredentials:
    """The server refuses who we are."""

    async def test_a_token_that_was_swapped_is_read_again_when_refused(
        self, proxy: Proxy, namespace: str, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """The kubelet renews it on disk; one refusal is enough to notice."""
        path = tmp_path_factory.mktemp("token") / "token"
        path.write_text("old\n")
        access = auth.Access(proxy.access.server, None, auth.TokenFile(path))
        async with Transport(access, timeout=2.0) as transport:
            path.write_text("new\n")
            proxy.plan(answer("401 Unauthorized"), answer("200 OK", b'{"items":[]}'))
            assert await transport.list_all(ConfigMap, namespace) == []
        assert [request.headers["authorization"] for request in proxy.requests] == ["Bearer old", "Bearer new"]

    async def test_credentials_that_stay_refused_are_an_error(
        self, proxy: Proxy, through: Transport, namespace: str
    ) -> None:
        """One refresh, no loop."""
        proxy.plan(answer("401 Unauthorized"), times=9)
        with pytest.raises(errors.Unauthorized):
            await through.list_all(ConfigMap, namespace)
        assert len(proxy.requests) == 2


class TestNames:
    """What others wrote may become part of a path."""

    async def test_an_odd_name_stays_a_name(self, proxy: Proxy, through: Transport, namespace: str) -> None:
        """It becomes neither a query nor another path."""
        with pytest.raises(errors.ApiError):
            await through.get(ConfigMap, "a?limit=1#b c", namespace)
        assert proxy.requests[0].query == {}
        assert proxy.requests[0].path.endswith("/configmaps/a%3Flimit%3D1%23b%20c")


class TestPages:
    """Long lists come in pages of one snapshot."""

    async def test_a_page_token_that_expires_starts_the_list_again(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """In one piece, without half of an old list."""
        for number in range(5):
            await direct.create(ConfigMap, namespace, config(f"c{number}"))

        def continues(request: Request) -> bool:
            return "continue" in request.query

        proxy.plan(answer("410 Gone", b'{"kind":"Status","reason":"Expired","code":410}'), applies=continues)
        items, version = await through.list_raw(ConfigMap.collection_path(namespace), page_size=2)
        assert len(items) == 5
        assert int(version) > 0
        assert [request.query.get("limit") for request in proxy.requests] == ["2", "2", None]

    async def test_large_objects_come_in_small_pages(
        self, proxy: Proxy, through: Transport, direct: Transport, namespace: str
    ) -> None:
        """After the first page, each has about as many bytes as are wanted, and nothing is left out."""
        for number in range(30):
            await direct.create(ConfigMap, namespace, config(f"c{number}", x="y" * 600_000))
        items, _ = await through.list_raw(ConfigMap.collection_path(namespace))
        assert len(items) == 30
        limits = [int(request.query["limit"]) for request in proxy.requests]
        assert limits[0] == FIRST_PAGE
        assert {limit * 600_000 <= PAGE_BYTES < (limit + 1) * 610_000 for limit in limits[1:]} == {True}
