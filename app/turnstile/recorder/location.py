"""Where records are: a file (SQLite), or a database of PostgreSQL. Must never tell a password."""

from dataclasses import dataclass, field
from pathlib import Path

from turnstile.api.errors import NotInstalled
from turnstile.recorder.connection import Connection
from turnstile.recorder.sqlite import Sqlite

_SCHEMES = ("postgresql://", "postgres://")


@dataclass(frozen=True, slots=True)
class Location:
    """A place for records. `name` is for people and logs; `url` is empty for a file."""

    name: str
    url: str = field(default="", repr=False)

    @classmethod
    def of(cls, text: str) -> "Location":
        """A file, or a URL of PostgreSQL. Raises InvalidValue for a URL that is not understood, and NotInstalled
        without the driver of PostgreSQL."""
        if not text.startswith(_SCHEMES):
            return cls(text)
        try:
            from turnstile.recorder import postgres
        except ModuleNotFoundError as error:
            raise NotInstalled("the address of a PostgreSQL database", error) from None

        return cls(postgres.shown(text), text)

    @property
    def file(self) -> Path | None:
        """The file, if it is one."""
        return None if self.url else Path(self.name)

    def open(self, *, write: bool) -> Connection:
        """Connect. Raises Unavailable if that may work later, and InvalidValue for what is not ours."""
        if self.url:
            from turnstile.recorder.postgres import Postgres

            return Postgres(self.url, write=write)
        path = Path(self.name)
        return Sqlite.to_write(path) if write else Sqlite.to_read(path)

    def __str__(self) -> str:
        return self.name
