"""Holds the serving certificate and replaces it while the server runs.

A new certificate is loaded into the server's SSLContext, so the next handshake uses the new certificate and open
connections are undisturbed. If certificate and key do not match, they are rejected and the old
certificate stays in use. The caller decides where the pair comes from (a watched Secret, or files of cert-manager).
"""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509

from turnstile.api.config.tls import DEFAULTS, SINGLE_CURVES, TlsOptions
from turnstile.api.errors import InvalidValue

POLL_SECONDS: Final = 10.0
"""Seconds between checks of the files."""

_OPENSSL_SUITES: Final = {
    0xC009: "ECDHE-ECDSA-AES128-SHA",
    0xC00A: "ECDHE-ECDSA-AES256-SHA",
    0xC013: "ECDHE-RSA-AES128-SHA",
    0xC014: "ECDHE-RSA-AES256-SHA",
    0xC02B: "ECDHE-ECDSA-AES128-GCM-SHA256",
    0xC02C: "ECDHE-ECDSA-AES256-GCM-SHA384",
    0xC02F: "ECDHE-RSA-AES128-GCM-SHA256",
    0xC030: "ECDHE-RSA-AES256-GCM-SHA384",
    0xCCA8: "ECDHE-RSA-CHACHA20-POLY1305",
    0xCCA9: "ECDHE-ECDSA-CHACHA20-POLY1305",
}
"""OpenSSL's names of the cipher suites of TLS 1.2 that the configuration can name, by their number on the wire."""

_log = structlog.get_logger(__name__)


class ServingCertificate:
    """A server's SSLContext and the certificate loaded into it.

    `context` is what a server shakes hands with. `chain` is the certificate chain in use (PEM), empty before the first
    `load`. With `client_ca` (PEM) clients may present a certificate that it signed; any other one is refused in the
    handshake. Who must present one is decided by path (`turnstile.webhooks.dispatch`): probes of the kubelet have none.
    `options` limits the versions, cipher suites and curves of all handshakes.
    Raises InvalidValue if `client_ca` does not parse.
    """

    def __init__(self, client_ca: bytes = b"", *, options: TlsOptions = DEFAULTS) -> None:
        self.chain = b""
        self.expires = 0.0
        """When the certificate in use ends, in Unix seconds; 0 before the first `load`."""
        self._key = b""
        self._options, self._client_ca = options, client_ca
        self.context = _server_context(options, client_ca)

    @property
    def server_name(self) -> str:
        """A DNS name or IP address of the certificate in use, for a client that verifies the certificate."""
        leaf = x509.load_pem_x509_certificate(self.chain)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        dns = names.get_values_for_type(x509.DNSName)
        return dns[0] if dns else str(names.get_values_for_type(x509.IPAddress)[0])

    def load(self, chain: bytes, key: bytes) -> bool:
        """Use this chain and key (PEM) for new connections; False if they are in use already.

        Raises InvalidValue if they do not parse or do not match; the certificate in use then stays.
        """
        if chain == self.chain and key == self._key:
            return False
        with _as_file(chain) as chain_file, _as_file(key) as key_file:
            try:
                # Tried on a context of its own, because a failed load leaves a context half changed.
                _server_context(self._options).load_cert_chain(chain_file, key_file)
                leaf = x509.load_pem_x509_certificate(chain)
                leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            except (ssl.SSLError, ValueError) as error:
                cure = "give a PEM certificate chain and the private key of its first certificate"
                raise InvalidValue("tls", str(error), cure) from error
            except x509.ExtensionNotFound as error:
                raise InvalidValue(
                    "tls.crt", "no subject alternative name", "name the webhook service in it"
                ) from error
            self.context.load_cert_chain(chain_file, key_file)
        self.chain, self._key = chain, key
        self.expires = leaf.not_valid_after_utc.timestamp()
        return True

    def trust(self, client_ca: bytes) -> bool:
        """Use these authorities (PEM) for the certificates of clients from the next handshake on; False if they are in
        use already.

        A new context is made, because authorities cannot be taken out of one. Raises InvalidValue if `client_ca` does
        not parse; the authorities in use then stay.
        """
        if client_ca == self._client_ca:
            return False
        context = _server_context(self._options, client_ca)
        if self.chain:
            with _as_file(self.chain) as chain_file, _as_file(self._key) as key_file:
                context.load_cert_chain(chain_file, key_file)
        self.context, self._client_ca = context, client_ca
        return True


async def follow_files(
    certificate: ServingCertificate, *, cert: Path, key: Path, interval: float = POLL_SECONDS
) -> None:
    """Load certificate and key files whenever one of them changes, for ever. A pair that does not match is retried.

    Kubernetes replaces the files of a Secret volume by switching a symbolic link, so both change at once; elsewhere one
    file may change before the other, and the next check loads both.
    """
    seen: object = None
    while True:
        try:
            stamp = await asyncio.to_thread(_stamp, cert, key)
            if stamp != seen:
                pair = await asyncio.to_thread(lambda: (cert.read_bytes(), key.read_bytes()))
                if certificate.load(*pair):
                    _log.info("certificate.loaded", cert=str(cert))
                seen = stamp
        except (OSError, InvalidValue) as error:
            _log.warning("certificate.unusable", cert=str(cert), error=str(error))
        await asyncio.sleep(interval)


def _stamp(*files: Path) -> list[tuple[int, int, int]]:
    return [(stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in (file.stat() for file in files)]


def _server_context(options: TlsOptions, client_ca: bytes = b"") -> ssl.SSLContext:
    """As in Go, a list of cipher suites limits TLS 1.2 only; a list without a suite of TLS 1.2 excludes TLS 1.2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion(options.min_version)
    if suites := [_OPENSSL_SUITES[each] for each in options.cipher_suites if each in _OPENSSL_SUITES]:
        context.set_ciphers(":".join(suites))
    elif options.cipher_suites:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    for curve in options.curves:
        context.set_ecdh_curve(SINGLE_CURVES[curve])
    context.set_alpn_protocols(["http/1.1"])
    if client_ca:
        context.verify_mode = ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(cadata=client_ca.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise InvalidValue("client CA", str(error), "give the PEM of certificate authorities") from error
    return context


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path from which OpenSSL can read these bytes; in memory where possible, so that no key is written to disk."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("tls")
        try:
            os.write(descriptor, data)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            yield file.name
