"""Writes records to the recorder's store from a thread of its own.

The event loop only appends to a queue, which is bounded: what does not fit is dropped and counted. A store that is
locked, full, damaged or not there is tried again later, with the records that wait, and never held against the code
that puts records in. A damaged file is set aside and a new one begun. Must never raise into the event loop, and never
wait in it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

import structlog

from turnstile.api.errors import InvalidValue
from turnstile.engine.instants import Instant
from turnstile.recorder import sqlite
from turnstile.recorder.connection import Damaged, Refused, Unavailable
from turnstile.recorder.database import Database
from turnstile.recorder.facts import Record
from turnstile.recorder.location import Location

WAITING: Final = 50_000
"""Records that may wait to be written."""
BATCH: Final = 1000
"""Records in one transaction."""
GATHER_SECONDS: Final = 0.2
"""Seconds for which records are gathered before they are written: a kill loses those."""
AGAIN_SECONDS: Final = (1.0, 30.0)
"""Seconds between two attempts to write to a store that fails: at first, and at most."""
TRIM_SECONDS: Final = 60.0
"""Seconds between two looks at the age and the size of the store."""
TRIMMED: Final = 500
"""Workloads that are deleted in one transaction."""
LAST_SECONDS: Final = 2.0
"""Seconds for which the end of the process waits for the last records."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long Workloads that are over are kept, and how large a file may become; None for no limit. PostgreSQL has no
    limit of the size: deleted rows do not make its tables smaller."""

    days: float | None = 90.0
    mib: float | None = 1024.0


@dataclass(slots=True)
class Stats:
    """Counts of the writer. Read by the metrics; each field is written by one thread."""

    put: int = 0
    written: int = 0
    dropped: int = 0
    failures: int = 0
    opened: int = 0
    """How often the store was opened: another one, or again after a failure."""
    failing: str = ""
    """Why the store cannot be written to now; empty if it can."""
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
        location: Location,
        *,
        retention: Retention,
        clock: Callable[[], Instant],
        waiting: int = WAITING,
        gather_seconds: float = GATHER_SECONDS,
        again_seconds: tuple[float, float] = AGAIN_SECONDS,
        trim_seconds: float = TRIM_SECONDS,
    ) -> None:
        self.location = location
        self.stats = Stats()
        self._retention = retention
        self._clock = clock
        self._most = waiting
        self._gather = gather_seconds
        self._again = again_seconds
        self._trim_seconds = trim_seconds
        self._queue: deque[Record | Settled] = deque()
        self._pending = _Pending()
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
        return len(self._queue) + len(self._pending.records)

    @property
    def half_full(self) -> bool:
        """Whether half of the places for waiting records are taken."""
        return len(self._queue) * 2 > self._most

    def put(self, record: Record | Settled) -> None:
        """Have a record written; it is dropped if too many wait."""
        queue = self._queue
        if len(queue) >= self._most:
            self.stats.dropped += 1
            return
        self.stats.put += 1
        queue.append(record)
        if len(queue) == 1:
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
        pending, pause = self._pending, self._again[0]
        while True:
            self._stopping.wait(self._gather)
            if not self._queue and not pending:
                if self._stopping.is_set():
                    break
                self._wake.wait(self._trim_seconds)
            self._wake.clear()
            try:
                database = self._work(database)
            except (Unavailable, InvalidValue, OSError) as error:
                self._failed(error)
                database = None
                if self._stopping.wait(pause):
                    break
                pause = min(pause * 2, self._again[1])
            except Exception:
                # A fault of ours: trying again would not help, and the records behind would wait for ever.
                log.exception("recorder.broken", store=str(self.location), records=len(pending.records))
                self.stats.dropped += len(pending.records)
                pending.records.clear()
                pending.settled = None
            else:
                if self.stats.failing:
                    log.info("recorder.writes_again", store=str(self.location))
                self.stats.failing, pause = "", self._again[0]
        if database is not None:
            database.close()

    def _work(self, database: Database | None) -> Database:
        """Write all that waits, and delete what is too old. Closes the database if it fails."""
        if database is not None and not database.usable:
            database.close()
            database = None
        try:
            if database is None:
                database = Database(self.location, now=self._clock())
                self.stats.opened += 1
            while self._next():
                self._write(database)
            if time.monotonic() - self._trimmed_at >= self._trim_seconds:
                self._trim(database)
                self._trimmed_at = time.monotonic()
        except Unavailable as error:
            if database is not None:
                database.close()
            if isinstance(error, Damaged):
                self._set_aside(error)
            raise
        return database

    def _next(self) -> bool:
        """Take a batch off the queue, unless one waits to be written already; whether there is one."""
        queue, pending = self._queue, self._pending
        while queue and not pending.settled and len(pending.records) < BATCH:
            taken = queue.popleft()
            if isinstance(taken, Settled):
                pending.settled = taken
            else:
                pending.records.append(taken)
        return bool(pending)

    def _write(self, database: Database) -> None:
        pending = self._pending
        if pending.records:
            self._store(database, pending.records)
            pending.records.clear()
        if (settled := pending.settled) is not None:
            database.settle(settled.uids, settled.names, settled.at)
            self.stats.written += 1
            pending.settled = None

    def _store(self, database: Database, records: list[Record]) -> None:
        """Write a batch; if the store refuses it, its halves, down to the record that is at fault."""
        try:
            database.store(records)
        except Refused as error:
            if len(records) == 1:
                store, record = str(self.location), str(records[0])[:500]
                log.error("recorder.record_refused", store=store, record=record, error=str(error))  # noqa: TRY400
                self.stats.dropped += 1
                return
            middle = len(records) // 2
            self._store(database, records[:middle])
            self._store(database, records[middle:])
        else:
            self.stats.written += len(records)

    def _trim(self, database: Database) -> None:
        days, mib = self._retention.days, self._retention.mib
        if days is not None:
            horizon = self._clock() - days * 86400.0
            while database.forget_before(horizon, at_most=TRIMMED) and not self._stopping.is_set():
                pass
        if mib is not None and database.sized:
            while database.size > mib * 2**20 and not self._stopping.is_set():
                if not database.forget_oldest(at_most=TRIMMED):
                    break
        self.stats.bytes = database.size

    def _failed(self, error: Exception) -> None:
        before, self.stats.failing = self.stats.failing, str(error)
        self.stats.failures += 1
        if self.stats.failing != before:
            log.warning("recorder.cannot_write", store=str(self.location), error=str(error), waiting=len(self))

    def _set_aside(self, error: Damaged) -> None:
        """Rename a damaged file; the next attempt begins a new one."""
        if (path := self.location.file) is None:
            return
        try:
            aside = sqlite.set_aside(path)
        except OSError as failure:
            log.warning("recorder.cannot_set_aside", store=str(path), error=str(failure))
        else:
            log.error("recorder.damaged", store=str(path), error=str(error), set_aside=str(aside))
