"""The tour as a newcomer starts it: everything promised happens, and nothing is left running."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from testbed.acts import acts, invariants
from testbed.processes import wait_until_gone

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(360)]

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


def test_everything_promised_happens_and_nothing_is_left_running() -> None:
    """Each promise is ticked off; then the tour stays, its page is served at the address that it prints, and Ctrl-C
    ends it and every process that it started."""
    promised = sum(len(act.promises) + len(act.questions) for act in acts()) + len(invariants())
    tour = start("--promises")
    printed = read_until(tour, "Ctrl-C ends everything")
    assert "✗" not in printed
    assert len(re.findall(r"^ ✓ ", printed, re.MULTILINE)) == promised, printed
    assert f"{promised} of {promised} promises kept" in printed
    address = re.search(r"^  (http\S+)$", printed, re.MULTILINE)
    assert address is not None, printed
    assert "<h1>Quotas</h1>" in page_at(address[1])
    end(tour, signal.SIGINT, code=0)


def test_a_polite_end_in_the_middle_leaves_nothing_behind() -> None:
    """SIGTERM before all promises were checked ends every process too; the exit code says that it was cut short."""
    tour = start()
    read_until(tour, "training starts on nodes")
    end(tour, signal.SIGTERM, code=130)


def page_at(address: str) -> str:
    """What a browser gets at an address with a token, which is exchanged for a cookie."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(address, timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def read_until(tour: "subprocess.Popen[str]", words: str) -> str:
    """What the tour prints, up to the line with these words."""
    assert tour.stdout is not None
    printed = ""
    for line in tour.stdout:
        printed += line
        if words in line:
            return printed
    raise AssertionError(f"{words!r} was not printed:\n{printed}")


def end(tour: "subprocess.Popen[str]", number: signal.Signals, *, code: int) -> None:
    """Signal the tour as a terminal would, and see that all is gone."""
    assert tour.stdout is not None
    children = descendants(tour.pid)
    assert len(children) >= 6
    os.killpg(tour.pid, number)
    rest = tour.stdout.read()
    assert tour.wait(30) == code, rest
    assert "nothing is left running" in rest
    assert wait_until_gone(children, timeout=10) == []
    tour.stdout.close()
