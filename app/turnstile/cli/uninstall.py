"""`turnstile uninstall`: takes Turnstile's marks off all objects of a cluster, before the chart's are deleted."""

from typing import Annotated, Final

import typer

from turnstile.cli.cluster import Run, explained
from turnstile.cli.connection import Connection, connected
from turnstile.cli.options import command
from turnstile.cli.say import say
from turnstile.release.leaving import Pending
from turnstile.release.uninstall import Uninstall

LEFT: Final = 1
"""Exit code: something is left."""


def register(app: typer.Typer, run: Run) -> None:
    """Add the command to `app`."""

    @command(app, "uninstall")
    def uninstall(
        *,
        namespace: Annotated[str, typer.Option(help="Namespace of the release.")] = "turnstile-system",
        name: Annotated[str, typer.Option(help="Full name of the release; prefixes its objects.")] = "turnstile",
        pending: Annotated[
            Pending, typer.Option(help="Start jobs that wait for quota, or keep them suspended and gated.")
        ] = Pending.START,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
        timeout: Annotated[float, typer.Option(help="Seconds for all of it.", min=1.0)] = 240.0,
        helm_release: Annotated[
            str, typer.Option(help="Do nothing unless this Helm release owns the objects; for the chart's hook.")
        ] = "",
        where: Connection,
    ) -> None:
        """Remove Turnstile's marks from all objects of a cluster.

        Removes webhooks and policies, stops the controller, and undoes gates, suspensions and finalizers. Afterwards
        everything can be created, run and deleted without Turnstile, and `helm uninstall` deletes the rest. Queues and
        Workloads stay. May be run again. Exit code 0: nothing is left; 1: something is; 2: it could not be done.
        """

        async def work() -> list[str] | None:
            async with connected(where, "uninstall") as transport:
                removal = Uninstall(
                    transport, name=name, namespace=namespace, pending=pending, dry_run=dry_run, say=say
                )
                if helm_release and await removal.owner() != helm_release:
                    return None
                return await removal.run(timeout)

        with explained():
            left: list[str] | None = run(work())
        if left is None:
            say(f"Helm release {helm_release} does not own {namespace}/{name}-controller: nothing is done")
            return
        for each in left:
            say(f"left: {each}", err=True)
        raise typer.Exit(LEFT if left else 0)
