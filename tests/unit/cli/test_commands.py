"""The command line as a whole: each command is there, and costs only what it needs."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from turnstile.cli import commands
from turnstile.cli.groups import FLAGS

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
        == "['turnstile', 'turnstile.__main__', 'turnstile.cli', 'turnstile.cli.commands', 'turnstile.cli.completion',"
        " 'turnstile.cli.groups']"
    ), done.stderr


def test_a_controller_imports_nothing_of_the_page() -> None:
    """A third of what it imports, and ten megabytes, were FastAPI and the templates of the page."""
    code = (
        "import sys, turnstile.main\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('fastapi', 'jinja2')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


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
        printed = CliRunner().invoke(app, ["--help"]).stdout.partition("Your job:\n")[2].partition("\n\n  `")[0]
        found[name] = {line.split()[0] for line in printed.splitlines() if line.startswith("  ") and line[2] != " "}
    assert found["turnstile"] - found["plugin"] == {"serve"}
    assert found["plugin"] == {entry.name for entry in commands.COMMANDS} - {"serve"}


def test_help_groups_the_commands() -> None:
    """Each heading is followed by its commands, a line each on a terminal of 80 columns."""
    app = commands.create(run=never, clock=never, serving=never)
    printed = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    for title, entries in commands.GROUPS.items():
        lines = printed.partition(f"{title}:\n")[2].splitlines()[: len(entries)]
        assert [line.split(maxsplit=1) for line in lines] == [[entry.name, entry.help] for entry in entries]


@pytest.mark.parametrize(
    "words",
    ["-h", "help", "explain -h", "help explain", "help list workload", "-n x list -h"],
)
def test_help_as_people_ask_for_it(words: str) -> None:
    """`-h`, and `help` before a command."""
    app = commands.create(run=never, clock=never)
    asked = [word for word in words.split() if word not in ("-h", "help", "-n", "x")]
    done = CliRunner().invoke(app, words.split())
    assert (done.exit_code, done.stdout) == (0, CliRunner().invoke(app, [*asked, "--help"]).stdout)


@pytest.mark.parametrize(
    "words",
    ["-n x list wl -A", "list -n x wl -A", "list --namespace=x wl -A", "-A -n x list wl", "list -A -nx wl"],
)
def test_options_before_the_command(words: str) -> None:
    """Options that stand before a command or its subcommand are read as if they stood behind them."""
    asked = []

    def run(work: Any) -> None:
        asked.append(work.cr_frame.f_locals["where"])
        work.close()

    done = CliRunner().invoke(commands.create(run=run, clock=never), words.split(), catch_exceptions=False)
    assert (done.exit_code, [each.namespace for each in asked]) == (0, ["x"]), done.output


def _options(command: Any) -> Iterator[Any]:
    """All options of a command and its subcommands."""
    yield from (each for each in command.params if each.param_type_name == "option")
    for each in getattr(command, "commands", {}).values():
        yield from _options(each)


def test_flags_are_known() -> None:
    """Options without a value in every command are those in `FLAGS`: the word after another option is its value."""
    given = {"run": never, "clock": never, "serving": never, "program": "turnstile"}
    options = [each for entry in commands.COMMANDS for each in _options(commands.load(entry, given))]
    valued = {word for each in options if not each.is_flag for word in each.opts}
    assert {word for each in options if each.is_flag for word in each.opts} - valued == FLAGS
