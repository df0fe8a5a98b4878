"""The program says which version it is."""

import subprocess
import sys

import pytest

from turnstile import __version__


@pytest.mark.parametrize("argument", ["--version", "version"])
def test_the_version_is_printed(argument: str) -> None:
    """The option and the command print the version alone."""
    command = [sys.executable, "-m", "turnstile", argument]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, __version__)
