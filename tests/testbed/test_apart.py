"""What is done apart (testbed/apart.py) leaves nothing on this machine, however it ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import apart
from testbed.client import wait_until
from testbed.processes import wait_until_gone
from tests.documents import ROOT

pytestmark = pytest.mark.skipif(bool(apart.why_not()), reason=apart.why_not())

BUSY = """
ip link add apart-link type bridge
for hierarchy in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts); do mkdir $hierarchy/$TESTBED_CGROUP/below; done
setsid sleep 1000 &
echo started
"""


def begin(then: str) -> "subprocess.Popen[str]":
    """A command that makes a link, cgroups and a daemon, and then does that."""
    command = [sys.executable, "-m", "testbed.apart", "sh", "-c", BUSY + then]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def below(pid: int) -> list[int]:
    """All processes that descend from one."""
    children = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [*children, *(each for child in children for each in below(child))]


def assert_nothing_left(pid: int) -> None:
    """No link and no cgroup of the command with this process id."""
    assert not Path("/sys/class/net/apart-link").exists()
    assert list(Path("/sys/fs/cgroup").glob(f"**/turnstile-testbed-{pid}")) == []


def test_it_ends_by_itself() -> None:
    """Its exit code is passed on."""
    process = begin("exit 3")
    assert process.communicate(timeout=60) == ("", None)
    assert process.returncode == 3
    assert_nothing_left(process.pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_is_interrupted(number: signal.Signals) -> None:
    """By Ctrl-C, which reaches every process of the terminal, or by SIGTERM: daemons are gone too."""
    process = begin("sleep 1000")

    def both_sleep() -> bool:  # a shell that is about to start its command may miss the signal
        return [Path(f"/proc/{pid}/comm").read_text() for pid in below(process.pid)].count("sleep\n") == 2

    wait_until(both_sleep, timeout=30, describe=lambda: str(below(process.pid)))
    started = below(process.pid)
    os.killpg(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert wait_until_gone(started, timeout=10) == []
    assert_nothing_left(process.pid)


def test_what_a_kill_left_is_removed_by_the_next() -> None:
    """SIGKILL of the starter ends all processes; its cgroup stays until the next start."""
    process = begin("sleep 1000")
    started = below(process.pid)
    process.kill()
    process.communicate(timeout=60)
    assert wait_until_gone(started, timeout=10) == []
    assert begin("").communicate(timeout=60) == ("", None)
    assert_nothing_left(process.pid)
