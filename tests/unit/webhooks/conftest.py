"""A webhook server on a real TLS socket of this machine, and a raw client that can misbehave."""

import asyncio
import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from prometheus_client import CollectorRegistry

from tests.unit.webhooks.reviews import Cluster, Json
from turnstile.http.certificates import KeyPair, make_ca, make_leaf
from turnstile.http.health import Health
from turnstile.http.probes import MetricsReaders, any_reader
from turnstile.http.server import serve
from turnstile.http.tls import ServingCertificate
from turnstile.webhooks.application import create_app
from turnstile.webhooks.review import ALLOWED, Answer, Request
from turnstile.webhooks.routes import routes

PATH = "/mutate-batch-v1-job"


def pem(pair: KeyPair) -> tuple[bytes, bytes]:
    """Certificate and key as a Secret holds them."""
    key = pair.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pair.certificate.public_bytes(Encoding.PEM), key


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds, for ten seconds at most."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 what is waited for has no event
            await asyncio.sleep(0.005)


def new_pair(ca: KeyPair) -> tuple[bytes, bytes]:
    """A fresh certificate for localhost, with its key."""
    return pem(make_leaf(ca, dt.datetime.now(dt.UTC), ["localhost"]))


@pytest.fixture(scope="session")
def ca() -> KeyPair:
    """The authority that clients trust."""
    return make_ca(dt.datetime.now(dt.UTC))


@dataclass
class Reply:
    """An HTTP response, read to the end of its body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        """The body as JSON."""
        decoded: Json = json.loads(self.body)
        return decoded


class Client:
    """One TLS connection to the server, and HTTP/1.1 by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @property
    def serial(self) -> int:
        """What tells the server's certificate from another."""
        shown = self.writer.get_extra_info("ssl_object").getpeercert()
        return int(shown["serialNumber"], 16)

    async def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> None:
        """Write a request; a header given as None is left out."""
        given = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body))}
        given.update({name.replace("_", "-"): value for name, value in headers.items()})
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
        self.writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        await self.writer.drain()

    async def reply(self) -> Reply:
        """Read one response."""
        status = await self.reader.readline()
        assert status, "the connection was closed without an answer"
        headers = {}
        while (line := (await self.reader.readline()).strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = await self.reader.read()
        return Reply(int(status.split()[1]), headers, body)

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
        """One request and its response, within ten seconds."""
        async with asyncio.timeout(60):
            await self.send(method, path, body, **headers)
            return await self.reply()

    async def closed(self) -> bool:
        """Wait until the server closes the connection, or resets it."""
        try:
            async with asyncio.timeout(60):
                return await self.reader.read() == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        """Go away at once."""
        self.writer.transport.abort()


@dataclass
class Server:
    """A running server and what it is made of."""

    health: Health
    certificate: ServingCertificate
    trust: ssl.SSLContext
    stop: asyncio.Event
    task: "asyncio.Task[None]"
    host: str
    port: int
    clients: list[Client] = field(default_factory=list)

    async def connect(self) -> Client:
        """A new connection, its certificate checked."""
        reader, writer = await asyncio.open_connection(
            self.host, self.port, ssl=self.trust, server_hostname="localhost", limit=1 << 24
        )
        self.clients.append(Client(reader, writer))
        return self.clients[-1]


def crash(_: Request) -> Answer:
    """A handler with a bug."""
    raise ZeroDivisionError("secret detail")


@pytest_asyncio.fixture
async def start(ca: KeyPair) -> AsyncIterator[Callable[..., "asyncio.Future[Server]"]]:
    """Start a server; keyword arguments go to `serve`. It is cut when the test ends."""
    running: list[Server] = []

    async def begin(
        *,
        health: Health | None = None,
        client_ca: bytes = b"",
        clients: tuple[str, ...] | None = None,
        readers: MetricsReaders = any_reader,
        **options: Any,
    ) -> Server:
        certificate = ServingCertificate(client_ca)
        certificate.load(*new_pair(ca))
        health = health or Health()
        health.certificate = certificate
        trust = ssl.create_default_context(cadata=ca.certificate.public_bytes(Encoding.PEM).decode())
        stop = asyncio.Event()
        listening: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        handlers = {**routes(Cluster(default_queue_in=("team-a",))), "/crash": crash, "/allow": lambda _: ALLOWED}
        app = create_app(
            handlers,
            health=health,
            registry=CollectorRegistry(),
            connections=options.get("connections"),
            clients=clients,
            readers=readers,
        )
        task = asyncio.create_task(
            serve(
                app,
                host="127.0.0.1",
                port=0,
                health=health,
                stop=stop,
                on_listening=lambda *address: listening.set_result(address),
                **{"drain_seconds": 0.05, "grace_seconds": 1, **options},
            )
        )
        await asyncio.wait({task, listening}, return_when=asyncio.FIRST_COMPLETED)
        host, port = listening.result()
        running.append(Server(health, certificate, trust, stop, task, host, port))
        return running[-1]

    yield begin  # type: ignore[misc]
    for server in running:
        for client in server.clients:
            client.close()
        server.task.cancel()
        await asyncio.wait({server.task})


@pytest_asyncio.fixture
async def server(start: Callable[..., "asyncio.Future[Server]"]) -> Server:
    """A running server."""
    return await start()
