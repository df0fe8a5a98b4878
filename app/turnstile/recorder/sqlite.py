"""A recorder's file: an SQLite database in WAL mode.

One process writes, and any number read meanwhile. After a kill all of a transaction is in the file, or nothing.
"""

import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from turnstile.api.errors import InvalidValue
from turnstile.recorder.connection import Connection, Damaged, Refused, Row, Unavailable

APPLICATION: Final = 0x54524E53
"""SQLite's `application_id` of our files: no other program's database is written to."""
BUSY_SECONDS: Final = 5.0
"""Seconds for which a locked file is waited for."""

_MAGIC: Final = b"SQLite format 3\x00"
_OF_A_RECORD: Final = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InternalError, sqlite3.ProgrammingError)
_CURE: Final = "name the file that `turnstile serve --recorder` writes"


class Sqlite(Connection):
    """A connection to one file. Raises InvalidValue for a file that is not ours."""

    WORDS: ClassVar = {"rows": "json_each(?)", "serial": "INTEGER PRIMARY KEY", "keyed": "WITHOUT ROWID"}
    BEGIN: ClassVar = "BEGIN IMMEDIATE"
    SIZED: ClassVar = True
    TIDY: ClassVar = "PRAGMA incremental_vacuum"

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        with suppress(OSError):
            self._inode = path.stat().st_ino

    @classmethod
    def to_write(cls, path: Path) -> "Sqlite":
        """Open a file, or make it."""
        try:
            found = cls(path, _connect(path.absolute().as_uri()))
        except sqlite3.Error as error:
            raise Unavailable(str(error)) from error
        try:
            found._prepare()
        except BaseException:
            found.close()
            raise
        return found

    def _prepare(self) -> None:
        (tables,) = self.run("SELECT count(*) FROM sqlite_master")[0]
        if tables and self._application != APPLICATION:
            raise InvalidValue("--recorder", str(self.path), "is another program's database: name another file")
        if not tables:
            self.run("PRAGMA auto_vacuum = INCREMENTAL")  # before the first table: what was deleted is given back
        self.run("PRAGMA journal_mode = WAL")
        self.run("PRAGMA synchronous = NORMAL")  # a kill loses nothing, a loss of power at most the last batches
        self.run("PRAGMA journal_size_limit = 16777216")

    @classmethod
    def to_read(cls, path: Path) -> "Sqlite":
        """Open a file; in a folder that may not be written to, the file as it is without what only its WAL has."""
        if not path.is_file():
            raise InvalidValue("--recorder", str(path), f"there is no such file: {_CURE}")
        for mode in ("mode=ro", "mode=ro&immutable=1"):
            connection: sqlite3.Connection | None = None
            try:
                connection = _connect(f"{path.absolute().as_uri()}?{mode}")
                (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.Error as error:
                if connection is not None:
                    connection.close()
                if mode == "mode=ro" and _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                    continue
                raise InvalidValue("--recorder", str(path), f"cannot be read ({error}): {_CURE}") from None
            found = cls(path, connection)
            cure = ""
            if not tables:
                cure = "nothing is recorded in it yet: see the controller's log"
            elif found._application != APPLICATION:
                cure = f"is no recorder's file: {_CURE}"
            if cure:
                found.close()
                raise InvalidValue("--recorder", str(path), cure)
            return found
        raise AssertionError("unreachable")

    def _run(self, statement: str, values: tuple[object, ...]) -> list[Row]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except _OF_A_RECORD as error:
            raise Refused(str(error)) from error
        except sqlite3.Error as error:
            if _code(error) == sqlite3.SQLITE_NOTADB and not _may_be_ours(self.path):
                raise InvalidValue("--recorder", str(self.path), "is no SQLite file: name another one") from None
            broken = _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
            raise (Damaged if broken else Unavailable)(str(error)) from error

    def _alone(self) -> None:
        """BEGIN IMMEDIATE does."""

    @property
    def _application(self) -> int:
        return int(self.run("PRAGMA application_id")[0][0])

    @property
    def version(self) -> int:
        """In SQLite's `user_version`."""
        return int(self.run("PRAGMA user_version")[0][0])

    def set_version(self, version: int) -> None:
        """Beside it the mark of our files."""
        self.run(f"PRAGMA application_id = {APPLICATION}")
        self.run(f"PRAGMA user_version = {version}")

    @property
    def lost(self) -> bool:
        """Whether the file was deleted or replaced since it was opened: it takes no more records."""
        try:
            return self.path.stat().st_ino != self._inode
        except OSError:
            return True

    @property
    def size(self) -> int:
        """Bytes in use, without the pages that the next records will fill."""
        pages, free, each = (self.run(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size"))
        return int((pages - free) * each)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _connect(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _code(error: sqlite3.Error) -> int:
    """The primary code; 0 for errors of the Python module, which have none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _may_be_ours(path: Path) -> bool:
    """Whether a file without a valid header may have been a database: its first bytes say so, or a loss of power has
    filled it with zeros. Others are left alone: a wrong file may have been named."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError:
        return False
    return head in (_MAGIC, bytes(len(_MAGIC)))


def set_aside(path: Path) -> Path:
    """Rename a damaged file, over one that was set aside before. Raises OSError."""
    aside = path.with_name(f"{path.name}.damaged")
    path.replace(aside)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return aside
