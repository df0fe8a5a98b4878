"""Writes records to the recorder's file from a thread of its own.

The event loop only appends to a queue, which is bounded: what does not fit is dropped and counted. A file that is
locked, full, damaged or not there is tried again later, with the records that wait, and never held against whoever puts
records in. A damaged file is set aside and a new one begun. Must never raise into the event loop, and never wait in it.
"""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from app.api.errors import InvalidValue
from app.engine.instants import Instant
from app.recorder.database import Database
from app.recorder.facts import Record

WAITING: Final = 50_000
"""Records that may wait to be written."""
BATCH: Final = 1000
"""Records in one transaction."""
GATHER_SECONDS: Final = 0.2
"""Seconds for which records are gathered before they are written: a kill loses those."""
AGAIN_SECONDS: Final = (1.0, 30.0)
"""Seconds between two attempts to write to a file that fails: at first, and at most."""
TRIM_SECONDS: Final = 60.0
"""Seconds between two looks at the age and the size of the file."""
TRIMMED: Final = 500
"""Workloads that are deleted in one transaction."""
LAST_SECONDS: Final = 2.0
"""Seconds for which the end of the process waits for the last records."""

_OF_A_RECORD: Final = (sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InternalError, sqlite3.ProgrammingError)

log = structlog.get_logger(__name__)


class Unwritable(Exception):
    """The file cannot be written to now."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How long Workloads that are over are kept, and how large the file may become; None for no limit."""

    days: float | None = 90.0
    mib: float | None = 1024.0


@dataclass(slots=True)
class Stats:
    """What the writer has done. Read by the metrics; each field is written by one thread."""

    put: int = 0
    written: int = 0
    dropped: int = 0
    failures: int = 0
    opened: int = 0
    """How often the file was opened: another one, or again after a failure."""
    failing: str = ""
    """Why the file cannot be written to now; empty if it can."""
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Settled:
    """The uids of all Workloads and the names of all quotas that there are: others are recorded as deleted."""

    uids: Collection[str]
    names: Collection[str]
    at: Instant


@dataclass(slots=True)
class _Pending:
    """The batch that is being written, kept until it is."""

    records: list[Record] = field(default_factory=list)
    settled: Settled | None = None

    def __bool__(self) -> bool:
        return bool(self.records) or self.settled is not None


class Writer:
    """The thread and its queue. `put` and `settle` are called in the event loop, `clock` in the thread."""

    def __init__(
        self,
        path: Path,
        *,
        retention: Retention,
        clock: Callable[[], Instant],
        waiting: int = WAITING,
        gather_seconds: float = GATHER_SECONDS,
        again_seconds: tuple[float, float] = AGAIN_SECONDS,
        trim_seconds: float = TRIM_SECONDS,
    ) -> None:
        self.path = path
        self.stats = Stats()
        self._retention = retention
        self._clock = clock
        self._most = waiting
        self._gather = gather_seconds
        self._again = again_seconds
        self._trim_seconds = trim_seconds
        self._queue: deque[Record | Settled] = deque()
        self._trimmed_at = float("-inf")
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    # --- in the event loop --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def __len__(self) -> int:
        """Records that wait to be written."""
        return len(self._queue)

    @property
    def half_full(self) -> bool:
        """Whether who can wait should, before more records are put in."""
        return len(self._queue) * 2 > self._most

    def put(self, record: Record) -> None:
        """Have a record written; it is dropped if too many wait."""
        queue = self._queue
        if len(queue) >= self._most:
            self.stats.dropped += 1
            return
        self.stats.put += 1
        queue.append(record)
        if len(queue) == 1:
            self._wake.set()

    def settle(self, settled: Settled) -> None:
        """Have what is missing there recorded as deleted, after the records before."""
        self._queue.append(settled)
        self._wake.set()

    def close(self) -> None:
        """Write what waits, for a moment at most, and end."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(LAST_SECONDS)

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        database: Database | None = None
        pending, pause = _Pending(), self._again[0]
        while True:
            self._stopping.wait(self._gather)
            if not self._queue and not pending:
                if self._stopping.is_set():
                    break
                self._wake.wait(self._trim_seconds)
            self._wake.clear()
            try:
                database = self._work(database, pending)
            except (Unwritable, InvalidValue, OSError) as error:
                self._failed(error)
                database = None
                if self._stopping.wait(pause):
                    break
                pause = min(pause * 2, self._again[1])
            except Exception:
                # A fault of a record: trying again would not help, and the records behind it would wait for ever.
                log.exception("recorder.records_refused", path=str(self.path), records=len(pending.records))
                self.stats.dropped += len(pending.records)
                pending.records.clear()
                pending.settled = None
            else:
                if self.stats.failing:
                    log.info("recorder.writes_again", path=str(self.path))
                self.stats.failing, pause = "", self._again[0]
        if database is not None:
            database.close()

    def _work(self, database: Database | None, pending: _Pending) -> Database:
        """Write all that waits, and delete what is too old. Closes the database if it fails."""
        if database is not None and not database.there:
            database.close()
            database = None
        try:
            if database is None:
                database = Database(self.path)
                self.stats.opened += 1
            while self._next(pending):
                self._write(database, pending)
            if time.monotonic() - self._trimmed_at >= self._trim_seconds:
                self._trim(database)
                self._trimmed_at = time.monotonic()
        except sqlite3.DatabaseError as error:
            if isinstance(error, _OF_A_RECORD):
                raise
            if database is not None:
                database.close()
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT:
                self._set_aside()
            raise Unwritable(str(error)) from error
        return database

    def _next(self, pending: _Pending) -> bool:
        """Take a batch off the queue, unless one waits to be written already; whether there is one."""
        queue = self._queue
        while queue and not pending.settled and len(pending.records) < BATCH:
            taken = queue.popleft()
            if isinstance(taken, Settled):
                pending.settled = taken
            else:
                pending.records.append(taken)
        return bool(pending)

    def _write(self, database: Database, pending: _Pending) -> None:
        if pending.records:
            database.store(pending.records)
            self.stats.written += len(pending.records)
            pending.records.clear()
        if (settled := pending.settled) is not None:
            database.settle(settled.uids, settled.names, settled.at)
            pending.settled = None

    def _trim(self, database: Database) -> None:
        days, mib = self._retention.days, self._retention.mib
        if days is not None:
            horizon = self._clock() - days * 86400.0
            while database.forget_before(horizon, at_most=TRIMMED) and not self._stopping.is_set():
                pass
        if mib is not None:
            while database.size > mib * 2**20 and not self._stopping.is_set():
                if not database.forget_oldest(at_most=TRIMMED):
                    break
        self.stats.bytes = database.size

    def _failed(self, error: Exception) -> None:
        before, self.stats.failing = self.stats.failing, str(error)
        self.stats.failures += 1
        if self.stats.failing != before:
            log.warning("recorder.cannot_write", path=str(self.path), error=str(error), waiting=len(self._queue))

    def _set_aside(self) -> None:
        """Rename a damaged file, over one that was set aside before; the next attempt begins a new one."""
        aside = self.path.with_name(f"{self.path.name}.damaged")
        try:
            self.path.replace(aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        except OSError as error:
            log.warning("recorder.cannot_set_aside", path=str(self.path), error=str(error))
        else:
            log.error("recorder.damaged", path=str(self.path), set_aside=str(aside))
