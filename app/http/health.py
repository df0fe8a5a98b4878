"""Whether this process is alive, and whether it is ready to review: what the probes answer.

Ready means that every named check passes (the caches have synced, say), that a TLS round trip to the server's own port
works, and that the server is not about to stop. Whatever is not ready is named, for whoever reads the probe's body.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Final

from app.http.tls import ServingCertificate

Check = Callable[[], str]
"""Says why something is not ready yet; the empty string when it is."""

ROUND_TRIP_TIMEOUT: Final = 2.0
ROUND_TRIP_KEPT: Final = 5.0
"""Seconds for which a round trip that worked is believed to work: probes must not become a load."""


class Health:
    """State of the probes of one server.

    `checks` are asked in their order. `certificate` is the one the server shows, None when it serves plain HTTP.
    `notes` tells what does not work although the process is ready, such as a kind that may not be read.
    """

    def __init__(
        self,
        checks: Mapping[str, Check] | None = None,
        *,
        certificate: ServingCertificate | None = None,
        notes: Callable[[], list[str]] = list,
    ) -> None:
        self.checks = dict(checks or {})
        self.certificate = certificate
        self.notes = notes
        self.address: tuple[str, int] | None = None
        """Where the server listens; set by the server."""
        self.draining = False
        """The server is about to stop: not ready, and every answer asks its client to open another connection."""
        self._until = 0.0
        self._asking = asyncio.Lock()

    async def faults(self) -> dict[str, str]:
        """What is not ready, by name, with the reason; empty when all is."""
        faults = {name: fault for name, check in self.checks.items() if (fault := check())}
        if self.draining:
            faults["shutdown"] = "the server is about to stop"
        elif fault := await self._tls():
            faults["tls"] = fault
        return faults

    async def _tls(self) -> str:
        if self.certificate is None:
            return ""
        if self.address is None:
            return "the server does not listen yet"
        if not self.certificate.chain:
            return "no serving certificate yet"
        async with self._asking:
            if time.monotonic() >= self._until:
                if fault := await round_trip(self.address, self.certificate):
                    return fault
                self._until = time.monotonic() + ROUND_TRIP_KEPT
            return ""


async def round_trip(address: tuple[str, int], certificate: ServingCertificate) -> str:
    """Ask `address` for `/healthz` and check that it shows this certificate, good today; "" if it does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trust the leaf itself, for its CA may be unknown here
    context.load_verify_locations(cadata=certificate.chain.decode("ascii"))
    host, port = address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 compared, not bound
    try:
        async with asyncio.timeout(ROUND_TRIP_TIMEOUT):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context, server_hostname=certificate.server_name
            )
            try:
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: self\r\nConnection: close\r\n\r\n")
                status = await reader.readline()
                await reader.read()
            finally:
                writer.close()
    except TimeoutError:
        return f"no answer from {host}:{port} within {ROUND_TRIP_TIMEOUT:g} s"
    except (OSError, ssl.SSLError) as error:
        return f"{host}:{port}: {error}"
    return "" if b" 200 " in status else f"{host}:{port} answered {status.decode('latin-1').strip()!r}"
