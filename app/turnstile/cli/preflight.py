"""`turnstile preflight`: looks at a cluster before the chart is installed or upgraded."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from turnstile.cli.answers import Output, Printed, say_document
from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Connection, connected
from turnstile.cli.options import command
from turnstile.cli.say import say
from turnstile.process.configuration import text_of
from turnstile.release.findings import Check, Finding, Level, ManagedNamespace, Report
from turnstile.release.manifests import Manifests
from turnstile.release.preflight import examine

DANGEROUS: Final = 1
"""Exit code: something is dangerous."""


async def _check(where: Connection, manifests: Manifests, now: datetime) -> Report:
    async with connected(where, "preflight") as transport:
        return await examine(transport, manifests, now=now)


def register(app: typer.Typer, run: Run, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @command(app, "preflight")
    def preflight(
        *,
        file: Annotated[
            Path,
            typer.Option(
                "--file",
                "-f",
                help="What `helm template RELEASE charts/turnstile --namespace NAMESPACE` prints, with the values"
                " of the release; - for standard input.",
            ),
        ],
        output: Printed = Output.TEXT,
        accept: Annotated[
            list[Check] | None,
            typer.Option(help="Check whose dangers are intended, and count as warnings. Repeatable."),
        ] = None,
        where: Connection,
    ) -> None:
        """Check a cluster before `helm install` or `helm upgrade`.

        Prints dangers, warnings, what will change, and the jobs of the namespaces that will be managed; nothing is
        written. Exit code 0: no danger (there may be warnings); 1: danger; 2: the cluster could not be looked at.
        """
        with explained():
            manifests = Manifests.parse(text_of(file, "--file"), str(file))
            report: Report = run(_check(where, manifests, clock()))
        report = report.accepting(accept or ())
        if output is Output.TEXT:
            say("\n".join(shown(report)))
        else:
            say_document(msgspec.to_builtins(report), output)
        raise typer.Exit(DANGEROUS if report.dangerous else 0)


def shown_findings(findings: Sequence[Finding]) -> Iterator[str]:
    """Two lines a finding, and an empty one after the last."""
    for finding in findings:
        yield f"{finding.level.upper():8} {finding.check}: {finding.says}"
        yield f"{'':8} -> {finding.cure}"
    if findings:
        yield ""


def shown(report: Report) -> Iterator[str]:
    """The report as lines for people."""
    what = f"upgrade of {report.installed}" if report.installed else "installation"
    yield f"{what}, release {report.release} in namespace {report.namespace}, on {report.server} ({report.version})"
    yield ""
    yield from shown_findings(report.findings)
    if report.changes:
        yield "What changes:"
        for change in report.changes:
            yield f"  {change.what}"
            if change.before:
                yield f"    - {change.before}"
            if change.after:
                yield f"    + {change.after}"
        yield ""
    if report.namespaces:
        yield "Namespaces that are managed, with their unfinished jobs:"
        yield from _table(report.namespaces)
    else:
        yield "No namespace is managed yet."
    yield ""
    counted = {level: sum(each.level is level for each in report.findings) for level in Level}
    yield f"{counted[Level.DANGER]} dangers, {counted[Level.WARNING]} warnings"


def _table(namespaces: tuple[ManagedNamespace, ...]) -> Iterator[str]:
    rows = [("NAMESPACE", "BEFORE", "AFTER", "KIND", "UNFINISHED", "MANAGED", "STOPPED")]
    for each in namespaces:
        managed = ("yes" if each.before else "no", "yes" if each.after else "no")
        for jobs in each.jobs:
            counts = (str(jobs.unfinished), str(jobs.taken), str(jobs.stopped))
            rows.append((each.name, *managed, jobs.resource, *counts))
        if not each.jobs:
            rows.append((each.name, *managed, "-", "0", "0", "0"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
