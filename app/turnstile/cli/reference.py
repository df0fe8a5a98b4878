"""Writes the reference of the command line from the commands: `python -m turnstile.cli.reference FILE`.

Must never be imported by what runs: it is a tool of the build.
"""

import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import typer

from turnstile.cli import commands
from turnstile.cli.connection import Connection

_HEADER: Final = """<!-- Generated from app/turnstile/cli by `make generate`; do not edit. -->

# Command line

`turnstile` and `kubectl turnstile` have the same commands, but only `turnstile` has `serve`, and only the latter's
`version` prints what runs in the cluster. `kubectl turnstile` does what `kueuectl` does, with the same names, options
and columns ([how it is installed, and what differs](../tasks/kubectl-plugin.md)).

Exit codes: 0 done; 1 not all of it, as the command says; 2 it could not be done, for the reason on standard error, or
the command line is wrong; 130 interrupted. Colours and the live view are for terminals only.
"""
_CONNECTION: Final = "Connection"
_ABOUT_CONNECTION: Final = """Which API server is asked, and as whom: kubectl's options, for every command that asks
one. They may also stand before the command. All of them override the kubeconfig."""
_NEVER: Final = dict.fromkeys(("run", "clock", "serving"), lambda *_: None)


def page() -> str:
    """The page."""
    parts = [_HEADER]
    for entry in sorted(commands.COMMANDS, key=lambda each: each.name):
        command = commands.load(entry, {**_NEVER, "program": "turnstile"})
        parts += _described(command, entry.name)
    workloads = commands.load(_entry("list"), _NEVER).commands["workload"]
    parts.append(f"\n## {_CONNECTION}\n\n{_ABOUT_CONNECTION}\n\n")
    parts += _table([each for each in workloads.params if each.name in _where()])
    return "".join(parts)


def _entry(name: str) -> commands.Entry:
    return next(each for each in commands.COMMANDS if each.name == name)


def _where() -> set[str]:
    return {each.name for each in fields(Connection)}


def _shared() -> set[tuple[str, str]]:
    """Name and help of the options of the connection: an option of the same name may be another one."""
    workloads = commands.load(_entry("list"), _NEVER).commands["workload"]
    return {(each.name, each.help) for each in workloads.params if each.name in _where()}


def _described(command: Any, title: str) -> Iterator[str]:
    """A command and its subcommands."""
    subcommands = getattr(command, "commands", {})
    yield f"\n## {title}\n\n" if " " not in title else f"\n### {title}\n\n"
    yield f"{_paragraphs(command.help or '')}\n"
    if subcommands:
        for name, each in subcommands.items():
            yield from _described(each, f"{title} {name}")
        return
    context = typer.Context(command, info_name=f"turnstile {title}")
    yield f"\n```\n{' '.join(command.get_usage(context).removeprefix('Usage: ').split())}\n```\n"
    connected = _where() <= {each.name for each in command.params}
    shared = _shared() if connected else set()
    own = [each for each in command.params if each.name != "help" and (each.name, each.help) not in shared]
    if own:
        yield "\n"
        yield from _table(own)
    if connected:
        yield f"\nand the options of the [connection](#{_CONNECTION.lower()}).\n"


def _paragraphs(text: str) -> str:
    """The help as Markdown: lines of a paragraph in one, as they are wrapped for terminals."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n")).strip()


def _table(parameters: list[Any]) -> Iterator[str]:
    yield "| | |\n|---|---|\n"
    for each in parameters:
        name = ", ".join(f"`{option}`" for option in each.opts) if each.param_type_name == "option" else ""
        name = name or f"`{(each.metavar or each.name).upper()}`"
        choices = [getattr(choice, "value", choice) for choice in each.type_descriptor.choices or ()]
        about = " ".join((each.help or "").split())
        if choices:
            about += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
        if each.default not in (None, "", False, ()) and not callable(each.default):
            about += f" By default `{getattr(each.default, 'value', each.default)}`."
        yield f"| {name} | {about.strip().replace('|', chr(92) + '|')} |\n"


def main() -> None:
    """Write the page to the file that is the first argument."""
    Path(sys.argv[1]).write_text(page())


if __name__ == "__main__":
    main()
