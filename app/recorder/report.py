"""The report on usage that a command prints and a page shows: the accounts, in hours of each resource."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, cast

import msgspec

from app.api.errors import InvalidValue
from app.recorder.accounts import UNKNOWN, By, Figures, accounts, summed
from app.recorder.holdings import holdings
from app.recorder.reading import Reader

BY: Final[dict[str, By]] = {
    "queue": "cluster_queue",
    "localqueue": "local_queue",
    "namespace": "namespace",
    "user": "user",
    "flavor": "flavor",
}
COLUMNS: Final = ("reserved", "used", "borrowed", "lent", "preempted")
_GIB: Final = 2**30
_AGO: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Row(msgspec.Struct, frozen=True):
    """Hours of one resource: of cores for cpu, of GiB for memory and storage, of units for all else. `lent` is None
    where the usage is by namespace, LocalQueue or user: what is lent belongs to none of them."""

    keys: dict[str, str]
    resource: str
    unit: str
    reserved: float
    used: float
    borrowed: float
    lent: float | None
    preempted: float


class Report(msgspec.Struct, frozen=True):
    """Usage between two points in time. `recorded_since` is the instant from which all is recorded."""

    since: str
    until: str
    recorded_since: str | None
    rows: list[Row]


def fields(by: str, user_label: str) -> list[str]:
    """The words of `--by`. Raises InvalidValue."""
    names = [name.strip() for name in by.split(",")]
    for name in names:
        if name not in BY:
            raise InvalidValue("--by", by, f"give one or several of {', '.join(BY)}, with commas between them")
    if "user" in names and not user_label:
        cure = (
            "give --user-label: Kubernetes does not tell who created an object, so a user is known by a label of the"
            " Workload only, such as one that your portal or a policy sets and that integrations.labelKeysToCopy copies"
        )
        raise InvalidValue("--by", by, cure)
    return list(dict.fromkeys(names))


def report(
    reader: Reader,
    names: Sequence[str],
    since: datetime,
    until: datetime,
    *,
    user_label: str = "",
    namespace: str = "",
    resource: str = "",
) -> Report:
    """The usage between two points in time, by fields. Raises InvalidValue if the second is not later."""
    if until <= since:
        raise InvalidValue(
            "--since", since.isoformat(), f"is not before --until, {until.isoformat()}: give an earlier one"
        )
    begin, end = since.timestamp(), until.timestamp()
    held = (each for found, entries in reader.changes_of_usage(begin, end) for each in holdings(found, entries))
    found = accounts(held, reader.quotas(), begin, end, user_label=user_label)
    if namespace:  # others were needed for what is borrowed; what is lent is not the namespace's
        found = {account: figures for account, figures in found.items() if account.namespace == namespace}
    if resource:
        found = {account: figures for account, figures in found.items() if account.resource == resource}
    recorded = reader.since()
    return Report(
        stamp(begin),
        stamp(end),
        stamp(recorded) if recorded is not None else None,
        [_row(names, key, figures) for key, figures in summed(found, [BY[name] for name in names]).items()],
    )


def _row(names: Sequence[str], key: tuple[str, ...], figures: Figures) -> Row:
    *values, resource = key
    unit, each = _unit(resource)
    hours = {name: None if (value := getattr(figures, name)) is None else value / each / 3600 for name in COLUMNS}
    keys = {name: value if value != UNKNOWN else "(unknown)" for name, value in zip(names, values, strict=True)}
    return Row(keys, resource, unit, **cast("dict[str, float]", hours))


def _unit(resource: str) -> tuple[str, int]:
    """What an hour is of, and how much the engine counts for it."""
    if resource == "cpu":
        return "core-hours", 1000
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return "GiB-hours", _GIB
    return "hours", 1


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


def stamp(at: float) -> str:
    """A point in time for people: UTC, in seconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
