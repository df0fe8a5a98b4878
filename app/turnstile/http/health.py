"""Decides whether this process is alive, and ready to answer reviews, for the probes.

Ready means that every named check passes (for example, the caches have synced), that a TLS round trip to the server's
own port succeeds, and that the server is not about to stop. The body of the probe names every fault.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Final

from turnstile.http.tls import ServingCertificate

Check = Callable[[], str]
"""Returns why a component is not ready yet; the empty string when the component is ready."""

ROUND_TRIP_TIMEOUT: Final = 2.0
ROUND_TRIP_KEPT: Final = 5.0
"""Seconds for which a successful round trip is not repeated, so that probes cause little load."""


class Health:
    """State of the probes of one server.

    `checks` are called in their order. `dead` returns what only a restart can mend, by name. `certificate` is the
    serving certificate, None for plain HTTP. `notes` returns faults that do not affect readiness, such as a kind that
    RBAC forbids to read.
    """

    def __init__(
        self,
        checks: Mapping[str, Check] | None = None,
        *,
        certificate: ServingCertificate | None = None,
        notes: Callable[[], list[str]] = list,
        dead: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.checks = dict(checks or {})
        self.certificate = certificate
        self.notes = notes
        self.dead = dead
        self.address: tuple[str, int] | None = None
        """Where the server listens; set by the server."""
        self.draining = False
        """The server is about to stop: it is not ready, and every answer asks the client to close the connection."""
        self._until = 0.0
        self._asking = asyncio.Lock()

    async def faults(self) -> dict[str, str]:
        """Faults by name, with the reason; empty when the process is ready."""
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
    """Request `/healthz` from `address` and verify that it serves this certificate, valid now; "" or the fault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trust the leaf itself, because its CA may be unknown here
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
