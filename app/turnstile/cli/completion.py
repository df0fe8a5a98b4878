"""`turnstile completion`: what a shell reads so that Tab completes commands, options and names of objects."""

from enum import StrEnum
from typing import Annotated

import typer


class Shell(StrEnum):
    """Shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register(app: typer.Typer, program: str) -> None:
    """Add the command to `app`. `program` is the name under which the shell calls it."""

    @app.command()
    def completion(shell: Annotated[Shell, typer.Argument(help="The shell that reads it.")]) -> None:
        """Print the completion of a shell.

        bash: source <(turnstile completion bash). zsh: the same, after compinit. fish: turnstile completion fish |
        source. kubectl completes `kubectl turnstile` by itself, where its own completion is set up: it calls
        kubectl_complete-turnstile, which is installed beside kubectl-turnstile.
        """
        from typer.completion import get_completion_script  # type: ignore[attr-defined]

        from turnstile.cli.say import say

        say(get_completion_script(prog_name=program, complete_var=variable(program), shell=str(shell)))
        say(f"# {shell} completion of {program}")


def variable(program: str) -> str:
    """The variable of the environment by which a shell asks the program for completions."""
    return f"_{program.upper().replace('-', '_')}_COMPLETE"
