"""`turnstile usage`: what was reserved, used, borrowed, lent and lost to preemption over time, as recorded."""

import csv
import io
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final, cast

import msgspec
import orjson
import typer

from app.api.errors import InvalidValue
from app.cli.cluster import explained
from app.cli.recorded import RecorderPlace, point, stamp
from app.recorder.accounts import UNKNOWN, By, Figures, accounts, summed
from app.recorder.holdings import holdings
from app.recorder.location import Location
from app.recorder.reading import Reader, reading

_BY: Final[dict[str, By]] = {
    "queue": "cluster_queue",
    "localqueue": "local_queue",
    "namespace": "namespace",
    "user": "user",
    "flavor": "flavor",
}
_GIB: Final = 2**30
_COLUMNS: Final = ("reserved", "used", "borrowed", "lent", "preempted")


class Output(StrEnum):
    """How usage is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


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


def register(app: typer.Typer, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @app.command()
    def usage(
        *,
        recorder: RecorderPlace,
        by: Annotated[
            str, typer.Option(help=f"One or several of {', '.join(_BY)}, with commas: a row for each, and resource.")
        ] = "queue",
        since: Annotated[str, typer.Option(help="From when: so long ago (90m, 24h, 7d), a date, or a time.")] = "7d",
        until: Annotated[str, typer.Option(help="Until when, in the same words; or now.")] = "now",
        user_label: Annotated[
            str,
            typer.Option(
                help="Label of Workloads whose value is their user, for --by user. Kubernetes does not tell who created"
                " an object."
            ),
        ] = "",
        namespace: Annotated[str, typer.Option("--namespace", "-n", help="Only the usage of this namespace.")] = "",
        resource: Annotated[str, typer.Option(help="Only this resource, as nvidia.com/gpu.")] = "",
        output: Annotated[
            Output, typer.Option("--output", "-o", help="table for people, csv and json for programs.")
        ] = Output.TABLE,
    ) -> None:
        """Report what was reserved, used, borrowed, lent and lost to preemption over time, in hours of each resource.

        It is the integral of what was recorded, exact to the second. Exit code 0: reported; 2: unable.
        """
        with explained(), reading(Location.of(recorder)) as reader:
            now = clock()
            begin, end = point("--since", since, now), point("--until", until, now)
            names = fields(by, user_label)
            told = report(
                reader, names, begin, min(end, now), user_label=user_label, namespace=namespace, resource=resource
            )
        match output:
            case Output.JSON:
                typer.echo(orjson.dumps(msgspec.to_builtins(told), option=orjson.OPT_INDENT_2).decode())
            case Output.CSV:
                typer.echo(as_csv(told, names), nl=False)
            case Output.TABLE:
                typer.echo("\n".join(shown(told, names)))


def fields(by: str, user_label: str) -> list[str]:
    """The words of `--by`. Raises InvalidValue."""
    names = [name.strip() for name in by.split(",")]
    for name in names:
        if name not in _BY:
            raise InvalidValue("--by", by, f"give one or several of {', '.join(_BY)}, with commas between them")
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
        [_row(names, key, figures) for key, figures in summed(found, [_BY[name] for name in names]).items()],
    )


def _row(names: Sequence[str], key: tuple[str, ...], figures: Figures) -> Row:
    *values, resource = key
    unit, each = _unit(resource)
    hours = {name: None if (value := getattr(figures, name)) is None else value / each / 3600 for name in _COLUMNS}
    keys = {name: value if value != UNKNOWN else "(unknown)" for name, value in zip(names, values, strict=True)}
    return Row(keys, resource, unit, **cast("dict[str, float]", hours))


def _unit(resource: str) -> tuple[str, int]:
    """What an hour is of, and how much the engine counts for it."""
    if resource == "cpu":
        return "core-hours", 1000
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return "GiB-hours", _GIB
    return "hours", 1


def as_csv(told: Report, names: Sequence[str]) -> str:
    """Rows with a header; figures with six digits after the point."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["since", "until", *names, "resource", "unit", *_COLUMNS])
    for row in told.rows:
        figures = [getattr(row, name) for name in _COLUMNS]
        plain = ["" if value is None else f"{value:.6f}" for value in figures]
        writer.writerow([told.since, told.until, *(row.keys[name] for name in names), row.resource, row.unit, *plain])
    return text.getvalue()


def shown(told: Report, names: Sequence[str]) -> list[str]:
    """A table for people."""
    lines = [f"From {told.since} to {told.until}, in hours of each resource."]
    if told.recorded_since is None:
        return [*lines, "Nothing is recorded yet."]
    if told.recorded_since > told.since:
        lines.append(f"What was before {told.recorded_since} is not recorded.")
    if not told.rows:
        return [*lines, "No quota was held."]
    rows = [(*(name.upper() for name in names), "RESOURCE", "UNIT", *(name.upper() for name in _COLUMNS))]
    for row in told.rows:
        figures = ("-" if (value := getattr(row, name)) is None else f"{value:.2f}" for name in _COLUMNS)
        rows.append((*(row.keys[name] for name in names), row.resource, row.unit, *figures))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    text = len(names) + 2
    return [
        *lines,
        "",
        *(
            "  ".join(
                cell.ljust(width) if column < text else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ),
    ]
