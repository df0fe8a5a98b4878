"""Clients that open connections and do not finish what they began cost the others nothing."""

import asyncio
import datetime as dt
import ssl
from collections.abc import Awaitable, Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from tests.unit.webhooks.conftest import PATH, Client, Server, eventually, pem
from tests.unit.webhooks.test_server_requests import review
from turnstile.api.errors import InvalidValue
from turnstile.http import bodies, connections
from turnstile.http.bodies import BODY_LIMIT, Refused, Turns
from turnstile.http.certificates import KeyPair, make_ca, make_leaf
from turnstile.http.connections import Connections, State
from turnstile.http.tls import ServingCertificate

pytestmark = pytest.mark.asyncio
Start = Callable[..., Awaitable[Server]]
HEAD = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" % PATH.encode()


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


class TestWhoGivesWay:
    """The order in which connections give way, without sockets."""

    def crowd(
        self, clock: Clock, *states: State, limit: int = 0, apart: float = 1.0
    ) -> tuple[Connections, list[State]]:
        """A full server with a connection in each state, seconds apart; and the states of those that are cut."""
        made = Connections(limit=limit or len(states), clock=clock)
        cut: list[State] = []
        for state in states:
            connection = made.enter(lambda: None)
            connection.cut = lambda each=connection: cut.append(each.state)
            made.move(connection, state)
            clock.now += apart
        return made, cut

    async def test_half_a_handshake_goes_before_half_a_request_and_an_idle_connection_last(self) -> None:
        """The states in their order; a connection whose request is being answered never."""
        clock = Clock()
        states = (State.ANSWERING, State.IDLE, State.SILENT, State.BODY, State.HEAD, State.HANDSHAKE)
        made, cut = self.crowd(clock, *states)
        while len(made) > 1:
            made.limit = len(made)
            assert made.make_place() == 0.0
        assert cut == [State.HANDSHAKE, State.HEAD, State.BODY, State.SILENT, State.IDLE]
        made.limit = 1
        assert made.make_place() > 0

    async def test_of_two_in_one_state_the_one_that_is_longer_in_it_goes(self) -> None:
        """By when it came into the state, not by when it connected."""
        clock = Clock()
        made = Connections(limit=2, clock=clock)
        gone: list[str] = []
        first = made.enter(lambda: gone.append("first"))
        made.move(made.enter(lambda: gone.append("second")), State.IDLE)
        clock.now += 1.0
        made.move(first, State.IDLE)
        clock.now += 1.0
        made.make_place()
        assert gone == ["second"]

    async def test_none_gives_way_within_its_first_second(self) -> None:
        """A burst of honest clients waits to be accepted instead."""
        clock = Clock()
        made = Connections(limit=2, clock=clock)
        for _ in range(2):
            made.enter(lambda: None)
        clock.now += 0.25
        assert made.make_place() == 0.75
        assert not made.dropped

    async def test_a_known_certificate_is_kept_to_the_last(self) -> None:
        """Whatever such a client is doing."""
        clock = Clock()
        made = Connections(limit=2, clock=clock)
        trusted = made.enter(lambda: None)
        trusted.trusted = True
        made.move(trusted, State.BODY)
        made.move(made.enter(lambda: None), State.IDLE)
        clock.now += 10.0
        made.make_place()
        assert list(made.dropped) == [(State.IDLE, "full")]

    async def test_every_state_has_its_deadline(self) -> None:
        """What is late is dropped though there is room."""
        clock = Clock()
        made, cut = self.crowd(clock, *State, limit=100, apart=0.0)
        for deadline in sorted(set(connections.DEADLINES.values())):
            clock.now = 100.0 + deadline
            made.sweep()
            assert set(cut) == {state for state in State if connections.DEADLINES[state] <= deadline}
        assert len(made) == 0

    async def test_half_handshakes_have_a_limit_of_their_own(self) -> None:
        """The other half of the places is for connections that got further."""
        clock = Clock()
        made = Connections(limit=10, handshakes=2, clock=clock)
        for _ in range(2):
            made.enter(lambda: None)
        clock.now += 1.0
        assert made.make_place() == 0.0
        assert made.dropped == {(State.HANDSHAKE, "full"): 1}


async def flood(server: Server, count: int) -> list[Client]:
    """Connections of four kinds: half handshakes, half heads, half bodies, and silent ones."""
    found = []
    for number in range(count):
        if number % 4 == 0:
            client = Client(*await asyncio.open_connection(server.host, server.port))
            client.writer.write(bytes.fromhex("16030102000100"))
            server.clients.append(client)
        else:
            client = await server.connect()
            client.writer.write((HEAD, HEAD + b"Content-Length: 100000\r\n\r\n{", b"")[number % 4 - 1])
        found.append(client)
    return found


async def test_a_full_server_answers_new_clients(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty connections that do nothing hold all twenty places in turn; each honest client is answered."""
    monkeypatch.setattr(connections, "GRACE", 0.05)
    places = Connections(limit=20)
    server = await start(connections=places)
    await flood(server, 40)
    for _ in range(20):
        reply = await (await server.connect()).ask("POST", PATH, review())
        assert reply.status == 200
    assert len(places) <= 20
    assert places.dropped.total() >= 40


async def test_a_place_is_given_back(start: Start) -> None:
    """By clients that leave, that never shake hands, and that are refused."""
    places = Connections()
    server = await start(connections=places)
    for client in await flood(server, 8):
        client.close()
    refused = await server.connect()
    await refused.send("POST", PATH, content_length=str(BODY_LIMIT + 1))
    await refused.reply()
    refused.close()
    await eventually(lambda: len(places) == 0)


async def test_a_head_without_end_is_refused(server: Server) -> None:
    """After 16 KiB, whether a header begins over and over or one value never ends."""
    for more in (b"a: b\r\n" * 4000, b"a: " + b"b" * 24_000):
        client = await server.connect()
        client.writer.write(HEAD + more)
        assert (await client.reply()).status == 431
        assert await client.closed()


async def test_requests_are_not_taken_ahead_of_an_answer(server: Server) -> None:
    """Thousands fit into one packet; no API server sends a second request before the first is answered."""
    client = await server.connect()
    client.writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 100)
    assert (await client.reply()).status == 400
    assert await client.closed()


class TestTurns:
    """Few large bodies are read at a time; the others wait unread."""

    async def test_the_smallest_waiting_body_is_next_and_of_equal_ones_the_newest(self) -> None:
        """So a client that declares as much as it may waits behind all others."""
        turns = Turns(1)
        begun: list[str] = []

        async def body(name: str, length: int) -> None:
            async with turns.turn(length):
                begun.append(name)

        async with asyncio.TaskGroup() as group, turns.turn(1):
            for name, length in (("large", 30), ("small", 10), ("medium", 20), ("new small", 10)):
                group.create_task(body(name, length))
            await eventually(lambda: turns.waiting == 4)
        assert begun == ["new small", "small", "medium", "large"]
        assert (turns.reading, turns.waiting, turns.refused) == (0, 0, 0)

    async def test_a_body_that_does_not_arrive_gives_its_turn_to_one_that_waits(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has all the time it needs until another one waits; then it is refused with 429."""
        monkeypatch.setattr(bodies, "TURN_SECONDS", 0.0)
        turns, arrived = Turns(1), asyncio.Event()

        async def slow() -> None:
            async with turns.turn(1), turns.arriving():
                await arrived.wait()

        task = asyncio.create_task(slow())
        await eventually(lambda: turns.reading == 1)
        async with turns.turn(1):
            with pytest.raises(Refused) as caught:
                await task
        assert (caught.value.code, bodies.refusal_headers(429)) == (429, {"retry-after": "1"})
        assert turns.refused == 1

    async def test_a_body_that_has_arrived_keeps_its_turn(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A body that waits meanwhile is refused after its time."""
        monkeypatch.setattr(bodies, "TURN_SECONDS", 0.0)
        monkeypatch.setattr(bodies, "WAIT_SECONDS", 0.05)
        turns = Turns(1)
        async with turns.turn(1):
            async with turns.arriving():
                pass
            with pytest.raises(Refused):
                async with turns.turn(1):
                    pytest.fail("two turns at a time")
        assert (turns.reading, turns.waiting, turns.refused) == (0, 0, 1)

    async def test_a_client_that_leaves_while_it_waits_leaves_no_turn_taken(self) -> None:
        """Also if its turn comes in the same moment."""
        turns = Turns(1)

        async def body() -> None:
            async with turns.turn(1):
                pass

        for leaves_first in (False, True):
            async with turns.turn(1):
                tasks = [asyncio.create_task(body()) for _ in range(2)]
                await eventually(lambda: turns.waiting == 2)
                if leaves_first:
                    tasks[1].cancel()  # its turn would be next
            tasks[0].cancel()
            await asyncio.wait(tasks)
            assert (turns.reading, turns.waiting) == (0, 0)

    async def test_bodies_that_never_end_keep_none_out(self, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
        """Twenty clients each send almost all of the largest body; ten honest reviews of 1 MiB get through. An honest
        body has as long to arrive as the others: 3 s, also for a machine that is busy."""
        monkeypatch.setattr(bodies, "TURN_SECONDS", 3.0)
        server = await start()
        attackers = [await server.connect() for _ in range(20)]
        for attacker in attackers:
            attacker.writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % BODY_LIMIT + b" " * (BODY_LIMIT - 1))
        body = review()
        honest = [await server.connect() for _ in range(10)]
        replies = await asyncio.gather(*(each.ask("POST", PATH, body + b" " * (1 << 20)) for each in honest))
        assert [reply.status for reply in replies] == [200] * 10


# Client certificates.


def client_certificate(ca: KeyPair, name: str) -> KeyPair:
    """A certificate with a common name, which the authority signed."""
    leaf = make_leaf(ca, dt.datetime.now(dt.UTC), ["client"])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca.certificate.subject)
        .public_key(leaf.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .sign(ca.key, hashes.SHA256())
    )
    return KeyPair(certificate, leaf.key)


class TestClientCertificates:
    """With a client CA reviews are for those who have a certificate; probes and conversions for everybody."""

    @pytest.fixture
    def client_ca(self) -> KeyPair:
        """The authority of the clients."""
        return make_ca(dt.datetime.now(dt.UTC), name="clients")

    async def ask(self, server: Server, path: str, client: KeyPair | None, tmp_path: str) -> int:
        """The status of a review, or of a GET for a probe."""
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        if client is not None:
            file = f"{tmp_path}/client.pem"
            with open(file, "wb") as written:  # noqa: ASYNC230 a few bytes
                written.write(b"".join(pem(client)))
            trust.load_cert_chain(file)
        connected = Client(*await asyncio.open_connection(server.host, server.port, ssl=trust))
        server.clients.append(connected)
        method, body = ("GET", b"") if path == "/healthz" else ("POST", review())
        return (await connected.ask(method, path, body)).status

    async def test_reviews_need_one_of_the_names(self, start: Start, client_ca: KeyPair, tmp_path: str) -> None:
        """401 without a certificate, 403 with another name."""
        server = await start(client_ca=client_ca.certificate_pem, clients=("kube-apiserver",))
        known = client_certificate(client_ca, "kube-apiserver")
        assert await self.ask(server, PATH, known, tmp_path) == 200
        assert await self.ask(server, PATH, client_certificate(client_ca, "tenant"), tmp_path) == 403
        assert await self.ask(server, PATH, None, tmp_path) == 401

    async def test_without_names_every_certificate_will_do(
        self, start: Start, client_ca: KeyPair, tmp_path: str
    ) -> None:
        """If the authority signed it."""
        server = await start(client_ca=client_ca.certificate_pem, clients=())
        assert await self.ask(server, PATH, client_certificate(client_ca, "anybody"), tmp_path) == 200
        assert await self.ask(server, PATH, None, tmp_path) == 401
        stranger = client_certificate(make_ca(dt.datetime.now(dt.UTC)), "kube-apiserver")
        with pytest.raises((OSError, AssertionError)):
            await self.ask(server, PATH, stranger, tmp_path)

    async def test_probes_and_conversions_need_none(self, start: Start, client_ca: KeyPair, tmp_path: str) -> None:
        """The kubelet has no certificate, and API servers present none to a conversion webhook."""
        server = await start(client_ca=client_ca.certificate_pem, clients=())
        assert await self.ask(server, "/healthz", None, tmp_path) == 200
        assert await self.ask(server, "/convert", None, tmp_path) == 400

    async def test_an_authority_that_does_not_parse_is_an_error(self) -> None:
        """Of the settings, at the start."""
        with pytest.raises(InvalidValue, match="client CA"):
            ServingCertificate(b"nonsense")
