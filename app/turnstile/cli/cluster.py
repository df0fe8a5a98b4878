"""Shared by commands that do one thing to a cluster and end: how they run, and how they fail."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from turnstile.api.errors import ApiError, InvalidValue, TurnstileError
from turnstile.cli.say import say

UNABLE: Final = 2
"""Exit code: the command could not do its work."""

Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine to its end."""
Kubeconfig = Annotated[
    str | None,
    typer.Option(help="Kubeconfig file. Without it: $KUBECONFIG, the service account in a pod, ~/.kube/config."),
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig; its current context by default.")]


@contextmanager
def explained() -> Iterator[None]:
    """End the command with one sentence and exit code 2 instead of an error of Turnstile."""
    try:
        yield
    except InvalidValue as error:
        sentence = f"{error.field} {error.value}: {error.cure}"
    except ApiError as error:
        sentence = f"the API server refuses: {error}"
    except TurnstileError as error:
        sentence = str(error)
    else:
        return
    say(f"error: {sentence}", err=True)
    raise typer.Exit(UNABLE)
