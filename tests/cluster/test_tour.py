"""The tour as a newcomer starts it: everything promised happens, and nothing is left running."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.acts import acts, invariants
from testbed.processes import wait_until_gone

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]


def start(*arguments: str) -> "subprocess.Popen[str]":
    """Start the tour in a process group of its own, as a terminal would."""
    return subprocess.Popen(
        [sys.executable, "-u", "-m", "testbed.tour", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )


def descendants(pid: int) -> list[int]:
    """Ids of all processes below this one."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(child): int(parent) for child, parent in (line.split() for line in listed.splitlines())}
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {pid})


def test_once_everything_promised_happens() -> None:
    """`--once` ends with 0, each promise ticked off."""
    promised = sum(len(act.promises) for act in acts()) + len(invariants())
    tour = start("--once")
    printed, _ = tour.communicate(timeout=230)
    assert tour.returncode == 0, printed
    assert "✗" not in printed
    assert len(re.findall(r"^ ✓ ", printed, re.MULTILINE)) == promised, printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(number: signal.Signals) -> None:
    """Ctrl-C, or a polite end, in the middle of the tour ends every process it started."""
    tour = start()
    assert tour.stdout is not None
    for line in tour.stdout:
        if "training starts on nodes" in line:
            break
    children = descendants(tour.pid)
    assert len(children) >= 6
    os.killpg(tour.pid, number)
    rest = tour.stdout.read()
    assert tour.wait(30) == 130, rest
    assert "nothing is left running" in rest
    assert wait_until_gone(children, timeout=10) == []
    tour.stdout.close()
