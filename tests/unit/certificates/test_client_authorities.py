"""A server follows the authorities of its clients' certificates while it runs."""

import asyncio
import ssl
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from testbed.certs import Authority
from turnstile.api.errors import InvalidValue
from turnstile.http.connections import Connections
from turnstile.http.health import Health
from turnstile.http.server import serve
from turnstile.http.tls import ServingCertificate


async def name_of_client(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the common name of the client's certificate, or `nobody`."""
    name = scope.get("extensions", {}).get("tls", {}).get("client_cert_name", "nobody")
    body = name.encode()
    headers = [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def ask(port: int, certificate: tuple[Path, Path] | None) -> str:
    """What the server answers to a client with this certificate; `refused` if the connection fails."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(*certificate)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = await reader.read()
        writer.close()
    except OSError:  # with TLS 1.3 the refusal comes after the client's part of the handshake
        return "refused"
    return answer.rpartition(b"\r\n")[2].decode() or "refused"


@pytest.mark.asyncio
async def test_authorities_are_exchanged_at_the_next_handshake(tmp_path: Path) -> None:
    """What the old authority signed is refused then; clients without a certificate are served before and after."""
    old, new = Authority(tmp_path / "old", name="old"), Authority(tmp_path / "new", name="new")
    certificate = ServingCertificate()
    serving = old.server("server", hosts=["localhost"])
    certificate.load(*(file.read_bytes() for file in serving))
    first, second = old.client("client", user="first"), new.client("client", user="second")
    listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    server = asyncio.create_task(
        serve(
            name_of_client,
            host="127.0.0.1",
            port=0,
            health=Health(certificate=certificate),
            stop=stop,
            connections=Connections(),
            drain_seconds=0,
            on_listening=lambda _, port: listening.set_result(port),
        )
    )
    port = await listening

    assert certificate.trust(old.certificate_file.read_bytes())
    assert await ask(port, first) == "first"
    assert await ask(port, second) == "refused"
    assert await ask(port, None) == "nobody"

    assert certificate.trust(new.certificate_file.read_bytes())
    assert not certificate.trust(new.certificate_file.read_bytes())
    assert await ask(port, first) == "refused"
    assert await ask(port, second) == "second"
    assert await ask(port, None) == "nobody"

    with pytest.raises(InvalidValue, match="client CA"):
        certificate.trust(b"-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    assert await ask(port, second) == "second"
    stop.set()
    await server
