"""Two ways to ask whether a leaf is trusted: a TLS handshake in memory, and path validation at any moment."""

import datetime as dt
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
HOST = "turnstile-webhook-service.turnstile-system.svc"

Handshake = Callable[..., None]
Trusts = Callable[[bytes, bytes, dt.datetime], bool]


@pytest.fixture
def now() -> dt.datetime:
    """A moment of the past."""
    return NOW


@pytest.fixture
def host() -> str:
    """The name by which the API server calls the webhook."""
    return HOST


def shake_hands(server: ssl.SSLContext, bundle: bytes, host: str) -> bytes:
    """A TLS handshake over memory; returns the leaf (DER) that the client was shown. Raises ssl.SSLError."""
    client_context = ssl.create_default_context(cadata=bundle.decode())
    client_context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server, server_hostname=host)
    serving = server.wrap_bio(to_server, to_client, server_side=True)
    pending = [client, serving]
    for _ in range(10):
        for side in list(pending):
            try:
                side.do_handshake()
                pending.remove(side)
            except ssl.SSLWantReadError:
                continue
    assert not pending
    shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return shown


@pytest.fixture(scope="session")
def handshake(tmp_path_factory: pytest.TempPathFactory) -> Handshake:
    """Shake hands with a server that serves the leaf of this Secret data and a client that trusts this bundle."""

    chains: Path = tmp_path_factory.mktemp("chains")

    def check(data: Mapping[str, bytes], bundle: bytes, host: str = HOST) -> None:
        chain = chains / "serving.pem"
        chain.write_bytes(data["tls.key"] + data["tls.crt"])
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(chain)
        shake_hands(server, bundle, host)

    return check


@pytest.fixture(scope="session")
def trusts() -> Trusts:
    """Whether a client that has this bundle accepts this leaf for the webhook's name at a moment."""

    def check(bundle: bytes, leaf: bytes, moment: dt.datetime) -> bool:
        store = Store(x509.load_pem_x509_certificates(bundle))
        verifier = PolicyBuilder().store(store).time(moment).build_server_verifier(x509.DNSName(HOST))
        try:
            verifier.verify(x509.load_pem_x509_certificate(leaf), [])
        except VerificationError:
            return False
        return True

    return check
