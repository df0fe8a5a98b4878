"""A real PostgreSQL (Debian: apt-get install postgresql) for tests of records in it, and a fresh place for each.

It listens on 127.0.0.1, asks for a password, and ends with the tests. Where it is not installed, they are skipped.
"""

import asyncio
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import asyncpg
import pytest

from testbed.client import wait_until
from testbed.ports import lent_port
from testbed.processes import Process, ProcessGroup

PASSWORD = "not/told:to@anybody"
ENCODED = "not%2Ftold%3Ato%40anybody"
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "shared_buffers": "16MB", "max_connections": "30"}


def _programs() -> Path | None:
    """The folder of the server's programs, which Debian keeps off the PATH."""
    found = shutil.which("postgres")
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda each: int(each.parts[-3]))
    if found is not None:
        return Path(found).resolve().parent
    return versions[-1].parent if versions else None


def _as_another() -> list[str]:
    """The server refuses to run as root."""
    if os.geteuid():
        return []
    names = {each.pw_name for each in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


class PostgresServer:
    """The server and its data; `start` and `kill` may be called in turn."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self._directory, self._programs = directory, programs
        self._group = ProcessGroup(directory)
        self._process: Process | None = None
        self._numbers = count()
        self.port = lent_port()
        password = directory / "password"
        password.write_text(PASSWORD)
        self._own()
        initialize = [programs / "initdb", "--no-sync", "--auth=scram-sha-256", f"--pwfile={password}"]
        arguments = ["--username=owner", "--encoding=UTF8", "--locale=C", "-D", directory / "data"]
        subprocess.run(
            [*_as_another(), *initialize, *arguments], check=True, capture_output=True, timeout=60, cwd=directory
        )

    def _own(self) -> None:
        if other := _as_another():
            user = int(other[1].partition("=")[2])
            for each in (self._directory, *self._directory.iterdir()):
                os.chown(each, user, -1)

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        data, sockets = self._directory / "data", self._directory
        addresses = ["-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}", "-k", sockets]
        command = [*_as_another(), self._programs / "postgres", "-D", data, *addresses, *settings]
        process = self._group.start("postgres", command, log=self._directory / "log", cwd=self._directory)
        wait_until(lambda: self._answers(process), timeout=30, describe=lambda: process.tail(20))
        self._process = process

    def _answers(self, process: Process) -> bool:
        process.require_running()
        try:
            self.execute("SELECT 1")
        except (OSError, asyncpg.PostgresError):
            return False
        return True

    def kill(self) -> None:
        """End it as a loss of power would."""
        assert self._process is not None
        self._process.kill()

    def stop(self) -> None:
        """Kill it, for ever."""
        self._group.stop()

    def url(self, database: str = "postgres", *, user: str = "owner") -> str:
        """As `--recorder` takes it."""
        return f"postgresql://{user}:{ENCODED}@127.0.0.1:{self.port}/{database}"

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Run statements as the owner of everything."""

        async def run() -> None:
            connection = await asyncpg.connect(self.url(database), timeout=10)
            try:
                for statement in statements:
                    await connection.execute(statement)
            finally:
                await connection.close()

        with asyncio.Runner() as runner:
            runner.run(run())

    def schema(self) -> str:
        """The URL of a schema that does not exist yet: cheaper than a database."""
        return f"{self.url()}?search_path=schema_{next(self._numbers)}"

    def database(self) -> str:
        """The URL of a fresh database."""
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The one of the session; a test that kills it starts it again."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    directory = Path(tempfile.mkdtemp(prefix="turnstile-postgres-"))
    server = PostgresServer(directory, programs)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
