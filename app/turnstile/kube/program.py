"""Credentials from a program, by the exec protocol of Kubernetes clients (client.authentication.k8s.io).

The program is asked once, and again when the server refuses what it gave. It gets no terminal. Must never log what the
program prints to its standard output, which is a secret, or keep more of what it prints than a bound.
"""

import asyncio
import os
import signal
import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson

from turnstile.api.errors import ConnectionLost
from turnstile.kube.auth import PLUGIN_DEADLINE, load_pair

_SHOWN: Final = 200
"""Characters that an error shows of what the program says is wrong."""
_MOST: Final = 1 << 20
"""Bytes that the program may print: a token and a certificate have thousands."""
_CHUNK: Final = 1 << 16
"""Bytes that are read at a time."""
_LEAVE: Final = 1.0
"""Seconds until a program that was killed is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A program and how it is called. `env` is added to this process's environment."""

    command: str
    args: Sequence[str] = ()
    env: Sequence[tuple[str, str]] = ()
    api_version: str = "client.authentication.k8s.io/v1"
    install_hint: str = ""
    provides_cluster: bool = False
    """Whether the program is told which cluster it is asked about."""


class Program:
    """As `turnstile.kube.auth.Credentials`. `cluster` is the description of the cluster that the program gets."""

    def __init__(self, command: Command, cluster: dict[str, Any]) -> None:
        self._command = command
        self._cluster = cluster
        self._authorization = ""

    def authorization(self) -> str:
        """The header's value; empty for no header (with a client certificate)."""
        return self._authorization

    async def refresh(self, context: ssl.SSLContext | None) -> bool:
        """Ask the program; True if it gave a client certificate. Raises ConnectionLost if it fails."""
        name, called = self._command.command, self._command
        spec = {"interactive": False, **({"cluster": self._cluster} if called.provides_cluster else {})}
        info = {"apiVersion": called.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {**os.environ, **dict(called.env), "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}
        try:
            output = await _output([name, *called.args], environment)
        except TimeoutError:
            raise ConnectionLost(f"program {name} for credentials: no end after {PLUGIN_DEADLINE:g} s") from None
        except OSError as error:
            hint = f"; {called.install_hint}" if called.install_hint else ""
            raise ConnectionLost(f"program {name} for credentials: {error}{hint}") from None
        try:
            status = orjson.loads(output)["status"]
            token, certificate = status.get("token", ""), status.get("clientCertificateData", "")
            if certificate and context is not None:
                load_pair(context, certificate, status.get("clientKeyData", ""))
        except (ValueError, LookupError, TypeError, AttributeError):
            raise ConnectionLost(f"program {name} for credentials: it printed no ExecCredential") from None
        if not (token or certificate):
            raise ConnectionLost(f"program {name} for credentials: its ExecCredential has no token and no certificate")
        self._authorization = f"Bearer {token}" if token else ""
        return bool(certificate)


async def _output(arguments: Sequence[str], environment: dict[str, str]) -> bytes:
    """The standard output of a program. Raises OSError or TimeoutError."""
    pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *arguments, stdin=none, stdout=pipe, stderr=pipe, env=environment, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(PLUGIN_DEADLINE), asyncio.TaskGroup() as group:
            complaint = group.create_task(_beginning(process.stderr, _SHOWN), name="what the program complains about")
            output = b""
            while len(output) <= _MOST and (chunk := await process.stdout.read(_CHUNK)):
                output += chunk
            if len(output) > _MOST:
                _kill(process)
                await _beginning(process.stdout, 0)  # asyncio waits for the end of the pipes, which no other task reads
            await process.wait()
    finally:
        if process.returncode is None:
            _kill(process)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVE):
                    await process.communicate()
    if len(output) > _MOST:
        raise OSError(f"it printed more than {_MOST} bytes")
    if process.returncode:
        raise OSError(f"exit status {process.returncode}: {complaint.result().decode(errors='replace').strip()}")
    return output


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill a program and those that it has started, which hold its pipes open."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def _beginning(stream: asyncio.StreamReader, count: int) -> bytes:
    """The first bytes of a stream, which is read to its end: a writer never waits for a reader."""
    found = b""
    while chunk := await stream.read(_CHUNK):
        found += chunk[: count - len(found)]
    return found
