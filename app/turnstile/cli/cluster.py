"""Shared by commands that do one thing to a cluster and end: options, the connection, and how they fail."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from turnstile import __version__
from turnstile.api.errors import ApiError, InvalidValue, TurnstileError, WireError
from turnstile.cli.say import say

if TYPE_CHECKING:
    from turnstile.kube.transport import Transport

UNABLE: Final = 2
"""Exit code: the command could not do its work."""

Run = Callable[[Coroutine[Any, Any, Any]], Any]
"""Runs a coroutine to its end."""
Kubeconfig = Annotated[
    str | None,
    typer.Option(help="Kubeconfig file. Without it: $KUBECONFIG, the service account in a pod, ~/.kube/config."),
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig; its current context by default.")]


@asynccontextmanager
async def connected(kubeconfig: str | None, context: str | None, command: str) -> "AsyncIterator[Transport]":
    """A connection to the cluster for a command. A WireError of the block names the server."""
    from turnstile.kube.transport import Transport  # half a second of imports, for commands that have a cluster to ask

    agent = f"turnstile/{__version__} ({command})"
    async with await Transport.connect(kubeconfig, context, user_agent=agent) as transport:
        try:
            yield transport
        except WireError as error:
            raise WireError(f"no API server answers at {transport.server}: {error}") from error


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
