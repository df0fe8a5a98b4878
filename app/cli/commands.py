"""The command line of `turnstile`: all its commands, given what runs them."""

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

import typer

from app import __version__
from app.cli import (
    backtest,
    bundle,
    config,
    explain,
    lint,
    preflight,
    replay,
    serve,
    timeline,
    uninstall,
    usage,
    web,
    what_if,
    when,
)
from app.cli.cluster import Run
from app.cli.serve import Settings


def create(*, serving: Callable[[Settings], int], run: Run, clock: Callable[[], datetime]) -> typer.Typer:
    """The application. `serving` runs the roles until they are stopped and returns the exit code."""
    app = typer.Typer(
        name="turnstile",
        help="A quota keeper for shared Kubernetes clusters.",
        no_args_is_help=True,
        add_completion=False,
    )

    def print_version(*, wanted: bool) -> None:
        if wanted:
            typer.echo(__version__)
            raise typer.Exit

    @app.callback()
    def _root(
        *,
        version: Annotated[
            bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
        ] = False,
    ) -> None:
        """A quota keeper for shared Kubernetes clusters that speaks Kueue's API."""

    @app.command()
    def version() -> None:
        """Print the version."""
        print_version(wanted=True)

    config.register(app)
    serve.register(app, serving)
    preflight.register(app, run, clock)
    explain.register(app, run, clock)
    lint.register(app, run)
    timeline.register(app)
    usage.register(app, clock)
    bundle.register(app, run, clock)
    replay.register(app)
    web.register(app, run, clock)
    what_if.register(app, run, clock)
    when.register(app, run, clock)
    backtest.register(app)
    uninstall.register(app, run)
    return app
