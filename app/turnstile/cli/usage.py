"""`turnstile usage`: what was reserved, used, borrowed, lent and lost to preemption over time, as recorded."""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

import msgspec
import orjson
import typer

from turnstile.api.errors import InvalidValue
from turnstile.cli.cluster import Run
from turnstile.cli.connection import Where, namespace_of
from turnstile.cli.options import command
from turnstile.cli.recorded import OptionalRecorderPlace, point, recorded_answer
from turnstile.cli.say import say
from turnstile.cli.served import Question
from turnstile.recorder.location import Location
from turnstile.recorder.reading import reading
from turnstile.recorder.reports import BY, COLUMNS, Report, as_csv, fields, reports
from turnstile.recorder.scope import EVERYTHING

_HEADINGS: Final = {"preempted": "lost"}
"""Headings of columns for people, where they are not the names for programs."""


class Output(StrEnum):
    """How usage is printed."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"


def register(app: typer.Typer, run: Run, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @command(app, "usage")
    def usage(
        *,
        recorder: OptionalRecorderPlace = None,
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
        where: Where,
    ) -> None:
        """Report quota that was used, borrowed, lent and lost.

        Hours of each resource that were reserved, used, borrowed, lent and lost to preemption: the integral of what was
        recorded, exact to the second. Without --recorder the page in the cluster is asked, about one namespace. Exit
        code 0: reported; 2: unable.
        """
        now = clock()
        begin, end = point("--since", since, now), point("--until", until, now)
        names = fields(by, user_label)
        end = min(end, now)
        if end <= begin:
            cure = f"is not before --until, {end.isoformat()}: give an earlier one"
            raise InvalidValue("--since", begin.isoformat(), cure)
        if recorder is None:
            edges = {"since": [begin.isoformat()], "until": [end.isoformat()]}
            parts = {"by": [by], "userLabel": [user_label], "resource": [resource], **edges}
            question = Question("usage", namespace or namespace_of(where), parts)
            report = msgspec.json.decode(recorded_answer(run, where, question), type=Report)
        else:
            scope = EVERYTHING.within(namespace) if namespace else EVERYTHING
            span = (begin.timestamp(), end.timestamp())
            with reading(Location.of(recorder)) as reader:
                (report,) = reports(reader, names, span, user_label=user_label, scope=scope, resource=resource)
        match output:
            case Output.JSON:
                say(orjson.dumps(msgspec.to_builtins(report), option=orjson.OPT_INDENT_2).decode())
            case Output.CSV:
                say(as_csv([report], names), nl=False)
            case Output.TABLE:
                say("\n".join(shown(report, names)))


def shown(report: Report, names: Sequence[str]) -> list[str]:
    """A table for people."""
    lines = [f"From {report.since} to {report.until}, in hours of each resource."]
    if report.recorded_since is None:
        return [*lines, "Nothing is recorded yet."]
    if report.recorded_since > report.since:
        lines.append(f"What was before {report.recorded_since} is not recorded.")
    if not report.rows:
        return [*lines, "No quota was held."]
    rows = [
        (
            *(name.upper() for name in names),
            "RESOURCE",
            "UNIT",
            *(_HEADINGS.get(each, each).upper() for each in COLUMNS),
        )
    ]
    for row in report.rows:
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
