"""The recorder's file: an SQLite database in WAL mode, its tables, and what is written to it.

A batch of records is one statement for each table, which SQLite takes as one JSON text: the interpreter lock is free
while SQLite works, so the event loop of the process is not held up. Each batch is one transaction: after a kill all of
it is there or nothing. Must never be called from the event loop.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from app.api.errors import InvalidValue
from app.engine.instants import Instant
from app.recorder.facts import Fact, Quota, Record, Subject

VERSION: Final = 1
"""Version of the tables, in SQLite's `user_version`."""
APPLICATION: Final = 0x54524E53
"""SQLite's `application_id` of our files: no other program's database is written to."""
BUSY_SECONDS: Final = 5.0
"""Seconds for which a locked file is waited for."""

PIECE: Final = 500
"""Uids that are encoded at once: the interpreter lock is held meanwhile."""

_SCHEMA: Final = """
CREATE TABLE workloads (
    uid TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    owner_kind TEXT NOT NULL,
    owner_name TEXT NOT NULL,
    local_queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    created REAL NOT NULL,
    labels TEXT NOT NULL,
    over REAL,                      -- when it finished or was deleted: it holds no quota since
    gone REAL                       -- when it was deleted
) WITHOUT ROWID;
CREATE INDEX workloads_by_name ON workloads (namespace, name);
CREATE INDEX workloads_by_owner ON workloads (namespace, owner_name);
CREATE INDEX workloads_by_end ON workloads (over);
CREATE TABLE facts (
    seq INTEGER PRIMARY KEY,        -- in the order of recording
    uid TEXT NOT NULL,
    what TEXT NOT NULL,
    at REAL NOT NULL,
    attempt INTEGER NOT NULL,
    mark TEXT NOT NULL,
    reason TEXT NOT NULL,
    message TEXT NOT NULL,
    detail TEXT,
    UNIQUE (uid, what, mark)
);
CREATE INDEX facts_by_workload ON facts (uid, what, seq);
CREATE TABLE quotas (
    seq INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    at REAL NOT NULL,
    parent TEXT NOT NULL,
    amounts TEXT NOT NULL,
    gone INTEGER NOT NULL
);
CREATE INDEX quotas_by_name ON quotas (kind, name, seq);
"""

_SUBJECTS: Final = """
INSERT OR IGNORE INTO workloads
    (uid, namespace, name, owner_kind, owner_name, local_queue, priority, created, labels)
SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7, value->8
FROM json_each(?)
"""
_FACTS: Final = """
INSERT OR IGNORE INTO facts (uid, what, at, attempt, mark, reason, message, detail)
SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>6, value->>7, nullif(value->8, 'null')
FROM json_each(:rows)
WHERE NOT (value->>5) OR NOT EXISTS (
    SELECT 1 FROM (SELECT * FROM facts WHERE uid = value->>0 AND what = value->>1 ORDER BY seq DESC LIMIT 1) AS newest
    WHERE newest.attempt = value->>3 AND newest.reason = value->>6 AND newest.message = value->>7
        AND newest.detail IS nullif(value->8, 'null')
)
ORDER BY key
"""
_ENDS: Final = """
UPDATE workloads SET
    over = coalesce(over, ended.at), gone = coalesce(workloads.gone, ended.gone)
FROM (
    SELECT value->>0 AS uid, min(value->>2) AS at, min(iif(value->>1 = 'deleted', value->>2, NULL)) AS gone
    FROM json_each(:rows) WHERE value->>1 IN ('finished', 'deleted') GROUP BY value->>0
) AS ended
WHERE workloads.uid = ended.uid
"""
_QUOTAS: Final = """
INSERT INTO quotas (kind, name, at, parent, amounts, gone)
SELECT value->>0, value->>1,
    iif(EXISTS (SELECT 1 FROM quotas WHERE kind = value->>0 AND name = value->>1), value->>2,
        coalesce(value->>6, value->>2)),
    value->>3, value->4, value->>5
FROM json_each(?)
WHERE NOT EXISTS (
    SELECT 1 FROM (SELECT * FROM quotas WHERE kind = value->>0 AND name = value->>1 ORDER BY seq DESC LIMIT 1) AS newest
    WHERE newest.parent = value->>3 AND newest.amounts = value->4 AND newest.gone = value->>5
)
ORDER BY key
"""
_LOST_WORKLOADS: Final = """
INSERT OR IGNORE INTO facts (uid, what, at, attempt, mark, reason, message)
SELECT uid, 'deleted', :now, 0, '', 'NotSeen', 'deleted while no leader recorded; the time is when that was noticed'
FROM workloads WHERE gone IS NULL AND uid NOT IN (SELECT uid FROM present)
"""
_MARK_LOST: Final = """
UPDATE workloads SET over = coalesce(over, :now), gone = :now
WHERE gone IS NULL AND uid NOT IN (SELECT uid FROM present)
"""
_LOST_QUOTAS: Final = """
INSERT INTO quotas (kind, name, at, parent, amounts, gone)
SELECT kind, name, :now, '', '[]', 1 FROM quotas AS newest
WHERE gone = 0 AND seq = (SELECT max(seq) FROM quotas WHERE kind = newest.kind AND name = newest.name)
    AND kind || '/' || name NOT IN (SELECT value FROM json_each(:names))
"""


class Database:
    """One connection that writes. Raises sqlite3.Error, and InvalidValue for a file that is not ours."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._prepare()
            self._inode = path.stat().st_ino
        except BaseException:
            self._connection.close()
            raise

    @property
    def there(self) -> bool:
        """Whether the file is still the one that was opened; a file that was deleted or replaced takes no records."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def _prepare(self) -> None:
        run = self._connection.execute
        try:
            (version,) = run("PRAGMA user_version").fetchone()
            (application,) = run("PRAGMA application_id").fetchone()
            (tables,) = run("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_NOTADB:
                raise InvalidValue("--recorder", str(self.path), "is no SQLite file: name another one") from None
            raise
        if tables and application != APPLICATION:
            raise InvalidValue("--recorder", str(self.path), "is another program's database: name another file")
        if version > VERSION:
            cure = f"was written by a newer Turnstile (tables {version}, this one knows {VERSION}): name another file"
            raise InvalidValue("--recorder", str(self.path), cure)
        if not tables:
            run("PRAGMA auto_vacuum = INCREMENTAL")  # before the first table: what was deleted is given back
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")  # a kill loses nothing committed, a loss of power at most the last batches
        run("PRAGMA journal_size_limit = 16777216")
        if not tables:
            run("BEGIN IMMEDIATE")
            if not run("SELECT count(*) FROM sqlite_master").fetchone()[0]:  # another process may have been first
                for statement in _SCHEMA.split(";"):
                    run(statement)
                run(f"PRAGMA application_id = {APPLICATION}")
                run(f"PRAGMA user_version = {VERSION}")
            run("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def store(self, records: Sequence[Record]) -> None:
        """Write a batch: all of it, or nothing."""
        rows = msgspec.json.encode([each for each in records if isinstance(each, Fact)]).decode()
        with self._transaction() as run:
            run(_SUBJECTS, (msgspec.json.encode([each for each in records if isinstance(each, Subject)]).decode(),))
            run(_FACTS, {"rows": rows})
            run(_ENDS, {"rows": rows})
            run(_QUOTAS, (msgspec.json.encode([each for each in records if isinstance(each, Quota)]).decode(),))

    def settle(self, uids: Iterable[str], names: Iterable[str], now: Instant) -> None:
        """Record as deleted what is not among the uids of all Workloads and the names (`Kind/name`) of all quotas."""
        run = self._connection.execute
        run("CREATE TEMP TABLE IF NOT EXISTS present (uid TEXT PRIMARY KEY) WITHOUT ROWID")
        run("DELETE FROM present")
        rest = iter(uids)
        while some := list(islice(rest, PIECE)):
            run("INSERT OR IGNORE INTO present SELECT value FROM json_each(?)", (msgspec.json.encode(some).decode(),))
        with self._transaction():
            run(_LOST_WORKLOADS, {"now": now})
            run(_MARK_LOST, {"now": now})
            run(_LOST_QUOTAS, {"now": now, "names": msgspec.json.encode(list(names)).decode()})
        run("DELETE FROM present")

    @property
    def size(self) -> int:
        """Bytes in use, without the pages that the next records will fill."""
        pages, free, each = (
            self._connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * each)

    def forget_before(self, horizon: Instant, *, at_most: int) -> int:
        """Delete Workloads that were over before the horizon, the oldest first; returns how many. Those that are not
        over stay, and so do the quotas that held after the horizon."""
        ended = "SELECT uid FROM workloads WHERE over < ? ORDER BY over LIMIT ?"
        with self._transaction() as run:
            uids = msgspec.json.encode([uid for (uid,) in run(ended, (horizon, at_most))]).decode()
            run("DELETE FROM facts WHERE uid IN (SELECT value FROM json_each(?))", (uids,))
            gone = run("DELETE FROM workloads WHERE uid IN (SELECT value FROM json_each(?))", (uids,)).rowcount
            run(
                "DELETE FROM quotas AS old WHERE at < ? AND EXISTS (SELECT 1 FROM quotas AS newer"
                " WHERE newer.kind = old.kind AND newer.name = old.name AND newer.seq > old.seq AND newer.at <= ?)",
                (horizon, horizon),
            )
        self._give_back()
        return gone

    def forget_oldest(self, *, at_most: int) -> int:
        """Delete the Workloads that were over first; without any, the oldest reasons why Workloads wait. Returns how
        many rows."""
        row = self._connection.execute("SELECT max(over) FROM workloads").fetchone()
        if row[0] is not None:
            return self.forget_before(row[0] + 1.0, at_most=at_most)
        with self._transaction() as run:
            reasons = "SELECT seq FROM facts WHERE what IN ('tried', 'waiting') ORDER BY seq LIMIT ?"
            gone = run(f"DELETE FROM facts WHERE seq IN ({reasons})", (at_most,)).rowcount  # noqa: S608 -- constant
        self._give_back()
        return gone

    @contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """All statements of the block take effect, or none."""
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        try:
            yield run
            run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                run("ROLLBACK")
            raise

    def _give_back(self) -> None:
        self._connection.execute("PRAGMA incremental_vacuum").fetchall()
