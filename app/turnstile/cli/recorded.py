"""Shared by commands that read the flight recorder: its option, and points in time."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from turnstile.api.errors import InvalidValue
from turnstile.cli import served
from turnstile.cli.cluster import Run
from turnstile.cli.connection import Connection, connected
from turnstile.cli.progress import progress
from turnstile.cli.served import Question

_OPTION: Final = typer.Option(
    "--recorder",
    envvar="TURNSTILE_RECORDER",
    metavar="FILE|URL",
    help="Where `turnstile serve --recorder` writes: a file, or postgresql://USER@HOST/DATABASE, read with your"
    " rights there (PGPASSWORD and ~/.pgpass are looked at); also when the controller does not run.",
)
OptionalRecorderPlace = Annotated[str | None, _OPTION]


def recorded_answer(run: Run, where: Connection, question: Question) -> bytes:
    """The answer of the page in the cluster, which reads the records for those who have no file and no database. Raises
    InvalidValue if there is none."""

    async def ask() -> bytes | None:
        async with connected(where, question.what) as transport:
            return await served.ask(transport, question)

    with progress("asking the page in the cluster"):
        answer: bytes | None = run(ask())
    if answer is None:
        cure = "give a file or the URL of a database: the cluster serves no page with a recorder that you may ask"
        raise InvalidValue("--recorder", "none", cure)
    return answer


_AGO: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def point(option: str, text: str, now: datetime) -> datetime:
    """A point in time: `now`, so long ago (`90m`, `7d`), a date or an RFC 3339 time; UTC without a zone. Raises
    InvalidValue."""
    if text == "now":
        return now
    if ago := _AGO.fullmatch(text):
        try:
            return now - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        except OverflowError:
            raise InvalidValue(option, text, "is before the year 1: give less") from None
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        cure = "give now, so long ago such as 90m, 24h or 7d, a date such as 2026-01-31, or a time of RFC 3339"
        raise InvalidValue(option, text, cure) from None
    return given if given.tzinfo is not None else given.replace(tzinfo=UTC)
