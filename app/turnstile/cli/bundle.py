"""`turnstile bundle`: one file with what a bug report needs, without the names of other tenants."""

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from turnstile.api.errors import InvalidValue
from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Where, connected, namespace_of
from turnstile.cli.options import command
from turnstile.cli.recorded import OptionalRecorderPlace
from turnstile.cli.say import say
from turnstile.recorder.location import Location
from turnstile.release import bundle as bundles


def register(app: typer.Typer, run: Run, clock: Callable[[], datetime]) -> None:
    """Add the command to `app`."""

    @command(app, "bundle")
    def bundle(
        *,
        output: Annotated[
            Path, typer.Option("--output", "-o", help="File to write, a gzipped tar archive; - for standard output.")
        ] = Path("turnstile-bundle.tar.gz"),
        recorder: OptionalRecorderPlace = None,
        with_other_tenants: Annotated[
            bool,
            typer.Option(
                "--with-other-tenants",
                help="Show the names of other namespaces and of what is in them, instead of pseudonyms.",
            ),
        ] = False,
        release_namespace: Annotated[str, typer.Option(help="Namespace of the release.")] = "turnstile-system",
        release_name: Annotated[str, typer.Option(help="Full name of the release.")] = "turnstile",
        where: Where,
    ) -> None:
        """Collect the facts for a bug report into one file.

        In it are versions, configuration, queues, Workloads, metrics and timelines. It is about one namespace, whose
        names are shown as they are. With --recorder the timelines of that namespace are in it. Read with your rights;
        nothing is written to the cluster, and no Secret, image, command or environment is in it. It names what could
        not be read. Exit code 0: written; 2: unable.
        """

        namespace = namespace_of(where)

        async def collect() -> bundles.Parts:
            async with connected(where, "bundle") as transport:
                return await bundles.collect(
                    transport, release=release_name, release_namespace=release_namespace, namespace=namespace
                )

        with explained():
            parts: bundles.Parts = run(collect())
            if recorder is None:
                parts.missing["timelines"] = "no --recorder was given"
            else:
                try:
                    bundles.record(parts, Location.of(recorder), namespace)
                except InvalidValue as error:
                    parts.missing["timelines"] = f"{error.field} {error.value}: {error.cure}"
            data = bundles.archive(parts, namespace, clock(), with_other_tenants=with_other_tenants)
            if output == Path("-"):
                sys.stdout.buffer.write(data)
            else:
                bundles.write(output, data)
                say(f"{output} is written ({len(data)} bytes).")
        for what, why in sorted(parts.missing.items()):
            say(f"not in it: {what}: {why}", err=True)
