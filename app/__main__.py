"""The programs `turnstile` and `kubectl-turnstile`: one command line, of which each command imports only what it needs.

What `turnstile serve` runs is wired in `app.main`, which only that command imports: it is most of the package.
"""

from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from app.cli import commands

if TYPE_CHECKING:
    from app.cli.serve import Settings


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    import uvloop

    return uvloop.run(work)


def _serve(settings: "Settings") -> int:
    from app.main import run

    return run(settings)


def _now() -> datetime:
    return datetime.now(UTC)


def main() -> None:
    """Entry point of the `turnstile` command."""
    commands.create(serving=_serve, run=_run, clock=_now)()


def plugin() -> None:
    """Entry point of `kubectl turnstile`, which kubectl finds as `kubectl-turnstile` in the PATH."""
    commands.create(run=_run, clock=_now)(prog_name="kubectl turnstile")


if __name__ == "__main__":
    main()
