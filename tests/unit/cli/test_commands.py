"""The command line as a whole: each command is there, and costs only what it needs."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from turnstile.cli import commands

PROGRAMS = {name: Path(sys.executable).with_name(name) for name in ("turnstile", "kubectl-turnstile")}


def never(*_: Any) -> Any:
    """Called where nothing may be done."""
    raise AssertionError("something was done")


@pytest.mark.parametrize("entry", commands.COMMANDS, ids=lambda entry: entry.name)
def test_the_list_says_what_the_command_says(entry: commands.Entry) -> None:
    """The sentence in the list of commands is the first one of the command's own help."""
    command = commands.load(entry, {"run": never, "clock": never, "serving": never, "program": "turnstile"})
    assert command.help.splitlines()[0] == entry.help


def test_help_imports_no_command() -> None:
    """The list of commands is there at once: none of what commands need is imported for it."""
    code = (
        "import sys\n"
        "from turnstile.__main__ import main\n"
        "sys.argv = ['turnstile', '--help']\n"
        "try:\n    main()\n"
        "finally:\n    print(sorted(name for name in sys.modules if name.startswith(('turnstile', 'asyncio', 'rich'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    *_, imported = done.stdout.splitlines()
    assert (
        imported
        == "['turnstile', 'turnstile.__main__', 'turnstile.cli', 'turnstile.cli.commands', 'turnstile.cli.completion']"
    ), done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_both_programs_are_installed(program: str) -> None:
    """`turnstile` and the plug-in of kubectl print the same version."""
    done = subprocess.run([PROGRAMS[program], "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == commands.__version__


def test_the_plugin_serves_nothing() -> None:
    """`kubectl turnstile` has every command of `turnstile` but `serve`."""
    found = {}
    for name, serving in (("turnstile", never), ("plugin", None)):
        app = commands.create(run=never, clock=never, serving=serving)
        printed = CliRunner().invoke(app, ["--help"]).stdout.partition("Commands:\n")[2]
        found[name] = {line.split()[0] for line in printed.splitlines() if line.startswith("  ") and line[2] != " "}
    assert found["turnstile"] - found["plugin"] == {"serve"}
    assert found["plugin"] == {entry.name for entry in commands.COMMANDS} - {"serve"}
