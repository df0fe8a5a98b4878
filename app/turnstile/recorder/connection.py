"""The common part of SQLite and PostgreSQL that the recorder needs: one text of each statement for both.

A statement has a `?` for each value, `{rows}` where a JSON array of arrays is taken apart (columns `key`, its place,
and `value`, an array), and `{serial}` and `{keyed}` where tables are made. A batch travels as one such text: the
database takes it apart, so the interpreter lock is free meanwhile.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

Row = tuple[Any, ...]


class Unavailable(Exception):
    """The store cannot be read or written now: a lock, a full disk, a lost connection. Trying again may help."""


class Damaged(Unavailable):
    """The store has to be made anew."""


class Refused(Exception):
    """The store refuses a record, and will refuse it again."""


class Connection(ABC):
    """One connection, used by one thread at a time. All methods raise Unavailable or Refused."""

    WORDS: ClassVar[Mapping[str, str]]
    """`rows`, `serial` and `keyed` of this kind of database."""
    BEGIN: ClassVar[str]
    """Begins a transaction that writes."""
    TIDY: ClassVar[str] = ""
    """Gives back the space of deleted records, unless the database does that by itself."""
    SIZED: ClassVar[bool]
    """Whether deleted records make the store smaller, so that its size can be limited."""

    def run(self, statement: str, *values: object) -> list[Row]:
        """Run a statement; the rows that it answers."""
        return self._run(statement.format_map(self.WORDS), values)

    @abstractmethod
    def _run(self, statement: str, values: tuple[object, ...]) -> list[Row]: ...

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All statements of the block take effect, or none. One process at a time is in such a block."""
        self.run(self.BEGIN)
        try:
            self._alone()
            yield
            self.run("COMMIT")
        except BaseException:
            with suppress(Unavailable, Refused):
                self.run("ROLLBACK")
            raise

    @abstractmethod
    def _alone(self) -> None:
        """Keep other writers out until the transaction ends."""

    @property
    @abstractmethod
    def version(self) -> int:
        """Version of the tables; 0 without any."""

    @abstractmethod
    def set_version(self, version: int) -> None:
        """Note that the tables have another version."""

    @property
    @abstractmethod
    def lost(self) -> bool:
        """Whether what is written would no longer reach the store that was opened."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Bytes that the records take."""

    def tidy(self) -> None:
        """Give back the space of deleted records."""
        if self.TIDY:
            self.run(self.TIDY)

    @abstractmethod
    def close(self) -> None:
        """Close the connection. Raises nothing."""
