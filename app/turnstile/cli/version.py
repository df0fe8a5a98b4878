"""`turnstile version`, and `kubectl turnstile version`, which also tells what runs in the cluster."""

from typing import Any

import typer

from turnstile import __version__
from turnstile.cli.cluster import Run
from turnstile.cli.say import say


def register(app: typer.Typer, run: Run, program: str) -> None:
    """Add the command to `app`."""
    if program != "turnstile":
        _of_plugin(app, run)
        return

    @app.command()
    def version() -> None:
        """Print the version."""
        say(__version__)


def _of_plugin(app: typer.Typer, run: Run) -> None:
    from turnstile.api.errors import TurnstileError
    from turnstile.cli.connection import Where
    from turnstile.cli.options import command
    from turnstile.cli.queues.paths import path_of
    from turnstile.cli.queues.session import session

    async def images(where: Where) -> list[tuple[str, str]]:
        async with session(where, "version") as at:
            found, _ = await at.list_all(
                path_of("apps/v1", "deployments"), {"labelSelector": "app.kubernetes.io/name=turnstile"}
            )
            return [(_title(each), container["image"]) for each in found for container in _containers(each)]

    @command(app, "version")
    def _version(*, where: Where) -> None:
        """Print the version.

        That of this program, and the images of Turnstile in the cluster, as far as Deployments may be listed.
        """
        say(f"Client Version: {__version__}")
        try:
            found: list[tuple[str, str]] = run(images(where))
        except TurnstileError as error:
            say(f"warning: what runs in the cluster is not known: {error}", err=True)
            return
        for title, image in found:
            say(f"{title}: {image}")


def _title(deployment: dict[str, Any]) -> str:
    return f"{deployment['metadata']['namespace']}/{deployment['metadata']['name']}"


def _containers(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = deployment["spec"]["template"]["spec"]["containers"]
    return found
