"""A command that takes its time says what it waits for, to people only."""

import os
import pty
import subprocess
import sys
from collections.abc import Callable

CODE = """
import sys
from turnstile.cli.progress import progress
with progress("reading") as tell:
    tell("reading: 7")
    sys.stdin.readline()
print("done")
"""


def until(end: int, text: str) -> str:
    """What is shown at a terminal, up to a text."""
    seen = ""
    while text not in seen:
        seen += os.read(end, 1024).decode()
    return seen


def at_a_terminal(judge: Callable[[int], None]) -> str:
    """Run the code with standard error at a terminal, let it end after `judge`, and return its standard output."""
    end, theirs = pty.openpty()
    command = [sys.executable, "-c", CODE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        judge(end)
        out, _ = process.communicate("\n", timeout=30)
    os.close(end)
    return out


def test_it_is_said_at_a_terminal_and_taken_back() -> None:
    """After a second, and never on standard output."""

    def judge(end: int) -> None:
        assert until(end, "reading: 7 ...").startswith("\r\x1b[K")

    assert at_a_terminal(judge) == "done\n"


def test_nothing_is_said_elsewhere() -> None:
    """A log has no use for it."""
    done = subprocess.run([sys.executable, "-c", CODE], input="\n", capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("done\n", "")
