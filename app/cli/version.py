"""`turnstile version`: prints the version of the program."""

import typer

from app import __version__


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""

    @app.command()
    def version() -> None:
        """Print the version."""
        typer.echo(__version__)
