"""`turnstile check`: asks whether the installed release works; what `helm test` runs."""

from typing import Annotated, Final

import typer

from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Connection, connected
from turnstile.cli.options import command
from turnstile.cli.say import say
from turnstile.release.working import Answer, working

BROKEN: Final = 1
"""Exit code: a part does not work."""


def register(app: typer.Typer, run: Run) -> None:
    """Add the command to `app`."""

    @command(app, "check")
    def check(
        *,
        namespace: Annotated[str, typer.Option(help="Namespace of the release.")] = "turnstile-system",
        name: Annotated[str, typer.Option(help="Full name of the release; prefixes its objects.")] = "turnstile",
        timeout: Annotated[float, typer.Option(help="Seconds for a part to begin to work.", min=0.0)] = 60.0,
        where: Connection,
    ) -> None:
        """Check that the installed Turnstile works.

        Asks whether a process leads, whether the API server reaches the webhooks and trusts their certificate, and
        whether registered APIs are available. Nothing is written. Exit code 0: all works; 1: a part does not; 2: the
        cluster could not be asked.
        """

        async def work() -> list[Answer]:
            async with connected(where, "check") as transport:
                return await working(transport, name=name, namespace=namespace, timeout=timeout)

        with explained():
            answers: list[Answer] = run(work())
        for each in answers:
            say(f"{'ok' if each.works else 'FAILED':6} {each.part}: {each.says}")
        raise typer.Exit(0 if all(each.works for each in answers) else BROKEN)
