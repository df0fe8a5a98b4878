"""`turnstile config check` for people and for pipelines."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from tests.unit.config.files import HEAD
from turnstile.cli import commands


def check(*arguments: str, text: str = "") -> Result:
    """Run the command, which asks no cluster."""
    app = commands.create(run=never, clock=never, serving=never)
    return CliRunner().invoke(app, ["config", "check", *arguments], input=text)


def never(*_: Any) -> Any:
    """Called where nothing may be done."""
    raise AssertionError("something was done")


def test_a_file_that_holds(tmp_path: Path) -> None:
    """What holds goes to standard output, warnings beside it."""
    file = tmp_path / "config.yaml"
    file.write_text(HEAD + "clientConnection: {qps: 50}\nintegrations: {frameworks: [pod]}\n")
    answer = check(str(file), "--namespace", "quota", "--name", "gate")
    assert answer.exit_code == 0
    effective = yaml.safe_load(answer.stdout)
    assert (effective["namespace"], effective["leaderElection"]["resourceName"]) == ("quota", "gate-controller")
    assert answer.stderr.startswith(f"warning: {file}:3: clientConnection: has no effect")


def test_a_file_with_faults() -> None:
    """Every fault with its line, and exit code 1; nothing that looks like a configuration."""
    answer = check("-", text=HEAD + "wrong: 1\nmultiKueue: {}\n")
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert "error: -:3: wrong: unknown field" in answer.stderr
    assert answer.stderr.endswith("-: 1 error\n")


@pytest.mark.parametrize("name", ["absent.yaml", ""])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str) -> None:
    """A missing file and a directory are no tracebacks."""
    answer = check(str(tmp_path / name))
    assert answer.exit_code == 1
    assert "cannot be read" in answer.stderr
