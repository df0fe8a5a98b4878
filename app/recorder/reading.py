"""Reads the recorder's file, while a leader writes to it or long after: Workloads, their timelines, what was held.

The read API for commands and pages. Each `Reader` is one read-only connection; it may be used in one thread at a time.
Must never write, and never hold the file so that the writer has to wait.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from app.api.errors import InvalidValue
from app.engine.instants import Instant
from app.recorder.database import APPLICATION, VERSION
from app.recorder.facts import Quota

BUSY_SECONDS: Final = 5.0
_CURE: Final = "name the file that `turnstile serve --recorder` writes"
_COLUMNS: Final = "uid, namespace, name, owner_kind, owner_name, local_queue, priority, created, labels, over, gone"


class Recorded(msgspec.Struct, frozen=True):
    """A Workload of the file: `over` is when it finished or was deleted, `gone` when it was deleted."""

    uid: str
    namespace: str
    name: str
    owner_kind: str
    owner_name: str
    local_queue: str
    priority: int
    created: Instant
    labels: dict[str, str]
    over: Instant | None
    gone: Instant | None


class Entry(msgspec.Struct, frozen=True):
    """One line of a timeline. `what` is one of `facts.What`."""

    uid: str
    what: str
    at: Instant
    attempt: int
    reason: str
    message: str
    detail: dict[str, Any]


class Span(msgspec.Struct, frozen=True):
    """What a file covers: the first and the last instant, None for an empty one, and how many Workloads."""

    first: Instant | None
    last: Instant | None
    workloads: int


@contextmanager
def reading(path: Path) -> Iterator["Reader"]:
    """Open a file for reading. Raises InvalidValue for a file that is not there, not ours or cannot be read."""
    if not path.is_file():
        raise InvalidValue("--recorder", str(path), f"there is no such file: {_CURE}")
    try:
        connection = _open(path)
    except sqlite3.Error as error:
        raise InvalidValue("--recorder", str(path), f"cannot be read ({error}): {_CURE}") from None
    try:
        yield Reader(connection)
    except sqlite3.Error as error:
        raise InvalidValue("--recorder", str(path), f"cannot be read: {error}") from None
    finally:
        connection.close()


def _open(path: Path) -> sqlite3.Connection:
    """Read-only; in a folder that may not be written to, the file as it is without what only its WAL has."""
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=BUSY_SECONDS, check_same_thread=False
        )
        try:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            connection.close()
            if "immutable" in mode:
                raise
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            continue
        except sqlite3.Error:
            connection.close()
            raise
        if not tables:
            connection.close()
            raise InvalidValue("--recorder", str(path), "nothing is recorded in it yet: see the controller's log")
        if application != APPLICATION or version > VERSION:
            connection.close()
            cure = "is no recorder's file" if application != APPLICATION else "was written by a newer Turnstile"
            raise InvalidValue("--recorder", str(path), f"{cure}: {_CURE}")
        return connection
    raise AssertionError("unreachable")


class Reader:
    """Questions to one file. Times are Unix seconds."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def span(self) -> Span:
        """What the file covers."""
        first, last = self._connection.execute("SELECT min(at), max(at) FROM facts").fetchone()
        (count,) = self._connection.execute("SELECT count(*) FROM workloads").fetchone()
        return Span(first, last, count)

    def workload(self, uid: str) -> Recorded | None:
        """A Workload by its uid, if it is recorded."""
        return next(self._workloads("uid = ?", uid), None)

    def named(self, namespace: str, name: str) -> list[Recorded]:
        """All Workloads that had a name, one after the other, the oldest first."""
        return list(self._workloads("namespace = ? AND name = ?", namespace, name))

    def of_owner(self, namespace: str, kind: str, name: str) -> list[Recorded]:
        """All Workloads of a job, the oldest first; the kind in any case of letters."""
        where = "namespace = ? AND owner_name = ? AND lower(owner_kind) = lower(?)"
        return list(self._workloads(where, namespace, name, kind))

    def newest(self, *, namespace: str = "", at_most: int = 100) -> list[Recorded]:
        """The Workloads that were created last, the newest first; of all namespaces if none is given."""
        where, given = ("namespace = ?", [namespace]) if namespace else ("1", [])
        found = self._connection.execute(
            f"SELECT {_COLUMNS} FROM workloads WHERE {where} ORDER BY created DESC LIMIT ?",  # noqa: S608 -- constants
            [*given, at_most],
        )
        return [_recorded(row) for row in found]

    def gone(self, words: Sequence[str], *, at_most: int = 100) -> tuple[int, list[Recorded]]:
        """How many Workloads were deleted whose namespace and name contain all of these words, in small letters, and
        those that were deleted last, the latest first."""
        where = " AND ".join(["gone IS NOT NULL", *["instr(namespace || '/' || name, ?)"] * len(words)])
        (count,) = self._connection.execute(f"SELECT count(*) FROM workloads WHERE {where}", words).fetchone()  # noqa: S608 -- constants
        found = self._connection.execute(
            f"SELECT {_COLUMNS} FROM workloads WHERE {where} ORDER BY gone DESC, created DESC LIMIT ?",  # noqa: S608 -- constants
            [*words, at_most],
        )
        return count, [_recorded(row) for row in found]

    def _workloads(self, where: str, *given: object) -> Iterator[Recorded]:
        query = f"SELECT {_COLUMNS} FROM workloads WHERE {where} ORDER BY created"  # noqa: S608 -- constants
        return (_recorded(row) for row in self._connection.execute(query, given))

    def timeline(self, uid: str) -> list[Entry]:
        """All that happened to a Workload, in order."""
        query = "SELECT uid, what, at, attempt, reason, message, detail FROM facts WHERE uid = ? ORDER BY at, seq"
        return [_entry(row) for row in self._connection.execute(query, (uid,))]

    def changes_of_usage(self, since: Instant, until: Instant) -> Iterator[tuple[Recorded, list[Entry]]]:
        """Of each Workload that may have held quota between two instants, when it got, had and lost quota."""
        query = (
            "SELECT f.uid, f.what, f.at, f.attempt, f.reason, '', f.detail FROM facts AS f WHERE f.uid = ?"
            " AND f.what IN ('reserved', 'admitted', 'usage', 'evicted', 'released', 'waiting', 'finished', 'deleted')"
            " ORDER BY f.at, f.seq"
        )
        where = "(over IS NULL OR over >= ?) AND created < ?"
        for workload in list(self._workloads(where, since, until)):
            yield workload, [_entry(row) for row in self._connection.execute(query, (workload.uid,))]

    def quotas(self) -> list[Quota]:
        """The quotas of all ClusterQueues and Cohorts, each with the instant from which it held, in order."""
        query = "SELECT kind, name, at, parent, amounts, gone FROM quotas ORDER BY at, seq"
        return [
            Quota(kind, name, at, parent, tuple(tuple(each) for each in msgspec.json.decode(amounts)), bool(gone))
            for kind, name, at, parent, amounts, gone in self._connection.execute(query)
        ]


def _recorded(row: tuple[Any, ...]) -> Recorded:
    values = [*row[:8], msgspec.json.decode(row[8]), *row[9:]]
    return msgspec.convert(dict(zip(Recorded.__struct_fields__, values, strict=True)), Recorded)


def _entry(row: tuple[Any, ...]) -> Entry:
    values = [*row[:6], msgspec.json.decode(row[6]) if row[6] else {}]
    return msgspec.convert(dict(zip(Entry.__struct_fields__, values, strict=True)), Entry)
