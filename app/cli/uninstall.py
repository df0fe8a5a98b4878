"""`turnstile uninstall`: takes Turnstile's marks off all objects of a cluster, before the chart's are deleted."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final

import typer

from app import __version__
from app.api.errors import InvalidValue, TurnstileError, WireError
from app.kube.transport import Transport
from app.release.leaving import Pending
from app.release.uninstall import Uninstall

LEFT: Final = 1
"""Exit code: something is left."""
UNABLE: Final = 2
"""Exit code: it could not be begun, or a controller does not stop."""

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def register(app: typer.Typer, run: Run) -> None:
    """Add the command to `app`. `run` runs a coroutine to its end."""

    @app.command()
    def uninstall(
        *,
        namespace: Annotated[str, typer.Option(help="Namespace of the release.")] = "turnstile-system",
        name: Annotated[str, typer.Option(help="Full name of the release; prefixes its objects.")] = "turnstile",
        pending: Annotated[
            Pending, typer.Option(help="Start jobs that wait for quota, or keep them suspended and gated.")
        ] = Pending.START,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")] = False,
        timeout: Annotated[float, typer.Option(help="Seconds for all of it.", min=1.0)] = 240.0,
        kubeconfig: Annotated[
            str | None,
            typer.Option(help="Kubeconfig file. Without it: $KUBECONFIG, a pod's service account, ~/.kube/config."),
        ] = None,
        context: Annotated[
            str | None, typer.Option(help="Context of the kubeconfig; its current context by default.")
        ] = None,
        helm_release: Annotated[
            str, typer.Option(help="Do nothing unless this Helm release owns the objects; for the chart's hook.")
        ] = "",
    ) -> None:
        """Remove Turnstile's webhooks and policies, stop its controller, and undo gates, suspensions and finalizers.

        Afterwards everything can be created, run and deleted without Turnstile, and `helm uninstall` deletes the rest.
        Queues and Workloads stay. May be run again. Exit code 0: nothing is left; 1: something is; 2: it could not be
        done.
        """

        async def work() -> list[str] | None:
            agent = f"turnstile/{__version__} (uninstall)"
            async with await Transport.connect(kubeconfig, context, user_agent=agent) as transport:
                removal = Uninstall(
                    transport, name=name, namespace=namespace, pending=pending, dry_run=dry_run, say=typer.echo
                )
                if helm_release and await removal.owner() != helm_release:
                    return None
                return await removal.run(timeout)

        try:
            left: list[str] | None = run(work())
        except WireError as error:
            _fail(f"no API server answers: {error}")
        except InvalidValue as error:
            _fail(f"{error.field} {error.value}: {error.cure}")
        except TurnstileError as error:
            _fail(str(error))
        if left is None:
            typer.echo(f"Helm release {helm_release} does not own {namespace}/{name}-controller: nothing is done")
            return
        for each in left:
            typer.echo(f"left: {each}", err=True)
        raise typer.Exit(LEFT if left else 0)


def _fail(sentence: str) -> None:
    typer.echo(f"error: {sentence}", err=True)
    raise typer.Exit(UNABLE)
