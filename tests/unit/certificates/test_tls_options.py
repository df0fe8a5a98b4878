"""All servers take versions, cipher suites and curves from the `tls` section of the configuration file."""

import socket
import ssl
import threading
from pathlib import Path

import pytest

from testbed.certs import Authority
from tests.unit.config.files import loaded
from turnstile.http.tls import ServingCertificate
from turnstile.process.configured import tls_options

SUITE_128, SUITE_256 = "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384"
ONE_SUITE = "tls: {cipherSuites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]}"
OLD, NEW = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


def client(version: ssl.TLSVersion, *, ciphers: str = "", curve: str = "") -> ssl.SSLContext:
    """A client that speaks this version only, with these cipher suites and this curve only."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = context.maximum_version = version
    if ciphers:
        context.set_ciphers(ciphers)
    if curve:
        context.set_ecdh_curve(curve)
    return context


def agreed(body: str, asked: ssl.SSLContext, directory: Path) -> str:
    """The cipher suite that a server with this configuration and the client agree on, or `refused`."""
    certificate = ServingCertificate(options=tls_options(loaded(body)))
    files = Authority(directory / "ca", name="ca").server("server", hosts=["localhost"])
    certificate.load(*(file.read_bytes() for file in files))
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            certificate.context.wrap_socket(ours, server_side=True).close()
        except OSError:
            ours.close()

    server = threading.Thread(target=serve)
    server.start()
    try:
        with asked.wrap_socket(theirs) as connection:
            cipher = connection.cipher()
            return cipher[0] if cipher is not None else "refused"
    except OSError:
        return "refused"
    finally:
        theirs.close()
        server.join()


@pytest.mark.parametrize(
    ("body", "asked", "outcome"),
    [
        ("", client(OLD, ciphers=SUITE_256), SUITE_256),
        ("tls: {minVersion: VersionTLS12}", client(OLD, ciphers=SUITE_256), SUITE_256),
        ("tls: {minVersion: VersionTLS13}", client(OLD), "refused"),
        ("tls: {minVersion: VersionTLS13}", client(NEW), "TLS_AES_256_GCM_SHA384"),
        (ONE_SUITE, client(OLD, ciphers=f"{SUITE_256}:{SUITE_128}"), SUITE_128),
        (ONE_SUITE, client(OLD, ciphers=SUITE_256), "refused"),
        ("tls: {cipherSuites: [TLS_AES_128_GCM_SHA256]}", client(OLD), "refused"),
        ("tls: {curvePreferences: [29]}", client(NEW, curve="prime256v1"), "refused"),
        ("tls: {curvePreferences: [29]}", client(NEW, curve="X25519"), "TLS_AES_256_GCM_SHA384"),
    ],
)
def test_a_handshake_keeps_to_the_options(body: str, asked: ssl.SSLContext, outcome: str, tmp_path: Path) -> None:
    """A version, suite or curve that the file excludes is refused; the rest is as without the section."""
    assert agreed(body, asked, tmp_path) == outcome
