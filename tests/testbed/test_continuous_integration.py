"""`.ci/run` ends with 0 if all its steps do, and with the first step that fails otherwise."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"
EACH_CHANGE = ["venv", "lint", "types", "floors", "collect", "generate", "build", "test"]
EVERY_NIGHT = [
    "test-attacks",
    "test-clusters",
    "test-faults",
    "build-operators",
    "test-operators",
    "test-submitters",
    "test-browser",
    "test-peers",
    "test-image",
    "test-node",
    "run",
]


class Checkout:
    """An empty repository with the script, and a `make` that only writes down its targets."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "targets"
        self._programs = directory / "bin"
        self._programs.mkdir()
        (directory / ".ci").mkdir()
        shutil.copy(SCRIPT, directory / ".ci" / "run")
        subprocess.run(["git", "init", "--quiet", directory], check=True)
        for name in ("promtool", "buildah", "mmdebstrap", "chromium", "go", "apt-get"):
            self._program(name, "exit 0")
        self.failing("")

    def _program(self, name: str, line: str) -> None:
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)

    def failing(self, target: str) -> None:
        """Let this target fail."""
        self._program("make", f'echo "$1" >>"{self._log}"; [ "$1" != "{target}" ]')

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the script to its end."""
        env = {**os.environ, "PATH": f"{self._programs}:{os.environ['PATH']}"}
        command = ["bash", self._directory / ".ci" / "run", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)

    def targets(self) -> list[str]:
        """What was made, in order."""
        names = self._log.read_text().split() if self._log.exists() else []
        return [name for name in names if name != "--version"]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A checkout in which every step succeeds."""
    return Checkout(tmp_path)


def test_each_change(checkout: Checkout) -> None:
    """Without arguments the script runs the steps that each change must pass."""
    done = checkout.run()
    assert (done.returncode, checkout.targets()) == (0, EACH_CHANGE), done.stderr
    assert "==> all ok" in done.stdout


def test_every_night(checkout: Checkout) -> None:
    """With `--all` the long suites follow."""
    done = checkout.run("--all")
    assert (done.returncode, checkout.targets()) == (0, EACH_CHANGE + EVERY_NIGHT), done.stderr


@pytest.mark.parametrize("target", EACH_CHANGE)
def test_the_first_failure_ends_it(checkout: Checkout, target: str) -> None:
    """No step follows a step that failed, and the script ends with 1."""
    checkout.failing(target)
    done = checkout.run()
    assert done.returncode == 1
    assert checkout.targets() == EACH_CHANGE[: EACH_CHANGE.index(target) + 1]
    assert "FAILED" in done.stderr


def test_an_unknown_argument(checkout: Checkout) -> None:
    """An argument that the script does not know is refused before anything runs."""
    done = checkout.run("--everything")
    assert (done.returncode, checkout.targets()) == (2, [])
    assert "usage" in done.stderr
