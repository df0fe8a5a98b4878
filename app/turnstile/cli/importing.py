"""`turnstile import`: brings jobs that run without a queue under queues, without a restart."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from turnstile.api.errors import InvalidValue
from turnstile.cli.answers import Output, Printed, say_document
from turnstile.cli.asking import ConfigFile, Source
from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Connection, Where, connected, namespace_of
from turnstile.cli.options import command
from turnstile.cli.preflight import shown_findings
from turnstile.cli.queues import names
from turnstile.cli.say import say
from turnstile.process.configuration import text_of
from turnstile.release.findings import Level
from turnstile.release.importing import Wanted, bring_in
from turnstile.release.imports import Charge, Import, Report
from turnstile.release.queuemapping import QueueMapping

LEFT: Final = 1
"""Exit code: a running job is not imported."""
_ONE_WAY: Final = "give --queue, or --queuelabel with --queuemapping, or --queuemapping-file"


def register(app: typer.Typer, run: Run, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @command(app, "import")
    def importing(
        *,
        namespace: Annotated[
            list[str] | None,
            typer.Option(
                "--namespace",
                "-n",
                help="Namespaces, with commas between them. Repeatable. By default that of the context.",
                autocompletion=names.namespaces,
            ),
        ] = None,
        all_namespaces: Annotated[
            bool, typer.Option("--all-namespaces", "-A", help="The jobs of all namespaces.")
        ] = False,
        selector: Annotated[str, typer.Option("--selector", "-l", help="Label selector of the jobs and pods.")] = "",
        queue: Annotated[str, typer.Option(help="LocalQueue of all of them.")] = "",
        queuelabel: Annotated[str, typer.Option(help="Label whose value says the LocalQueue, by --queuemapping.")] = "",
        queuemapping: Annotated[
            list[str] | None,
            typer.Option(metavar="VALUE=QUEUE", help="LocalQueue of a value, several with commas. Repeatable."),
        ] = None,
        queuemapping_file: Annotated[
            Path | None,
            typer.Option(help="Rules in YAML: match by labels, PriorityClass and resources; - for standard input."),
        ] = None,
        apply: Annotated[bool, typer.Option("--apply", help="Write it. Without, nothing is written.")] = False,
        config: ConfigFile = None,
        output: Printed = Output.TEXT,
        where: Connection,
    ) -> None:
        """Bring running jobs and pods under queues, without a restart.

        For a cluster whose jobs run without queues. Prints, for each running job, its queue, the flavor of the nodes
        that it runs on and what it is charged for, or why it cannot be imported and the cure. With --apply each gets an
        admitted Workload; nothing is suspended, evicted or restarted. Exit code 0: all are imported, or would be; 1:
        some are not; 2: the cluster could not be read.
        """
        with explained():
            source, mapping = Source(None, config, where), _mapping(queue, queuelabel, queuemapping, queuemapping_file)
            registry, options = source.jobs()
            named = [each for text in namespace or () for each in text.split(",") if each]
            wanted = Wanted(
                namespaces=() if all_namespaces else named or [namespace_of(_placed(where))],
                selector=selector,
                mapping=mapping,
                registry=registry,
                options=options,
                engine=source.options(),
                apply=apply,
            )

            async def work() -> Report:
                async with connected(where, "import") as transport:
                    return await bring_in(transport, wanted, clock)

            report: Report = run(work())
        if output is Output.TEXT:
            say("\n".join(shown(report)))
        else:
            say_document(msgspec.to_builtins(report), output)
        raise typer.Exit(LEFT if report.dangerous else 0)


def _placed(where: Connection) -> Where:
    return Where(**{name: getattr(where, name) for name in where.__dataclass_fields__})


def _mapping(queue: str, label: str, pairs: list[str] | None, file: Path | None) -> QueueMapping:
    """The rules that the options state; they must state them in exactly one of the three ways."""
    given = [bool(queue), bool(label or pairs), file is not None]
    if sum(given) != 1:
        raise InvalidValue("--queue", queue or "(none)", _ONE_WAY)
    if file is not None:
        return QueueMapping.parse(text_of(file, "--queuemapping-file"), str(file))
    if queue:
        return QueueMapping.to(queue)
    if not (label and pairs):
        raise InvalidValue("--queuelabel", label or "(none)", "give --queuelabel and --queuemapping together")
    return QueueMapping.of_pairs(label, pairs)


def shown(report: Report) -> Iterator[str]:
    """The report as lines for people."""
    yield f"import of running jobs on {report.server}" + ("" if report.applied else ": dry run, nothing is written")
    yield ""
    yield from shown_findings(report.findings)
    if report.jobs:
        yield from _table(report)
        yield ""
    done = sum(each.imported for each in report.jobs)
    refused = sum(each.level is Level.DANGER for each in report.findings)
    counted = f"{done} imported" if report.applied else f"{len(report.jobs)} would be imported"
    yield f"{counted}, {refused} cannot be, {report.queued} have a Workload already, {report.skipped} are skipped"
    if report.jobs and not report.applied:
        yield "To write it, give --apply."


def _table(report: Report) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("NAMESPACE", "JOB", "PODS", "QUEUE", "CLUSTERQUEUE", "CHARGED", "WORKLOAD")]
    rows += [_row(each, applied=report.applied) for each in report.jobs]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(each: Import, *, applied: bool) -> tuple[str, ...]:
    workload = each.workload if each.imported or not applied else "-"
    job = f"{each.kind.lower()}/{each.name}"
    return each.namespace, job, str(each.pods), each.local_queue, each.cluster_queue, _charged(each.charges), workload


def _charged(charges: tuple[Charge, ...]) -> str:
    """Amounts by flavor: `any-node: cpu 2, memory 1Gi`."""
    parts = []
    for flavor, of_flavor in groupby(charges, key=lambda each: each.flavor):
        parts.append(f"{flavor}: {', '.join(f'{each.resource} {each.amount}' for each in of_flavor)}")
    return "; ".join(parts) or "nothing"
