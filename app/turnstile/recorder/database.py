"""Writes to the recorder's tables, by the same statements in SQLite and PostgreSQL.

A batch of records is one statement for each table, and one transaction: after a kill all of it is there or nothing.
Must never be called from the event loop.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

import msgspec

from turnstile.engine.instants import Instant
from turnstile.recorder.connection import Connection
from turnstile.recorder.facts import Fact, Line, Quota, Record, Subject
from turnstile.recorder.location import Location
from turnstile.recorder.schema import migrate

PIECE: Final = 500
"""Uids that are encoded at once: the interpreter lock is held meanwhile."""

_SUBJECTS: Final = """
INSERT INTO workloads (uid, namespace, name, owner_kind, owner_name, local_queue, priority, created, labels)
SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, CAST(value->>6 AS INTEGER),
    CAST(value->>7 AS DOUBLE PRECISION), CAST(value->8 AS TEXT)
FROM {rows} WHERE TRUE ORDER BY value->>0
ON CONFLICT DO NOTHING
"""
_FACTS: Final = """
INSERT INTO facts (uid, what, at, attempt, mark, reason, message, detail)
SELECT value->>0, value->>1, CAST(value->>2 AS DOUBLE PRECISION), CAST(value->>3 AS INTEGER), value->>4, value->>6,
    value->>7, nullif(CAST(value->8 AS TEXT), 'null')
FROM {rows}
WHERE NOT CAST(value->>5 AS BOOLEAN) OR NOT EXISTS (
    SELECT 1 FROM (SELECT * FROM facts WHERE uid = value->>0 AND what = value->>1 ORDER BY seq DESC LIMIT 1) AS newest
    WHERE newest.attempt = CAST(value->>3 AS INTEGER) AND newest.reason = value->>6 AND newest.message = value->>7
        AND coalesce(newest.detail, 'null') = CAST(value->8 AS TEXT)
)
ORDER BY key
ON CONFLICT DO NOTHING
"""
_ENDS: Final = """
UPDATE workloads SET
    over = coalesce(workloads.over, ended.at), gone = coalesce(workloads.gone, ended.gone)
FROM (
    SELECT value->>0 AS uid, min(CAST(value->>2 AS DOUBLE PRECISION)) AS at,
        min(CASE WHEN value->>1 = 'deleted' THEN CAST(value->>2 AS DOUBLE PRECISION) END) AS gone
    FROM {rows} WHERE value->>1 IN ('finished', 'deleted') GROUP BY value->>0
) AS ended
WHERE workloads.uid = ended.uid
"""
_QUOTAS: Final = """
INSERT INTO quotas (kind, name, at, parent, amounts, gone)
SELECT value->>0, value->>1,
    CASE WHEN EXISTS (SELECT 1 FROM quotas WHERE kind = value->>0 AND name = value->>1)
        THEN CAST(value->>2 AS DOUBLE PRECISION)
        ELSE coalesce(CAST(value->>6 AS DOUBLE PRECISION), CAST(value->>2 AS DOUBLE PRECISION)) END,
    value->>3, CAST(value->4 AS TEXT), CAST(CAST(value->>5 AS BOOLEAN) AS INTEGER)
FROM {rows}
WHERE NOT EXISTS (
    SELECT 1 FROM (SELECT * FROM quotas WHERE kind = value->>0 AND name = value->>1 ORDER BY seq DESC LIMIT 1) AS newest
    WHERE newest.parent = value->>3 AND newest.amounts = CAST(value->4 AS TEXT)
        AND newest.gone = CAST(CAST(value->>5 AS BOOLEAN) AS INTEGER)
)
ORDER BY key
"""
_LINES: Final = """
INSERT INTO decisions (term, number, at, line)
SELECT value->>0, CAST(value->>1 AS INTEGER), CAST(value->>2 AS DOUBLE PRECISION), value->>3
FROM {rows} WHERE TRUE ORDER BY key
ON CONFLICT DO NOTHING
"""
_LOST_WORKLOADS: Final = """
INSERT INTO facts (uid, what, at, attempt, mark, reason, message)
SELECT uid, 'deleted', CAST(? AS DOUBLE PRECISION), 0, '', 'NotSeen',
    'deleted while no leader recorded; the time is when that was noticed'
FROM workloads WHERE gone IS NULL AND NOT EXISTS (SELECT 1 FROM present WHERE present.uid = workloads.uid)
ON CONFLICT DO NOTHING
"""
_MARK_LOST: Final = """
UPDATE workloads SET over = coalesce(over, ?), gone = ?
WHERE gone IS NULL AND NOT EXISTS (SELECT 1 FROM present WHERE present.uid = workloads.uid)
"""
_LOST_QUOTAS: Final = """
INSERT INTO quotas (kind, name, at, parent, amounts, gone)
SELECT kind, name, CAST(? AS DOUBLE PRECISION), '', '[]', 1 FROM quotas AS newest
WHERE gone = 0 AND seq = (SELECT max(seq) FROM quotas WHERE kind = newest.kind AND name = newest.name)
    AND NOT EXISTS (SELECT 1 FROM {rows} WHERE value->>0 = newest.kind || '/' || newest.name)
"""
_OLD_QUOTAS: Final = """
DELETE FROM quotas AS old WHERE at < ? AND EXISTS (
    SELECT 1 FROM quotas AS newer
    WHERE newer.kind = old.kind AND newer.name = old.name AND newer.seq > old.seq AND newer.at <= ?
)
"""


class Database:
    """The writing side of the store. Raises Unavailable, Refused, and InvalidValue for a store that is not ours."""

    def __init__(self, location: Location, *, now: Instant) -> None:
        self._connection: Connection = location.open(write=True)
        try:
            migrate(self._connection, str(location))
            self._begin(now)
        except BaseException:
            self._connection.close()
            raise

    def _begin(self, now: Instant) -> None:
        """Note since when there are records, unless that is known."""
        run = self._connection.run
        if run("SELECT 1 FROM kept"):
            return
        with self._connection.transaction():
            if not run("SELECT 1 FROM kept"):  # another process may have been first
                ((first,),) = run("SELECT min(at) FROM facts")
                run("INSERT INTO kept VALUES (?)", now if first is None else first)

    @property
    def usable(self) -> bool:
        """Whether records still reach the store that was opened."""
        return not self._connection.lost

    @property
    def sized(self) -> bool:
        """Whether the size of the store can be limited."""
        return self._connection.SIZED

    @property
    def size(self) -> int:
        """Bytes that the records take."""
        return self._connection.size

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def store(self, records: Sequence[Record]) -> None:
        """Write a batch: all of it, or nothing."""
        facts = [each for each in records if isinstance(each, Fact)]
        of_kinds = (
            (_SUBJECTS, [each for each in records if isinstance(each, Subject)]),
            (_FACTS, facts),
            (_ENDS, facts),
            (_QUOTAS, [each for each in records if isinstance(each, Quota)]),
            (_LINES, [each for each in records if isinstance(each, Line)]),
        )
        with self._connection.transaction():
            for statement, some in of_kinds:
                if some:
                    self._connection.run(statement, _json(some))

    def settle(self, uids: Iterable[str], names: Iterable[str], now: Instant) -> None:
        """Record as deleted what is not among the uids of all Workloads and the names (`Kind/name`) of all quotas."""
        run, rest = self._connection.run, iter(uids)
        with self._connection.transaction():
            run("CREATE TEMPORARY TABLE present (uid TEXT PRIMARY KEY)")
            while some := list(islice(rest, PIECE)):
                insert = "INSERT INTO present SELECT value->>0 FROM {rows} WHERE TRUE ON CONFLICT DO NOTHING"
                run(insert, _json([(uid,) for uid in some]))
            run(_LOST_WORKLOADS, now)
            run(_MARK_LOST, now, now)
            run(_LOST_QUOTAS, now, _json([(name,) for name in names]))
            run("DROP TABLE present")

    def forget_before(self, horizon: Instant, *, at_most: int) -> int:
        """Delete Workloads that were over before the horizon, the oldest first; returns how many. Those that are not
        over stay, and so do the quotas that held after the horizon. Decisions before the horizon are deleted."""
        run = self._connection.run
        with self._connection.transaction():
            ended = run("SELECT uid, over FROM workloads WHERE over < ? ORDER BY over LIMIT ?", horizon, at_most)
            if ended:
                uids = _json([(uid,) for uid, _ in ended])
                run("DELETE FROM facts WHERE uid IN (SELECT value->>0 FROM {rows})", uids)
                run("DELETE FROM workloads WHERE uid IN (SELECT value->>0 FROM {rows})", uids)
                run("UPDATE kept SET since = ? WHERE since < ?", ended[-1][1], ended[-1][1])
            run(_OLD_QUOTAS, horizon, horizon)
            run("DELETE FROM decisions WHERE at < ?", horizon)
        self._connection.tidy()
        return len(ended)

    def forget_oldest(self, *, at_most: int) -> int:
        """Delete the oldest lines of decisions; without any, the Workloads that were over first; without those too, the
        oldest reasons why Workloads wait. Returns how many rows."""
        run = self._connection.run
        if gone := self._forget("SELECT seq FROM decisions ORDER BY seq LIMIT ?", "decisions", at_most):
            return gone
        ((last,),) = run("SELECT max(over) FROM workloads")
        if last is not None:
            return self.forget_before(last + 1.0, at_most=at_most)
        reasons = "SELECT seq FROM facts WHERE what IN ('tried', 'waiting') ORDER BY seq LIMIT ?"
        return self._forget(reasons, "facts", at_most)

    def _forget(self, oldest: str, table: str, at_most: int) -> int:
        """Delete the rows of a table that a statement finds."""
        with self._connection.transaction():
            old = self._connection.run(oldest, at_most)
            seqs = "SELECT CAST(value->>0 AS BIGINT) FROM {rows}"
            self._connection.run(f"DELETE FROM {table} WHERE seq IN ({seqs})", _json(old))  # noqa: S608 -- constants
        self._connection.tidy()
        return len(old)


def _json(rows: Sequence[object]) -> str:
    return msgspec.json.encode(rows).decode()
