"""Reads the recorder's store, while a leader writes to it or long after: Workloads, their timelines, what was held.

The read API for commands and pages. Each `Reader` is one read-only connection; it may be used in one thread at a time.
Must never write, and never hold the store so that the writer has to wait.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import msgspec

from turnstile.api.errors import InvalidValue
from turnstile.engine.instants import Instant
from turnstile.recorder.connection import Connection, Refused, Unavailable
from turnstile.recorder.facts import Quota
from turnstile.recorder.location import Location
from turnstile.recorder.schema import require_known
from turnstile.recorder.scope import EVERYTHING, Scope

PIECE: Final = 1000
"""Workloads whose facts are read at once."""
_COLUMNS: Final = "uid, namespace, name, owner_kind, owner_name, local_queue, priority, created, labels, over, gone"
_ENTRY: Final = "uid, what, at, attempt, reason, message, detail"

_LITERAL: Final = str.maketrans({each: f"!{each}" for each in "%_!"})


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


def opened(location: Location) -> Connection:
    """A connection that reads. Raises InvalidValue for a store that is not there or not ours, and Unavailable."""
    connection = location.open(write=False)
    try:
        require_known(connection.version, str(location))
    except BaseException:
        connection.close()
        raise
    return connection


def unreadable(location: Location, why: str) -> InvalidValue:
    """The sentence about a store that cannot be read now."""
    return InvalidValue("--recorder", str(location), f"cannot be read: {why}")


@contextmanager
def reading(location: Location) -> Iterator["Reader"]:
    """Open a store for reading. Raises InvalidValue for one that is not there, not ours or cannot be read."""
    connection: Connection | None = None
    try:
        connection = opened(location)
        yield Reader(connection)
    except (Unavailable, Refused) as error:
        raise unreadable(location, str(error)) from None
    finally:
        if connection is not None:
            connection.close()


class Reader:
    """Questions to one store. Times are Unix seconds."""

    def __init__(self, connection: Connection) -> None:
        self._run = connection.run
        self._version = connection.version

    def since(self) -> Instant | None:
        """Attempts that were over before this instant are not recorded, or were deleted; None if nothing is
        recorded."""
        source = "SELECT min(since) FROM kept" if self._version >= 2 else "SELECT min(at) FROM facts"
        ((since,),) = self._run(source)
        return None if since is None else float(since)

    def latest(self) -> Instant | None:
        """When what was recorded last happened to a Workload; None if nothing is recorded."""
        return next((float(at) for (at,) in self._run("SELECT at FROM facts ORDER BY seq DESC LIMIT 1")), None)

    def workload(self, uid: str) -> Recorded | None:
        """A Workload by its uid, if it is recorded."""
        return next(self._workloads("uid = ?", uid), None)

    def named(self, namespace: str, name: str) -> list[Recorded]:
        """All Workloads that had a name, one after the other, the oldest first."""
        return list(self._workloads("namespace = ? AND name = ?", namespace, name))

    def of_owner(self, namespace: str, kind: str, name: str) -> list[Recorded]:
        """All Workloads of a job, the oldest first; the kind in any case of letters and in the plural too, or empty."""
        found = self._workloads("namespace = ? AND owner_name = ?", namespace, name)
        kinds = {kind.lower(), kind.lower().removesuffix("s")}
        return [each for each in found if not kind or each.owner_kind.lower() in kinds]

    def newest(self, *, namespace: str = "", at_most: int = 100) -> list[Recorded]:
        """The Workloads that were created last, the newest first; of all namespaces if none is given."""
        where, given = ("namespace = ?", (namespace,)) if namespace else ("TRUE", ())
        query = f"SELECT {_COLUMNS} FROM workloads WHERE {where} ORDER BY created DESC LIMIT ?"  # noqa: S608 -- constants
        return [_recorded(row) for row in self._run(query, *given, at_most)]

    def gone(
        self, words: Sequence[str], *, scope: Scope = EVERYTHING, at_most: int = 100
    ) -> tuple[int, list[Recorded]]:
        """How many Workloads were deleted whose namespace and name contain all of these words, in small letters, and
        those that were deleted last, the latest first."""
        where = " AND ".join(["gone IS NOT NULL", *["namespace || '/' || name LIKE ? ESCAPE '!'"] * len(words)])
        patterns = [f"%{word.translate(_LITERAL)}%" for word in words]
        source, of = _shown(scope)
        ((count,),) = self._run(f"SELECT count(*) FROM {source} AND {where}", *of, *patterns)  # noqa: S608 -- constants
        latest = f"SELECT {_COLUMNS} FROM {source} AND {where} ORDER BY gone DESC, created DESC LIMIT ?"  # noqa: S608 -- constants
        return count, [_recorded(row) for row in self._run(latest, *of, *patterns, at_most)]

    def _workloads(self, where: str, *given: object, scope: Scope = EVERYTHING) -> Iterator[Recorded]:
        source, of = _shown(scope)
        query = f"SELECT {_COLUMNS} FROM {source} AND {where} ORDER BY created, uid"  # noqa: S608 -- constants
        return (_recorded(row) for row in self._run(query, *of, *given))

    def timeline(self, uid: str) -> list[Entry]:
        """All that happened to a Workload, in order."""
        query = f"SELECT {_ENTRY} FROM facts WHERE uid = ? ORDER BY at, seq"  # noqa: S608 -- constants
        return [_entry(row) for row in self._run(query, uid)]

    def changes_of_usage(
        self, since: Instant, until: Instant, scope: Scope = EVERYTHING
    ) -> Iterator[tuple[Recorded, list[Entry]]]:
        """When each Workload that may have held quota between two instants got, had and lost quota."""
        query = (
            "SELECT uid, what, at, attempt, reason, '', detail FROM facts"
            " WHERE uid IN (SELECT value->>0 FROM {rows})"
            " AND what IN ('reserved', 'admitted', 'pods', 'usage', 'evicted', 'released', 'waiting', 'finished',"
            " 'deleted')"
            " ORDER BY at, seq"
        )
        where = "(over IS NULL OR over >= ?) AND created < ?"
        rest = self._workloads(where, since, until, scope=scope)
        while some := list(islice(rest, PIECE)):
            entries: dict[str, list[Entry]] = {workload.uid: [] for workload in some}
            for row in self._run(query, msgspec.json.encode([(uid,) for uid in entries]).decode()):
                entries[row[0]].append(_entry(row))
            yield from ((workload, entries[workload.uid]) for workload in some)

    def decisions(self) -> Iterator[dict[str, Any]]:
        """The lines of the decision log, one term after the other. A line `unrecorded` stands for those that are
        missing."""
        if self._version < 2:
            return
        for (term,) in self._run("SELECT term FROM decisions GROUP BY term ORDER BY min(seq)"):
            number = 0
            query = "SELECT number, line FROM decisions WHERE term = ? AND number >= ? ORDER BY number LIMIT ?"
            while rows := self._run(query, term, number, PIECE):
                for found, line in rows:
                    if found != number:
                        yield {"unrecorded": found - number}
                    yield msgspec.json.decode(line)
                    number = found + 1

    def quotas(self) -> list[Quota]:
        """The quotas of all ClusterQueues and Cohorts, each with the instant from which it held, in order."""
        query = "SELECT kind, name, at, parent, amounts, gone FROM quotas ORDER BY at, seq"
        return [
            Quota(kind, name, at, parent, tuple(tuple(each) for each in msgspec.json.decode(amounts)), bool(gone))
            for kind, name, at, parent, amounts, gone in self._run(query)
        ]


def _shown(scope: Scope) -> tuple[str, list[str]]:
    """Where the Workloads of a scope are found: what stands after FROM, and its values."""
    if scope.namespaces is None:
        return "workloads WHERE TRUE", []
    created = "created >= CAST(value->>1 AS DOUBLE PRECISION)"
    return f"{{rows}}, workloads WHERE namespace = value->>0 AND {created}", [
        msgspec.json.encode([*scope.namespaces.items()]).decode()
    ]


def _recorded(row: tuple[Any, ...]) -> Recorded:
    values = [*row[:8], msgspec.json.decode(row[8]), *row[9:]]
    return msgspec.convert(dict(zip(Recorded.__struct_fields__, values, strict=True)), Recorded)


def _entry(row: tuple[Any, ...]) -> Entry:
    values = [*row[:6], msgspec.json.decode(row[6]) if row[6] else {}]
    return msgspec.convert(dict(zip(Entry.__struct_fields__, values, strict=True)), Entry)
