"""`turnstile usage`: what was reserved, used, borrowed, lent and lost to preemption over time, as recorded."""

import csv
import io
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec
import orjson
import typer

from app.cli.cluster import explained
from app.cli.recorded import RecorderPlace
from app.recorder.location import Location
from app.recorder.reading import reading
from app.recorder.report import BY, COLUMNS, Report, fields, point, report


class Output(StrEnum):
    """How usage is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def register(app: typer.Typer, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @app.command()
    def usage(
        *,
        recorder: RecorderPlace,
        by: Annotated[
            str, typer.Option(help=f"One or several of {', '.join(BY)}, with commas: a row for each, and resource.")
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


def as_csv(told: Report, names: Sequence[str]) -> str:
    """Rows with a header; figures with six digits after the point."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["since", "until", *names, "resource", "unit", *COLUMNS])
    for row in told.rows:
        figures = [getattr(row, name) for name in COLUMNS]
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
    rows = [(*(name.upper() for name in names), "RESOURCE", "UNIT", *(name.upper() for name in COLUMNS))]
    for row in told.rows:
        figures = ("-" if (value := getattr(row, name)) is None else f"{value:.2f}" for name in COLUMNS)
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
