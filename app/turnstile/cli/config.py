"""`turnstile config`: checks a configuration file, and makes the chart's values of Kueue's."""

from pathlib import Path
from typing import Annotated

import typer

from turnstile.api.config import Loaded, Problem, of_release
from turnstile.api.config.takeover import take_over
from turnstile.api.errors import InvalidConfiguration, InvalidValue
from turnstile.cli.say import say
from turnstile.jobs import registry
from turnstile.process.configuration import read_configuration, text_of


def load_or_exit(path: Path | None, *, name: str, namespace: str, feature_gates: str = "") -> Loaded | None:
    """The configuration from a file, or from the feature gates alone; None if neither is given.

    Prints all faults, if any, and ends the process with exit code 1.
    """
    if path is None and not feature_gates:
        return None
    try:
        return read_configuration(path, name=name, namespace=namespace, feature_gates=feature_gates)
    except (InvalidConfiguration, InvalidValue) as error:
        _report(path, error)
    raise typer.Exit(1)


def _report(path: Path | None, error: InvalidConfiguration | InvalidValue) -> None:
    """Print what is wrong with a file."""
    if isinstance(error, InvalidValue):
        say(f"error: {error.value}: {error.cure}", err=True)
        return
    for problem in error.problems:
        say(f"error: {shown(path, problem)}", err=True)
    count = len(error.problems)
    say(f"{path or '--feature-gates'}: {count} error{'s'[: count != 1]}", err=True)


def register(app: typer.Typer) -> None:
    """Add the commands about configuration to `app`."""
    group = typer.Typer(help="Check and convert configuration files.", no_args_is_help=True)
    app.add_typer(group, name="config")

    @group.callback()
    def _config() -> None:
        """Check and convert configuration files."""

    @group.command()
    def check(
        file: Annotated[Path, typer.Argument(help="A config.kueue.x-k8s.io Configuration; - for standard input.")],
        *,
        name: Annotated[str, typer.Option(help="Full name of the release.")] = "turnstile",
        namespace: Annotated[str, typer.Option(help="Namespace of the release.")] = "turnstile-system",
        feature_gates: Annotated[str, typer.Option(help="As the flag of serve: A=true,B=false.")] = "",
    ) -> None:
        """Print what holds under FILE as YAML, and its warnings; or its faults, with exit code 1."""
        loaded = load_or_exit(file, name=name, namespace=namespace, feature_gates=feature_gates)
        assert loaded is not None
        say(loaded.text(), nl=False)
        for warning in loaded.warnings:
            say(f"warning: {shown(file, warning)}", err=True)

    @group.command()
    def convert(
        file: Annotated[
            Path,
            typer.Argument(help="Kueue's ConfigMap kueue-manager-config, or the file in it; - for standard input."),
        ],
        *,
        name: Annotated[str, typer.Option(help="Full name of the release.")] = "turnstile",
        namespace: Annotated[str, typer.Option(help="Namespace of the release.")] = "turnstile-system",
    ) -> None:
        """Print the values with which the chart does what Kueue's configuration says.

        Options that Turnstile does not know or has not built are left out, and named with their meaning. Exit code 0:
        the values say the same; 1: something was left out on which jobs may depend (the values are printed all the
        same); 2: there are no values, because FILE is not Kueue's configuration or has faults.
        """
        frameworks = [integration.framework for integration in registry.ALL]
        try:
            taken = take_over(text_of(file, "FILE"), installation=of_release(name, namespace), frameworks=frameworks)
        except (InvalidConfiguration, InvalidValue) as error:
            _report(file, error)
            raise typer.Exit(2) from None
        say(taken.text(), nl=False)
        for each in taken.without_effect:
            say(f"warning: {shown(file, each)}", err=True)
        for each in taken.left_out:
            say(f"left out: {shown(file, each)}", err=True)
        raise typer.Exit(1 if taken.left_out else 0)


def shown(file: Path | None, problem: Problem) -> str:
    """`file:line: path: what (cure)`, the format that editors parse."""
    place = f"{file}:{problem.line}" if file is not None and problem.line else str(file or "--feature-gates")
    about = f"{problem.path}: {problem.message}" if problem.path else problem.message
    return f"{place}: {about}" + (f" ({problem.cure})" if problem.cure else "")
