"""The server says when it is ready, changes its certificate while it runs, and stops without losing a review."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from tests.unit.webhooks.conftest import PATH, Client, Server, eventually, new_pair
from tests.unit.webhooks.test_server_requests import review
from turnstile.api.errors import InvalidValue
from turnstile.http import connections
from turnstile.http import server as serving
from turnstile.http.certificates import KeyPair
from turnstile.http.connections import State
from turnstile.http.health import Health
from turnstile.http.probes import create_probes
from turnstile.http.tls import ServingCertificate, follow_files
from turnstile.webhooks.application import create_app
from turnstile.webhooks.review import ALLOWED

pytestmark = pytest.mark.asyncio
Start = Callable[..., Awaitable[Server]]


class TestReady:
    """`/readyz` names what is missing; `/healthz` only says that the process lives."""

    async def test_all_is_well(self, server: Server) -> None:
        """The caches have synced and a TLS round trip to the own port works."""
        reply = await (await server.connect()).ask("GET", "/readyz")
        assert (reply.status, reply.json) == (200, {"status": "ok"})

    async def test_what_is_not_ready_is_named(self, start: Start) -> None:
        """Each failing check with its reason."""
        missing = {"caches": "localqueues have not synced"}
        server = await start(health=Health({"caches": lambda: missing.get("caches", "")}))
        client = await server.connect()
        reply = await client.ask("GET", "/readyz")
        assert (reply.status, reply.json["notReady"]) == (503, missing)
        assert (await client.ask("GET", "/healthz")).status == 200
        missing.clear()
        assert (await client.ask("GET", "/readyz")).status == 200

    async def test_what_only_a_restart_can_mend_is_named(self, start: Start) -> None:
        """To the kubelet, which restarts the container."""
        dead = {"scheduler": "no progress for 61 s, with work to do"}
        client = await (await start(health=Health(dead=lambda: dead))).connect()
        reply = await client.ask("GET", "/healthz")
        assert (reply.status, reply.json) == (503, {"status": "dead", "dead": dead})
        dead.clear()
        assert (await client.ask("GET", "/healthz")).status == 200

    async def test_a_certificate_that_does_not_work_is_not_ready(self, server: Server, ca: KeyPair) -> None:
        """What clients would see is looked at from outside, not taken from memory."""
        server.certificate.chain, _ = new_pair(ca)  # not what the context shows
        reply = await (await server.connect()).ask("GET", "/readyz")
        assert reply.status == 503
        assert "CERTIFICATE_VERIFY_FAILED" in reply.json["notReady"]["tls"]

    async def test_it_is_ready_again_as_soon_as_the_certificate_works(self, server: Server, ca: KeyPair) -> None:
        """A failure is not remembered."""
        client = await server.connect()
        shown, server.certificate.chain = server.certificate.chain, new_pair(ca)[0]
        assert (await client.ask("GET", "/readyz")).status == 503
        server.certificate.chain = shown
        assert (await client.ask("GET", "/readyz")).status == 200

    async def test_what_fails_is_named_although_the_process_is_ready(self, server: Server) -> None:
        """A job kind that may not be read keeps nobody else from being answered."""
        server.health.notes = lambda: ["jobsets.jobset.x-k8s.io (forbidden)"]
        reply = await (await server.connect()).ask("GET", "/readyz")
        assert (reply.status, reply.json["failing"]) == (200, ["jobsets.jobset.x-k8s.io (forbidden)"])

    async def test_a_server_without_a_certificate_is_not_ready(self) -> None:
        """As long as the Secret has not come, nobody is sent here."""
        health = Health(certificate=ServingCertificate())
        health.address = ("127.0.0.1", 1)
        assert await health.faults() == {"tls": "no serving certificate yet"}


class TestCertificate:
    """A new certificate is for new connections; the old ones go on."""

    async def test_it_is_swapped_under_open_connections(self, server: Server, ca: KeyPair) -> None:
        """The next handshake shows the new one, and a connection that is open serves on."""
        before = await server.connect()
        assert server.certificate.load(*new_pair(ca))
        after = await server.connect()
        assert before.serial != after.serial
        assert (await before.ask("POST", PATH, review())).status == 200
        assert (await after.ask("POST", PATH, review())).status == 200
        assert (await after.ask("GET", "/readyz")).status == 200

    async def test_the_same_pair_again_is_no_change(self, server: Server, ca: KeyPair) -> None:
        """A relist that brings the same Secret does nothing."""
        pair = new_pair(ca)
        assert server.certificate.load(*pair)
        assert not server.certificate.load(*pair)

    async def test_a_pair_that_does_not_fit_changes_nothing(self, server: Server, ca: KeyPair) -> None:
        """It is refused with a reason, and the server shows what it showed."""
        before = (await server.connect()).serial
        chain, _ = new_pair(ca)
        _, key = new_pair(ca)
        for bad in ((chain, key), (b"", key), (b"nonsense", b"nonsense"), (chain, b"")):
            with pytest.raises(InvalidValue, match="tls"):
                server.certificate.load(*bad)
        assert (await server.connect()).serial == before

    async def test_files_are_followed(self, server: Server, ca: KeyPair, tmp_path: Path) -> None:
        """Files that change are loaded, whichever comes first, and files that are missing are waited for."""
        cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
        following = asyncio.create_task(follow_files(server.certificate, cert=cert, key=key, interval=0.01))
        for _ in range(2):
            chain, secret = new_pair(ca)
            for file, data in ((cert, chain), (key, secret)):
                fresh = file.with_suffix(".new")
                fresh.write_bytes(data)
                os.replace(fresh, file)
            await eventually(lambda expected=chain: server.certificate.chain == expected)
        following.cancel()
        await asyncio.wait({following})


class TestStop:
    """Stopping is announced, then carried out; nobody is cut who was promised an answer."""

    async def test_readiness_fails_and_clients_are_asked_to_leave_first(self, start: Start) -> None:
        """Reviews are still answered while the endpoints change, each with `Connection: close`."""
        server = await start(drain_seconds=30)
        one, two, three = [await server.connect() for _ in range(3)]
        server.stop.set()
        await eventually(lambda: server.health.draining)
        reply = await one.ask("POST", PATH, review())
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert await one.closed()
        assert "shutdown" in (await two.ask("GET", "/readyz")).json["notReady"]
        assert (await three.ask("GET", "/healthz")).status == 200
        assert (await (await server.connect()).ask("POST", PATH, review())).status == 200
        assert not server.task.done()

    @pytest.mark.parametrize("idle_seconds", [0.0, 0.2])
    async def test_it_ends_once_the_clients_are_gone(self, start: Start, idle_seconds: float) -> None:
        """Connections that their clients keep beyond `idle_seconds` are closed, and the port is free again."""
        server = await start(idle_seconds=idle_seconds)
        idle = await server.connect()
        await idle.ask("POST", PATH, review())
        server.stop.set()
        assert await idle.closed()
        async with asyncio.timeout(60):
            await server.task
        with pytest.raises(ConnectionRefusedError):
            await server.connect()

    async def test_an_idle_connection_is_left_to_its_client(self, start: Start) -> None:
        """The API server may be sending a review on it, which would fail: the server waits until the client closes it,
        answers what comes meanwhile, and ends without waiting longer."""
        server = await start(drain_seconds=0, idle_seconds=60)
        idle, used = [await server.connect() for _ in range(2)]
        for client in (idle, used):
            await client.ask("POST", PATH, review())
        server.stop.set()
        await eventually(lambda: server.health.draining)
        reply = await used.ask("POST", PATH, review())
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert not server.task.done()
        idle.writer.close()
        async with asyncio.timeout(60):
            await server.task

    async def test_idle_connections_are_closed_once_no_review_can_come(self, start: Start) -> None:
        """As after `helm uninstall`: nobody waits for `idle_seconds` in vain."""
        uninstalled = asyncio.Event()

        async def no_more_requests() -> None:
            await uninstalled.wait()

        server = await start(drain_seconds=0, idle_seconds=60, no_more_requests=no_more_requests)
        idle = await server.connect()
        await idle.ask("POST", PATH, review())
        server.stop.set()
        await eventually(lambda: server.health.draining)
        assert (await (await server.connect()).ask("POST", PATH, review())).status == 200
        uninstalled.set()
        assert await idle.closed()
        async with asyncio.timeout(60):
            await server.task

    async def test_a_request_under_way_is_finished(self, start: Start) -> None:
        """A body that is half here when the server stops still gets its answer."""
        server = await start()
        client = await server.connect()
        body = review()
        await client.send("POST", PATH, body[:100], content_length=str(len(body)))
        server.stop.set()
        await eventually(lambda: server.health.draining)
        client.writer.write(body[100:])
        reply = await client.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        async with asyncio.timeout(60):
            await server.task

    async def test_who_does_not_finish_is_cut(self, start: Start) -> None:
        """A client that never ends its request does not keep the process alive."""
        server = await start(grace_seconds=0.5)
        client = await server.connect()
        await client.send("POST", PATH, b"{", content_length="100")
        server.stop.set()
        async with asyncio.timeout(60):
            await server.task

    async def test_cancellation_closes_everything_at_once(self, start: Start) -> None:
        """The owner of the loop may end the server without asking."""
        server = await start(drain_seconds=30)
        client = await server.connect()
        await client.ask("GET", "/healthz")
        server.task.cancel()
        await asyncio.wait({server.task})
        assert server.task.cancelled()
        with pytest.raises(ConnectionError):
            await server.connect()


async def test_probes_may_have_a_server_of_their_own() -> None:
    """Without reviews, over plain HTTP, and with the registry of the server beside it."""
    registry, stop, health = CollectorRegistry(), asyncio.Event(), Health({"caches": lambda: "not synced"})
    create_app({"/allow": lambda _: ALLOWED}, health=Health(), registry=registry)
    app = create_probes(health=health, registry=registry)
    listening: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serving.serve(
            app,
            host="127.0.0.1",
            port=0,
            health=health,
            stop=stop,
            drain_seconds=0,
            on_listening=lambda *address: listening.set_result(address),
        )
    )
    client = Client(*await asyncio.open_connection(*await listening))
    assert (await client.ask("GET", "/healthz")).status == 200
    assert (await client.ask("GET", "/readyz")).json["notReady"] == {"caches": "not synced"}
    assert b"turnstile_webhook_reviews" in (await client.ask("GET", "/metrics")).body
    assert (await client.ask("POST", PATH, review())).status == 404
    stop.set()
    await task
    client.close()


async def test_a_port_in_use_is_an_error_at_once(server: Server, start: Start) -> None:
    """It is raised to the caller; the process is not ended from within."""
    health = Health()
    with pytest.raises(OSError, match="in use"):
        await serving.serve(
            lambda *_: asyncio.sleep(0), host="127.0.0.1", port=server.port, health=health, stop=asyncio.Event()
        )


async def test_a_client_that_says_nothing_is_dropped(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection without a request, or with half a head, does not stay open for ever."""
    for state in (State.HEAD, State.SILENT):
        monkeypatch.setitem(connections.DEADLINES, state, 0.1)
    silent, slow = await server.connect(), await server.connect()
    slow.writer.write(b"POST /allow HTTP/1.1\r\nHost: ")
    assert await silent.closed()
    assert await slow.closed()


async def test_a_connection_that_is_opened_in_advance_is_kept(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server does so, and a request that meets our close of it would be lost."""
    monkeypatch.setitem(connections.DEADLINES, State.HEAD, 0.1)
    early, slow = await server.connect(), await server.connect()
    slow.writer.write(b"POST /allow HTTP/1.1\r\nHost: ")
    assert await slow.closed()
    assert (await early.ask("GET", "/readyz")).status == 200


async def test_empty_lines_are_no_request(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line ends, which may precede a request, keep no connection open."""
    monkeypatch.setitem(connections.DEADLINES, State.HEAD, 0.1)
    client = await server.connect()
    assert (await client.ask("GET", "/healthz")).status == 200
    client.writer.write(b"\r\n")
    assert await client.closed()
