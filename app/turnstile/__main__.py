"""The programs `turnstile` and `kubectl-turnstile`: one command line, of which each command imports only what it needs.

The processes of `turnstile serve` are wired in `turnstile.main`, which only that command imports: it is most of the
package.
"""

import contextlib
import gc
import os
import shlex
import sys
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from turnstile.cli import commands
from turnstile.cli.completion import variable

if TYPE_CHECKING:
    from turnstile.process.settings import Settings

PLUGIN: Final = "kubectl-turnstile"


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    _collect()
    try:
        import uvloop
    except ModuleNotFoundError:  # only the extra `server` installs uvloop
        import asyncio

        return asyncio.run(work)
    return uvloop.run(work)


def _serve(settings: "Settings") -> int:
    from turnstile.api.errors import NotInstalled
    from turnstile.cli.cluster import explained

    with explained():
        try:
            from turnstile.main import run
        except ModuleNotFoundError as error:
            raise NotInstalled("turnstile serve", error) from None
    _collect()
    return run(settings)


def _collect() -> None:
    """Collect garbage from now on, but never among what was imported, which stays."""
    gc.freeze()
    gc.enable()


def _now() -> datetime:
    return datetime.now(UTC)


def _start(program: str, title: str, *, serving: bool) -> None:
    """Run the command line, or answer a shell that asks for completions.

    A command imports for most of a second, and a tenth of that was a search for garbage among what it had imported.
    """
    gc.disable()
    app = commands.create(run=_run, clock=_now, serving=_serve if serving else None, program=program)
    asks = variable(program)
    if asks in os.environ:
        from typer.completion import get_completion_inspect_parameters

        get_completion_inspect_parameters()  # makes the shells known, which is done at import otherwise
    app(prog_name=title, complete_var=asks)


def main() -> None:
    """Entry point of the `turnstile` command."""
    _start("turnstile", "turnstile", serving=True)


def plugin() -> None:
    """Entry point of `kubectl turnstile`, which kubectl finds as `kubectl-turnstile` in the PATH."""
    if sys.argv[1:2] == ["__complete"]:  # as kueuectl is asked
        _complete(sys.argv[2:])
    else:
        _start(PLUGIN, "kubectl turnstile", serving=False)


def complete() -> None:
    """Entry point of `kubectl_complete-turnstile`, which kubectl calls with the words after `kubectl turnstile`."""
    _complete(sys.argv[1:])


def _complete(words: list[str]) -> None:
    """Print completions of the last word, one a line, and then that it is no file (`:4`): what kubectl expects."""
    os.environ["COMP_WORDS"] = shlex.join([PLUGIN, *(words or [""])])
    os.environ["COMP_CWORD"] = str(len(words) or 1)
    os.environ[variable(PLUGIN)] = "complete_bash"
    with contextlib.suppress(SystemExit):
        _start(PLUGIN, PLUGIN, serving=False)
    print(":4")


if __name__ == "__main__":
    main()
